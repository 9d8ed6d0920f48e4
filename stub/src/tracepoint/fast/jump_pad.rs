//! Jumps in the program's text that lead to collectors, and the collectors themselves.
//!
//! Jumps and collectors change only while every thread is stopped. A collector never changes and
//! never moves. Once its jump is removed, no thread enters it any more. Each collector has a
//! switch: a word in front of it that turns recording on. While the switch is off, the collector
//! only executes the displaced instructions and returns. The journal lists these words, so that
//! collectors record nothing after the stub was killed. The jumps then stay in place.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use crate::arch::collector::{self, Collector, HAS_VENEERS, HEAD, REACH};
use crate::arch::fast::{Block, Noted, Order, Position, TABLE, THREAD_SIZE, THREADS};
use crate::breakpoint::journal::Journal;
use crate::breakpoint::patch::Patch;
use crate::sys::memfd::SharedMemory;
use crate::sys::memory::Memory;

use super::planner::Plan;
use super::pool::{Batch, Filled, Pool};

/// Size of one mapping for collectors, in bytes.
const REGION_SIZE: u64 = 64 << 10;
/// Maximum number of such mappings.
const MAX_REGIONS: usize = 16;
const ALIGNMENT: u64 = 64;
/// Number of faults in an address's collector after which the address gets a trap instead.
const MAX_FAULTS: usize = 8;

/// The jumps and collectors of one address space.
#[derive(Default)]
pub(crate) struct JumpPads {
    pool: Option<Pool>,
    regions: Vec<(Range<u64>, u64)>,
    /// By number.
    made: Vec<Made>,
    /// Collectors' numbers, by where they start.
    starts: BTreeMap<u64, usize>,
    planted: BTreeMap<u64, Jump>,
    journal: Journal,
    /// Addresses that get no jump any more, because their collectors faulted too often.
    shunned: BTreeSet<u64>,
    faults: BTreeMap<u64, usize>,
}

struct Made {
    at: u64,
    start: u64,
    plan: Plan,
    blocks: Rc<[Block]>,
    source: Vec<u8>,
    collector: Collector,
    /// Near the jump, if the collector itself is out of the jump's reach.
    veneer: Option<(u64, Patch)>,
}

struct Jump {
    id: usize,
    patch: Patch,
}

/// An address that can have a jump: the data that a hit records there, and the displaced
/// instructions.
#[derive(Clone)]
pub(crate) struct JumpSite {
    pub(crate) at: u64,
    /// The breakpoint kind, which tells the instruction set.
    pub(crate) kind: usize,
    pub(crate) plan: Plan,
    pub(crate) source: Vec<u8>,
}

/// Requirements for a new pool.
pub(crate) struct PoolOrder {
    /// The pool is mapped as close to this address as possible.
    pub(crate) near: u64,
    /// The size of each slot.
    pub(crate) slot_size: u64,
    /// The size of the trace buffer. The pool is not larger.
    pub(crate) buffer: u64,
}

/// Gets memory in the program, as close to an address as possible.
pub(crate) trait Mapper {
    /// Finds unused executable bytes within `reach` of `near`. They stay mapped as long as `near`
    /// does.
    fn spare(&mut self, near: u64, reach: u64) -> Option<u64>;

    /// Maps memory that is readable and executable (`code`), or readable and writable.
    fn map(&mut self, near: u64, size: u64, code: bool) -> Option<u64>;

    /// Maps memory that the stub maps, too, except for the part `own`, which only the program has,
    /// and which is empty in its children. `None` if the program can get no shared memory.
    fn share(&mut self, near: u64, size: u64, own: Range<u64>) -> Option<(u64, SharedMemory)>;
}

impl JumpPads {
    /// True if no jump is planted.
    pub(crate) fn is_empty(&self) -> bool {
        self.planted.is_empty()
    }

    /// True if no pool was ever mapped.
    pub(crate) fn is_unused(&self) -> bool {
        self.pool.is_none()
    }

    /// The addresses of all jumps.
    pub(crate) fn places(&self) -> Vec<u64> {
        self.planted.keys().copied().collect()
    }

    pub(crate) fn is_planted(&self, at: u64) -> bool {
        self.planted.contains_key(&at)
    }

    /// The jumps whose bytes or displaced instructions overlap this range.
    pub(crate) fn overlapping(&self, range: Range<u64>) -> Vec<u64> {
        let from = range.start.saturating_sub(collector::JUMP as u64 - 1);
        let found = self.planted.range(from..range.end);
        let displaced = |id: usize| self.made[id].source.len() as u64;
        let long = self
            .planted
            .range(range.start.saturating_sub(32)..range.start);
        let long = long.filter(|(at, jump)| *at + displaced(jump.id) > range.start);
        let mut all: Vec<u64> = found.chain(long).map(|(at, _)| *at).collect();
        all.dedup();
        all
    }

    /// True if exactly this jump is planted and the program has not overwritten it.
    pub(crate) fn does(&self, memory: &Memory, site: &JumpSite) -> bool {
        self.planted.get(&site.at).is_some_and(|jump| {
            let made = &self.made[jump.id];
            let there = |(at, patch): &(u64, Patch)| patch.stands(memory, *at);
            made.plan == site.plan
                && made.source == site.source
                && jump.patch.stands(memory, site.at)
                && made.veneer.as_ref().is_none_or(there)
        })
    }

    pub(crate) fn is_shunned(&self, at: u64) -> bool {
        self.shunned.contains(&at)
    }

    /// Counts a fault in the collector of `at`. True if the address gets no further jump from now
    /// on.
    pub(crate) fn faulted(&mut self, at: u64) -> bool {
        let faults = self.faults.entry(at).or_default();
        *faults += 1;
        *faults >= MAX_FAULTS && self.shunned.insert(at)
    }

    /// True if the pool's slots are large enough.
    pub(crate) fn has_room(&self, slot_size: u64) -> bool {
        self.pool
            .as_ref()
            .is_some_and(|pool| pool.slot_size >= slot_size)
    }

    /// Maps a pool and drops all collectors. No jump may be planted, and no thread may be in a
    /// collector. The caller unmaps the former pool.
    pub(crate) fn renew(
        &mut self,
        memory: &Memory,
        order: &PoolOrder,
        mapper: &mut dyn Mapper,
    ) -> Option<()> {
        let PoolOrder {
            near,
            slot_size,
            buffer,
        } = *order;
        let slots = Pool::shape(slot_size, buffer, true)?;
        let table = TABLE..TABLE + THREADS * THREAD_SIZE;
        let mut pool = match mapper.share(near, Pool::size(slots, slot_size), table) {
            Some((start, shared)) => Pool::new(start, slots, slot_size, Some(shared)),
            None => {
                let slots = Pool::shape(slot_size, buffer, false)?;
                let start = mapper.map(near, Pool::size(slots, slot_size), false)?;
                Pool::new(start, slots, slot_size, None)
            }
        };
        pool.prepare(memory);
        self.pool = Some(pool);
        self.remove_veneers(memory);
        self.made.clear();
        self.starts.clear();
        for (range, used) in &mut self.regions {
            *used = range.start;
        }
        Some(())
    }

    /// Addresses and sizes of everything that it has mapped in the program.
    pub(crate) fn mappings(&self) -> Vec<(u64, u64)> {
        let mut all = self.code_mappings();
        all.extend(self.pool_mapping());
        all
    }

    /// Addresses and sizes of the mappings with collectors.
    pub(crate) fn code_mappings(&self) -> Vec<(u64, u64)> {
        let regions = self.regions.iter();
        let regions = regions.map(|(range, _)| (range.start, range.end - range.start));
        regions.collect()
    }

    pub(crate) fn pool_mapping(&self) -> Option<(u64, u64)> {
        let pool = self.pool.as_ref()?;
        Some((pool.start, Pool::size(pool.slots, pool.slot_size)))
    }

    /// Plants a jump, also over a trap. Every thread must be stopped or asleep, and none inside the
    /// displaced instructions. If one is asleep, a trap must be there.
    pub(crate) fn plant(
        &mut self,
        memory: &Memory,
        site: &JumpSite,
        mapper: &mut dyn Mapper,
    ) -> Option<()> {
        let JumpSite { at, kind, .. } = *site;
        let same =
            |made: &Made| made.at == at && made.plan == site.plan && made.source == site.source;
        let id = match self.made.iter().position(same) {
            Some(id) => id,
            None => self.make(memory, site, mapper)?,
        };
        let made = &self.made[id];
        let to = match &made.veneer {
            Some((veneer, patch)) => {
                // The library may have been unloaded and loaded again since.
                patch.renew(memory, *veneer)?;
                *veneer
            }
            None => made.start,
        };
        let ours = collector::jump(at, kind, to)?;
        let patch = Patch::plan(memory, at, ours.to_vec()).ok()?;
        let patch = patch.with_original(&site.source);
        self.switch_collector(memory, id, true)?;
        if patch.replant_over_trap(memory, at).is_err() {
            let _ = self.switch_collector(memory, id, false);
            return None;
        }
        self.planted.insert(at, Jump { id, patch });
        Some(())
    }

    fn make(&mut self, memory: &Memory, site: &JumpSite, mapper: &mut dyn Mapper) -> Option<usize> {
        let JumpSite {
            at,
            kind,
            plan,
            source,
        } = site;
        let (at, kind) = (*at, *kind);
        let pool = self.pool.as_ref()?;
        let mut order = Order {
            id: self.made.len() as u32,
            start: at,
            pool: pool.start,
            slots: pool.slots,
            slot_size: pool.slot_size,
            at,
            kind,
            displaced: source,
            blocks: &plan.blocks,
            condition: plan.condition.as_deref(),
            stack_left: plan.stack_left,
        };
        // Generated once just to learn its size.
        let size = HEAD + collector::generate(&order)?.code.len() as u64;
        let is_near = |start: u64| HAS_VENEERS || start.abs_diff(at) < REACH;
        let near =
            |(range, used): &&(Range<u64>, u64)| range.end - used >= size && is_near(range.start);
        let region = match self.regions.iter().position(|region| near(&region)) {
            Some(index) => index,
            None if self.regions.len() < MAX_REGIONS => {
                let start = mapper.map(at, REGION_SIZE, true)?;
                self.regions.push((start..start + REGION_SIZE, start));
                self.regions.len() - 1
            }
            None => return None,
        };
        let (range, used) = &mut self.regions[region];
        if !is_near(range.start) || range.end - *used < size {
            return None;
        }
        order.start = *used + HEAD;
        let collector = collector::generate(&order)?;
        let veneer = match collector::veneer(kind, order.start) {
            Some(code) => {
                let spare = mapper.spare(at, REACH)?;
                Some((spare, Patch::place(memory, spare, code).ok()?))
            }
            None => None,
        };
        let mut bytes = vec![0; HEAD as usize];
        bytes.extend_from_slice(&collector.code);
        memory.write(*used, &bytes).ok()?;
        *used = (*used + bytes.len() as u64)
            .next_multiple_of(ALIGNMENT)
            .min(range.end);
        self.starts.insert(order.start, self.made.len());
        self.made.push(Made {
            at,
            start: order.start,
            plan: plan.clone(),
            blocks: plan.blocks.clone().into(),
            source: source.to_vec(),
            collector,
            veneer,
        });
        Some(self.made.len() - 1)
    }

    /// Switches an address's collector on or off. Threads may run meanwhile.
    pub(crate) fn switch(&mut self, memory: &Memory, at: u64, on: bool) {
        if let Some(jump) = self.planted.get(&at) {
            let _ = self.switch_collector(memory, jump.id, on);
        }
    }

    fn switch_collector(&mut self, memory: &Memory, id: usize, on: bool) -> Option<()> {
        let word = self.made[id].start - HEAD;
        let switch = self.made[id].collector.switch();
        if on {
            let patch = Patch::over(&switch.off, &switch.on);
            self.journal.note(memory.process(), word, &patch);
        }
        let written = memory.write(word, if on { &switch.on } else { &switch.off });
        if !on {
            self.journal.erase(word);
        }
        written.ok()
    }

    /// Removes all veneers. No thread may be in one, and no jump may lead to one.
    pub(crate) fn remove_veneers(&mut self, memory: &Memory) {
        for made in &mut self.made {
            if let Some((at, patch)) = made.veneer.take() {
                patch.lift(memory, at);
            }
        }
    }

    fn veneers(&self) -> impl Iterator<Item = (u64, &Patch)> {
        let veneers = self.made.iter().filter_map(|made| made.veneer.as_ref());
        veneers.map(|(at, patch)| (*at, patch))
    }

    /// Removes a jump.
    pub(crate) fn lift(&mut self, memory: &Memory, at: u64) {
        if let Some(jump) = self.planted.remove(&at) {
            jump.patch.lift(memory, at);
            let _ = self.switch_collector(memory, jump.id, false);
        }
    }

    /// If a thread with this program counter is in a collector, restores its registers to their
    /// values without the collector. Returns the jump's address and the thread's position in the
    /// collector.
    pub(crate) fn back(
        &self,
        memory: &Memory,
        pc: u64,
        general: &mut [u8],
    ) -> Option<(u64, Position)> {
        let veneer = |made: &&Made| made.veneer.as_ref().is_some_and(|(at, _)| *at == pc);
        if let Some(made) = self.made.iter().find(veneer) {
            // A veneer changes no state.
            let position = made.collector.back(0, general, &|_, _| false)?;
            return Some((made.at, position));
        }
        let (start, id) = self.starts.range(..=pc).next_back()?;
        let made = &self.made[*id];
        let offset = pc - start;
        if offset > made.collector.code.len() as u64 {
            return None;
        }
        let read = |address: u64, into: &mut [u8]| memory.read(address, into) == Ok(into.len());
        let position = made.collector.back(offset, general, &read)?;
        Some((made.at, position))
    }

    /// The address at which the collector executes the displaced instructions.
    pub(crate) fn copy(&self, at: u64) -> Option<u64> {
        let jump = self.planted.get(&at)?;
        let made = &self.made[jump.id];
        Some(made.start + made.collector.copy())
    }

    /// The address at which a thread goes on that has trapped at `pc` in a collector to wake the
    /// stub. `None` if it has not.
    pub(crate) fn after_alarm(&self, pc: u64) -> Option<u64> {
        let (start, id) = self.starts.range(..=pc).next_back()?;
        let next = self.made[*id].collector.after_alarm(pc - start)?;
        Some(start + next)
    }

    /// Like [`copy`](Self::copy), for the collector that contains this program counter.
    pub(crate) fn copy_around(&self, pc: u64) -> Option<u64> {
        let (start, id) = self.starts.range(..=pc).next_back()?;
        let collector = &self.made[*id].collector;
        (pc - start <= collector.code.len() as u64).then(|| start + collector.copy())
    }

    /// Takes the waiting hits out of the pool. If `told`, the next hit after a quiet time wakes the
    /// stub.
    pub(crate) fn filled(&mut self, memory: &Memory, told: bool) -> Option<Filled> {
        let pool = self.pool.as_mut();
        pool.map(|pool| pool.filled(memory, told))
    }

    /// Ends a drain that found hits.
    pub(crate) fn rest(&mut self, memory: &Memory) {
        if let Some(pool) = &mut self.pool {
            pool.rest(memory);
        }
    }

    /// Takes the next hits of `filled`. False if there are no more.
    pub(crate) fn take(&self, memory: &Memory, filled: &mut Filled, batch: &mut Batch) -> bool {
        let used = |noted: &Noted| {
            let made = self.made.get(noted.id() as usize);
            made.map_or(u64::MAX, |made| noted.used(&made.blocks))
        };
        let pool = self.pool.as_ref();
        pool.is_some_and(|pool| pool.take(memory, filled, used, batch))
    }

    /// The address at which a hit was recorded, and the blocks recorded there.
    #[inline]
    pub(crate) fn of(&self, noted: &Noted) -> Option<(u64, Rc<[Block]>)> {
        let made = self.made.get(noted.id() as usize)?;
        Some((made.at, made.blocks.clone()))
    }

    /// True if the latest drain found hardly any free slot.
    pub(crate) fn was_full(&self) -> bool {
        self.pool.as_ref().is_some_and(|pool| pool.was_full)
    }

    pub(crate) fn pool(&self) -> Option<&Pool> {
        self.pool.as_ref()
    }

    /// All patches. A copy of this address space has them too.
    pub(crate) fn patches(&self) -> impl Iterator<Item = (u64, &Patch)> {
        let jumps = self.planted.iter().map(|(at, jump)| (*at, &jump.patch));
        jumps.chain(self.veneers())
    }

    /// Replaces the stub's jumps in `bytes` with the program's own bytes. `bytes` were read from
    /// `address`.
    pub(crate) fn hide(&self, address: u64, bytes: &mut [u8]) {
        let end = address.saturating_add(bytes.len() as u64);
        let from = address.saturating_sub(collector::JUMP as u64);
        for (at, jump) in self.planted.range(from..end) {
            jump.patch.hide(*at, address, bytes);
        }
        for (at, patch) in self.veneers() {
            patch.hide(at, address, bytes);
        }
    }

    /// Forgets everything, because the address space is gone.
    pub(crate) fn forget(&mut self) {
        *self = JumpPads::default();
    }
}
