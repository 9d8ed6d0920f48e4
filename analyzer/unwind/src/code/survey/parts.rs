//! Code that is no function: what catches exceptions, and what is only jumped to.

use std::collections::BTreeMap;

use super::Survey;
use crate::code::cover::Cover;
use crate::code::effect::Target;
use crate::code::flow::Show;
use crate::code::starts;
use crate::code::state::{NO_CALL, State};

impl Survey<'_> {
    /// Code of a function that only the unwinder leads to, when an exception passes a call: it starts with what is
    /// known behind all of the function's calls.
    pub(super) fn landing_pads(&mut self, show: &mut dyn Show) {
        if !self.catches {
            return;
        }
        let mut reached = self.reached();
        let mut found = Vec::new();
        for (&start, function) in &self.done {
            let Some(state) = &function.after_calls else {
                continue;
            };
            // Parts of other functions lie between what is not aligned: code that is rarely used.
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
                    let alone = self.follow(target, end, false, show);
                    let stub = at & 15 != 0
                        && alone.instructions <= 2
                        && matches!(alone.exits.as_slice(), [(to, _)] if !reached.contains(to.svma));
                    if !alone.alien && !stub {
                        break;
                    }
                    let pad = self.follow_from(target, end, &state, false, show);
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

    /// Code that is only reached by jumps from another function (`.cold` parts, shared tails), with the state
    /// that the jump brings along.
    pub(super) fn follow_fragments(&mut self, show: &mut dyn Show) {
        let calls = self.done.values().flat_map(|function| &function.calls);
        let called = Cover::of(&self.text, calls.map(|call| &call.svma));
        let mut reached = self.reached();
        for _ in 0..4 {
            let mut wanted: BTreeMap<u64, (Target, State)> = BTreeMap::new();
            for (target, state) in self
                .done
                .values()
                .chain(&self.fragments)
                .flat_map(|function| &function.exits)
            {
                let part = || {
                    state.has_frame()
                        && !starts::is_entry(&self.text, *target, state)
                        && !called.contains(target.svma)
                        && self.done.contains_key(&target.svma)
                };
                if !self.text.is_text(target.svma) || reached.contains(target.svma) && !part() {
                    continue;
                }
                wanted
                    .entry(target.svma)
                    .and_modify(|(_, known)| {
                        known.meet(&state.state());
                    })
                    .or_insert_with(|| (*target, state.state()));
            }
            if wanted.is_empty() {
                return;
            }
            let parts: Vec<u64> = wanted.keys().copied().collect();
            self.land(&parts, false);
            for (svma, (target, mut state)) in wanted {
                state.after = NO_CALL;
                let end = self.end_of(svma);
                let function = self.follow_from(target, end, &state, false, show);
                reached.insert_all(&function.spans);
                // Believed before what was found by taking it for a whole function.
                self.stale |= self.done.remove(&svma).is_some();
                self.keep_part(function);
            }
        }
    }
}
