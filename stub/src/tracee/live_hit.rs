//! The registers and memory of a thread at a tracepoint or a breakpoint, as expressions and frames
//! see them.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::arch;
use crate::ptrace::thread::{Stopped, Thread};
use crate::subscription::Subscriptions;
use crate::sys::maps::{self, StackMapping};
use crate::sys::stat::Stat;
use crate::sys::{Tid, monotonic_ns};
use crate::tracepoint::Stacks;
use crate::tracepoint::experiment::HitContext;
use crate::tracepoint::variable::Computed;

use super::Tracee;
use super::memory::OriginalMemory;

impl Tracee {
    /// The state of a stopped thread, and the clients that may want to know it.
    pub(super) fn live_hit(&mut self, tid: Tid) -> Option<(LiveHit<'_>, &mut Subscriptions)> {
        let process = self.process.any_task();
        let thread = self.process.threads.get_mut(&tid);
        let hit = LiveHit {
            tid,
            process,
            stopped: thread.and_then(Thread::stopped)?,
            memory: OriginalMemory {
                memory: &self.process.memory,
                breakpoints: &self.breakpoints,
                displaced: &self.displaced,
                jump_pads: &self.tracepoints.fast.jump_pads,
            },
            stacks: &mut self.tracepoints.stacks,
            registers: Vec::new(),
        };
        Some((hit, &mut self.subscriptions))
    }
}

/// A thread at a tracepoint, or at a breakpoint.
pub(super) struct LiveHit<'a> {
    tid: Tid,
    /// A thread of the process whose memory still exists.
    process: Tid,
    pub(super) stopped: &'a mut Stopped,
    pub(super) memory: OriginalMemory<'a>,
    stacks: &'a mut Stacks,
    registers: Vec<u8>,
}

impl HitContext for LiveHit<'_> {
    fn registers(&mut self, sets: u8) -> (u8, &[u8]) {
        let layout = arch::layout();
        self.registers.clear();
        self.registers.resize(layout.size, 0);
        let mut known = 0;
        for register in &layout.registers {
            let bit = 1 << register.place.set;
            let into = &mut self.registers[register.offset..register.offset + register.size];
            if sets & bit != 0 && self.stopped.register(register, into).is_ok() {
                known |= bit;
            }
        }
        (known, &self.registers)
    }

    fn register(&mut self, number: usize) -> Option<u64> {
        self.stopped.word(number)
    }

    fn read(&mut self, address: u64, into: &mut [u8]) -> usize {
        self.memory.read(address, into).unwrap_or(0)
    }

    fn compute(&mut self, computed: Computed) -> i64 {
        match computed {
            Computed::Timestamp => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH);
                since.map_or(0, |since| since.as_micros() as i64)
            }
            Computed::Time => monotonic_ns().cast_signed(),
            Computed::Stop | Computed::Needed | Computed::StackKey => 0,
            Computed::Thread => self.tid.0.into(),
            Computed::Cpu => self.processor(),
            Computed::StackLeft => self.stack_left().map_or(-1, u64::cast_signed),
        }
    }
}

impl LiveHit<'_> {
    /// The processor on which the thread ran last; -1 if it is gone.
    fn processor(&self) -> i64 {
        let stat = Stat::of_thread(self.process, self.tid);
        let processor = stat.and_then(|stat| stat.processor());
        processor.map_or(-1, i64::from)
    }

    /// Bytes from the stack pointer to the end of its mapping. That end does not move during the
    /// thread's life.
    fn stack_left(&mut self) -> Option<u64> {
        let sp = self.stopped.sp().ok()?;
        if let Some((low, end)) = self.stacks.get_mut(&self.tid)
            && sp < *end
            && *low - sp.min(*low) < 1 << 20
        {
            *low = sp.min(*low);
            return Some(*end - sp);
        }
        let pointer = self.stopped.thread_pointer().unwrap_or(0);
        let end = stack_end(sp, &maps::stack(self.process, sp)?, pointer);
        self.stacks.insert(self.tid, (sp, end));
        Some(end - sp)
    }
}

/// The end of the stack in this mapping, which contains `sp`. C libraries put the data of a thread
/// that they create above its stack, in the same mapping.
pub(super) fn stack_end(sp: u64, mapping: &StackMapping, thread_pointer: u64) -> u64 {
    let end = mapping.range.end;
    if !mapping.grows && (sp..end).contains(&thread_pointer) {
        thread_pointer
    } else {
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_ends_below_its_threads_own_data() {
        let mapping = |range, grows| StackMapping { range, grows };
        let end = |sp, pointer| stack_end(sp, &mapping(0x7000..0x9000, false), pointer);
        assert_eq!(end(0x7100, 0x8700), 0x8700);
        // Elsewhere, below the stack pointer, and in the first thread's stack.
        assert_eq!((end(0x7100, 0xb000), end(0x8800, 0x8700)), (0x9000, 0x9000));
        assert_eq!(
            stack_end(0xa100, &mapping(0xa000..0xc000, true), 0xb000),
            0xc000
        );
    }
}
