//! Trap instructions in the program's text.
//!
//! The table stores the original bytes. Reads and writes of memory go through
//! [`hide`](Breakpoints::hide) and [`absorb`](Breakpoints::absorb), so that a client never sees a
//! trap, and never overwrites one.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

use nix::errno::Errno;

use super::journal::Journal;
use crate::arch;
use crate::breakpoint::patch::Patch;
use crate::sys::memory::Memory;

use super::condition::HitActions;

/// The traps in the memory of one process.
#[derive(Default)]
pub(crate) struct Breakpoints {
    traps: BTreeMap<u64, Trap>,
    /// Traps of finished steps. They stay until all threads are stopped.
    made_steps: Vec<u64>,
    journal: Journal,
}

struct Trap {
    patch: Patch,
    /// The breakpoint kind of the GDB protocol; on ARM it implies the instruction set.
    kind: usize,
    /// Actions of the client's breakpoint, if it has one here.
    planted: Option<HitActions>,
    /// Whether a tracepoint is here.
    probed: bool,
    /// Number of threads with a step that may end here.
    steps: u32,
    /// Whether the trap is temporarily removed.
    paused: bool,
}

impl Breakpoints {
    /// Plants a trap for the client. Planting it again only replaces the actions (GDB manual: `Z0`
    /// is idempotent).
    pub(crate) fn plant(
        &mut self,
        memory: &Memory,
        at: u64,
        kind: usize,
        actions: HitActions,
    ) -> Result<(), Errno> {
        self.trap(memory, at, kind)?.planted = Some(actions);
        Ok(())
    }

    /// Plants the trap of a tracepoint.
    pub(crate) fn plant_probe(
        &mut self,
        memory: &Memory,
        at: u64,
        kind: usize,
    ) -> Result<(), Errno> {
        self.trap(memory, at, kind)?.probed = true;
        Ok(())
    }

    /// Plants a trap that ends a step.
    pub(crate) fn plant_step(
        &mut self,
        memory: &Memory,
        at: u64,
        kind: usize,
    ) -> Result<(), Errno> {
        self.trap(memory, at, kind)?.steps += 1;
        Ok(())
    }

    fn trap(&mut self, memory: &Memory, at: u64, kind: usize) -> Result<&mut Trap, Errno> {
        let code = arch::trap(kind).ok_or(Errno::EINVAL)?;
        // The program may have unmapped and replaced the code since the trap was inserted.
        let stale = |trap: &Trap| trap.steps == 0 && !trap.paused;
        if self.traps.get(&at).is_some_and(stale) && !self.is_whole(memory, at) {
            self.traps.remove(&at);
            self.journal.erase(at);
        }
        let entry = match self.traps.entry(at) {
            Entry::Occupied(mut entry) => {
                entry.get_mut().come_back(memory, at, &mut self.journal)?;
                return Ok(entry.into_mut());
            }
            Entry::Vacant(entry) => entry,
        };
        let patch = Patch::plan(memory, at, code.to_vec())?;
        self.journal.note(memory.process(), at, &patch);
        patch
            .replant(memory, at)
            .inspect_err(|_| self.journal.erase(at))?;
        Ok(entry.insert(Trap {
            patch,
            kind,
            planted: None,
            probed: false,
            steps: 0,
            paused: false,
        }))
    }

    /// The client's traps, for another process that shares the memory.
    pub(crate) fn of_the_client(&self) -> Breakpoints {
        let planted = self.traps.iter().filter(|(_, trap)| trap.planted.is_some());
        let copy = |(at, trap): (&u64, &Trap)| {
            let trap = Trap {
                patch: trap.patch.clone(),
                kind: trap.kind,
                planted: trap.planted.clone(),
                probed: false,
                steps: 0,
                paused: false,
            };
            (*at, trap)
        };
        Breakpoints {
            traps: planted.map(copy).collect(),
            ..Breakpoints::default()
        }
    }

    /// Replaces the client's traps with the traps that another process has left in this memory.
    pub(crate) fn inherit(&mut self, left: Breakpoints, memory: &Memory) {
        for trap in self.traps.values_mut() {
            trap.planted = None;
        }
        for (at, mut trap) in left.traps {
            self.journal.note(memory.process(), at, &trap.patch);
            let planted = trap.planted.take();
            self.traps.entry(at).or_insert(trap).planted = planted;
        }
        self.traps
            .retain(|_, trap| trap.planted.is_some() || trap.probed || trap.steps > 0);
    }

    /// Plants the client's traps in another memory, which is a copy of this one without its traps.
    pub(crate) fn planted_anew(&self, memory: &Memory) -> Breakpoints {
        let mut copy = Breakpoints::default();
        for (at, trap) in &self.traps {
            if let Some(actions) = &trap.planted {
                // If planting fails, there is no code to execute.
                let _ = copy.plant(memory, *at, trap.kind, actions.clone());
            }
        }
        copy
    }

    /// Removes a trap of the client. Does nothing if there is none.
    pub(crate) fn remove(&mut self, memory: &Memory, at: u64) {
        if let Some(trap) = self.traps.get_mut(&at) {
            trap.planted = None;
            self.drop_unused(memory, at);
        }
    }

    /// Removes the client's traps: all, or only the ones that do not persist after a detach.
    pub(crate) fn remove_planted(&mut self, memory: &Memory, all: bool) {
        let goes = |actions: &HitActions| all || !actions.persist;
        let planted = self.traps.iter();
        let going = planted.filter(|(_, trap)| trap.planted.as_ref().is_some_and(goes));
        let places: Vec<u64> = going.map(|(at, _)| *at).collect();
        for at in places {
            self.remove(memory, at);
        }
    }

    /// Whether any trap of the client persists after a detach.
    pub(crate) fn persist(&self) -> bool {
        let mut planted = self.traps.values().filter_map(|trap| trap.planted.as_ref());
        planted.any(|actions| actions.persist)
    }

    /// Removes the trap of a tracepoint.
    pub(crate) fn remove_probe(&mut self, memory: &Memory, at: u64) {
        if let Some(trap) = self.traps.get_mut(&at) {
            trap.probed = false;
            self.drop_unused(memory, at);
        }
    }

    /// Removes the trap of a tracepoint temporarily, unless a client or a step needs it. A thread
    /// may have run into it just before.
    pub(crate) fn pause_probe(&mut self, memory: &Memory, at: u64) {
        if let Some(trap) = self.traps.get_mut(&at)
            && trap.planted.is_none()
            && !trap.paused
            && trap.steps == 0
        {
            trap.patch.lift(memory, at);
            trap.paused = true;
        }
    }

    /// The inverse of [`pause_probe`](Self::pause_probe).
    pub(crate) fn resume_probe(&mut self, memory: &Memory, at: u64) {
        if let Some(trap) = self.traps.get_mut(&at) {
            // If that fails, the text is gone, and with it the place of the tracepoint.
            let _ = trap.come_back(memory, at, &mut self.journal);
        }
    }

    /// Removes a trap that ended a step.
    pub(crate) fn remove_step(&mut self, memory: &Memory, at: u64) {
        if let Some(trap) = self.traps.get_mut(&at)
            && trap.steps > 0
        {
            trap.steps -= 1;
            self.drop_unused(memory, at);
        }
    }

    /// Marks the traps of finished steps.
    pub(crate) fn retire_steps(&mut self, traps: &mut Vec<u64>) {
        self.made_steps.append(traps);
    }

    /// Removes the traps of finished steps.
    pub(crate) fn remove_retired_steps(&mut self, memory: &Memory) {
        for at in std::mem::take(&mut self.made_steps) {
            self.remove_step(memory, at);
        }
    }

    fn drop_unused(&mut self, memory: &Memory, at: u64) {
        if let Entry::Occupied(entry) = self.traps.entry(at)
            && entry.get().planted.is_none()
            && !entry.get().probed
            && entry.get().steps == 0
        {
            let trap = entry.remove();
            if !trap.paused {
                trap.patch.lift(memory, at);
            }
            self.journal.erase(at);
        }
    }

    /// Removes all traps.
    pub(crate) fn remove_all(&mut self, memory: &Memory) {
        for (at, trap) in std::mem::take(&mut self.traps) {
            if !trap.paused {
                trap.patch.lift(memory, at);
            }
        }
        self.journal.clear();
    }

    /// Forgets all traps, because the memory that contained them is gone.
    pub(crate) fn forget(&mut self) {
        self.traps.clear();
        self.made_steps.clear();
        self.journal.clear();
    }

    /// Whether the client planted a trap at exactly this address.
    pub(crate) fn planted(&self, at: u64) -> bool {
        self.actions(at).is_some()
    }

    /// The actions of a trap that the client planted at exactly this address.
    pub(crate) fn actions(&self, at: u64) -> Option<&HitActions> {
        self.traps.get(&at)?.planted.as_ref()
    }

    /// Whether a tracepoint's trap is at exactly this address.
    pub(crate) fn probed(&self, at: u64) -> bool {
        self.traps.get(&at).is_some_and(|trap| trap.probed)
    }

    /// Whether this range contains no trap, except perhaps a tracepoint's at its beginning.
    pub(crate) fn only_probe_in(&self, range: Range<u64>) -> bool {
        let mut traps = self.traps.range(range.clone());
        traps.all(|(at, trap)| *at == range.start && trap.planted.is_none() && trap.steps == 0)
    }

    /// Whether there is any tracepoint's trap.
    pub(crate) fn has_probes(&self) -> bool {
        self.traps.values().any(|trap| trap.probed)
    }

    /// The addresses of all traps.
    pub(crate) fn places(&self) -> Vec<u64> {
        self.traps.keys().copied().collect()
    }

    /// The addresses of tracepoints' traps.
    pub(crate) fn probes(&self) -> Vec<u64> {
        let probed = self.traps.iter().filter(|(_, trap)| trap.probed);
        probed.map(|(at, _)| *at).collect()
    }

    /// Whether there is a trap at exactly this address that is not temporarily removed.
    pub(crate) fn stands(&self, at: u64) -> bool {
        self.traps.get(&at).is_some_and(|trap| !trap.paused)
    }

    /// Whether the trap at this address is still in the program's memory.
    pub(crate) fn is_whole(&self, memory: &Memory, at: u64) -> bool {
        let trap = self.traps.get(&at);
        trap.is_some_and(|trap| !trap.paused && trap.patch.stands(memory, at))
    }

    /// Whether there is a trap of any kind at exactly this address.
    pub(crate) fn trapped(&self, at: u64) -> bool {
        self.traps.contains_key(&at)
    }

    /// Whether there is no trap.
    pub(crate) fn is_empty(&self) -> bool {
        self.traps.is_empty()
    }

    /// The breakpoint kind of the trap at an address.
    pub(crate) fn kind(&self, at: u64) -> Option<usize> {
        self.traps.get(&at).map(|trap| trap.kind)
    }

    /// All traps, including those temporarily removed: a copy of the memory may be older than the
    /// removal.
    pub(crate) fn patches(&self) -> impl Iterator<Item = (u64, &Patch)> {
        self.traps.iter().map(|(at, trap)| (*at, &trap.patch))
    }

    /// Restores the original bytes of one trap for a moment.
    pub(crate) fn lift(&self, memory: &Memory, at: u64) {
        if let Some(trap) = self.traps.get(&at)
            && !trap.paused
        {
            trap.patch.lift(memory, at);
        }
    }

    /// The inverse of [`lift`](Self::lift).
    pub(crate) fn replant(&self, memory: &Memory, at: u64) {
        if let Some(trap) = self.traps.get(&at)
            && !trap.paused
        {
            let _ = trap.patch.replant(memory, at);
        }
    }

    /// Replaces traps in `bytes` with the original bytes. `bytes` were read from `address`.
    pub(crate) fn hide(&self, address: u64, bytes: &mut [u8]) {
        let end = address.saturating_add(bytes.len() as u64);
        for (at, trap) in self.traps.range(address.saturating_sub(8)..end) {
            if !trap.paused {
                trap.patch.hide(*at, address, bytes);
            }
        }
    }

    /// Stores the bytes to be written at `address` as the new original bytes, and puts the traps
    /// into `bytes`.
    pub(crate) fn absorb(&mut self, address: u64, bytes: &mut [u8]) {
        let end = address.saturating_add(bytes.len() as u64);
        for (at, trap) in self.traps.range_mut(address.saturating_sub(8)..end) {
            if !trap.paused {
                trap.patch.absorb(*at, address, bytes);
                self.journal.renew(*at, &trap.patch);
            }
        }
    }
}

impl Trap {
    /// Plants a temporarily removed trap again, over the current bytes.
    fn come_back(&mut self, memory: &Memory, at: u64, journal: &mut Journal) -> Result<(), Errno> {
        if self.paused
            && let Some(code) = arch::trap(self.kind)
        {
            self.patch = Patch::plan(memory, at, code.to_vec())?;
            journal.note(memory.process(), at, &self.patch);
            self.patch.replant(memory, at)?;
            self.paused = false;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_trap(at: u64) -> Breakpoints {
        let trap = Trap {
            patch: Patch::over(&[0x55], &[0xcc]),
            kind: 1,
            planted: Some(HitActions::default()),
            probed: false,
            steps: 0,
            paused: false,
        };
        Breakpoints {
            traps: BTreeMap::from([(at, trap)]),
            ..Breakpoints::default()
        }
    }

    #[test]
    fn reads_show_the_original() {
        let mut bytes = [0x90, 0xcc, 0x90];
        with_trap(0x1001).hide(0x1000, &mut bytes);
        assert_eq!(bytes, [0x90, 0x55, 0x90]);
    }

    #[test]
    fn writes_go_under_the_trap() {
        let mut traps = with_trap(0x1001);
        let mut bytes = [1, 2, 3];
        traps.absorb(0x1000, &mut bytes);
        assert_eq!(bytes, [1, 0xcc, 3]);
        assert_eq!(traps.traps[&0x1001].patch.original(), [2]);
    }
}
