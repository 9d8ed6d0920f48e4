//! Handles hits of breakpoints that have conditions and commands.
//!
//! A hit is not reported if all conditions are false or if there are commands. The thread then
//! continues past the trap while all others run, as from a tracepoint.

use crate::bytecode::World;
use crate::output;
use crate::subscription::role::Role;
use crate::sys::Tid;
use crate::tracepoint::experiment::HitContext;
use crate::tracepoint::variable::Variables;

use super::Tracee;
use super::live_hit::LiveHit;

impl Tracee {
    /// True if a hit of the client's breakpoint at `at`, where the thread is, must be reported.
    pub(super) fn breaks(&mut self, tid: Tid, at: u64) -> bool {
        let Some((hit, subscriptions)) = self.live_hit(tid) else {
            return true;
        };
        let Some(actions) = hit.memory.breakpoints.actions(at) else {
            return false;
        };
        let variables = &mut subscriptions.of(Role::Control).trace.variables;
        actions.hit(&mut BreakpointHit { hit, variables })
    }
}

/// A thread at a breakpoint, and the client's variables. Expressions collect nothing.
struct BreakpointHit<'a> {
    hit: LiveHit<'a>,
    variables: &'a mut Variables,
}

impl World for BreakpointHit<'_> {
    fn register(&mut self, number: usize) -> Option<u64> {
        self.hit.register(number)
    }

    fn read(&mut self, address: u64, into: &mut [u8]) -> bool {
        self.hit.read(address, into) == into.len()
    }

    fn collect(&mut self, _: u64, _: u64) {}

    fn collect_string(&mut self, _: u64, _: u64) {}

    fn variable(&mut self, number: u32) -> i64 {
        match self.variables.computed(number) {
            Some(computed) => self.hit.compute(computed),
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
