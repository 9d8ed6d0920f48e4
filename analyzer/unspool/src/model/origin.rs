//! The thread function of a thread whose creation was not seen, told from its stack.

use super::backtrace::{Backtrace, NamedFrame, Place};
use crate::c_library::has_threads;

/// Functions of C libraries in which every created thread begins, outside its thread function.
const STARTERS: &[&str] = &[
    "start_thread",
    "clone",
    "clone3",
    "__clone",
    "__clone3",
    "__clone_internal",
    "__thread_start",
    "thread_start",
    "start",
    "start_c11",
];
/// Functions in which a program's first thread begins.
const ENTRIES: &[&str] = &[
    "_start",
    "__start",
    "_start_c",
    "__libc_start_main",
    "__libc_start_main_impl",
    "__libc_start_call_main",
    "libc_start_main_stage2",
];

/// The place of the function just inside the C library's thread start code; of a C++ thread whose stripped library has no name for
/// that, of the function that it was made for.
pub(super) fn thread_function(stack: &Backtrace) -> Option<Place> {
    let frames: Vec<&NamedFrame> = stack.physical().collect();
    let inner = inside(&frames, stack.truncated.is_none())?;
    let mut frame = *frames.get(inner)?;
    let mut inlined = None;
    if is_nameless_start(&frame.place) {
        let mut all = stack.frames.iter();
        let within = &stack.frames[..all.position(|other| std::ptr::eq(other, frame))?];
        let called = within[..runtime(within).unwrap_or(within.len())].last()?;
        let state = within.last()?;
        inlined = state.place.function.as_deref().and_then(callable);
        // It has a frame of its own.
        let own = |name: &str| name.contains("::operator()");
        let seen = called.place.function.as_deref().is_some_and(own);
        frame = if inlined.is_some() && !seen {
            state
        } else {
            called
        };
        inlined = inlined.filter(|_| !seen);
    }
    let start = frame.place.function_svma()?;
    let back = frame.place.svma? - start;
    Some(Place {
        function: inlined.map_or_else(|| frame.place.function.clone(), |name| Some(name.into())),
        offset: 0,
        module: frame.place.module.clone(),
        link: frame.place.link.clone(),
        svma: Some(start),
        avma: frame.place.avma.wrapping_sub(back),
        file: frame.place.file.clone(),
        line: None,
    })
}

/// Number of outermost frames (inlined ones included) that are start code of the C library and of the
/// language's runtime: in every stack, and of no interest to a reader.
pub(crate) fn start_code(stack: &Backtrace) -> usize {
    let frames: Vec<&NamedFrame> = stack.physical().collect();
    let mut keep = stack.frames.len();
    if let Some(inner) = inside(&frames, stack.truncated.is_none()) {
        let physical = stack
            .frames
            .iter()
            .enumerate()
            .filter(|(_, frame)| !frame.inlined);
        keep = physical.map(|(at, _)| at + 1).nth(inner).unwrap_or(keep);
    }
    stack.frames.len() - runtime(&stack.frames[..keep]).unwrap_or(keep)
}

/// Index of the first frame of a language's start code, just outside the first function people wrote.
fn runtime(frames: &[NamedFrame]) -> Option<usize> {
    let name = |at: usize| frames[at].place.function.as_deref().unwrap_or_default();
    // Rust marks the place for its own backtraces; libstdc++ calls what a thread runs from `_M_run`.
    let marks = |name: &str| {
        name.contains("__rust_begin_short_backtrace")
            || (name.starts_with("std::thread::_State_impl<") && name.contains("::_M_run"))
    };
    let calls = |name: &str| {
        name.contains("::FnOnce<")
            || name.starts_with("core::ops::function::FnOnce::call_once")
            || name.contains("std::__invoke")
            || name.starts_with("std::thread::_Invoker<")
    };
    // The innermost mark: whatever called a thread's or main's first function comes once.
    let mut first = (0..frames.len()).find(|at| marks(name(*at)))?;
    while first > 0 && calls(name(first - 1)) {
        first -= 1;
    }
    (first > 0).then_some(first)
}

/// Whether a stack comes from libstdc++'s start code, which has no name, that begins at `start`.
pub(super) fn began_at(stack: &Backtrace, start: &Place) -> bool {
    let frames: Vec<&NamedFrame> = stack.physical().collect();
    let outermost = inside(&frames, stack.truncated.is_none()).and_then(|at| frames.get(at));
    let reached = |place: &Place| Some(place.svma?.checked_sub(start.svma?)? < SMALL);
    is_nameless_start(start)
        && outermost.is_some_and(|frame| {
            is_nameless_start(&frame.place)
                && frame.place.module_name() == start.module_name()
                && reached(&frame.place) == Some(true)
        })
}

/// Of a function that does little more than to call another.
const SMALL: u64 = 256;

/// What `std::thread::_State_impl<std::thread::_Invoker<std::tuple<F, ...> > >::_M_run` calls, and often has inlined, if its type
/// tells: a lambda or another object. A pointer's type does not.
fn callable(state: &str) -> Option<&str> {
    let (_, inner) = state
        .starts_with("std::thread::_State_impl<")
        .then(|| state.split_once("std::tuple<"))??;
    first_argument(inner)
}

fn first_argument(list: &str) -> Option<&str> {
    let mut depth = 0u32;
    let end = list.find(|c: char| {
        match c {
            '<' | '(' | '{' => depth += 1,
            '>' | ')' | '}' if depth > 0 => depth -= 1,
            '>' | ',' => return depth == 0,
            _ => {}
        }
        false
    })?;
    let callable = list[..end].trim();
    // std::async's own, around what it was given.
    if let Some((before, inner)) = callable.split_once("std::tuple<")
        && before.contains("std::__future_base::")
    {
        return first_argument(inner);
    }
    let is_pointer = callable.contains("*)") && !callable.ends_with('}');
    (!is_pointer && !callable.is_empty()).then_some(callable)
}

/// Where libstdc++ begins its threads, `execute_native_thread_routine`, is not exported.
fn is_nameless_start(place: &Place) -> bool {
    let module = place.module.as_deref().unwrap_or_default();
    let file = module.rsplit('/').next().unwrap_or(module);
    place.function.is_none() && file.starts_with("libstdc++.so")
}

/// Index of the innermost physical frame that is not start code, if there is start code.
fn inside(frames: &[&NamedFrame], complete: bool) -> Option<usize> {
    let mut end = frames.len();
    while end > 0 && is_start_code(frames, end - 1, complete) {
        end -= 1;
    }
    (end < frames.len()).then(|| end.checked_sub(1)).flatten()
}

fn is_start_code(frames: &[&NamedFrame], index: usize, complete: bool) -> bool {
    let place = &frames[index].place;
    let in_libc = place.module.as_deref().is_some_and(has_threads);
    match place.function.as_deref() {
        Some(name) if STARTERS.contains(&name) || ENTRIES.contains(&name) => {
            // `start` and the like are common names outside a C library.
            in_libc || name.starts_with('_') || name == "start_thread" || name.starts_with("clone")
        }
        // Stripped: in a stack that is complete, libc's outermost frames are its start code.
        None => complete && in_libc && index + 3 >= frames.len(),
        Some(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_state_of_a_cxx_thread_calls() {
        let state = |tuple: &str| {
            format!(
                "std::thread::_State_impl<std::thread::_Invoker<std::tuple<{tuple}> > >::_M_run"
            )
        };
        let nested = "std::__future_base::_Async_state_impl<std::thread::_Invoker<std::tuple<main::{lambda()#2}> >, \
                      int>::_Async_state_impl(std::tuple<main::{lambda()#2}>&&)::{lambda()#1}";
        let member = "void (std::__future_base::_Async_state_impl<std::thread::_Invoker<std::tuple<main()::<lambda()> > >, \
                      int>::*)(), std::__future_base::_Async_state_impl<int>*";
        for (tuple, called) in [
            ("main::{lambda()#1}", Some("main::{lambda()#1}")),
            (
                "Pool::start(int, char)::{lambda(int)#1}, int",
                Some("Pool::start(int, char)::{lambda(int)#1}"),
            ),
            (
                "run(void (*)(int))::{lambda()#1}",
                Some("run(void (*)(int))::{lambda()#1}"),
            ),
            (
                "Worker<int, std::less<int> >, long",
                Some("Worker<int, std::less<int> >"),
            ),
            ("void (*)(int), int", None),
            ("void (Pool::*)(int), Pool*, int", None),
            (nested, Some("main::{lambda()#2}")),
            (member, Some("main()::<lambda()>")),
        ] {
            assert_eq!(callable(&state(tuple)), called, "{tuple}");
        }
        assert_eq!(callable("work(std::tuple<main::{lambda()#1}>)"), None);
        assert_eq!(callable("std::thread::_State_impl<std::tuple<x"), None);
    }
}
