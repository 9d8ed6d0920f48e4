//! Where call frame information says that the link register holds the return address though it was overwritten.
//!
//! A function that never returns has no need to keep its return address, and compilers save none and use the register; their
//! call frame information says nothing of that, which means that the address stays where it was. On every path from such an
//! instruction it is lost.

use std::collections::{BTreeMap, HashSet};

use super::{ALWAYS, Verdict};
use crate::code::effect::{Flow, Instruction};
use crate::code::machine::Machine;
use crate::rule::{Place, Rule};

/// The instructions before which the link register is said to hold the return address.
pub(super) struct Lost {
    machine: &'static Machine,
    steps: BTreeMap<u64, Step>,
}

struct Step {
    /// Behind it.
    next: u64,
    /// Control goes on there.
    onward: bool,
    target: Option<u64>,
    overwrites: bool,
}

impl Lost {
    pub(super) fn new(machine: &'static Machine) -> Lost {
        Lost {
            machine,
            steps: BTreeMap::new(),
        }
    }

    /// The instruction at `at`, of which call frame information says `rule`, and what the analysis says of that.
    pub(super) fn add(
        &mut self,
        at: u64,
        thumb: bool,
        instruction: &Instruction,
        rule: &Rule,
        verdict: Verdict,
    ) {
        if !self.machine.link || rule.ra != Place::Same {
            return;
        }
        let sets = |mask: u32| mask >> self.machine.ra & 1 == 1;
        let sets = instruction
            .effects()
            .iter()
            .any(|effect| sets(effect.writes()));
        let agreed = verdict == Verdict::Agree;
        // Else what sets it may restore it.
        if sets && !agreed {
            return;
        }
        let conditional = instruction.condition != ALWAYS;
        let (onward, target) = match instruction.flow {
            Flow::Next | Flow::Call(_) => (true, None),
            Flow::Jump(target) => (conditional, Some(target)),
            Flow::Branch(target) | Flow::IfZero { target, .. } => (true, Some(target)),
            _ => (conditional, None),
        };
        let target = target.filter(|target| target.thumb == thumb);
        let step = Step {
            next: at + u64::from(instruction.len),
            onward,
            target: target.map(|target| target.svma),
            overwrites: agreed && (sets || matches!(instruction.flow, Flow::Call(_))),
        };
        self.steps.insert(at, step);
    }

    /// Where it is lost: behind what overwrites it, if the analysis agrees before that, and wherever control goes from there.
    pub(super) fn addresses(&self) -> HashSet<u64> {
        let first = self.steps.values().filter(|step| step.overwrites);
        let mut open: Vec<u64> = first.map(|step| step.next).collect();
        let mut found = HashSet::new();
        while let Some(at) = open.pop() {
            let Some(step) = self.steps.get(&at).filter(|_| found.insert(at)) else {
                continue;
            };
            open.extend(step.target);
            open.extend(step.onward.then_some(step.next));
        }
        found
    }
}
