//! Creations whose thread has not started yet, and the choice of one for a starting thread.

use std::sync::Arc;

use unspool_capture::{Event, ProbeKind, ReadRole, Record};

use super::History;
use super::handle::{self, StartRegisters};
use crate::model::backtrace::Backtrace;
use crate::model::cxx;
use crate::model::schedule::CreationStacks;
use crate::model::thread::{Creation, ThreadIndex};

/// Maximum difference between the server's and the kernel's time of a creation.
const APART_NS: u64 = 1_000_000_000;

/// A call of a creation function whose thread has not been seen to start.
#[derive(Debug)]
pub(super) struct Pending {
    /// Index of its event among the records.
    pub(super) record: usize,
    pub(super) time_ns: u64,
    pub(super) creator: usize,
    /// Number of threads at the creation, without the created one.
    pub(super) born: usize,
    /// Where the creation function puts the handle.
    pub(super) place: u64,
    pub(super) routine: u64,
    pub(super) arg: Option<u64>,
    /// Value read at `place` when the next creation got the same place.
    pub(super) handle: Option<u64>,
    /// True if a later creation uses the same `place`, so that its value no longer belongs to this
    /// one.
    pub(super) overwritten: bool,
    pub(super) detached: bool,
}

/// Chooses the pending creation that the thread `index` came from; true if the choice is a guess.
pub(super) fn choose(
    pending: &[Pending],
    index: usize,
    routine: u64,
    arg: Option<u64>,
    registers: &StartRegisters,
    stored: &[(u64, u64)],
) -> Option<(usize, bool)> {
    // In glibc and musl on x86-64 a thread's handle is its thread pointer. What was read at a
    // creation's place when the place was used again is that creation's handle for certain.
    let other = |i: usize| {
        let pointer = registers.thread_pointer;
        pointer.is_some() && pending[i].handle.is_some() && pending[i].handle != pointer
    };
    let candidates: Vec<usize> = (0..pending.len())
        .filter(|&i| pending[i].routine == routine && pending[i].born <= index)
        .filter(|&i| arg.is_none() || pending[i].arg.is_none() || pending[i].arg == arg)
        .filter(|&i| !other(i))
        .collect();
    if candidates.len() <= 1 {
        return Some((*candidates.first()?, false));
    }
    let known = |&i: &usize| registers.thread_pointer.is_some() && pending[i].handle.is_some();
    if let Some(only) = candidates.iter().copied().find(known) {
        return Some((only, false));
    }
    // The current value may be left over from an earlier creation.
    let handle = |i: usize| {
        let stored = stored
            .iter()
            .find(|(place, _)| *place == pending[i].place && !pending[i].overwritten);
        pending[i].handle.or(stored.map(|(_, handle)| *handle))
    };
    let exact: Vec<usize> = candidates
        .iter()
        .copied()
        .filter(|&i| registers.thread_pointer.is_some() && handle(i) == registers.thread_pointer)
        .collect();
    if let [only] = exact[..] {
        return Some((only, false));
    }
    // Otherwise the handle points into the top of the thread's own stack, just above sp. Stacks are
    // far apart, so the nearest handle belongs to it. Two equally near handles are the same stale
    // value.
    if registers.thread_pointer.is_none()
        && let Some(sp) = registers.sp
    {
        let mut above: Vec<(u64, usize)> = candidates
            .iter()
            .filter_map(|&i| Some((handle(i)?.checked_sub(sp)?, i)))
            .collect();
        above.sort_unstable();
        match above[..] {
            [(near, only)] if near < STACK_TOP => return Some((only, false)),
            [(near, first), (next, _), ..] if near < STACK_TOP && near < next => {
                return Some((first, false));
            }
            _ => {}
        }
    }
    // Threads usually start in the order of their creation.
    Some((candidates[0], true))
}

/// Maximum distance between the top of a stack (thread structure, static TLS) and the first frame.
const STACK_TOP: u64 = 1 << 20;

/// Upper bound of a thread structure (glibc 2.36: 1216 bytes on ARM, 2304 on x86-64).
const STRUCTURE: u64 = 8 << 10;

/// Default size of a thread's stack (`ulimit -s`, on Linux).
const STACK_SIZE: u64 = 8 << 20;

/// Whether thread attributes ask for a detached thread.
///
/// glibc keeps flags at offset 8 (after the scheduling priority and policy, 4 bytes each), bit 0 is
/// "detached", on all architectures. musl keeps three words (stack size, guard size, stack address)
/// and then the detach state as an int.
pub(super) fn detached(attr: &[u8], pointer: usize, musl: bool) -> bool {
    let at = if musl { 3 * pointer } else { 8 };
    let Some(flags) = attr.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()) else {
        return false;
    };
    let flags = u32::from_le_bytes(flags);
    if musl { flags == 1 } else { flags & 1 != 0 }
}

/// A stack taken in a creation function, without that function.
pub(super) fn without_callee(stack: &Arc<Backtrace>) -> Arc<Backtrace> {
    let callee = stack.frames.iter().position(|frame| !frame.inlined);
    let skip = callee.map_or(stack.frames.len(), |at| at + 1);
    Arc::new(Backtrace {
        frames: stack.frames[skip..].to_vec(),
        truncated: stack.truncated.clone(),
    })
}

impl History<'_> {
    pub(super) fn create(&mut self, at: usize, event: &Event, creator: usize) {
        self.counts.creations += 1;
        let attr = event
            .reads
            .iter()
            .find(|read| read.role() == ReadRole::Attr);
        let pending = Pending {
            record: at,
            time_ns: event.time_ns,
            creator,
            born: self.threads.len(),
            place: event.args.first().copied().unwrap_or(0),
            routine: self.routine(event.args.get(2).copied()),
            arg: event.args.get(3).copied(),
            handle: None,
            overwritten: false,
            detached: attr.is_some_and(|attr| detached(&attr.bytes, self.pointer, self.musl)),
        };
        // The place in memory is about to be reused: its value belongs to the last creation.
        let reads = handle::reads(event, self.pointer);
        let current = |p: &&mut Pending| !p.overwritten;
        for waiting in self.pending.iter_mut().filter(current) {
            if let Some((_, handle)) = reads.iter().find(|(place, _)| *place == waiting.place) {
                waiting.handle = Some(*handle);
            }
            waiting.overwritten = waiting.place == pending.place;
        }
        self.pending.push(pending);
    }

    pub(super) fn start(&mut self, at: usize, event: &Event) {
        if let Some(&index) = self.current.get(&event.tid)
            && self.traces[index].started
        {
            // A thread starts only once, so the TID has a new owner and the old one's end was
            // missed.
            self.newborn(event.tid, event.time_ns);
        }
        let index = match self.current.get(&event.tid) {
            Some(&index) => index,
            None => self.begin(event.tid, event.time_ns),
        };
        self.traces[index].started = true;
        self.threads[index].started_ns = Some(event.time_ns);
        let probe = self.probes.get(&event.probe).map_or(0, |probe| probe.avma);
        let routine = self.routine(Some(probe));
        self.threads[index]
            .function
            .get_or_insert_with(|| self.frames.place(at, routine));

        let registers = handle::StartRegisters::read(event, &self.capture.target);
        let stored = handle::reads(event, self.pointer);
        match choose(
            &self.pending,
            index,
            routine,
            event.args.first().copied(),
            &registers,
            &stored,
        ) {
            Some((chosen, inferred)) => {
                let pending = self.pending.remove(chosen);
                let stored = stored.iter().find(|(place, _)| *place == pending.place);
                let handle = registers
                    .thread_pointer
                    .or(stored.map(|(_, handle)| *handle))
                    .or(pending.handle);
                self.link(index, &pending, inferred);
                self.known_handle(index, handle, registers.sp);
            }
            None => self.known_handle(index, registers.thread_pointer, registers.sp),
        }
    }

    /// The server reported the creator, so the thread belongs to its last pending creation. Earlier
    /// ones have failed.
    pub(super) fn told(&mut self, index: usize, creator: u64, thread_pointer: Option<u64>) {
        self.traces[index].started = true;
        let creator = self.current.get(&creator).copied();
        self.traces[index].creator = creator;
        let made = |p: &Pending| Some(p.creator) == creator;
        if let Some(chosen) = self.pending.iter().rposition(made) {
            let pending = self.pending.remove(chosen);
            self.link(index, &pending, false);
        }
        if self.pointer_is_handle {
            self.known_handle(index, thread_pointer, None);
        } else {
            // The thread structure lies just below it (ELF TLS variant I).
            let below = thread_pointer.map(|at| at.saturating_sub(STRUCTURE));
            self.known_handle(index, None, below);
        }
    }

    /// Recognizes a thread by its stack if its start was not recorded. The handle of its creation
    /// lies above its stack pointer, and is the nearest one.
    pub(super) fn recognize(&mut self, index: usize, event: &Event) {
        if self.starts_are_watched()
            || self.traces[index].started
            || self.threads[index].creation != Creation::Unseen
        {
            return;
        }
        let stored = handle::reads(event, self.pointer);
        let registers = handle::StartRegisters::read(event, &self.capture.target);
        let Some(sp) = registers.sp else { return };
        let distance = |p: &Pending| {
            let lying = stored
                .iter()
                .find(|(place, _)| *place == p.place && !p.overwritten);
            let handle = p.handle.or(lying.map(|(_, handle)| *handle))?;
            handle.checked_sub(sp).filter(|above| *above < STACK_SIZE)
        };
        // A reused stack gives the same handle, so the last creation is chosen.
        let nearest = (0..self.pending.len())
            .filter(|&i| self.pending[i].born <= index)
            .filter_map(|i| Some((distance(&self.pending[i])?, std::cmp::Reverse(i))))
            .min();
        if let Some((_, std::cmp::Reverse(chosen))) = nearest {
            let pending = self.pending.remove(chosen);
            self.traces[index].started = true;
            self.link(index, &pending, false);
        }
    }

    fn link(&mut self, index: usize, pending: &Pending, inferred: bool) {
        let event = match &self.capture.records[pending.record] {
            Record::Event(event) => Some(event),
            _ => None,
        };
        let snapshot = event.and_then(|event| event.snapshot.as_ref());
        let stack = match snapshot {
            Some(snapshot) => without_callee(&self.frames.backtrace(pending.record, snapshot)),
            None => Arc::new(Backtrace {
                truncated: Some("no registers were recorded".to_owned()),
                ..Backtrace::default()
            }),
        };
        if self.threads[index].function.is_none() && pending.routine != 0 {
            self.threads[index].function = Some(self.frames.place(pending.record, pending.routine));
        }
        let state = event.and_then(|event| {
            let mut reads = event.reads.iter();
            reads.find(|read| read.role() == ReadRole::State)
        });
        let made_for = state.and_then(|state| {
            let (frames, at) = (&mut *self.frames, pending.record);
            cxx::made_for(frames, at, &state.bytes, self.pointer, self.thumb)
        });
        let thread = &mut self.threads[index];
        // A thread older than the creation is not its thread. This also keeps creators acyclic.
        if index >= pending.born && thread.creation != Creation::Main {
            if let Some(made_for) = made_for {
                thread.start = thread.function.replace(made_for);
            }
            thread.creation = Creation::Seen {
                creator: ThreadIndex(pending.creator),
                stack,
                inferred,
            };
            thread.created_ns = Some(pending.time_ns);
        }
        thread.detached |= pending.detached;
        self.counts.inferred += u64::from(inferred);
    }

    /// Assigns the oldest remaining creations to threads that appeared without a start event. A
    /// recording that was cut, or that lost events, has such threads.
    pub(super) fn link_leftovers(&mut self) {
        for index in 0..self.threads.len() {
            let thread = &self.threads[index];
            if self.traces[index].started || thread.creation != Creation::Unseen {
                continue;
            }
            let Some(seen_ns) = thread.started_ns else {
                continue;
            };
            let fits = |p: &Pending| p.time_ns <= seen_ns && index >= p.born;
            if let Some(oldest) = self.pending.iter().position(fits) {
                let pending = self.pending.remove(oldest);
                self.link(index, &pending, true);
            }
        }
    }
    /// Adds the creations that only the kernel has seen.
    pub(super) fn link_by_kernel(&mut self) {
        let mut stacks = None;
        for index in 0..self.threads.len() {
            let thread = &self.threads[index];
            let creator = self.traces[index]
                .creator
                .filter(|creator| *creator < index);
            let (Creation::Unseen, Some(creator), Some(tid), Some(started_ns)) =
                (&thread.creation, creator, thread.tid, thread.started_ns)
            else {
                continue;
            };
            let stacks =
                stacks.get_or_insert_with(|| CreationStacks::of(self.capture, self.frames));
            if let Some(seen) = stacks.nearest(tid, started_ns, APART_NS) {
                // Where only the kernel shows creations, nothing shows joins.
                self.recording.joins_are_missing = true;
                let thread = &mut self.threads[index];
                thread.function = thread.function.take().or_else(|| seen.function.clone());
                thread.creation = Creation::Seen {
                    creator: ThreadIndex(creator),
                    stack: Arc::clone(&seen.stack),
                    inferred: false,
                };
            }
        }
    }

    /// Where starts are not watched, an unmatched creation is the only trace of a
    /// thread.
    pub(super) fn list_unfollowed(&mut self) {
        if self.starts_are_watched() {
            return;
        }
        for pending in std::mem::take(&mut self.pending) {
            let index = self.push(None);
            self.link(index, &pending, false);
            self.counts.unfollowed += 1;
        }
    }

    fn starts_are_watched(&self) -> bool {
        let mut probes = self.probes.values();
        self.capture.target.tells_creators || probes.any(|probe| probe.kind() == ProbeKind::Start)
    }
}
