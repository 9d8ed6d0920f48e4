//! The places where the server records hits: with jumps, or with traps, which stop the thread.
//!
//! The planter chooses the places. This module is separate, because it describes them to the user.

use std::collections::BTreeSet;

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
    /// The probes that use traps, each with its function as symbol tables name it.
    pub(super) trapped: Vec<(Option<u32>, String)>,
}

impl TracePlaces {
    /// The functions in which a probe with a trap has recorded events, without duplicates.
    fn slowed(&self, has_events: impl Fn(u32) -> bool) -> BTreeSet<&str> {
        let trapped = self.trapped.iter();
        let hit = trapped.filter(|(probe, _)| probe.is_some_and(&has_events));
        hit.map(|(_, function)| function.as_str()).collect()
    }
}

/// Describes the effect of jumps and traps on the recorded times. `None` if no probe with a trap
/// has recorded events.
pub(super) fn describe(places: &TracePlaces, has_events: impl Fn(u32) -> bool) -> Option<String> {
    let (jumps, traps) = (places.jumps, places.traps);
    let all = jumps + traps;
    if traps == 0 {
        return Some(format!(
            "no probe stopped a thread: the stub recorded the hits of all {all} probes without a trap"
        ));
    }
    let slowed = places.slowed(has_events);
    if slowed.is_empty() {
        return None;
    }
    // Public names come first.
    let own = |name: &String| !name.starts_with('_');
    let names = slowed.into_iter().map(unspool_image::function_name);
    let mut names: Vec<String> = names.collect();
    names.sort_by_key(|name| !own(name));
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let named = listed_functions(&names, MAX_NAMES);
    Some(format!(
        "each recorded call of {named} stopped its thread for about 0.1 ms ({traps} of {all} probes use traps)"
    ))
}

#[cfg(test)]
mod tests {
    use super::{TracePlaces, describe};

    #[test]
    fn the_note_names_functions_and_counts_traps() {
        let places = |jumps, traps, functions: &[&str]| TracePlaces {
            jumps,
            traps,
            trapped: (1..)
                .map(Some)
                .zip(functions.iter().map(|name| (*name).to_owned()))
                .collect(),
        };
        let describe = |places| describe(&places, |probe| probe < 5).unwrap();
        assert_eq!(
            describe(places(105, 0, &[])),
            "no probe stopped a thread: the stub recorded the hits of all 105 probes without a trap"
        );
        let names = [
            "__aio_notify",
            "pthread_mutex_lock",
            "sem_post",
            "sem_wait",
            "pthread_create",
        ];
        let several = describe(places(105, 124, &names));
        assert!(several.starts_with(
            "each recorded call of pthread_mutex_lock, sem_post, sem_wait and one other function stopped its thread"
        ));
        assert!(several.contains("124 of 229"));
        let one = describe(places(0, 1, &["__clone"]));
        assert!(one.starts_with("each recorded call of __clone stopped its thread"));
        assert!(one.contains("1 of 1 probes"));
    }

    #[test]
    fn traps_that_were_never_hit_slow_nothing_down() {
        let places = TracePlaces {
            jumps: 3,
            traps: 2,
            trapped: vec![
                (Some(1), "pthread_create".to_owned()),
                (None, String::new()),
            ],
        };
        assert_eq!(describe(&places, |_| false), None);
    }
}
