//! Where hits wait that were noted without a stop: memory of the program's, which collectors fill
//! and we drain.
//!
//! A slot is free, being filled, or filled. Collectors take free ones and say when they are filled,
//! we free them; the state of each is one word, in an array of all. Tickets say in which order they
//! were taken.

use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use crate::arch::fast::{
    ALARM, DRAINED, MAX_SLOTS, Noted, SLOTS, STATES, TABLE, THREAD_SIZE, THREADS, TICKET, entries,
};
use crate::sys::memory::Memory;
use crate::sys::{Tid, monotonic_ns, ticks};

use super::Registration;

/// Fewer slots are not worth it.
const FEWEST: u64 = 16;
/// More memory is never used.
const LARGEST: u64 = 2 << 20;
/// Maximum number of slots in one read.
const MAX_BATCH_SLOTS: usize = 32;
/// A client that drains is told of hits no later than this.
const OFTEN: Duration = Duration::from_millis(10);
/// This long after the last hit the stub stops looking, and the next hit wakes it.
const QUIET: Duration = Duration::from_secs(1);

/// The memory, and how we stand with it.
pub(crate) struct Pool {
    pub(crate) start: u64,
    pub(crate) slots: u64,
    pub(crate) slot_size: u64,
    /// The clocks, when it was made.
    first: Clocks,
    looked: Instant,
    last_hit: Instant,
    /// The next hit will tell us.
    armed: bool,
}

/// The processor's clock, the kernel's, and that one as the standard library has it, at one moment.
struct Clocks {
    ticks: u64,
    ns: u64,
    instant: Instant,
}

impl Clocks {
    /// Read as close together as the kernel lets us.
    fn now() -> Clocks {
        let mut best: Option<(u64, Clocks)> = None;
        for _ in 0..3 {
            let (before, ns, instant, after) = (ticks(), monotonic_ns(), Instant::now(), ticks());
            let took = after.saturating_sub(before);
            if best.as_ref().is_none_or(|(least, _)| took < *least) {
                let ticks = before + took / 2;
                best = Some((took, Clocks { ticks, ns, instant }));
            }
        }
        match best {
            Some((_, clocks)) => clocks,
            None => unreachable!("it was read three times"),
        }
    }
}

/// The words in front of the slots.
struct Words {
    ticket: u64,
    drained: u64,
    alarm: u64,
    states: Vec<u64>,
}

/// A hit.
pub(crate) struct Hit {
    /// A slot's bytes; [`Noted`] reads them.
    pub(crate) bytes: Vec<u8>,
    /// When it began, by the monotonic clock.
    pub(crate) time_ns: u64,
    pub(crate) time: Instant,
    /// How long it took.
    pub(crate) cost_ns: u64,
}

impl Pool {
    /// How many slots of this size there may be; `None`: too few. They take no more than the trace
    /// buffer does.
    pub(crate) fn shape(slot_size: u64, buffer: u64) -> Option<u64> {
        let room = buffer.clamp(64 << 10, LARGEST);
        let most = (room / slot_size).min(MAX_SLOTS);
        (most >= FEWEST).then(|| 1 << most.ilog2())
    }

    /// Bytes that it takes.
    pub(crate) fn size(slots: u64, slot_size: u64) -> u64 {
        (SLOTS + slots * slot_size).next_multiple_of(4096)
    }

    /// Over memory full of zeroes.
    pub(crate) fn new(start: u64, slots: u64, slot_size: u64) -> Pool {
        let now = Instant::now();
        Pool {
            start,
            slots,
            slot_size,
            first: Clocks::now(),
            looked: now,
            last_hit: now,
            armed: false,
        }
    }

    /// Takes out what has been filled, in the order of the clock: a thread may lose its processor
    /// between its ticket and its look at the clock. `told`: the next hit after a quiet time is to
    /// tell us.
    pub(crate) fn drain(&mut self, memory: &Memory, told: bool) -> Vec<Hit> {
        let now = Instant::now();
        self.looked = now;
        let mut hits = Vec::new();
        let Some(Words {
            ticket,
            drained: known,
            alarm,
            mut states,
        }) = self.words(memory)
        else {
            return hits;
        };
        if states.iter().any(|state| *state != 0 && state % 2 == 0) {
            // What somebody has seen the effects of whose slot is filled, is filled by now.
            let before = states.clone();
            if let Some(Words { states: later, .. }) = self.words(memory) {
                for (state, (before, later)) in states.iter_mut().zip(before.into_iter().zip(later))
                {
                    if before != 0 && before % 2 == 0 && later == before + 1 {
                        *state = later;
                    }
                }
            }
        }
        let mut filled: Vec<(u64, u64)> = states
            .iter()
            .enumerate()
            .filter(|(_, state)| *state % 2 == 1)
            .map(|(index, state)| (*state, index as u64))
            .collect();
        filled.sort_unstable();
        let clock = Clocks::now();
        for part in filled.chunks(MAX_BATCH_SLOTS) {
            let size = self.slot_size as usize;
            let places: Vec<u64> = part
                .iter()
                .map(|(_, index)| self.start + SLOTS + index * self.slot_size)
                .collect();
            let mut bytes = vec![0; size * places.len()];
            if !memory.read_many(&places, size, &mut bytes) {
                break;
            }
            let states: Vec<u64> = part
                .iter()
                .map(|(_, index)| self.start + STATES + 8 * index)
                .collect();
            memory.write_words(&states, 0);
            for bytes in bytes.chunks(size) {
                let (begin, end) = Noted(bytes).ticks();
                let time_ns = self.ns(&clock, begin);
                let since = Duration::from_nanos(time_ns.saturating_sub(self.first.ns));
                hits.push(Hit {
                    bytes: bytes.to_vec(),
                    time_ns,
                    time: self.first.instant + since,
                    cost_ns: self.ns(&clock, end).saturating_sub(time_ns),
                });
            }
        }
        hits.sort_by_key(|hit| hit.time_ns);
        if !hits.is_empty() {
            self.last_hit = now;
            self.armed = false;
        }
        let arm = told && hits.is_empty() && now - self.last_hit > QUIET;
        let drained = if arm {
            ticket.wrapping_sub(self.slots)
        } else {
            ticket
        };
        if drained != known {
            memory.write_words(&[self.start + DRAINED], drained);
        }
        // One that is given from now on stops its thread, for which we drain again.
        if alarm != 0 {
            memory.write_words(&[self.start + ALARM], 0);
        }
        if arm && !self.armed {
            // A hit that came meanwhile has not woken the stub.
            let now = self.words(memory);
            self.armed = now.is_some_and(|now| now.states.iter().all(|state| *state == 0));
        }
        hits
    }

    /// The first hit is to tell us.
    pub(crate) fn arm(&mut self, memory: &Memory) {
        let drained = 0_u64.wrapping_sub(self.slots);
        memory.write_words(&[self.start + DRAINED], drained);
        // A slot that is being filled for ticket 0 would look free.
        memory.write_words(&[self.start + TICKET], 1);
        self.armed = true;
    }

    /// When it is to be drained for a client that waits for hits.
    pub(crate) fn due(&self) -> Option<Instant> {
        (!self.armed).then(|| self.looked + OFTEN)
    }

    fn words(&self, memory: &Memory) -> Option<Words> {
        let mut bytes = vec![0; (STATES + 8 * self.slots) as usize];
        if memory.read(self.start, &mut bytes) != Ok(bytes.len()) {
            return None;
        }
        // What a state says of a slot is true of what is read of the slot from now on.
        fence(Ordering::Acquire);
        let (head, states) = bytes.split_at_checked(STATES as usize)?;
        let word = |bytes: &[u8]| bytes.first_chunk().copied().map_or(0, u64::from_le_bytes);
        let at = |place: u64| head.get(place as usize..).map_or(0, word);
        Some(Words {
            ticket: at(TICKET),
            drained: at(DRAINED),
            alarm: at(ALARM),
            states: states.chunks_exact(8).map(word).collect(),
        })
    }

    /// The clock's time at a tick.
    fn ns(&self, now: &Clocks, tick: u64) -> u64 {
        let since = u128::from(now.ns.saturating_sub(self.first.ns));
        let elapsed = u128::from(now.ticks.saturating_sub(self.first.ticks)).max(1);
        let ago = u128::from(now.ticks.saturating_sub(tick)) * since / elapsed;
        now.ns.saturating_sub(ago as u64)
    }

    /// The two places where a thread with this thread pointer may be entered.
    fn places(&self, pointer: u64) -> [u64; 2] {
        entries(pointer).map(|entry| self.start + entry)
    }

    /// Enters a thread, so that collectors know it.
    pub(crate) fn enter(&self, memory: &Memory, tid: Tid, thread: &Registration) {
        let Registration {
            pointer,
            processor,
            stack,
        } = *thread;
        let taken = |place: &&u64| {
            let mut key = [0; 8];
            memory.read(**place, &mut key) != Ok(8)
                || ![0, pointer].contains(&u64::from_le_bytes(key))
        };
        let places = self.places(pointer);
        self.leave(memory, pointer);
        let place = places
            .iter()
            .find(|place| !taken(place))
            .unwrap_or(&places[0]);
        // A collector that reads it while it is written finds it without its key before or after.
        memory.write_words(&[*place], 0);
        let distance = processor.map(|at| at.wrapping_sub(pointer).cast_signed());
        let distance = distance
            .and_then(|far| i32::try_from(far).ok())
            .unwrap_or(0);
        let identity = u64::from(distance.cast_unsigned()) << 32 | u64::from(tid.0.cast_unsigned());
        memory.write_words(&[place + 8], identity);
        memory.write_words(&[place + 16], stack.0);
        memory.write_words(&[place + 24], stack.1);
        memory.write_words(&[*place], pointer);
    }

    /// Whether collectors know a thread with this thread pointer on a stack that contains `sp`.
    pub(crate) fn knows(&self, memory: &Memory, pointer: u64, sp: u64) -> bool {
        self.places(pointer).into_iter().any(|place| {
            let mut entry = [0; 32];
            let word = |entry: &[u8; 32], at: usize| {
                let bytes = entry[at..].first_chunk().copied();
                bytes.map_or(0, u64::from_le_bytes)
            };
            memory.read(place, &mut entry) == Ok(entry.len())
                && word(&entry, 0) == pointer
                && (word(&entry, 16)..word(&entry, 24)).contains(&sp)
        })
    }

    /// Forgets a thread.
    pub(crate) fn leave(&self, memory: &Memory, pointer: u64) {
        for place in self.places(pointer) {
            let mut key = [0; 8];
            if memory.read(place, &mut key) == Ok(8) && u64::from_le_bytes(key) == pointer {
                memory.write_words(&[place], 0);
            }
        }
    }

    /// Forgets all threads.
    pub(crate) fn leave_all(&self, memory: &Memory) {
        let table = vec![0; (THREADS * THREAD_SIZE) as usize];
        let _ = memory.write(self.start + TABLE, &table);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::fast::BEGIN;

    #[test]
    fn hits_come_in_the_order_of_the_clock() {
        const SLOT: u64 = 128;
        let mut bytes = vec![0_u8; Pool::size(FEWEST, SLOT) as usize];
        let mut pool = Pool::new(bytes.as_ptr() as u64, FEWEST, SLOT);
        let mut put = |at: u64, word: u64| {
            bytes[at as usize..][..8].copy_from_slice(&word.to_le_bytes());
        };
        let now = ticks();
        // The threads with the tickets 1, 2 and 3 have looked at the clock as second, third and
        // first.
        for (ticket, ago) in [(1, 2000), (2, 1000), (3, 3000)] {
            put(STATES + 8 * ticket, 2 * ticket + 1);
            put(SLOTS + ticket * SLOT + u64::from(BEGIN), now - ago);
        }
        let process = Tid(std::process::id().cast_signed());
        let memory = Memory::open(process).expect("own memory");
        let begun = |hit: &Hit| now - Noted(&hit.bytes).ticks().0;
        let hits = pool.drain(&memory, false);
        assert_eq!(
            hits.iter().map(begun).collect::<Vec<_>>(),
            [3000, 2000, 1000]
        );
        assert!(hits.is_sorted_by_key(|hit| hit.time));
        assert!(pool.drain(&memory, false).is_empty());
    }

    #[test]
    fn shapes() {
        assert_eq!(Pool::shape(256, 1 << 20), Some(1024));
        assert_eq!(Pool::shape(2304, 1 << 20), Some(256));
        assert_eq!(Pool::shape(17 << 10, 128 << 20), Some(64));
        assert_eq!(Pool::shape(17 << 10, 4096), None);
    }
}
