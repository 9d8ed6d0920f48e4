//! Recognizes code of C++ containers and allocators between a program's own code and the creation
//! of a thread. Two threads created by one line may have different library frames there.

use std::sync::Arc;

use crate::model::{Backtrace, NamedFrame};

/// Functions in which containers grow, in libstdc++ and libc++.
const GROWTH: [&str; 5] = [
    "_M_realloc_insert",
    "_M_realloc_append",
    "_M_push_back_aux",
    "_M_reallocate_map",
    "__emplace_back_slow_path",
];

/// True if two stacks differ only in frames of the C++ library, compared by source lines.
pub(super) fn differs_in_library_only(one: &Backtrace, other: &Backtrace) -> bool {
    let own = |stack: &Backtrace| lines(stack, |frame| !is_library(frame));
    let (one, other) = (own(one), own(other));
    let is_known = one.iter().any(|(_, _, line, _)| line.is_some());
    is_known && one == other
}

/// True if two stacks, including C++ library frames, have equal functions and lines, so that only
/// the addresses of calls differ.
pub(super) fn has_equal_functions(one: &Backtrace, other: &Backtrace) -> bool {
    lines(one, |_| true) == lines(other, |_| true)
}

/// The function, file and line, or the address if the line is not known.
type SourceLine = (Option<Arc<str>>, Option<Arc<str>>, Option<u32>, Option<u64>);

fn lines(stack: &Backtrace, wanted: fn(&NamedFrame) -> bool) -> Vec<SourceLine> {
    let frames = stack.frames.iter().filter(|frame| wanted(frame));
    let places = frames.map(|frame| {
        let place = &frame.place;
        let address = place.svma.filter(|_| place.line.is_none());
        (
            place.function.clone(),
            place.file.clone(),
            place.line,
            address,
        )
    });
    places.collect()
}

/// The function in which a container grew.
pub(super) fn growth(stack: &Backtrace) -> Option<&'static str> {
    let mut grows = stack.frames.iter().filter_map(|frame| {
        let function = frame.place.function.as_deref()?;
        GROWTH.into_iter().find(|growth| function.contains(growth))
    });
    grows.next()
}

fn is_library(frame: &NamedFrame) -> bool {
    let function = frame.place.function.as_deref().unwrap_or_default();
    let spaces = ["std::", "__gnu_cxx::", "void std::"];
    spaces.iter().any(|space| function.starts_with(space))
}

#[cfg(test)]
mod tests {
    use unspool_unwind::Provenance;

    use super::*;
    use crate::model::Place;

    fn stack(functions: &[(&str, u32)]) -> Backtrace {
        let frame = |(function, line): &(&str, u32)| NamedFrame {
            place: Place {
                function: Some((*function).into()),
                file: Some("pool.cpp".into()),
                line: Some(*line),
                ..Place::default()
            },
            inlined: false,
            provenance: Provenance::Cfi,
            called: None,
        };
        Backtrace {
            frames: functions.iter().map(frame).collect(),
            truncated: None,
        }
    }

    #[test]
    fn vector_growth_differs_in_the_library_only() {
        let vector = "std::vector<std::thread, std::allocator<std::thread> >";
        let (insert, emplace) = (
            format!("void {vector}::_M_realloc_insert<void (&)()>"),
            format!("{vector}::emplace_back<void (&)()>"),
        );
        let begin = ("std::thread::_M_start_thread", 1);
        let grown = stack(&[begin, (&insert, 462), (&emplace, 123), ("main", 11)]);
        let plain = stack(&[begin, (&emplace, 117), ("main", 11)]);
        let elsewhere = stack(&[begin, (&emplace, 117), ("main", 12)]);
        assert!(differs_in_library_only(&grown, &plain));
        assert!(!differs_in_library_only(&elsewhere, &plain));
        assert_eq!(growth(&grown), Some("_M_realloc_insert"));
        assert_eq!(growth(&plain), None);
        assert!(
            !differs_in_library_only(&stack(&[]), &stack(&[])),
            "nothing is known"
        );
        assert!(!has_equal_functions(&grown, &plain));
    }

    #[test]
    fn two_calls_in_one_line_have_equal_functions() {
        let one = stack(&[("main", 10)]);
        assert!(differs_in_library_only(&one, &one));
        assert!(has_equal_functions(&one, &one));
    }

    #[test]
    fn places_without_a_line_differ_by_address() {
        let at = |address| {
            let mut stack = stack(&[("pthread_create", 647), ("main", 10)]);
            let place = &mut stack.frames[1].place;
            (place.line, place.svma) = (None, Some(address));
            stack
        };
        assert!(differs_in_library_only(&at(0x1000), &at(0x1000)));
        assert!(!differs_in_library_only(&at(0x1000), &at(0x1010)));
    }
}
