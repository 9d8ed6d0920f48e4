//! Jump targets and calls that do not return, as learned from round to round.

use super::fix::Found;
use super::{is_filler, pushes_link};
use crate::code::jump_table::Targets;
use crate::code::listing::Listing;
use crate::code::state::Context;

/// Maximum number of orphans that unresolved jumps may lead to.
const MAX_ORPHANS: usize = 64;

/// The outcome of a round, which decides how the next round starts.
pub(super) enum Outcome {
    None,
    /// Jumps have more targets.
    More,
    /// An assumed path does not exist, so the analysis starts again.
    Others,
}

/// Facts about a function's jumps and calls from earlier rounds.
#[derive(Debug, Default)]
pub(in crate::code) struct Jumps {
    /// Calls that do not return, in order.
    noreturn: Vec<u32>,
    /// Resolved jumps and their targets.
    pub(super) tables: Vec<(u32, Targets)>,
    /// Assumed targets of unresolved jumps.
    pub(in crate::code) orphans: Vec<u32>,
}

impl Jumps {
    #[inline]
    pub(in crate::code) fn is_noreturn(&self, at: u32) -> bool {
        self.noreturn.binary_search(&at).is_ok()
    }

    /// Whether any call does not return.
    pub(super) fn has_noreturn(&self) -> bool {
        !self.noreturn.is_empty()
    }

    pub(in crate::code) fn targets(&self, at: u32) -> &[u32] {
        match self.tables.iter().find(|table| table.0 == at) {
            Some((_, targets)) => &targets.inside,
            None => &self.orphans,
        }
    }

    pub(in crate::code) fn is_resolved(&self, at: u32) -> bool {
        self.tables.iter().any(|table| table.0 == at)
    }

    /// Takes over the results of a round. `bases` means that it found new table starts.
    pub(super) fn update(&mut self, found: &mut Found, bases: bool) -> Outcome {
        if bases && !self.tables.is_empty() {
            // A table ends where another starts, so earlier tables may be too long.
            self.tables.clear();
            return Outcome::Others;
        }
        if !found.tables.is_empty() {
            found.resolved.clear();
            found
                .resolved
                .extend(found.tables.iter().map(|table| table.0));
            // The resolved jump no longer leads to the orphans.
            let turned = |at| !self.orphans.is_empty() && found.were_unresolved.contains(at);
            let turned = found.resolved.iter().any(turned);
            self.tables.append(&mut found.tables);
            return if turned {
                Outcome::Others
            } else {
                Outcome::More
            };
        }
        let before = self.noreturn.len();
        for &call in &found.calls {
            if let Err(place) = self.noreturn.binary_search(&call) {
                self.noreturn.insert(place, call);
            }
        }
        match self.noreturn.len() == before {
            true => Outcome::None,
            false => Outcome::Others,
        }
    }

    /// Adds the next orphan to the targets of unresolved jumps.
    pub(super) fn add_orphan(&mut self, listing: &Listing, context: &Context<'_>) -> Outcome {
        if self.orphans.len() < MAX_ORPHANS
            && let Some(orphan) = self.orphan(listing, context)
        {
            self.orphans.push(orphan);
            return Outcome::More;
        }
        Outcome::None
    }

    /// The first code between the reached parts that nothing leads to.
    fn orphan(&self, listing: &Listing, context: &Context<'_>) -> Option<u32> {
        let mut expected = 0u32;
        for (at, instruction) in listing.reached() {
            while expected < at {
                let svma = listing.svma(expected);
                let mut entries = self.tables.iter().map(|table| &table.1.entries);
                if let Some(entries) = entries.find(|range| range.contains(&svma)) {
                    expected += ((entries.end - svma) as u32).next_multiple_of(2);
                    continue;
                }
                if listing.is_literal(svma) || context.text.is_data(svma) {
                    expected += 2;
                    continue;
                }
                let found = context.text.decode(svma, listing.thumb)?;
                if is_filler(&found) {
                    expected += u32::from(found.len);
                    continue;
                }
                return (!pushes_link(&found, context.machine)).then_some(expected);
            }
            expected = expected.max(at + u32::from(instruction.len));
        }
        None
    }
}
