//! Finds the function that a C++ thread runs. libstdc++ starts all threads in one function of its
//! own, whose argument is an object with the callable and its arguments (`bits/std_thread.h`):
//!
//! ```text
//! std::thread::_State_impl<std::thread::_Invoker<std::tuple<F, A1, ..., An> > >
//!
//! object   | vtable | An | ... | A1 | F |             std::tuple stores its elements last first,
//!                                                     each aligned as its type is
//! vtable   | destructor | deleting destructor | _M_run |     calls F(A1, ..., An)
//! ```
//!
//! Separate from [`super::origin`], which reads stacks: a recorded creation has only this object.

use super::backtrace::{Frames, Place, base_name};

/// `_M_run` in the vtable.
const RUN: u64 = 2;

/// True for libstdc++'s start function, which has no name in a stripped library.
pub(super) fn is_start(place: &Place) -> bool {
    let module = base_name(place.module.as_deref().unwrap_or_default());
    match place.function.as_deref() {
        Some(name) => name == "execute_native_thread_routine",
        None => module.starts_with("libstdc++.so"),
    }
}

/// Finds the function that the thread of a recorded creation calls, from its object's first bytes.
///
/// It is F if F is a function. It is `_M_run`, under the name of its callable, if F is an object or
/// if the function is unknown. Pointers have `size` bytes. Bit 0 of a pointer to `thumb` code is
/// not part of the address.
pub(super) fn made_for(
    frames: &mut dyn Frames,
    record: usize,
    object: &[u8],
    size: usize,
    thumb: bool,
) -> Option<Place> {
    let word = |at: usize| {
        let mut bytes = [0; 8];
        bytes[..size].copy_from_slice(object.get(at..at.checked_add(size)?)?);
        Some(u64::from_le_bytes(bytes))
    };
    let code = |pointer: u64| pointer & !u64::from(thumb);
    let run = frames.pointer(record, word(0)?.checked_add(RUN * size as u64)?)?;
    let mut run = frames.place(record, code(run));
    run.svma?;
    // These lines are the library's.
    (run.file, run.line) = (None, None);
    let Some(state) = run.function.clone() else {
        return Some(run);
    };
    let Some(elements) = elements(&state) else {
        // Another party's object.
        return Some(run);
    };
    if is_pointer(elements[0])
        && !is_of_async(elements[0])
        && let Some(at) = after(&elements[1..], size)
        && let Some(function) = word(at)
    {
        let function = frames.place(record, code(function));
        // The object stores only the vtable index of a virtual function.
        if function.svma.is_some() {
            return Some(function);
        }
    }
    run.function = Some(name_of(elements[0]).into());
    Some(run)
}

/// The name for a thread of which only the callable's type is known. The type of a pointer does not
/// name a function, so the name also says what made the thread: `std::async(int (*)(int))`.
fn name_of(callable: &str) -> String {
    let wanted = asked_for(callable);
    match (is_pointer(wanted), is_of_async(callable)) {
        (false, _) => wanted.to_owned(),
        (true, true) => format!("std::async({wanted})"),
        (true, false) => format!("std::thread({wanted})"),
    }
}

/// The callable of `std::thread::_State_impl<std::thread::_Invoker<std::tuple<F, ...> > >::_M_run`,
/// which it calls or inlines. Only the type of a lambda or another object shows it, not a
/// pointer's.
pub(super) fn callable(state: &str) -> Option<&str> {
    let callable = asked_for(elements(state)?[0]);
    (!is_pointer(callable)).then_some(callable)
}

/// The types of the elements of such an object, F first.
fn elements(state: &str) -> Option<Vec<&str>> {
    let (_, inner) = state
        .starts_with("std::thread::_State_impl<")
        .then(|| state.split_once("std::tuple<"))??;
    arguments(inner)
}

/// The callable passed to `std::async`, if this is its own wrapper; otherwise the function itself.
fn asked_for(callable: &str) -> &str {
    let inner = callable.split_once("std::tuple<");
    let inner = inner.filter(|(before, _)| is_of_async(before));
    let first = inner.and_then(|(_, inner)| Some(arguments(inner)?[0]));
    first.map_or(callable, asked_for)
}

fn is_of_async(callable: &str) -> bool {
    callable.contains("std::__future_base::")
}

fn is_pointer(callable: &str) -> bool {
    callable.contains("*)") && !callable.ends_with(['}', '>'])
}

/// The arguments of a template after its `<`, at least one.
fn arguments(list: &str) -> Option<Vec<&str>> {
    let (mut depth, mut from) = (0u32, 0);
    let mut found = Vec::new();
    for (at, c) in list.char_indices() {
        match c {
            '<' | '(' | '{' => depth += 1,
            '>' | ')' | '}' if depth > 0 => depth -= 1,
            '>' | ',' if depth == 0 => {
                found.push(list[from..at].trim());
                from = at + 1;
                if c == '>' {
                    return (!found[0].is_empty()).then_some(found);
                }
            }
            _ => {}
        }
    }
    None
}

/// The offset of the pointer F in the object, behind arguments of these types; none if their sizes
/// are unknown.
fn after(arguments: &[&str], pointer: usize) -> Option<usize> {
    let layouts = arguments.iter().rev().map(|kind| layout(kind, pointer));
    let layouts: Vec<(usize, usize)> = layouts.collect::<Option<_>>()?;
    let alignments = layouts.iter().map(|(_, alignment)| *alignment);
    let all = alignments.max().unwrap_or(1);
    let mut at = pointer.next_multiple_of(all);
    for (size, alignment) in layouts {
        at = at.next_multiple_of(alignment) + size;
    }
    Some(at.next_multiple_of(pointer))
}

/// Size and alignment of common argument types, by the psABIs and libstdc++.
fn layout(kind: &str, pointer: usize) -> Option<(usize, usize)> {
    if kind.ends_with(')') && kind.contains("::*)") {
        return Some((2 * pointer, pointer));
    }
    if kind.ends_with('*') || kind.ends_with(')') && kind.contains("(*)") {
        return Some((pointer, pointer));
    }
    if kind.ends_with('>') || kind == "std::stop_token" {
        let words = match kind.split('<').next()? {
            "std::reference_wrapper" | "std::stop_token" => 1,
            "std::unique_ptr" if kind.contains("std::default_delete<") => 1,
            "std::shared_ptr" | "std::weak_ptr" => 2,
            "std::vector" if !kind.starts_with("std::vector<bool") => 3,
            "std::function" => 4,
            "std::__cxx11::basic_string" => return Some((2 * pointer + 16, pointer)),
            _ => return None,
        };
        return Some((words * pointer, pointer));
    }
    let words: Vec<&str> = kind.split_whitespace().collect();
    let known = [
        "signed", "unsigned", "char", "short", "int", "long", "bool", "float", "double",
    ];
    if !words.iter().all(|word| known.contains(word)) {
        return None;
    }
    let has = |word: &str| words.contains(&word);
    let longs = words.iter().filter(|word| **word == "long").count();
    let size = match longs {
        _ if has("char") || has("bool") => 1,
        _ if has("short") => 2,
        0 if has("double") => 8,
        0 => 4,
        1 if has("double") => return None,
        1 => pointer,
        _ => 8,
    };
    Some((size, size))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(tuple: &str) -> String {
        format!("std::thread::_State_impl<std::thread::_Invoker<std::tuple<{tuple}> > >::_M_run")
    }

    #[test]
    fn callable_of_a_cxx_thread_state() {
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
            (
                "main(int, char**)::<lambda()>",
                Some("main(int, char**)::<lambda()>"),
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

    #[test]
    fn pointers_are_named_by_what_made_the_thread() {
        let wrapped = |callable: &str| {
            format!(
                "void (std::__future_base::_Async_state_impl<std::thread::_Invoker<\
                 std::tuple<{callable}, int> >, int>::*)()"
            )
        };
        for (callable, name) in [
            (wrapped("int (*)(int)"), "std::async(int (*)(int))"),
            (wrapped("int (Pool::*)()"), "std::async(int (Pool::*)())"),
            (wrapped("Job"), "Job"),
            (
                "void (Pool::*)()".to_owned(),
                "std::thread(void (Pool::*)())",
            ),
            (
                "void (*)(Config)".to_owned(),
                "std::thread(void (*)(Config))",
            ),
            ("main()::<lambda()>".to_owned(), "main()::<lambda()>"),
        ] {
            assert_eq!(name_of(&callable), name, "{callable}");
        }
    }

    /// The numbers are the offsets of the tuple's `std::get<0>` in the object, by g++ 12 for x86-64
    /// and for ARM.
    #[test]
    fn offset_of_the_function_in_a_cxx_thread_object() {
        for (tuple, at) in [
            ("void (*)()", Some([8, 4])),
            ("void (*)(int), int", Some([16, 8])),
            ("void (*)(char, char), char, char", Some([16, 8])),
            ("void (*)(double), double", Some([16, 16])),
            ("void (*)(char, long long), char, long long", Some([24, 20])),
            (
                "void (*)(std::function<void ()>, char const*), std::function<void ()>, char const*",
                Some([48, 24]),
            ),
            (
                "void (*)(std::string), std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >",
                Some([40, 28]),
            ),
            (
                "void (Pool::*)(unsigned long), std::reference_wrapper<Pool>, unsigned long",
                Some([24, 12]),
            ),
            ("void (*)(Config), Config", None),
            ("void (*)(long double), long double", None),
        ] {
            let state = state(tuple);
            let elements = elements(&state).expect("a tuple");
            let at64 = at.map(|[at64, _]| at64);
            let at32 = at.map(|[_, at32]| at32);
            assert_eq!(after(&elements[1..], 8), at64, "{tuple}");
            assert_eq!(after(&elements[1..], 4), at32, "{tuple}");
        }
    }
}
