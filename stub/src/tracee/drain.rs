//! Hits that collectors have noted: they are made of what was noted then, as a hit at a trap is made of the thread that stands there.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::arch;
use crate::arch::fast::{Base, Block, Noted};
use crate::sys::{Tid, monotonic_ns};
use crate::tracepoint::experiment::HitContext;
use crate::tracepoint::variable::Computed;

use super::Tracee;
use super::tracepoints::set_of;

/// No hit costs more, whatever the clock says: its thread had to wait for a processor.
const DEAREST: u64 = 10_000;
/// What there is to a hit before and behind its own clock.
const AROUND: u64 = 100;

impl Tracee {
    /// Notes the hits that wait.
    pub(crate) fn drain_jump_pads(&mut self) {
        // After all of them, not among them: what a pause tells of came before it.
        if self.take_hits() {
            self.keep_budget();
        }
    }

    /// The same, whatever it costs; whether that was too much.
    pub(super) fn take_hits(&mut self) -> bool {
        if self.jump_pads.is_unused() || self.end.is_some() {
            return false;
        }
        let told = self.subscriptions.are_drained();
        let mut over = false;
        // Once: while others run there will always be more.
        for hit in self.jump_pads.drain(&self.memory, told) {
            over |= self.recall(&hit);
        }
        over
    }

    /// Whether it cost too much.
    fn recall(&mut self, hit: &crate::tracepoint::fast::pool::Hit) -> bool {
        let noted = Noted(&hit.bytes);
        let Some((at, blocks)) = self.jump_pads.of(hit) else {
            return false;
        };
        let tid = Tid(noted.thread());
        let sp = noted.stack_pointer();
        if let Some(thread) = self.threads.get_mut(&tid)
            && let Some(index) = thread
                .dealt_with
                .iter()
                .rposition(|known| *known == (at, sp))
        {
            // A handler came between this hit and its instruction.
            thread.dealt_with.remove(index);
            return false;
        }
        let sets = noted.sets(at);
        let mut then = Then {
            noted: &noted,
            time_ns: hit.time_ns,
            time: hit.time,
            blocks: blocks
                .iter()
                .zip(noted.blocks(&blocks))
                .map(|(block, bytes)| (address(block, &sets), bytes))
                .collect(),
            sets,
        };
        for (_, subscription) in self.subscriptions.each() {
            if subscription.trace.hit(at, set_of, &mut then).needed {
                self.budget.need(at);
            }
        }
        let cost = hit.cost_ns.min(DEAREST) + AROUND;
        self.is_tracing() && self.budget.hit(monotonic_ns(), at, cost)
    }

    /// When somebody waits for hits that nobody has told us of.
    pub(crate) fn drain_due(&self) -> Option<Instant> {
        let waits = self.going && !self.jump_pads.is_empty() && self.subscriptions.are_drained();
        self.jump_pads.pool().filter(|_| waits)?.due()
    }

    pub(super) fn drain_if_due(&mut self) {
        if self.drain_due().is_some_and(|due| due <= Instant::now()) {
            self.drain_jump_pads();
        }
    }
}

/// Where a block began.
fn address(block: &Block, sets: &Sets) -> u64 {
    let base = match block.base {
        Base::Absolute => 0,
        Base::Register(number) => register(sets, number).unwrap_or(0),
    };
    base.wrapping_add(block.offset) & arch::wide(arch::Word::MAX)
}

fn register(sets: &Sets, number: usize) -> Option<u64> {
    let bytes = part(sets, arch::layout().register(number)?.place)?;
    let mut value = [0; 8];
    value.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(u64::from_le_bytes(value))
}

fn part(sets: &Sets, place: arch::Place) -> Option<&[u8]> {
    let (_, set) = sets.iter().find(|(index, _)| *index == place.set)?;
    set.get(place.offset..place.offset + place.size)
}

/// Register sets, with their indices.
type Sets = [(usize, Vec<u8>)];

/// A thread at a hit that is over.
struct Then<'a> {
    noted: &'a Noted<'a>,
    time_ns: u64,
    time: Instant,
    sets: Vec<(usize, Vec<u8>)>,
    blocks: Vec<(u64, &'a [u8])>,
}

impl HitContext for Then<'_> {
    fn time(&self) -> Instant {
        self.time
    }

    fn registers(&mut self, _: u8) -> (u8, Vec<u8>) {
        let layout = arch::layout();
        let mut values = vec![0; layout.size];
        for register in &layout.registers {
            if let Some(from) = part(&self.sets, register.place) {
                values[register.offset..register.offset + from.len()].copy_from_slice(from);
            }
        }
        let known = self
            .sets
            .iter()
            .fold(0, |known, (index, _)| known | 1 << index);
        (known, values)
    }

    fn register(&mut self, number: usize) -> Option<u64> {
        register(&self.sets, number)
    }

    fn read(&mut self, address: u64, into: &mut [u8]) -> usize {
        let mut known = 0;
        for (start, bytes) in &self.blocks {
            let rest = address
                .checked_sub(*start)
                .and_then(|skip| bytes.get(skip as usize..));
            let rest = rest.unwrap_or_default();
            let length = rest.len().min(into.len());
            if length > known {
                into[..length].copy_from_slice(&rest[..length]);
                known = length;
            }
        }
        known
    }

    fn compute(&mut self, computed: Computed) -> i64 {
        match computed {
            Computed::Timestamp => {
                let ago = monotonic_ns().saturating_sub(self.time_ns);
                let since = SystemTime::now().duration_since(UNIX_EPOCH);
                since.map_or(0, |since| {
                    (since.as_micros() as u64 - ago / 1000).cast_signed()
                })
            }
            Computed::Time => self.time_ns.cast_signed(),
            Computed::Stop | Computed::Needed => 0,
            Computed::Thread => self.noted.thread().into(),
            Computed::Cpu => self.noted.processor().into(),
            Computed::StackLeft => self.noted.stack_left().cast_signed(),
        }
    }
}
