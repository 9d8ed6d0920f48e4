//! Breakpoints with conditions and commands: whether a hit of one is to be reported, and what is done instead.
//!
//! The client sends both as agent expressions (GDB manual, `Z0`). A hit for which all conditions are false is nobody's business, nor is
//! one for which there are commands: the thread goes on past the trap while all others run, as from a tracepoint's.

use crate::bytecode::{self, World};
use crate::output;
use crate::sys::Tid;
use crate::tracepoint::experiment::HitContext;
use crate::tracepoint::variable::Variables;

use super::Tracee;
use super::tracepoints::Now;
use crate::subscription::role::Role;

impl Tracee {
    /// Whether the client's breakpoint at `at`, where the thread stands, is to be reported. So it is where a condition
    /// cannot be evaluated: the client can do that better. If there are commands they are executed, each as far as that can be done; the
    /// client could not.
    pub(super) fn breaks(&mut self, tid: Tid, at: u64) -> bool {
        let Some((now, subscriptions)) = self.now(tid) else {
            return true;
        };
        let Some(terms) = now.memory.breakpoints.terms(at) else {
            return false;
        };
        let mut here = Here {
            now,
            variables: &mut subscriptions.of(Role::Control).trace.variables,
        };
        let mut holds = |condition: &Vec<u8>| bytecode::evaluate(condition, &mut here) != Ok(0);
        let counts = terms.conditions.is_empty() || terms.conditions.iter().any(&mut holds);
        if counts {
            for command in &terms.commands {
                let _ = bytecode::evaluate(command, &mut here);
            }
        }
        counts && terms.commands.is_empty()
    }
}

/// A thread at a breakpoint, and the client's variables. There is nothing to collect into.
struct Here<'a> {
    now: Now<'a>,
    variables: &'a mut Variables,
}

impl World for Here<'_> {
    fn register(&mut self, number: usize) -> Option<u64> {
        self.now.register(number)
    }

    fn read(&mut self, address: u64, into: &mut [u8]) -> bool {
        self.now.read(address, into) == into.len()
    }

    fn collect(&mut self, _: u64, _: u64) {}

    fn collect_string(&mut self, _: u64, _: u64) {}

    fn variable(&mut self, number: u32) -> i64 {
        match self.variables.computed(number) {
            Some(computed) => self.now.compute(computed),
            None => self.variables.value(number).unwrap_or(0),
        }
    }

    fn set_variable(&mut self, number: u32, value: i64) {
        self.variables.set(number, value);
    }

    fn collect_variable(&mut self, _: u32) {}

    fn print(&mut self, text: &[u8]) -> bool {
        output::print(text);
        true
    }
}
