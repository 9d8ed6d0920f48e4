//! Tasks that a program's threads run for each other: C++'s `std::packaged_task`.
//!
//! A thread that waits for a future from within a task keeps one of its pool's threads busy. If all
//! threads of the pool do, no thread is left that could run the tasks they wait for.

use super::backtrace::Backtrace;

/// True if the thread runs a task that gives a future its value (libstdc++, `future`).
pub(super) fn runs_task(stack: &Backtrace) -> bool {
    let names = stack.frames.iter();
    let mut names = names.filter_map(|frame| frame.place.function.as_deref());
    names.any(|name| {
        name.starts_with("std::__future_base::_Task_state<") && name.contains(">::_M_run")
    })
}
