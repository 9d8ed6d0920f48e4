//! Checks candidates: addresses in data or code that may be function starts.

use unspool_image::Arch;

use super::Discovery;
use super::workers::Workers;
use crate::code::byte_map::ByteMap;
use crate::code::effect::Target;
use crate::code::flow::Function;
use crate::code::{pointers, starts};

/// Number of candidates that several threads follow together. Work on those inside others is
/// wasted.
const CANDIDATE_BATCH: usize = 512;

impl Discovery<'_> {
    /// Finds functions whose address is stored in data or computed by code.
    pub(super) fn discover_from_addresses(&mut self, workers: &mut Workers<'_>) {
        let (image, text, outline) = (self.image, &self.text, self.outline);
        let data_addresses = self.data_addresses.get_or_insert_with(|| match outline {
            Some(outline) => {
                let range = text.start()..text.end();
                ByteMap::of(text, outline.candidates_in(image, &range).iter())
            }
            None => ByteMap::of(text, pointers::candidates(image, text).iter()),
        });
        let mut candidates = data_addresses.clone();
        for _ in 0..6 {
            for function in self.done.values() {
                for &address in &function.addresses {
                    candidates.add(address);
                }
            }
            let reached = self.reached();
            let targets = candidates.all().map(|candidate| self.target(candidate));
            let targets = targets.filter(|target| !reached.contains(target.svma));
            let likely = targets.filter(|&target| self.is_likely(target)).collect();
            if !self.add_likely(likely, workers) {
                return;
            }
        }
    }

    /// Adds the candidates that are functions. Returns whether there were any.
    pub(super) fn add_likely(
        &mut self,
        candidates: Vec<Target>,
        workers: &mut Workers<'_>,
    ) -> bool {
        let mut reached = self.reached();
        let mut candidates = candidates;
        candidates.retain(|target| {
            !reached.contains(target.svma)
                && !self.start_set.contains(target.svma)
                && self.text.is_text(target.svma)
                && !self.text.is_data(target.svma)
                && !self.parts.iter().any(|part| part.contains(&target.svma))
        });
        let at_once = if workers.is_worth(CANDIDATE_BATCH) {
            CANDIDATE_BATCH
        } else {
            1
        };
        let mut found = Vec::new();
        let mut rest = &candidates[..];
        while !rest.is_empty() {
            let (some, others) = rest.split_at(rest.len().min(at_once));
            rest = others;
            let some: Vec<Target> = some
                .iter()
                .copied()
                .filter(|target| !reached.contains(target.svma))
                .collect();
            let followed = workers.each(self, &some, |discovery, &target, workspace| {
                let end = discovery.end_of(target.svma);
                [discovery.follow(target, end, false, workspace)]
            });
            for function in followed.into_iter().flatten() {
                if !reached.contains(function.start) && self.is_function(&function, &reached) {
                    // Later candidates may be labels inside this function.
                    reached.insert_all(&function.spans);
                    found.push(function);
                }
            }
        }
        let any = !found.is_empty();
        self.add(found, workers);
        any
    }

    /// Whether a candidate is worth following. On ARM, partial addresses and small numbers easily
    /// look like code addresses.
    fn is_likely(&self, target: Target) -> bool {
        self.text.machine.arch != Arch::Arm
            || target.thumb && starts::is_prologue(&self.text, target)
            || !target.thumb
                && target.svma & 3 == 0
                && !starts::mode(
                    self.image,
                    &self.text,
                    self.symbols,
                    target.svma,
                    target.svma + 32,
                    false,
                )
    }

    fn target(&self, pointer: u64) -> Target {
        let arm = self.text.machine.arch == Arch::Arm;
        Target {
            svma: if arm { pointer & !1 } else { pointer },
            thumb: arm && pointer & 1 == 1,
        }
    }

    /// Whether the result looks like a complete function.
    pub(super) fn is_function(&self, function: &Function, reached: &ByteMap) -> bool {
        let machine = self.text.machine;
        let aligned = function.start & ((1 << machine.shift(function.thumb)) - 1) == 0;
        if !aligned || function.depends_on_caller || function.doubtful || function.instructions == 0
        {
            return false;
        }
        let start = Target {
            svma: function.start,
            thumb: function.thumb,
        };
        let prologue = starts::is_prologue(&self.text, start);
        if function.never_leaves {
            return prologue;
        }
        // A jump to a separate part looks like a frame that is not taken down.
        if prologue && function.start & 15 == 0 && machine.arch != Arch::Arm {
            return true;
        }
        if self.catches && !prologue && function.start & 15 != 0 {
            return false;
        }
        // A frameless jump into a function that has a frame there is no tail call.
        let inside = |target: &Target| {
            let mut before = self.done.range(..=target.svma);
            reached.contains(target.svma)
                && !self.start_set.contains(target.svma)
                && before.next_back().is_none_or(|(_, other)| other.framed)
        };
        function.balanced && !function.exits.iter().any(|(target, _)| inside(target))
    }
}
