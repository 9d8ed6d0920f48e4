//! Replays the calls in order, and tracks holders and waits.
//!
//! A lock is taken when the call that takes it returns, and released when the call that releases it
//! begins. At both moments no other thread can hold it. Events may be missing: if a hold
//! contradicts later events, its end was not seen, and its object is doubtful from then on.

use std::collections::{BTreeMap, VecDeque};

use foldhash::{HashMap, HashMapExt};

use super::contention::ContentionSums;
use super::gaps::Gaps;
use super::histogram::Histogram;
use super::holds::Holds;
use super::journal::{HoldSpan, Journal};
use super::meaning::{EOWNERDEAD, has_timed_out, returns_errors};
use super::misuse::{MistakeKind, Misuse};
use super::objects::{ObjectIndex, Objects};
use super::order::Order;
use super::past_holds::PastHolds;
use super::queues::Queues;
use super::recorder_stalls::RecorderStalls;
use super::remapping::Remapping;
use super::semaphores::Semaphores;
use super::slots::Slots;
use super::stale_wake::StaleWaits;
use super::tenures::{self, Tenures};
use super::under_way::{Pending, Under, UnderWay};
use super::usage::{FunctionTimes, Usage};
use super::wakes::{Ended, Wakes};
use crate::model::calls::{Call, Calls, FunctionId, Moment, futex};
use crate::model::schedule::by_tid;
use crate::model::{Model, ThreadIndex};
use crate::platform::layouts::Layout;
use crate::primitives::{self, Kind, Operation, Primitive};
use refusals::Refused;
use retrying::Attempt;
use words::{ByCaller, WaitedAt};

mod cancelling;
mod ending;
mod holding;
mod joining;
mod owners;
mod refusals;
mod remapping;
mod retrying;
mod sleeping;
mod waited;
mod waking;
mod words;

/// Minimum length of a call that counts as a wait, if system calls are not recorded.
const WAITED_NS: u64 = 100_000;
/// Size of the largest once control (the Itanium C++ ABI's guard has 8 bytes).
const ONCE_SIZE: u64 = 8;
/// The result of a futex wait whose word has another value than the expected one (`-EAGAIN`).
const EAGAIN: u64 = -11_i64 as u64;

/// The state of the replay, and its results.
pub(super) struct Replay<'a> {
    model: &'a Model,
    identities: &'a [usize],
    /// The threads with each id, in the order of their creation.
    by_tid: HashMap<u64, Vec<ThreadIndex>>,
    roles: Vec<Option<&'static Primitive>>,
    /// Futex calls are recorded, so waits need not be inferred from their length.
    futexes: bool,
    /// True if the C library is glibc.
    glibc: bool,
    /// The layout of the C library's objects.
    layout: Option<&'static Layout>,
    by_caller: ByCaller,
    under_way: UnderWay,
    refused: HashMap<ThreadIndex, Refused>,
    /// Per thread, its last wait for a lock, if that may go on.
    attempts: BTreeMap<ThreadIndex, Attempt>,
    pub(super) holds: Holds,
    pub(super) gaps: Gaps,
    /// Number of events so far, per thread.
    events: Vec<u64>,
    /// Durations of acquisitions of free locks.
    pub(super) unhindered: Histogram,
    queues: Queues,
    wakes: Wakes,
    stale_waits: StaleWaits,
    tenures: Tenures,
    /// The holds that threads have waited for.
    past_holds: PastHolds,
    stalls: RecorderStalls,
    contention: ContentionSums,
    pub(super) objects: Objects,
    pub(super) order: Order,
    pub(super) slots: Slots,
    pub(super) journal: Option<Journal>,
    semaphores: Semaphores,
    /// Holds of semaphores, to keep if these are locks.
    semaphore_holds: Vec<(ObjectIndex, HoldSpan)>,
    pub(super) usage: Usage,
    pub(super) misuse: Misuse,
    /// Per thread, the calls in which it seems to have ended, and whether none of their ends was
    /// lost.
    cut_short: Vec<Vec<(Pending, bool)>>,
    /// The threads that each thread joined, in order of the join calls' times.
    joins: HashMap<ThreadIndex, Vec<(u64, ThreadIndex)>>,
    /// The changes of the mapped memory that are not applied yet, in order of time.
    pub(super) remappings: VecDeque<Remapping>,
    /// Number of calls whose end is missing although it is watched.
    pub(super) unseen_ends: u64,
    /// The time of the latest event.
    pub(super) latest_ns: u64,
    /// Largest step of the recorded times backwards, nanoseconds.
    pub(super) jump_ns: u64,
}

impl<'a> Replay<'a> {
    pub(super) fn new(
        model: &'a Model,
        identities: &'a [usize],
        slots: Slots,
        stalls: RecorderStalls,
        musl: bool,
        layout: Option<&'static Layout>,
    ) -> Replay<'a> {
        Replay {
            model,
            identities,
            by_tid: by_tid(model.threads.iter()),
            roles: Vec::new(),
            futexes: false,
            glibc: !musl,
            layout,
            by_caller: ByCaller::default(),
            under_way: UnderWay::default(),
            refused: HashMap::new(),
            attempts: BTreeMap::new(),
            holds: Holds::new(model.threads.len()),
            gaps: Gaps::default(),
            events: vec![0; model.threads.len()],
            unhindered: Histogram::default(),
            queues: Queues::default(),
            wakes: Wakes::default(),
            stale_waits: StaleWaits::default(),
            tenures: Tenures::default(),
            past_holds: PastHolds::default(),
            stalls,
            contention: ContentionSums::default(),
            objects: Objects::default(),
            order: Order::default(),
            slots,
            journal: None,
            semaphores: Semaphores::default(),
            semaphore_holds: Vec::new(),
            usage: Usage::new(model.threads.len()),
            misuse: Misuse::default(),
            cut_short: model.threads.iter().map(|_| Vec::new()).collect(),
            joins: joining::joins(&model.threads),
            remappings: VecDeque::new(),
            unseen_ends: 0,
            latest_ns: 0,
            jump_ns: 0,
        }
    }

    pub(super) fn moment(&mut self, calls: &Calls, moment: Moment<'_>) {
        match moment {
            Moment::Entered(call) => self.entered(calls, call),
            Moment::Left(call) => self.left(calls, call),
            Moment::Lost { call, before_ns } => {
                self.unseen_ends += u64::from(calls.function(call.function).has_end);
                if let Some(pending) = self.ended_unseen(calls, call) {
                    match before_ns.filter(|_| pending.primitive.mutex.is_some()) {
                        Some(before_ns) => self.was_cancelled(pending, before_ns),
                        None => self.doubt(&pending),
                    }
                }
            }
            Moment::CutShort { call, sure } => {
                self.unseen_ends += u64::from(calls.function(call.function).has_end);
                if let Some(pending) = self.ended_unseen(calls, call)
                    && let Some(cut_short) = self.cut_short.get_mut(pending.thread.0)
                {
                    cut_short.push((*pending, sure));
                }
            }
            Moment::Unfinished { call, sure } => self.unfinished(call, sure),
            Moment::Missing {
                functions,
                ends,
                gap,
            } => {
                if ends {
                    self.queues.change(gap);
                }
                if functions.iter().any(|id| calls.function(*id).futex) {
                    self.end_attempts();
                    self.wakes.change(gap, self.latest_ns);
                    self.stale_waits.forget();
                    self.tenures.forget();
                    self.semaphores.forget();
                }
                let is_of_semaphores = |id: &FunctionId| {
                    let primitive = primitives::find(&calls.function(*id).name);
                    primitive.is_some_and(|primitive| primitive.kind == Kind::Sem)
                };
                if functions.iter().any(is_of_semaphores) {
                    self.semaphores.forget();
                }
                self.gaps.change(calls, functions, ends, gap);
            }
        }
    }

    /// The primitive of a function, cached.
    fn role(&mut self, calls: &Calls, function: FunctionId) -> Option<&'static Primitive> {
        while self.roles.len() < calls.functions.len() {
            let next = &calls.functions[self.roles.len()];
            let primitive = primitives::find(&next.name);
            self.roles.push(primitive.filter(|_| !next.futex));
            self.futexes |= next.futex;
        }
        self.roles.get(function.0).copied().flatten()
    }

    fn clock(&mut self, ns: u64) {
        self.jump_ns = self.jump_ns.max(self.latest_ns.saturating_sub(ns));
        self.latest_ns = self.latest_ns.max(ns);
    }

    fn entered(&mut self, calls: &Calls, call: &Call) {
        self.remap_until(call.entered_ns);
        self.count_event(call.thread);
        self.clock(call.entered_ns);
        self.goes_on(call.thread);
        if self.tries_again(calls, call) {
            return;
        }
        let refused = self.refused.remove(&call.thread);
        let primitive = self.role(calls, call.function);
        let futex = calls.function(call.function).futex;
        if !futex {
            let has_end = calls.function(call.function).has_end;
            self.usage.entered(call, has_end);
        }
        let mut outer = self.under_way.outer(call.within);
        if futex {
            outer = outer.filter(|outer| !self.runs_a_function(*outer, call));
        }
        let own = if futex {
            if !futex::waits(&call.args) {
                self.wakes_others(calls, call);
                return;
            }
            if let Some(word) = call.args.first() {
                self.wakes.wait(*word);
                self.stale_waits.wait(*word);
            }
            if let Some(outer) = outer {
                self.sleeps(outer, call);
                self.under_way.insert(call.number, Under::Part(outer));
                return;
            }
            self.waited_at(calls, call)
        } else {
            primitive.and_then(|primitive| {
                Some(WaitedAt {
                    primitive,
                    address: *call.args.get(usize::from(primitive.object))?,
                    only_word: false,
                })
            })
        };
        let Some(WaitedAt {
            primitive,
            address,
            only_word,
        }) = own
        else {
            self.under_way.insert(call.number, Under::Plain);
            return;
        };
        if !futex && primitive.operation == Operation::Unlock && !primitive.internal {
            self.ends_cancelled_wait(call, outer, address);
        }
        // Libraries call their own primitives; one wait must not count twice.
        if let Some(outer) = outer
            && (primitive.internal || self.is_about(outer, primitive, address))
        {
            self.under_way.insert(call.number, Under::Part(outer));
            return;
        }
        let has_end = calls.function(call.function).has_end;
        let (address, owner) = match futex {
            true => {
                let refused =
                    refused.filter(|r| self.goes_on_for(r, calls, call, primitive, address));
                let known = refused.map(|r| (self.objects.objects[r.object.0].address, r.owner));
                known.unwrap_or_else(|| (address, self.owner(call, primitive, address)))
            }
            false => (address, None),
        };
        let waits = primitive.operation.may_wait();
        if waits && !futex {
            self.names_object(calls, call.path, primitive.kind, address);
        }
        let pending = self.begins(call, primitive, address, owner, futex, has_end);
        self.objects.objects[pending.object.0].word |= only_word;
        if waits {
            self.waits_from(calls, call.path, pending.object);
        }
        // A call whose end is not watched stays without effect.
        if has_end {
            self.under_way
                .insert(call.number, Under::Own(Box::new(pending)));
        }
    }

    fn count_event(&mut self, thread: ThreadIndex) {
        if let Some(events) = self.events.get_mut(thread.0) {
            *events += 1;
        }
    }

    fn events_of(&self, thread: ThreadIndex) -> u64 {
        self.events.get(thread.0).copied().unwrap_or(0)
    }

    /// True if the recording has the calls of this primitive's function.
    fn is_recorded(&self, primitive: &'static Primitive) -> bool {
        let mut recorded = self.roles.iter().flatten();
        recorded.any(|role| std::ptr::eq(*role, primitive))
    }

    /// True if a nested call works on the object of the outer call, or on the mutex of an outer
    /// wait at a condition. musl releases and takes that mutex again by its public functions.
    /// Signal handlers and cleanup handlers, which run within a wait, may wake others.
    fn is_about(&self, outer: u64, primitive: &Primitive, address: u64) -> bool {
        let Some(pending) = self.under_way.own(outer) else {
            return false;
        };
        if primitive.operation.wakes() && pending.primitive.operation.may_wait() {
            return false;
        }
        let mutex = self.misuse.mutexes(pending.object).last();
        let mutex = mutex.filter(|_| pending.primitive.mutex.is_some());
        let mut objects = mutex.into_iter().chain([&pending.object]);
        objects.any(|object| {
            let object = &self.objects.objects[object.0];
            (object.kind, object.address) == (primitive.kind, address)
        })
    }

    /// True if the function that a once call runs makes the system call for another object. The
    /// once call itself waits at a word within its control.
    fn runs_a_function(&self, outer: u64, call: &Call) -> bool {
        let pending = self.under_way.own(outer);
        let word = call.args.first().copied().unwrap_or(0);
        pending.is_some_and(|pending| {
            let control = self.objects.objects[pending.object.0].address;
            pending.primitive.operation == Operation::Once
                && word.wrapping_sub(control) >= ONCE_SIZE
        })
    }

    /// Begins a call. `owner` is the owner by the object's memory, if only the system call is seen.
    fn begins(
        &mut self,
        call: &Call,
        primitive: &'static Primitive,
        address: u64,
        owner: Option<ThreadIndex>,
        futex: bool,
        has_end: bool,
    ) -> Pending {
        let (thread, now) = (call.thread, call.entered_ns);
        let identity = self.identity(thread);
        let (kind, operation) = (primitive.kind, primitive.operation);
        let object = match operation {
            Operation::Init => {
                if let Some(before) = self.objects.known(kind, address) {
                    self.objects.objects[before.0].destroyed_ns = Some(now);
                }
                let new = self.objects.begin(kind, address, call.path, now, true);
                // pthread_barrier_init(barrier, attributes, count)
                if let (Kind::Barrier, Some(size)) = (kind, call.args.get(2)) {
                    self.order.barriers.made(new, u64::from(*size as u32));
                }
                new
            }
            _ => self.objects.at(kind, address, call.path, now),
        };
        // A signal whose own call is recorded can sleep in the kernel, too.
        let is_within_call = futex && !operation.may_wait() && self.is_recorded(primitive);
        let who = (thread, identity);
        let used = self
            .objects
            .used(object, operation, call.path, who, !is_within_call);
        self.usage.operated(thread);
        let mut pending = Pending {
            thread,
            primitive,
            object,
            used,
            entered_ns: now,
            timed: match futex {
                true => futex::is_timed(&call.args),
                false => primitive.timed,
            },
            holder: None,
            owner,
            alone: futex,
            queued: false,
            place: None,
            slept: futex,
            timed_out: false,
            ended: None,
            stale: None,
            given_up: None,
            released: false,
            returned_ns: None,
        };
        match operation {
            Operation::Lock | Operation::ReadLock | Operation::WriteLock => {
                let shared = operation == Operation::ReadLock;
                pending.holder = match self.waits_behind(object, used, thread, shared) {
                    Some((holder, taken)) => Some((holder, Some(taken))),
                    None => {
                        let other = pending.owner.filter(|owner| *owner != thread);
                        let living = |owner: &ThreadIndex| {
                            let ended = self.model.threads[owner.0].ended_ns;
                            ended.is_none_or(|ended| ended >= now)
                        };
                        other.filter(living).map(|owner| (owner, None))
                    }
                };
                if pending.holder.is_some() || futex {
                    pending.queued = true;
                }
                if let Some(word) = call.args.first().filter(|_| futex) {
                    let does = (kind, operation);
                    self.tenures.wait(object, does, *word, now, pending.owner);
                }
                self.takes(&pending, object, shared);
            }
            Operation::Unlock => pending.given_up = self.given_up(thread, object, used, now),
            Operation::Wait if kind == Kind::Cond => {
                pending.queued = true;
                let mutex = primitive
                    .mutex
                    .and_then(|at| call.args.get(usize::from(at)));
                if let Some(&mutex) = mutex.filter(|_| !futex) {
                    let mutex = self.objects.at(Kind::Mutex, mutex, call.path, now);
                    self.misuse.waits(object, mutex);
                    pending.given_up = self.release(thread, mutex, now);
                    // At its end, the wait takes the mutex again.
                    self.takes(&pending, mutex, false);
                }
            }
            Operation::Wait | Operation::Arrive | Operation::Once | Operation::Join => {
                pending.queued = true;
                if let Some(word) = call.args.first().filter(|_| futex && kind == Kind::Sem) {
                    self.tenures
                        .wait(object, (kind, operation), *word, now, None);
                }
                if kind == Kind::Sem {
                    self.semaphores.waits(object, used, thread, now);
                }
            }
            Operation::Post => {
                self.order.posts_semaphore(thread, object);
                self.semaphores.posts_are_recorded = true;
                self.posts_semaphore(thread, object, now);
            }
            // Seen as a bare system call, it only waits here.
            _ if futex => pending.queued = true,
            Operation::Signal | Operation::Broadcast => {
                let held = self.holds.of(thread).iter().map(|held| held.object);
                self.misuse.signal(object, thread, used, held);
            }
            Operation::Destroy => {
                if let Some(holder) = self.holds.holder(object) {
                    self.mistake(MistakeKind::Destroy, object, thread, used, Some(holder));
                }
                if !has_end {
                    self.objects.objects[object.0].destroyed_ns = Some(now);
                    self.holds.forget(object);
                }
            }
            _ => {}
        }
        if pending.queued {
            pending.place = self.queues.join(object);
        }
        if pending.queued && operation.may_wait() {
            let others = self.holds.of(thread).iter().any(|h| h.object != object);
            self.objects.uses[used.0].holding |= others;
        }
        pending
    }

    fn left(&mut self, calls: &Calls, call: &Call) {
        let left_ns = call.left_ns.unwrap_or(call.entered_ns);
        self.count_event(call.thread);
        self.clock(left_ns);
        self.usage.left(call, left_ns);
        if calls.function(call.function).futex {
            self.woken(call);
        }
        let Some(mut pending) = self.under_way.end(call.number) else {
            return;
        };
        let operation = pending.primitive.operation;
        let waited = left_ns.saturating_sub(pending.entered_ns);
        if let Some(place) = pending.place {
            self.queues.leave(pending.object, place);
        }
        if self.may_try_again(&pending, call) {
            self.may_go_on(pending, call, left_ns);
            return;
        }
        // The results of language runtimes' functions have no known meaning.
        let succeeded = match call.result {
            Some(0) => true,
            Some(EOWNERDEAD) => pending.primitive.kind == Kind::Mutex,
            Some(_) => !returns_errors(pending.primitive),
            None => true,
        };
        if operation.acquires() && succeeded && !pending.alone {
            self.release_of_ended(&pending, call, left_ns);
        }
        if pending.primitive.may_wait() && self.has_waited(&pending, waited) {
            pending.timed_out = has_timed_out(&pending, call);
            self.waited(&pending, left_ns);
        }
        self.note_refusal(&pending, call);
        match operation {
            Operation::Arrive => self.order.barriers.pass(pending.thread, pending.object),
            // After a wake-up or a timeout, the thread holds the mutex again.
            Operation::Wait | Operation::Lock if pending.given_up.is_some() => {
                self.holds_again(&mut pending, left_ns);
            }
            Operation::Join | Operation::TryJoin => self.joined(&pending, call, left_ns),
            _ if operation.acquires() && succeeded && !pending.alone => {
                self.acquired(&pending, left_ns);
            }
            Operation::Unlock if !succeeded => {
                // The unlock failed, so the thread still holds it.
                if let Some(held) = pending.given_up.take() {
                    self.holds.take(&mut self.objects, pending.thread, held);
                }
            }
            Operation::Wait | Operation::TryWait
                if pending.primitive.kind == Kind::Sem
                    && (succeeded || pending.alone && call.result == Some(EAGAIN)) =>
            {
                if succeeded {
                    self.order.passes_semaphore(pending.thread, pending.object);
                }
                self.took_semaphore(&pending, left_ns);
            }
            Operation::Destroy if succeeded && !pending.alone => {
                let object = &mut self.objects.objects[pending.object.0];
                object.destroyed_ns = Some(left_ns);
                self.holds.forget(pending.object);
            }
            _ => {}
        }
    }

    fn ended_unseen(&mut self, calls: &Calls, call: &Call) -> Option<Box<Pending>> {
        self.usage.lost(call);
        if let Some(word) = call
            .args
            .first()
            .filter(|_| calls.function(call.function).futex)
        {
            self.wakes.answer(*word, call.entered_ns, Ended::Itself);
        }
        let pending = self.under_way.end(call.number)?;
        if let Some(place) = pending.place {
            self.queues.leave(pending.object, place);
        }
        // The part of a wait that was seen is counted later.
        let is_counted = pending.returned_ns.is_some();
        if pending.alone && tenures::are_of(pending.primitive.kind) && !is_counted {
            self.tenures.lose(pending.object);
        }
        Some(pending)
    }

    fn identity(&self, thread: ThreadIndex) -> usize {
        self.identities.get(thread.0).copied().unwrap_or(0)
    }

    /// Times of functions, in the order of [`Calls::functions`].
    pub(super) fn take_functions(&mut self, calls: &Calls) -> Vec<FunctionTimes> {
        self.usage.take_functions(calls)
    }
}
