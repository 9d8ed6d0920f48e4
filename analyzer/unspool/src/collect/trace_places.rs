//! The places at which the server records hits by jumps, and by traps, which stop the thread.
//!
//! Apart from the planter, which chooses the places, because a note describes them to the user.

use super::function_names::listed_functions;

/// Maximum number of functions that the note names.
const MAX_NAMES: usize = 3;

/// The places at which the server records hits.
#[derive(Debug, Default)]
pub(super) struct TracePlaces {
    /// Number of places with a jump.
    pub(super) jumps: usize,
    /// Number of places with a trap.
    pub(super) traps: usize,
    /// Functions with a trap, as symbol tables name them.
    pub(super) functions: Vec<String>,
}

/// Describes the effect of jumps and traps on the recorded times. `remedy` is the user's way to
/// avoid traps.
pub(super) fn describe(places: &TracePlaces, remedy: &str) -> String {
    let (jumps, traps) = (places.jumps, places.traps);
    let all = jumps + traps;
    if traps == 0 {
        return format!(
            "no probe stopped a thread: the stub recorded hits of all {all} without a trap"
        );
    }
    // Public names come first.
    let own = |name: &String| !name.starts_with('_');
    let names = places.functions.iter();
    let mut names: Vec<String> = names
        .map(|name| unspool_image::function_name(name))
        .collect();
    names.sort_by_key(|name| !own(name));
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let named = listed_functions(&names, MAX_NAMES);
    format!(
        "each recorded call of {named} stopped its thread for about 0.1 ms ({traps} of {all} probes use traps; {remedy})"
    )
}

#[cfg(test)]
mod tests {
    use super::{TracePlaces, describe};

    #[test]
    fn the_note_names_functions_and_counts_traps() {
        let places = |jumps, traps, functions: &[&str]| TracePlaces {
            jumps,
            traps,
            functions: functions.iter().map(|name| (*name).to_owned()).collect(),
        };
        assert_eq!(
            describe(&places(105, 0, &[]), "remedy"),
            "no probe stopped a thread: the stub recorded hits of all 105 without a trap"
        );
        let names = ["__aio_notify", "pthread_mutex_lock", "sem_post", "sem_wait"];
        let within_budget = describe(&places(105, 124, &names), "with '--budget none'");
        assert!(within_budget.starts_with(
            "each recorded call of pthread_mutex_lock, sem_post, sem_wait and one other function stopped its thread"
        ));
        assert!(within_budget.contains("124 of 229") && within_budget.contains("'--budget none'"));
        let no_room = describe(&places(0, 1, &["__clone"]), "no room");
        assert!(no_room.starts_with("each recorded call of __clone stopped its thread"));
        assert!(no_room.contains("1 of 1 probes") && no_room.contains("no room"));
    }
}
