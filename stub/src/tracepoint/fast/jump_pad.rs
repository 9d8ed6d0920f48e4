//! JumpPads in the program's text that lead to collectors, and the collectors.
//!
//! All changes are made while every thread is stopped. A collector is never changed and stays where
//! it is; when its jump is taken out, no thread comes there any more. Each has a word that says
//! whether it is on: without it, it is a long way to the displaced instructions and back. The
//! journal has these words, so that collectors are inert when we are gone unawares; the jumps stay
//! then.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use crate::arch::collector::{self, Collector, HAS_VENEERS, HEAD, REACH};
use crate::arch::fast::{Block, Noted, Order, Position};
use crate::breakpoint::journal::Journal;
use crate::breakpoint::patch::Patch;
use crate::sys::memory::Memory;

use super::planner::Plan;
use super::pool::{Hit, Pool};

/// Room for this many bytes of collectors is made at once.
const REGION: u64 = 64 << 10;
/// And so often at most.
const REGIONS: usize = 16;
const ALIGNMENT: u64 = 64;
/// After so many faults in a collector its place gets a trap.
const FAULTS: usize = 8;

/// All of one memory.
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
    /// Places where this has gone wrong.
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
    /// What is near the jump and leads to the collector, if that is too far.
    veneer: Option<(u64, Patch)>,
}

struct Jump {
    id: usize,
    patch: Patch,
}

/// What can have a jump: what a hit notes there, and the instructions that are displaced.
#[derive(Clone)]
pub(crate) struct JumpSite {
    pub(crate) at: u64,
    /// The breakpoint kind, which says what the instructions are.
    pub(crate) kind: usize,
    pub(crate) plan: Plan,
    pub(crate) source: Vec<u8>,
}

/// What a new pool must be like.
pub(crate) struct PoolOrder {
    /// It is mapped as near to this address as there is room.
    pub(crate) near: u64,
    /// The size of each slot.
    pub(crate) slot_size: u64,
    /// The size of the trace buffer, which the pool does not exceed.
    pub(crate) buffer: u64,
}

/// How the memory is got that it takes: readable and executable, or readable and writable; as near
/// to an address as there is room.
pub(crate) trait Mapper {
    /// Bytes that nothing uses and that can be executed, so near to an address, and mapped as long
    /// as that is.
    fn spare(&mut self, near: u64, reach: u64) -> Option<u64>;

    fn map(&mut self, near: u64, size: u64, code: bool) -> Option<u64>;
}

impl JumpPads {
    /// Whether nothing is planted.
    pub(crate) fn is_empty(&self) -> bool {
        self.planted.is_empty()
    }

    /// Whether nothing was ever made.
    pub(crate) fn is_unused(&self) -> bool {
        self.pool.is_none()
    }

    /// Where jumps are.
    pub(crate) fn places(&self) -> Vec<u64> {
        self.planted.keys().copied().collect()
    }

    pub(crate) fn is_planted(&self, at: u64) -> bool {
        self.planted.contains_key(&at)
    }

    /// The jumps that bytes of this range belong to.
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

    /// Whether a jump is there that does just this, and is still in its place.
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

    /// The collector of the place has met with a fault. Whether there will be no other there.
    pub(crate) fn faulted(&mut self, at: u64) -> bool {
        let faults = self.faults.entry(at).or_default();
        *faults += 1;
        *faults >= FAULTS && self.shunned.insert(at)
    }

    /// Whether slots are large enough.
    pub(crate) fn has_room(&self, slot_size: u64) -> bool {
        self.pool
            .as_ref()
            .is_some_and(|pool| pool.slot_size >= slot_size)
    }

    /// Gets a pool; nothing is planted, and no thread is in a collector. What was there before is
    /// to be given back.
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
        let slots = Pool::shape(slot_size, buffer)?;
        let start = mapper.map(near, Pool::size(slots, slot_size), false)?;
        let mut pool = Pool::new(start, slots, slot_size);
        pool.arm(memory);
        self.pool = Some(pool);
        self.remove_veneers(memory);
        self.made.clear();
        self.starts.clear();
        for (range, used) in &mut self.regions {
            *used = range.start;
        }
        Some(())
    }

    /// What it has of the program's memory.
    pub(crate) fn mappings(&self) -> Vec<(u64, u64)> {
        let pool = self.pool_mapping();
        let regions = self.regions.iter();
        let regions = regions.map(|(range, _)| (range.start, range.end - range.start));
        regions.chain(pool).collect()
    }

    pub(crate) fn pool_mapping(&self) -> Option<(u64, u64)> {
        let pool = self.pool.as_ref()?;
        Some((pool.start, Pool::size(pool.slots, pool.slot_size)))
    }

    /// Plants a jump. Every thread must be stopped, and none inside the instructions.
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
                // The library may have gone since, and come again.
                patch.renew(memory, *veneer)?;
                *veneer
            }
            None => made.start,
        };
        let ours = collector::jump(at, kind, to)?;
        let patch = Patch::plan(memory, at, ours.to_vec()).ok()?;
        self.switch_collector(memory, id, true)?;
        if patch.replant(memory, at).is_err() {
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
            stack_left: plan.stack_left,
        };
        // Only how long it is.
        let size = HEAD + collector::generate(&order)?.code.len() as u64;
        let is_near = |start: u64| HAS_VENEERS || start.abs_diff(at) < REACH;
        let near =
            |(range, used): &&(Range<u64>, u64)| range.end - used >= size && is_near(range.start);
        let region = match self.regions.iter().position(|region| near(&region)) {
            Some(index) => index,
            None if self.regions.len() < REGIONS => {
                let start = mapper.map(at, REGION, true)?;
                self.regions.push((start..start + REGION, start));
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

    /// Switches the collector of a place on or off. Threads may run meanwhile.
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

    /// Removes veneers; no thread is in one, and no jump leads there.
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

    /// Takes a jump out.
    pub(crate) fn lift(&mut self, memory: &Memory, at: u64) {
        if let Some(jump) = self.planted.remove(&at) {
            jump.patch.lift(memory, at);
            let _ = self.switch_collector(memory, jump.id, false);
        }
    }

    /// Where a thread with this program counter is in a collector: its place, its registers without
    /// it, the rest.
    pub(crate) fn back(
        &self,
        memory: &Memory,
        pc: u64,
        general: &mut [u8],
    ) -> Option<(u64, Position)> {
        let veneer = |made: &&Made| made.veneer.as_ref().is_some_and(|(at, _)| *at == pc);
        if let Some(made) = self.made.iter().find(veneer) {
            // It has done nothing so far.
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

    /// Where the displaced instructions are executed.
    pub(crate) fn copy(&self, at: u64) -> Option<u64> {
        let jump = self.planted.get(&at)?;
        let made = &self.made[jump.id];
        Some(made.start + made.collector.copy())
    }

    /// The same, for a thread that stands in a collector with this program counter.
    pub(crate) fn copy_around(&self, pc: u64) -> Option<u64> {
        let (start, id) = self.starts.range(..=pc).next_back()?;
        let collector = &self.made[*id].collector;
        (pc - start <= collector.code.len() as u64).then(|| start + collector.copy())
    }

    /// The hits that wait; `told`: see [`Pool::drain`].
    pub(crate) fn drain(&mut self, memory: &Memory, told: bool) -> Vec<Hit> {
        let pool = self.pool.as_mut();
        pool.map(|pool| pool.drain(memory, told))
            .unwrap_or_default()
    }

    /// Of which place a hit is, and what was to be noted there.
    pub(crate) fn of(&self, hit: &Hit) -> Option<(u64, Rc<[Block]>)> {
        let id = Noted(&hit.bytes).id();
        let made = self.made.get(id as usize)?;
        Some((made.at, made.blocks.clone()))
    }

    pub(crate) fn pool(&self) -> Option<&Pool> {
        self.pool.as_ref()
    }

    /// Patches that are in copies of this memory.
    pub(crate) fn patches(&self) -> impl Iterator<Item = (u64, &Patch)> {
        let jumps = self.planted.iter().map(|(at, jump)| (*at, &jump.patch));
        jumps.chain(self.veneers())
    }

    /// Shows the program's bytes in `bytes`, read from `address`.
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

    /// Forgets everything: the memory it was in is gone.
    pub(crate) fn forget(&mut self) {
        *self = JumpPads::default();
    }
}
