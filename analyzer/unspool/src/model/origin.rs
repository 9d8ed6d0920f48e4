//! Finds the thread function by the stack, for threads whose creation was not recorded.

use std::sync::Arc;

use super::backtrace::{Backtrace, NamedFrame, Place};
use super::cxx;
use crate::platform::c_library::has_threads;

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

/// True for functions of the C library in which every thread begins.
pub(super) fn begins_threads(function: &str) -> bool {
    STARTERS.contains(&function) || ENTRIES.contains(&function)
}

/// The function just inside the C library's thread start code; for a C++ thread, its callable.
/// `start_at` finds the start of a function without a symbol, by an address in it.
pub(super) fn thread_function(
    stack: &Backtrace,
    start_at: &mut dyn FnMut(u64) -> Option<Place>,
) -> Option<Place> {
    let frames: Vec<&NamedFrame> = stack.physical().collect();
    let inner = inside(&frames, stack.truncated.is_none())?;
    let mut frame = *frames.get(inner)?;
    let mut object = None;
    if cxx::is_start(&frame.place) {
        let mut all = stack.frames.iter();
        let within = &stack.frames[..all.position(|other| std::ptr::eq(other, frame))?];
        let called = within[..runtime(within).unwrap_or(within.len())].last()?;
        let state = within.last()?;
        // A called object has a frame of its own, or is inlined.
        let own = called.place.function.as_deref().unwrap_or_default();
        let own = format!("::{own}");
        let own = own.rsplit_once("::operator()").map(|(object, _)| object);
        let stated = state.place.function.as_deref().and_then(cxx::callable);
        frame = if own.is_none() && stated.is_some() {
            state
        } else {
            called
        };
        let own = own.and_then(|object| object.strip_prefix("::"));
        object = stated.or(own).map(Arc::from);
    }
    let Some(start) = frame.place.start() else {
        // A return address may be the next function's start.
        let is_innermost = std::ptr::eq(frame, *frames.first()?);
        return start_at(frame.place.avma - u64::from(!is_innermost));
    };
    Some(Place {
        function: object.or(start.function),
        ..start
    })
}

/// Number of outermost frames, inlined ones included, that are start code of the C library or the
/// language runtime. They are in every stack, and of no interest to a reader.
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

/// Index of the innermost frame of the language's start code: the caller of the program's outermost
/// function.
fn runtime(frames: &[NamedFrame]) -> Option<usize> {
    let name = |at: usize| frames[at].place.function.as_deref().unwrap_or_default();
    // Rust marks this frame for its own backtraces. libstdc++ calls a thread's function from
    // `_M_run`.
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
    // The innermost mark counts, because the caller of the first function occurs once.
    let mut first = (0..frames.len()).find(|at| marks(name(*at)))?;
    while first > 0 && calls(name(first - 1)) {
        first -= 1;
    }
    (first > 0).then_some(first)
}

/// True if a stack comes from libstdc++'s start code, which begins at `start`.
pub(super) fn began_at(stack: &Backtrace, start: &Place) -> bool {
    let frames: Vec<&NamedFrame> = stack.physical().collect();
    let outermost = inside(&frames, stack.truncated.is_none()).and_then(|at| frames.get(at));
    let reached = |place: &Place| Some(place.svma?.checked_sub(start.svma?)? < SMALL);
    cxx::is_start(start)
        && outermost.is_some_and(|frame| {
            cxx::is_start(&frame.place)
                && frame.place.module_name() == start.module_name()
                && reached(&frame.place) == Some(true)
        })
}

/// Maximum size of a function that does little more than call another.
const SMALL: u64 = 256;

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
        Some(name) if ENTRIES.contains(&name) => true,
        Some(name) if STARTERS.contains(&name) => {
            // `start` and the like are common names outside a C library, but only a library's is
            // called by `__clone`.
            let outside = frames.get(index + 1);
            let outside = outside.and_then(|frame| frame.place.function.as_deref());
            let own = name.starts_with('_') || name == "start_thread" || name.starts_with("clone");
            in_libc || own || outside == Some("__clone")
        }
        // In a complete stack of stripped code, libc's outermost frames are its start code.
        None => complete && in_libc && index + 3 >= frames.len(),
        // musl's assembly gives functions no end, so `__clone` appears under the name of an earlier
        // exported function.
        Some(_) => complete && in_libc && index + 1 == frames.len(),
    }
}
