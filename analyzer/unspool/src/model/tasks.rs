//! Tasks that a program's threads run for each other: C++'s `std::packaged_task`.
//!
//! A thread that waits for a future from within a task keeps one of its pool's threads busy. If all
//! threads of the pool do, no thread is left that could run the tasks they wait for.

use super::backtrace::Backtrace;

/// The thread runs a task that gives a future its value (libstdc++, `future`).
pub(super) fn runs_task(stack: &Backtrace) -> bool {
    let names = stack.frames.iter();
    let mut names = names.filter_map(|frame| frame.place.function.as_deref());
    names.any(|name| {
        name.starts_with("std::__future_base::_Task_state<") && name.contains(">::_M_run")
    })
}

/// What follows if all threads that run `function` wait so.
pub(super) fn why_hung(count: usize, function: &str) -> String {
    let who = match count {
        1 => format!("The only thread that runs {function} waits for a future"),
        _ => format!("All {count} threads that run {function} wait for futures"),
    };
    format!(
        "{who}, from within tasks. If only threads that run this function run such tasks, none is \
         left to run those that give the futures their values."
    )
}
