//! Finds functions in text that nothing leads to, such as functions called only through pointers.

use std::collections::BTreeMap;

use unspool_image::Arch;

use super::workers::{Workers, Workspace};
use super::{Discovery, Found};
use crate::code::byte_map::ByteMap;
use crate::code::effect::Target;
use crate::code::starts;

impl Discovery<'_> {
    /// Looks for functions in all gaps.
    pub(super) fn fill_gaps(&mut self, workers: &mut Workers<'_>) {
        for _ in 0..6 {
            let found = self.fill_all(workers);
            if found.is_empty() {
                return;
            }
            self.add(found, workers);
            self.discover_from_addresses(workers);
            self.landing_pads(workers);
            self.follow_fragments(workers);
            self.follow_dead(workers);
        }
    }

    fn fill_all(&mut self, workers: &mut Workers<'_>) -> Vec<Found> {
        let mut found = Vec::new();
        let reached = self.reached();
        let covered = self.covered();
        let ranges = self.text.ranges().to_vec();
        // A gap without a function in an earlier round has none now.
        let gaps: Vec<(u64, u64)> = ranges
            .iter()
            .flat_map(|range| covered.gaps(range))
            .filter(|gap| !self.empty_gaps.contains(gap))
            .collect();
        if self.text.machine.arch == Arch::Arm {
            // Functions found earlier reveal the starts of later ones.
            let mut named = BTreeMap::new();
            for (start, end) in gaps {
                found.extend(self.fill(start, end, &reached, &mut named, &mut workers.workspace()));
            }
            return found;
        }
        let filled = workers.each(self, &gaps, |discovery, &(start, end), workspace| {
            discovery.fill(start, end, &reached, &mut BTreeMap::new(), workspace)
        });
        for (gap, functions) in gaps.into_iter().zip(filled) {
            if functions.is_empty() {
                self.empty_gaps.insert(gap);
            }
            found.extend(functions);
        }
        found
    }

    /// Looks for functions in one gap. `named` collects the functions that the found ones call, or
    /// jump to without a frame, and whether they are T32.
    fn fill(
        &self,
        start: u64,
        end: u64,
        reached: &ByteMap,
        named: &mut BTreeMap<u64, bool>,
        workspace: &mut Workspace<'_>,
    ) -> Vec<Found> {
        let mut found = Vec::new();
        let machine = self.text.machine;
        let arm = machine.arch == Arch::Arm;
        let unit = if arm { 2 } else { 1 << machine.shift };
        let mut covered = ByteMap::new(start, end);
        // After the end of a function, the next one may start even without a prologue. It must then
        // look like a function in all other ways.
        let mut fresh = true;
        let mut after_a32 = self
            .done
            .range(..start)
            .next_back()
            .is_some_and(|(_, function)| !function.thumb);
        let mut at = start.next_multiple_of(unit);
        while at + unit <= end {
            let known = named.get(&at).copied();
            let thumb = known.unwrap_or_else(|| {
                arm && starts::mode_at_start(
                    self.image,
                    &self.text,
                    self.symbols,
                    at,
                    (at + 32).min(end),
                    after_a32,
                )
            });
            if covered.contains(at) || self.text.is_data(at) {
                at += unit;
                continue;
            }
            if let Some(len) = starts::padding(&self.text, at, thumb) {
                at += if arm && !thumb { 2 } else { len };
                continue;
            }
            let target = Target { svma: at, thumb };
            let prologue = starts::is_prologue(&self.text, target);
            if !prologue && !fresh && known.is_none() || arm && !thumb && at & 3 != 0 {
                at = self.next_candidate(at, end, &mut fresh);
                continue;
            }
            let last = if arm {
                let next = named.range(at + 1..).next();
                next.map_or(end, |next| end.min(*next.0))
            } else {
                starts::extent(&self.text, at, end)
            };
            let function = self.follow(target, last, false, workspace);
            fresh = false;
            let sound = known.is_some() && !function.depends_on_caller && !function.doubtful;
            let accepted = sound || prologue && arm || self.is_function(&function, reached);
            if !accepted {
                at = self.next_candidate(at, end, &mut fresh);
                continue;
            }
            let mut next = at + unit;
            for &(start, end) in &function.spans {
                covered.insert(start, end);
                if start <= next {
                    next = next.max(end);
                }
            }
            for &literal in &function.literals {
                covered.insert(literal, literal + 4);
            }
            covered.insert_all(&function.tables);
            if arm {
                let left = function
                    .exits
                    .iter()
                    .filter(|(_, state)| !state.has_frame());
                let left = left.map(|(target, _)| target);
                named.extend(
                    function
                        .calls
                        .iter()
                        .chain(left)
                        .map(|to| (to.svma, to.thumb)),
                );
            }
            found.push(function);
            after_a32 = arm && !thumb;
            at = next;
            fresh = true;
        }
        found
    }

    /// The next possible function start after `at`. Sets `fresh` if control cannot run into it.
    fn next_candidate(&self, at: u64, end: u64, fresh: &mut bool) -> u64 {
        let machine = self.text.machine;
        if machine.arch == Arch::Arm {
            return at + 2;
        }
        let mut at = at;
        while at < end {
            let Some(instruction) = self.text.decode(at, false) else {
                return (at + 1).next_multiple_of(16);
            };
            at += u64::from(instruction.len);
            if starts::ends(&instruction) || self.text.prologues.contains(at) {
                *fresh = true;
                return at;
            }
        }
        end
    }
}
