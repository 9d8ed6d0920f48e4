//! Finds where call frame information says that the link register holds the return address although
//! it was overwritten.
//!
//! A function that never returns need not keep its return address. Compilers then do not save it,
//! and use the register for something else. Their call frame information does not mention this,
//! which means that the address stays in the register. On every path from such an instruction it is
//! lost.

use std::collections::{BTreeMap, HashSet};

use super::{ALWAYS, Verdict};
use crate::code::effect::{Flow, Instruction};
use crate::code::machine::Machine;
use crate::rule::{Place, Rule};

/// The instructions at which CFI says that the link register holds the return address.
pub(super) struct OverwrittenLink {
    machine: &'static Machine,
    steps: BTreeMap<u64, Step>,
}

struct Step {
    /// The address after the last instruction.
    next: u64,
    /// Whether control goes on to `next`.
    onward: bool,
    target: Option<u64>,
    overwrites: bool,
}

impl OverwrittenLink {
    pub(super) fn new(machine: &'static Machine) -> OverwrittenLink {
        OverwrittenLink {
            machine,
            steps: BTreeMap::new(),
        }
    }

    /// Adds the instruction at `at`, with its CFI `rule` and whether the analysis agrees with it.
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
        // If they do not agree, the instruction may restore the register.
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

    /// The addresses at which the return address is lost. They start after an instruction that
    /// overwrites it and at which the analysis agrees, and include everything that control reaches
    /// from there.
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
