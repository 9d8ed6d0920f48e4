//! The memory in the program where recorded hits wait. Collectors fill it without stopping a
//! thread, and the stub drains it.
//!
//! A slot is free, being filled, or filled. A collector takes a free slot and marks it as filled,
//! and the stub frees it. The state of each slot is one word in an array. Tickets number the slots
//! in the order in which they were taken.

use std::ops::Range;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use crate::arch::fast::{
    ALARM, BEGIN, DRAINED, HALF, MASK, MAX_SLOTS, Noted, SLOT_HEAD, SLOTS, STATES, TABLE,
    THREAD_SIZE, THREADS, TICKET, entries,
};
use crate::sys::memfd::SharedMemory;
use crate::sys::memory::Memory;
use crate::sys::{Tid, ticks};

use super::Registration;
use super::tick_converter::TickConverter;

/// Smallest useful number of slots.
const MIN_SLOTS: u64 = 16;
/// Number of slots that collectors use at first. The first hit in a slot takes several times as
/// long as later ones, because the kernel then provides the slot's memory. Most programs need few.
const FIRST_SLOTS: u64 = 256;
/// Factor by which that number grows when hits come faster.
const GROWTH: u64 = 4;
/// Maximum size of all slots together, in bytes: in memory of the program alone, and in memory that
/// the stub maps too. All slots are as large as the largest hit may be, and most hits use only a
/// page of theirs. So a shared pool uses much less physical memory.
const MAX_SLOT_BYTES: u64 = 2 << 20;
const MAX_SHARED_SLOT_BYTES: u64 = 128 << 20;
/// Maximum number of slots in one batch: in memory of the program alone, which one system call
/// reads, and in memory that the stub maps, too.
const MAX_BATCH_SLOTS: usize = 32;
const MAX_SHARED_BATCH_SLOTS: usize = 4;
/// Maximum number of addresses in one read (`UIO_MAXIOV`).
const MAX_REMOTE_PARTS: usize = 1024;
/// Longest and shortest interval at which the pool is drained for a client that waits for hits.
const MAX_DRAIN_INTERVAL: Duration = Duration::from_millis(10);
const MIN_DRAIN_INTERVAL: Duration = Duration::from_millis(2);
/// Time without hits after which the stub stops polling. The next hit then wakes it.
const QUIET_TIME: Duration = Duration::from_secs(1);

/// The memory, and the stub's state for it.
pub(crate) struct Pool {
    pub(crate) start: u64,
    pub(crate) slots: u64,
    pub(crate) slot_size: u64,
    /// Number of slots that collectors use, a power of two.
    used: u64,
    /// The stub's mapping of the pool, without the table of threads.
    shared: Option<SharedMemory>,
    clock: TickConverter,
    looked: Instant,
    last_hit: Instant,
    /// Time from this drain to the next one.
    interval: Duration,
    /// True if the next hit wakes the stub.
    armed: bool,
    /// The latest drain found hardly any free slot.
    pub(super) was_full: bool,
}

/// The words in front of the slots.
struct Words {
    ticket: u64,
    drained: u64,
    alarm: u64,
    states: Vec<u64>,
}

/// The filled slots at one moment, with the start times of their hits. The last one is the
/// earliest.
pub(crate) struct Filled {
    slots: Vec<(u64, u64)>,
}

impl Filled {
    /// True if no filled slot is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

/// Some hits, in the order of their times.
#[derive(Default)]
pub(crate) struct Batch {
    /// The slots' bytes.
    bytes: Vec<u8>,
    hits: Vec<Hit>,
}

impl Batch {
    /// The hits, with the contents of their slots.
    pub(crate) fn hits(&self) -> impl Iterator<Item = (&Hit, Noted<'_>)> {
        let slot = |hit: &Hit| self.bytes.get(hit.slot.clone()).unwrap_or_default();
        self.hits.iter().map(move |hit| (hit, Noted(slot(hit))))
    }
}

/// A recorded hit.
pub(crate) struct Hit {
    /// Its slot's bytes in the batch.
    slot: Range<usize>,
    /// Start of the hit, by the monotonic clock.
    pub(crate) time_ns: u64,
    pub(crate) time: Instant,
    /// Time that the collector took.
    pub(crate) cost_ns: u64,
}

impl Pool {
    /// Number of slots of this size, a power of two, in at most as much memory as the trace buffer
    /// has. `None` if that is too few.
    pub(crate) fn shape(slot_size: u64, buffer: u64, shared: bool) -> Option<u64> {
        let largest = if shared {
            MAX_SHARED_SLOT_BYTES
        } else {
            MAX_SLOT_BYTES
        };
        let room = buffer.clamp(64 << 10, largest);
        let most = (room / slot_size).min(MAX_SLOTS);
        (most >= MIN_SLOTS).then(|| 1 << most.ilog2())
    }

    /// Size of the pool in bytes.
    pub(crate) fn size(slots: u64, slot_size: u64) -> u64 {
        (SLOTS + slots * slot_size).next_multiple_of(4096)
    }

    /// A pool in memory that is all zero.
    pub(crate) fn new(
        start: u64,
        slots: u64,
        slot_size: u64,
        shared: Option<SharedMemory>,
    ) -> Pool {
        let now = Instant::now();
        Pool {
            start,
            slots,
            slot_size,
            used: slots.min(FIRST_SLOTS),
            shared,
            clock: TickConverter::new(),
            looked: now,
            last_hit: now,
            interval: MAX_DRAIN_INTERVAL,
            armed: false,
            was_full: false,
        }
    }

    /// Takes the filled slots out, in the order of their timestamps. Tickets have another order,
    /// because a thread may be preempted between taking its ticket and reading the clock. If
    /// `told`, the next hit after a quiet time wakes the stub.
    pub(crate) fn filled(&mut self, memory: &Memory, told: bool) -> Filled {
        let now = Instant::now();
        let since = now - std::mem::replace(&mut self.looked, now);
        // Reading the states takes time. Hits that began meanwhile are left for the next drain:
        // their slots may be read as filled after the slot of an earlier hit was read as free.
        // All hits before one that began until now are filled now.
        let until = ticks();
        self.clock.advance();
        fence(Ordering::SeqCst);
        let mut filled = Filled { slots: Vec::new() };
        let Some(Words {
            ticket,
            drained: known,
            alarm,
            states,
        }) = self.words(memory)
        else {
            return filled;
        };
        let indexes = (0..).zip(&states).filter(|(_, state)| *state % 2 == 1);
        filled.slots = indexes
            .map(|(index, _)| index)
            .zip(self.begins(memory, &states))
            .filter(|(_, begin)| *begin <= until)
            .collect();
        filled.slots.sort_by_key(|(_, begin)| *begin);
        // The last is taken first.
        filled.slots.reverse();
        let found = filled.slots.len() as u64;
        self.was_full = found > self.used / 8 * 7;
        if found > self.used / 4 && self.used < self.slots {
            self.used = (self.used * GROWTH).min(self.slots);
            self.write_shape(memory);
        }
        self.interval = interval(self.used, found, since);
        if !filled.slots.is_empty() {
            self.last_hit = now;
            self.armed = false;
        }
        let arm = told && filled.slots.is_empty() && now - self.last_hit > QUIET_TIME;
        let drained = if arm {
            ticket.wrapping_sub(self.slots)
        } else {
            ticket
        };
        if drained != known {
            self.write(memory, &[DRAINED], drained);
        }
        // An alarm raised from now on stops its thread, and the stub drains again for that stop.
        // While it drains, it needs no alarm.
        let busy = u64::from(!filled.slots.is_empty());
        if alarm != busy {
            self.write(memory, &[ALARM], busy);
        }
        if arm && !self.armed {
            // A hit since the first read has not woken the stub.
            let now = self.words(memory);
            self.armed = now.is_some_and(|now| now.states.iter().all(|state| *state == 0));
        }
        filled
    }

    /// Takes the next hits out and frees their slots. False if no hits are left. `used` returns how
    /// many bytes of its slot a hit uses, from the start of the slot.
    pub(crate) fn take(
        &self,
        memory: &Memory,
        filled: &mut Filled,
        used: impl Fn(&Noted) -> u64,
        batch: &mut Batch,
    ) -> bool {
        let most = match &self.shared {
            Some(_) => MAX_SHARED_BATCH_SLOTS,
            None => MAX_BATCH_SLOTS,
        };
        let rest = filled.slots.len().saturating_sub(most);
        let part = filled.slots.split_off(rest);
        let indexes = || part.iter().rev().map(|(index, _)| *index);
        let places = indexes().map(|index| SLOTS + index * self.slot_size);
        batch.hits.clear();
        let sizes = match &self.shared {
            Some(shared) => copy(shared, places, self.slot_size, used, &mut batch.bytes),
            None => {
                let size = self.slot_size as usize;
                let places: Vec<u64> = places.map(|place| self.start + place).collect();
                batch.bytes.resize(size * part.len(), 0);
                let read = memory.read_many(&places, size, &mut batch.bytes);
                read.then(|| vec![size; part.len()])
            }
        };
        let Some(sizes) = sizes else {
            filled.slots.clear();
            return false;
        };
        let states: Vec<u64> = indexes().map(|index| STATES + 8 * index).collect();
        self.write(memory, &states, 0);
        let mut start = 0;
        for size in sizes {
            let slot = start..start + size;
            start = slot.end;
            let (begin, end) = Noted(&batch.bytes[slot.clone()]).ticks();
            let time_ns = self.clock.ns(begin);
            batch.hits.push(Hit {
                slot,
                time_ns,
                time: self.clock.instant(time_ns),
                cost_ns: self.clock.ns(end).saturating_sub(time_ns),
            });
        }
        !batch.hits.is_empty()
    }

    /// Ends a drain that found hits: from now on a hit wakes the stub if half of the slots are
    /// filled.
    pub(crate) fn rest(&mut self, memory: &Memory) {
        self.write(memory, &[ALARM], 0);
        fence(Ordering::SeqCst);
        // Hits during the drain raised no alarm.
        let words = self.words(memory);
        if words.is_some_and(|words| words.ticket.wrapping_sub(words.drained) >= self.used / 2) {
            self.interval = Duration::ZERO;
        }
    }

    /// Start times of the hits in these filled slots, by the processor's clock.
    fn begins(&self, memory: &Memory, states: &[u64]) -> Vec<u64> {
        let filled = (0..).zip(states).filter(|(_, state)| *state % 2 == 1);
        let places = filled.map(|(index, _)| SLOTS + index * self.slot_size + u64::from(BEGIN));
        if let Some(shared) = &self.shared {
            return places.map(|place| shared.load(place)).collect();
        }
        let places: Vec<u64> = places.map(|place| self.start + place).collect();
        let mut begins = Vec::new();
        for part in places.chunks(MAX_REMOTE_PARTS) {
            let mut bytes = vec![0; 8 * part.len()];
            // Memory that cannot be read now cannot be read later, either.
            memory.read_many(part, 8, &mut bytes);
            let word = |word: &[u8]| word.first_chunk().copied().map_or(0, u64::from_le_bytes);
            begins.extend(bytes.chunks_exact(8).map(word));
        }
        begins
    }

    /// Writes a word at each of these offsets, with acquire and release ordering: a thread that
    /// sees the word sees all earlier writes, and no earlier read moves behind it.
    fn write(&self, memory: &Memory, offsets: &[u64], word: u64) {
        match &self.shared {
            Some(shared) => offsets.iter().for_each(|at| shared.store(*at, word)),
            None => {
                let places: Vec<u64> = offsets.iter().map(|at| self.start + at).collect();
                memory.write_words(&places, word);
            }
        }
    }

    /// Writes the words that tell collectors how many slots they use.
    fn write_shape(&self, memory: &Memory) {
        self.write(memory, &[MASK], self.used - 1);
        self.write(memory, &[HALF], self.used / 2);
    }

    /// Prepares the memory for collectors, and lets the first hit wake the stub.
    pub(crate) fn prepare(&mut self, memory: &Memory) {
        self.write_shape(memory);
        let drained = 0_u64.wrapping_sub(self.slots);
        self.write(memory, &[DRAINED], drained);
        // Ticket 0 is left out: its slot would look free while it is being filled.
        self.write(memory, &[TICKET], 1);
        self.armed = true;
    }

    /// Time of the next drain for a client that waits for hits.
    pub(crate) fn due(&self) -> Option<Instant> {
        (!self.armed).then(|| self.looked + self.interval)
    }

    fn words(&self, memory: &Memory) -> Option<Words> {
        if let Some(shared) = &self.shared {
            let states = (0..self.used).map(|index| shared.load(STATES + 8 * index));
            return Some(Words {
                ticket: shared.load(TICKET),
                drained: shared.load(DRAINED),
                alarm: shared.load(ALARM),
                states: states.collect(),
            });
        }
        let mut bytes = vec![0; (STATES + 8 * self.used) as usize];
        if memory.read(self.start, &mut bytes) != Ok(bytes.len()) {
            return None;
        }
        // The slots must be read after the states that describe them.
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

    /// The addresses of the two table entries that a thread with this thread pointer may use.
    fn places(&self, pointer: u64) -> [u64; 2] {
        entries(pointer).map(|entry| self.start + entry)
    }

    /// Adds a thread to the table, so that collectors know it.
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
        // A collector checks the key before and after it reads an entry. The key is absent
        // meanwhile.
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

    /// True if the table has a thread with this thread pointer and a stack that contains `sp`.
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

    /// Removes a thread from the table.
    pub(crate) fn leave(&self, memory: &Memory, pointer: u64) {
        for place in self.places(pointer) {
            let mut key = [0; 8];
            if memory.read(place, &mut key) == Ok(8) && u64::from_le_bytes(key) == pointer {
                memory.write_words(&[place], 0);
            }
        }
    }

    /// Removes all threads from the table.
    pub(crate) fn leave_all(&self, memory: &Memory) {
        let table = vec![0; (THREADS * THREAD_SIZE) as usize];
        let _ = memory.write(self.start + TABLE, &table);
    }
}

/// Time until hits as frequent as the `found` ones of the time `since` the last drain fill an
/// eighth of the pool. At half of the pool, a hit would stop its thread to wake the stub.
fn interval(slots: u64, found: u64, since: Duration) -> Duration {
    let room = u32::try_from(slots / 8).unwrap_or(u32::MAX);
    let found = u32::try_from(found).unwrap_or(u32::MAX).max(1);
    (since.saturating_mul(room) / found).clamp(MIN_DRAIN_INTERVAL, MAX_DRAIN_INTERVAL)
}

/// Copies slots from shared memory, one behind the other, as far as they are `used`. Returns the
/// sizes of the copies.
fn copy(
    shared: &SharedMemory,
    places: impl Iterator<Item = u64>,
    slot_size: u64,
    used: impl Fn(&Noted) -> u64,
    bytes: &mut Vec<u8>,
) -> Option<Vec<usize>> {
    let mut end = 0;
    let sizes = places.map(|place| {
        let mut head = [0; SLOT_HEAD];
        shared.copy(place, &mut head).then_some(())?;
        let size = used(&Noted(&head)).clamp(SLOT_HEAD as u64, slot_size) as usize;
        let start = end;
        end += size;
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        shared.copy(place, &mut bytes[start..end]).then_some(size)
    });
    sizes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drain_sorts_hits_by_clock() {
        const SLOT: u64 = 128;
        let mut bytes = vec![0_u8; Pool::size(MIN_SLOTS, SLOT) as usize];
        let mut pool = Pool::new(bytes.as_ptr() as u64, MIN_SLOTS, SLOT, None);
        let mut put = |at: u64, word: u64| {
            bytes[at as usize..][..8].copy_from_slice(&word.to_le_bytes());
        };
        let now = ticks();
        // The threads with the tickets 1, 2 and 3 read the clock second, third and first.
        for (ticket, ago) in [(1, 2000), (2, 1000), (3, 3000)] {
            put(STATES + 8 * ticket, 2 * ticket + 1);
            put(SLOTS + ticket * SLOT + u64::from(BEGIN), now - ago);
        }
        // A hit that begins while the states are read.
        put(STATES + 8 * 4, 2 * 4 + 1);
        let later = now + (1 << 40);
        put(SLOTS + 4 * SLOT + u64::from(BEGIN), later);
        let process = Tid(std::process::id().cast_signed());
        let memory = Memory::open(process).expect("own memory");
        let mut filled = pool.filled(&memory, false);
        let mut batch = Batch::default();
        assert!(pool.take(&memory, &mut filled, |_| SLOT, &mut batch));
        let begun = batch.hits().map(|(_, noted)| now - noted.ticks().0);
        assert_eq!(begun.collect::<Vec<_>>(), [3000, 2000, 1000]);
        assert!(batch.hits().is_sorted_by_key(|(hit, _)| hit.time));
        assert!(filled.is_empty());
        assert!(!pool.take(&memory, &mut filled, |_| SLOT, &mut batch));
        assert_eq!(batch.hits().count(), 0);
        assert!(pool.filled(&memory, false).is_empty());
    }

    #[test]
    fn collectors_get_more_slots_when_hits_come_faster() {
        const SLOT: u64 = 128;
        let mut bytes = vec![0_u8; Pool::size(1024, SLOT) as usize];
        let start = bytes.as_mut_ptr();
        let mut pool = Pool::new(start as u64, 1024, SLOT, None);
        let process = Tid(std::process::id().cast_signed());
        let memory = Memory::open(process).expect("own memory");
        pool.prepare(&memory);
        let word = |at: u64| {
            let mut bytes = [0; 8];
            assert_eq!(memory.read(start as u64 + at, &mut bytes), Ok(8));
            u64::from_le_bytes(bytes)
        };
        let put = |at: u64, word: u64| memory.write_words(&[start as u64 + at], word);
        let mut drain = |hits: u64| {
            put(TICKET, word(DRAINED).wrapping_add(hits));
            for slot in 0..hits {
                put(STATES + 8 * slot, 2 * slot + 1);
            }
            let mut filled = pool.filled(&memory, false);
            let during = word(ALARM);
            let mut batch = Batch::default();
            while pool.take(&memory, &mut filled, |_| SLOT, &mut batch) {}
            // Hits that come while the stub drains.
            put(TICKET, word(TICKET).wrapping_add(word(HALF) - hits % 2));
            pool.rest(&memory);
            let drains_again = pool.interval.is_zero();
            let alarms = (during, word(ALARM));
            (word(MASK) + 1, word(HALF), alarms, drains_again)
        };
        assert_eq!(drain(64), (256, 128, (1, 0), true));
        assert_eq!(drain(65), (1024, 512, (1, 0), false));
        assert_eq!(drain(1000), (1024, 512, (1, 0), true));
    }

    #[test]
    fn shapes() {
        assert_eq!(Pool::shape(256, 1 << 20, false), Some(4096));
        assert_eq!(Pool::shape(128, 1 << 20, false), Some(4096));
        assert_eq!(Pool::shape(2304, 1 << 20, false), Some(256));
        assert_eq!(Pool::shape(17 << 10, 128 << 20, false), Some(64));
        assert_eq!(Pool::shape(17 << 10, 128 << 20, true), Some(4096));
        assert_eq!(Pool::shape(17 << 10, 4096, true), None);
    }
}
