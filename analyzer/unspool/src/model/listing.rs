//! Lists the events of each line of a source file.
//!
//! Debug information names files by the paths they were compiled from; people use the end of that
//! path.

use std::collections::BTreeMap;

use super::sync::{UseIndex, caller};
use super::{Model, Place, ThreadIndex};

/// An event on a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Happening {
    /// Threads begin in a function there.
    Begins,
    /// The line calls the creation function.
    Creates,
    /// The line makes a call that leads to a creation.
    LeadsToCreation,
}

/// The lines of a file on which something happened, with the threads concerned.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listing {
    /// The file's path as the debug information has it.
    pub file: String,
    /// By line, from 1.
    pub lines: BTreeMap<u32, BTreeMap<Happening, Vec<ThreadIndex>>>,
    /// Uses of synchronization objects, by line.
    pub uses: BTreeMap<u32, Vec<UseIndex>>,
}

impl Listing {
    /// The numbers of the lines with events, each once.
    pub fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        let all: std::collections::BTreeSet<u32> =
            self.lines.keys().chain(self.uses.keys()).copied().collect();
        all.into_iter()
    }

    /// The listings of all files whose path ends in `wanted`, by whole components. An exact match
    /// is returned alone.
    pub fn of(model: &Model, wanted: &str) -> Vec<Listing> {
        let mut files: BTreeMap<&str, Listing> = BTreeMap::new();
        for (index, thread) in model.any_threads().enumerate() {
            let begins = thread
                .function
                .iter()
                .map(|place| (Happening::Begins, place));
            let frames = thread
                .creation_stack()
                .into_iter()
                .flat_map(|stack| &stack.frames);
            let calls = frames.enumerate().map(|(at, frame)| match at {
                0 => (Happening::Creates, &frame.place),
                _ => (Happening::LeadsToCreation, &frame.place),
            });
            for (what, place) in begins.chain(calls) {
                let Some((file, line)) = source(place).filter(|(file, _)| ends_in(file, wanted))
                else {
                    continue;
                };
                let listing = files.entry(file).or_default();
                let happenings = listing.lines.entry(line).or_default();
                let threads: &mut Vec<ThreadIndex> = happenings.entry(what).or_default();
                // Recursion passes a line several times.
                if threads.last() != Some(&ThreadIndex(index)) {
                    threads.push(ThreadIndex(index));
                }
            }
        }
        for (index, used) in model.sync.uses.iter().enumerate() {
            let frame = caller(model.sync.path(used));
            let place = frame.and_then(|frame| source(&frame.place));
            if let Some((file, line)) = place.filter(|(file, _)| ends_in(file, wanted)) {
                let listing = files.entry(file).or_default();
                listing.uses.entry(line).or_default().push(UseIndex(index));
            }
        }
        for (file, listing) in &mut files {
            listing.file = (*file).to_owned();
        }
        match files.remove(wanted) {
            Some(exact) => vec![exact],
            None => files.into_values().collect(),
        }
    }
}

fn source(place: &Place) -> Option<(&str, u32)> {
    Some((place.file.as_deref()?, place.line?))
}

/// True if a path ends in these components.
fn ends_in(path: &str, wanted: &str) -> bool {
    let wanted = wanted.trim_start_matches("./");
    let before = path.strip_suffix(wanted);
    !wanted.is_empty() && before.is_some_and(|before| before.is_empty() || before.ends_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_by_whole_components() {
        assert!(ends_in("/src/shop/orders.c", "orders.c"));
        assert!(ends_in("/src/shop/orders.c", "shop/orders.c"));
        assert!(ends_in("/src/shop/orders.c", "./orders.c"));
        assert!(ends_in("orders.c", "orders.c"));
        assert!(!ends_in("/src/shop/reorders.c", "orders.c"));
        assert!(!ends_in("/src/shop/orders.c", ""));
    }
}
