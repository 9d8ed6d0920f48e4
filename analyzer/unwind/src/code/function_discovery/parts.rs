//! Follows code that is not a function: landing pads, and parts that only jumps lead to.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::Discovery;
use super::workers::Workers;
use crate::code::byte_map::ByteMap;
use crate::code::effect::Target;
use crate::code::starts;
use crate::code::state::{NO_CALL, PackedState, State};

impl Discovery<'_> {
    /// Follows landing pads, which only the unwinder leads to, with the meet of the states after
    /// all of the function's calls.
    pub(super) fn landing_pads(&mut self, workers: &mut Workers<'_>) {
        if !self.catches {
            return;
        }
        let mut reached = self.reached();
        let mut found = Vec::new();
        for (&start, function) in &self.done {
            let Some(state) = &function.after_calls else {
                continue;
            };
            // An unaligned neighbour means that parts of other functions (cold code) lie in
            // between.
            let end = self.end_of(start);
            if start & 15 != 0 || end & 15 != 0 && self.text.is_text(end) {
                continue;
            }
            let mut state = state.clone();
            state.called(0);
            state.after = NO_CALL;
            let gaps: Vec<(u64, u64)> = reached.gaps(&(start..end)).collect();
            for (from, end) in gaps {
                let mut at = from;
                while at < end {
                    if let Some(len) = starts::padding(&self.text, at, false) {
                        at += len;
                        continue;
                    }
                    if reached.contains(at) {
                        at += 1;
                        continue;
                    }
                    let target = Target {
                        svma: at,
                        thumb: false,
                    };
                    let alone = self.follow(target, end, false, &mut workers.workspace());
                    let stub = at & 15 != 0
                        && alone.instructions <= 2
                        && matches!(alone.exits.as_slice(), [(to, _)] if !reached.contains(to.svma));
                    if !alone.depends_on_caller && !stub {
                        break;
                    }
                    let pad =
                        self.follow_from(target, end, &state, false, &mut workers.workspace());
                    if pad.doubtful || pad.spans.is_empty() {
                        break;
                    }
                    reached.insert_all(&pad.spans);
                    found.push(pad);
                }
            }
        }
        for pad in found {
            self.keep_part(pad);
        }
    }

    /// Follows code that only jumps from another function lead to (`.cold` parts, shared tails),
    /// with the state at the jump.
    pub(super) fn follow_fragments(&mut self, workers: &mut Workers<'_>) {
        // Computed when first needed, which is rare.
        let called = OnceCell::new();
        let mut reached = self.reached();
        // Jumps examined in an earlier round lead nowhere new.
        let mut fragments = 0;
        for _ in 0..4 {
            let called = || {
                let calls = self.done.values().flat_map(|function| &function.calls);
                called.get_or_init(|| ByteMap::of(&self.text, calls.map(|call| &call.svma)))
            };
            let mut wanted: BTreeMap<u64, (Target, Incoming)> = BTreeMap::new();
            let mut last = None;
            let functions = self.done.values().filter(|_| fragments == 0);
            let functions = functions.chain(&self.fragments[fragments..]);
            for (target, state) in functions.flat_map(|function| &function.exits) {
                // For most jumps, the check of `reached` decides.
                let part = || {
                    self.start_set.contains(target.svma)
                        && state.has_frame()
                        && !starts::is_entry(&self.text, *target, state)
                        && !called().contains(target.svma)
                        && self.done.contains_key(&target.svma)
                };
                if reached.contains(target.svma) && !part() || !self.text.is_text(target.svma) {
                    continue;
                }
                wanted
                    .entry(target.svma)
                    .and_modify(|(_, incoming)| incoming.meet(state, &mut last))
                    .or_insert_with(|| (*target, Incoming::One(Arc::clone(state))));
            }
            if wanted.is_empty() {
                return;
            }
            // Computed now, while functions that become parts still count.
            called();
            fragments = self.fragments.len();
            let parts: Vec<u64> = wanted.keys().copied().collect();
            self.add_landing_pads(&parts, false);
            let wanted: Vec<(Target, Incoming)> = wanted.into_values().collect();
            let found = workers.each(self, &wanted, |discovery, (target, incoming), workspace| {
                let end = discovery.end_of(target.svma);
                let mut state = incoming.state();
                state.after = NO_CALL;
                [discovery.follow_from(*target, end, &state, false, workspace)]
            });
            for function in found.into_iter().flatten() {
                reached.insert_all(&function.spans);
                // The part is more reliable than the earlier result as a whole function.
                self.stale |= self.done.remove(&function.start).is_some();
                self.keep_part(function);
            }
        }
    }
}

/// The meet of the states at all jumps to one place. Most places have one jump, or several from one
/// table with the same state.
enum Incoming {
    One(Arc<PackedState>),
    Met(Box<State>),
}

impl Incoming {
    /// Meets another state. `last` caches the last unpacked state, because all jumps of a table
    /// share it.
    fn meet<'k>(
        &mut self,
        other: &'k Arc<PackedState>,
        last: &mut Option<(&'k Arc<PackedState>, State)>,
    ) {
        if let Incoming::One(one) = self {
            if Arc::ptr_eq(one, other) {
                return;
            }
            *self = Incoming::Met(Box::new(one.state()));
        }
        if let Incoming::Met(state) = self {
            match last {
                Some((kept, other_state)) if Arc::ptr_eq(kept, other) => state.meet(other_state),
                _ => state.meet(&last.insert((other, other.state())).1),
            };
        }
    }

    fn state(&self) -> State {
        match self {
            Incoming::One(one) => one.state(),
            Incoming::Met(state) => (**state).clone(),
        }
    }
}
