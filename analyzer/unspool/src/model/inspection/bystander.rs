//! Finds running threads that cannot end any wait, by the code that they can reach.
//!
//! A thread that sleeps in a loop and prints a line is an example. A hang of all other threads
//! remains a hang beside it.

use super::{Inspection, Program, State};
use crate::model::backtrace::{Backtrace, NamedFrame};
use crate::model::{Model, ThreadIndex};
use crate::platform::c_library::{ends_no_wait, is_c_library};

/// Maximum number of running threads that are examined. A program with more is busy, and the search
/// is not worth its cost.
const MAX_ACTIVE: usize = 32;

/// The effects of code from an address on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::model) struct Onward {
    /// True if it may reach a place that ends another thread's wait, or an unknown place.
    pub(in crate::model) ends_waits: bool,
    /// True if it may return to its caller.
    pub(in crate::model) returns: bool,
}

/// Finds the bystanders, if a thread waits without a timeout.
pub(super) fn find(
    model: &Model,
    inspection: &Inspection,
    program: &mut dyn Program,
) -> Vec<ThreadIndex> {
    let mut states = inspection.present();
    let endless = |state: &State| state.wait().is_some_and(super::Wait::is_endless);
    if !states.any(endless) {
        return Vec::new();
    }
    let goes_on = |state: &State| {
        matches!(
            state,
            State::Running | State::Sleeping | State::InCall { .. }
        )
    };
    let states = inspection.states.iter().enumerate();
    let active = states.filter(|(_, state)| goes_on(state));
    let active: Vec<ThreadIndex> = active.map(|(index, _)| ThreadIndex(index)).collect();
    if active.len() > MAX_ACTIVE {
        return Vec::new();
    }
    let mut found = Vec::new();
    for index in active {
        let stack = model.thread(index).and_then(|thread| thread.stack.clone());
        if stack.is_some_and(|stack| ends_none(&stack, program)) {
            found.push(index);
        }
    }
    found
}

/// True if a thread with this stack can reach no place that ends a wait.
fn ends_none(stack: &Backtrace, program: &mut dyn Program) -> bool {
    let in_library = |frame: &NamedFrame| frame.place.module.as_deref().is_some_and(is_c_library);
    let harmless = |frame: &NamedFrame| {
        let name = frame.place.function.as_deref();
        name.is_some_and(ends_no_wait)
    };
    let frames: Vec<&NamedFrame> = stack.physical().collect();
    // The C library's function that the thread is in, with its inner calls.
    let inside = frames
        .iter()
        .take_while(|frame| in_library(frame) || harmless(frame))
        .count();
    let entered = match frames[..inside].iter().rposition(|frame| harmless(frame)) {
        Some(at) => at + 1,
        None if inside == 0 => 0,
        None => return false,
    };
    for (at, frame) in frames.iter().enumerate().skip(entered) {
        // The thread or the program ends here, unless the library called the program's function
        // and then goes on, as `pthread_once` and `qsort` do. A thread of the library itself goes
        // on, too: that of timers (`SIGEV_THREAD`) creates threads.
        if in_library(frame) {
            return at > entered && frames[at..].iter().all(|frame| in_library(frame));
        }
        let onward = program.onward(frame.place.avma);
        if onward.ends_waits {
            return false;
        }
        if !onward.returns {
            return true;
        }
    }
    false
}
