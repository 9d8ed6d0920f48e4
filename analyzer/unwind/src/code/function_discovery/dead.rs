//! Follows dead code inside functions, which compilers leave after calls that do not return.
//!
//! No thread ever executes it. But otherwise it would be taken for the next function and would cut
//! off the rest of its own. And if such a call returns after all, the rules after it are known.

use std::collections::BTreeMap;

use super::Discovery;
use super::workers::Workers;
use crate::code::effect::Target;
use crate::code::state::{NO_CALL, State};

impl Discovery<'_> {
    /// Follows dead code with the state it would have.
    pub(super) fn follow_dead(&mut self, workers: &mut Workers<'_>) {
        let mut dead = self.done.values().flat_map(|function| &function.dead);
        if !self.stale && dead.all(|(target, _)| self.reached.contains(target.svma)) {
            return;
        }
        let mut covered = self.covered();
        let mut wanted: BTreeMap<u64, (Target, State)> = BTreeMap::new();
        // The start of the dead code, and the bounds of its function.
        let mut bounds = Vec::new();
        let functions = self.done.values();
        for function in functions.filter(|function| !function.dead.is_empty()) {
            let end = self.end_of(function.start);
            for (target, state) in &function.dead {
                if target.svma < end && !covered.contains(target.svma) {
                    bounds.push((target.svma, function.start, end));
                    wanted
                        .entry(target.svma)
                        .or_insert_with(|| (*target, state.state()));
                }
            }
        }
        // Dead code may jump to other dead code.
        while let Some((svma, (target, mut state))) = wanted.pop_first() {
            if covered.contains(svma) || self.text.is_data(svma) {
                continue;
            }
            let before = bounds.partition_point(|bound| bound.0 <= svma);
            let Some(&(_, start, end)) = before.checked_sub(1).and_then(|at| bounds.get(at)) else {
                continue;
            };
            state.after = NO_CALL;
            let next = covered.next(svma, end, true);
            let mut part = self.follow_from(target, next, &state, false, &mut workers.workspace());
            covered.insert_all(&part.spans);
            for (target, state) in &part.exits {
                if (start..end).contains(&target.svma) && !covered.contains(target.svma) {
                    wanted
                        .entry(target.svma)
                        .or_insert_with(|| (*target, state.state()));
                }
            }
            self.reached.insert_all(&part.spans);
            part.start = start;
            self.dead.push(part);
        }
    }
}
