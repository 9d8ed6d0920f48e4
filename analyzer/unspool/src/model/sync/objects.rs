//! The synchronization objects of a recording, and the places that use them.
//!
//! An address does not identify an object, because memory is reused. A new object begins in four
//! cases: it is initialized (`pthread_mutex_init` and the like), the previous one was destroyed,
//! its memory was unmapped (`remapping`), or the address is used as another kind. A thread is
//! destroyed when it has been joined.

use std::collections::BTreeMap;
use std::hash::Hasher;
use std::ops::Range;
use std::sync::Arc;

use foldhash::HashMap;
use siphasher::sip::SipHasher24;

use super::histogram::Histogram;
use super::long_hold::LongHold;
use super::remapping::{FileIndex, LastEvent};
use crate::model::backtrace::{Backtrace, Frames, Place};
use crate::model::calls::PathId;
use crate::model::identity::{Key, write_place};
use crate::model::schedule::CallIndex;
use crate::model::thread::ThreadIndex;
use crate::primitives::{Kind, Operation};

/// Index of an object in [`Sync::objects`](super::Sync::objects).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectIndex(pub usize);

/// Index of a use in [`Sync::uses`](super::Sync::uses).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UseIndex(pub usize);

/// A synchronization object.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// The kind of primitive.
    pub kind: Kind,
    /// Its mapped address, which an earlier object may have had too.
    pub address: u64,
    /// Its identity, equal in each run: its symbol, or else where it was made or first used.
    pub key: Key,
    /// The variable that is or contains it.
    pub symbol: Option<Place>,
    /// The part of that variable, after the variable's name, if types are known: `l[13]`,
    /// `acc[1].m`.
    pub part: Option<Arc<str>>,
    /// Where it was made, or used first.
    pub origin: PathId,
    /// Suffix that distinguishes its name from objects of other identities.
    pub(super) apart: Option<Arc<str>>,
    /// Its number from 1 among the objects of its kind and name; none if it is the only one.
    pub number: Option<usize>,
    /// True if it is a variable of a mapped file, named or not. Other memory can be used again for
    /// another object.
    pub(super) is_static: bool,
    /// True if only its futex word was seen. Then `address` is the word's, not necessarily the
    /// object's.
    pub word: bool,
    /// True if its initialization was recorded; otherwise `origin` is its first use.
    pub made: bool,
    /// When it was made or first used.
    pub since_ns: u64,
    /// When it was destroyed.
    pub destroyed_ns: Option<u64>,
    /// The thread that was joined.
    pub joined: Option<ThreadIndex>,
    /// The name of that thread, if all threads joined in this place have it.
    pub(super) joined_as: Option<Arc<str>>,
    /// The operations on it, each with its call path.
    pub uses: Vec<UseIndex>,
    /// Durations of the waits for it.
    pub waits: Histogram,
    /// The part of that in which the recorder may have stopped a thread, nanoseconds.
    pub(crate) stood_ns: u64,
    /// Durations of its holds.
    pub holds: Histogram,
    /// Number of events recorded of its holders during these holds.
    pub(super) hold_events: u64,
    /// Number of acquisitions.
    pub taken: u64,
    /// Maximum number of threads that waited at the same time.
    pub longest_queue: usize,
    /// Number of waits that began behind other waits.
    pub queued: u64,
    /// Contention by waiter and holder, the longest first.
    pub contention: Vec<Contention>,
    /// The longest hold during which a thread waited.
    pub longest_hold: Option<LongHold>,
    /// True for a semaphore that threads use as a lock: those that take it also give it back.
    pub used_as_lock: bool,
    /// The part of the waits in which the holder or the waiter only waited for a processor,
    /// nanoseconds.
    pub(crate) runnable_ns: u64,
    /// True if observations contradict each other, so events are missing.
    pub doubtful: bool,
}

impl Object {
    /// True if one thread holds it while others wait: a mutex, a read-write lock, or a semaphore
    /// that is used as a lock.
    pub(crate) fn is_lock(&self) -> bool {
        self.kind.is_lock() || self.used_as_lock
    }

    /// Keeps the hold if it is the longest one during which others waited.
    pub(super) fn held_long(&mut self, hold: LongHold) {
        let longest = self.longest_hold.as_ref().map(LongHold::own_ns);
        if longest.is_none_or(|longest| longest < hold.own_ns()) {
            self.longest_hold = Some(hold);
        }
    }
}

/// One operation on one object, called on one path.
#[derive(Clone, Debug, PartialEq)]
pub struct Use {
    /// The object.
    pub object: ObjectIndex,
    /// The operation on the object.
    pub operation: Operation,
    /// The call path.
    pub path: PathId,
    /// The first thread that did it.
    pub thread: ThreadIndex,
    /// Calls and waiting times by thread identity.
    pub shares: Vec<Share>,
    /// Number of calls.
    pub calls: u64,
    /// Durations of the waits there.
    pub waits: Histogram,
    /// The waits there that no thread ended, because their time limit was reached.
    pub timed_out: TimedOut,
    /// Durations of the holds that began there.
    pub holds: Histogram,
    /// The meaning of a wait there.
    pub waiting: Waiting,
    /// True if the thread held another object during a wait.
    pub(super) holding: bool,
    /// True if a thread other than the main thread waited there.
    pub(super) of_created: bool,
}

/// Waits that ended because their time limit was reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimedOut {
    /// Number of waits.
    pub count: u64,
    /// Total length, nanoseconds.
    pub total_ns: u64,
}

impl TimedOut {
    pub(crate) fn merge(&mut self, other: TimedOut) {
        self.count += other.count;
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
    }
}

/// Calls and waiting time of threads with the same identity in a use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Their identity, in [`Sync::identities`](super::Sync::identities).
    pub identity: usize,
    /// Their number of calls.
    pub calls: u64,
    /// Number of calls that took the lock.
    pub taken: u64,
    /// Their total waiting time there.
    pub waited_ns: u64,
}

impl Use {
    /// The entry of an identity.
    pub(super) fn share(&mut self, identity: usize) -> &mut Share {
        share(&mut self.shares, identity)
    }
}

/// Finds the entry of an identity, or adds an empty one.
pub(crate) fn share(shares: &mut Vec<Share>, identity: usize) -> &mut Share {
    let known = shares.iter().position(|share| share.identity == identity);
    let at = known.unwrap_or_else(|| {
        shares.push(Share {
            identity,
            ..Share::default()
        });
        shares.len() - 1
    });
    &mut shares[at]
}

/// The meaning of a wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Waiting {
    /// Waits for an object that another thread holds: contention.
    #[default]
    Held,
    /// Waits for other threads to arrive or to finish: barriers, joins, conditions.
    Others,
    /// Waits for work, by design.
    Idle,
}

impl Waiting {
    /// `held`, `others` or `idle`.
    pub fn as_str(self) -> &'static str {
        match self {
            Waiting::Held => "held",
            Waiting::Others => "others",
            Waiting::Idle => "idle",
        }
    }
}

/// Waits at one place for holders with the same identity.
#[derive(Clone, Debug, PartialEq)]
pub struct Contention {
    /// The use in which threads waited.
    pub waiter: UseIndex,
    /// Where the holder had taken the object, if recorded.
    pub holder: Option<UseIndex>,
    /// Otherwise, where the holder ended the wait: by a release, a signal, or as the last to
    /// arrive.
    pub ended: Option<PathId>,
    /// Identity of the waiting thread, in [`Sync::identities`](super::Sync::identities).
    pub waiting: usize,
    /// Identity of the holder, or of the thread that ended the wait if the object has no holders.
    pub holding: usize,
    /// Number of waits.
    pub count: u64,
    /// Total waiting time, nanoseconds.
    pub total_ns: u64,
    /// The longest wait, nanoseconds.
    pub max_ns: u64,
    /// The thread of the longest wait, and the thread it waited for.
    pub longest: (ThreadIndex, ThreadIndex),
    /// All waits were for the same thread.
    pub for_one: bool,
    /// All waits were by the same thread.
    pub by_one: bool,
    /// Times during these waits for which the holders were blocked in system calls, without futex
    /// calls. Empty without the kernel's schedule.
    pub holder_calls: Vec<(CallIndex, u64)>,
}

/// The part of a time that neither the lock nor its holder's code caused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lost {
    /// Time for which the recorder may have stopped a thread, in nanoseconds.
    pub(super) stood_ns: u64,
    /// Part of the rest in which the thread waited for a processor, in nanoseconds.
    pub(super) runnable_ns: u64,
}

/// A hold that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndedHold {
    pub(super) thread: ThreadIndex,
    /// The use that took the object.
    pub(super) taken: UseIndex,
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
    /// Number of events recorded of the holder during the hold.
    pub(super) events: u64,
    /// The first wait during the hold: the use and the thread.
    pub(super) waiter: Option<(UseIndex, ThreadIndex)>,
}

/// All objects and uses found so far.
#[derive(Debug, Default)]
pub(super) struct Objects {
    pub(super) objects: Vec<Object>,
    pub(super) uses: Vec<Use>,
    by_address: HashMap<u64, ObjectIndex>,
    /// All objects whose memory is mapped, by address.
    mapped: BTreeMap<u64, Vec<ObjectIndex>>,
    /// The last event before the memory of an object was unmapped.
    last_events: HashMap<ObjectIndex, LastEvent>,
    /// The objects of files that are not mapped any more.
    unloaded: HashMap<FileIndex, Vec<ObjectIndex>>,
    by_use: HashMap<(ObjectIndex, Operation, PathId), UseIndex>,
}

impl Objects {
    /// Adds a hold to its object and its use. Calls `lost` for the part of its length that the
    /// holder's code did not cause, if a thread waited meanwhile.
    pub(super) fn add_hold(
        &mut self,
        object: ObjectIndex,
        hold: EndedHold,
        lost: impl FnOnce() -> Lost,
    ) {
        let ns = hold.to_ns.saturating_sub(hold.from_ns);
        self.uses[hold.taken.0].holds.add(ns);
        let owned = &mut self.objects[object.0];
        owned.holds.add(ns);
        owned.hold_events += hold.events;
        if hold.waiter.is_some() {
            let lost = lost();
            owned.held_long(LongHold {
                thread: hold.thread,
                taken: Some(hold.taken),
                given_up: None,
                may_be_shared: false,
                from_ns: hold.from_ns,
                ns,
                stood_ns: lost.stood_ns,
                runnable_ns: lost.runnable_ns,
                events: hold.events,
                first: hold.waiter,
                waiting: Vec::new(),
                waited_ns: 0,
                longest_wait: None,
            });
        }
    }

    /// The object at an address; creates it if none is known.
    pub(super) fn at(&mut self, kind: Kind, address: u64, path: PathId, ns: u64) -> ObjectIndex {
        if let Some(&index) = self.by_address.get(&address) {
            let object = &mut self.objects[index.0];
            let same = object.kind == kind && object.destroyed_ns.is_none();
            if same {
                return index;
            }
        }
        self.begin(kind, address, path, ns, false)
    }

    /// The object at an address, if one is known to be there.
    pub(super) fn known(&self, kind: Kind, address: u64) -> Option<ObjectIndex> {
        let index = *self.by_address.get(&address)?;
        let object = &self.objects[index.0];
        (object.kind == kind && object.destroyed_ns.is_none()).then_some(index)
    }

    /// Sets the address of an object if only the address of its futex word was known.
    pub(super) fn turns_out(&mut self, index: ObjectIndex, address: u64) {
        let object = &mut self.objects[index.0];
        self.by_address.remove(&object.address);
        if let Some(here) = self.mapped.get_mut(&object.address) {
            here.retain(|other| *other != index);
        }
        (object.address, object.word) = (address, false);
        self.by_address.insert(address, index);
        self.mapped.entry(address).or_default().push(index);
    }

    /// Adds a new object, whatever was at the address before.
    pub(super) fn begin(
        &mut self,
        kind: Kind,
        address: u64,
        path: PathId,
        ns: u64,
        made: bool,
    ) -> ObjectIndex {
        let index = ObjectIndex(self.objects.len());
        self.objects.push(Object {
            kind,
            address,
            key: Key::default(),
            symbol: None,
            is_static: false,
            part: None,
            origin: path,
            apart: None,
            number: None,
            word: false,
            made,
            since_ns: ns,
            destroyed_ns: None,
            joined: None,
            joined_as: None,
            uses: Vec::new(),
            waits: Histogram::default(),
            stood_ns: 0,
            holds: Histogram::default(),
            hold_events: 0,
            taken: 0,
            longest_queue: 0,
            queued: 0,
            contention: Vec::new(),
            longest_hold: None,
            used_as_lock: false,
            runnable_ns: 0,
            doubtful: false,
        });
        self.by_address.insert(address, index);
        self.mapped.entry(address).or_default().push(index);
        index
    }

    /// The use that a call belongs to. If `begins`, the call is counted.
    pub(super) fn used(
        &mut self,
        object: ObjectIndex,
        operation: Operation,
        path: PathId,
        (thread, identity): (ThreadIndex, usize),
        begins: bool,
    ) -> UseIndex {
        let next = UseIndex(self.uses.len());
        let index = *self.by_use.entry((object, operation, path)).or_insert(next);
        if index == next {
            self.uses.push(Use {
                object,
                operation,
                path,
                thread,
                shares: Vec::new(),
                calls: 0,
                waits: Histogram::default(),
                timed_out: TimedOut::default(),
                holds: Histogram::default(),
                waiting: Waiting::default(),
                holding: false,
                of_created: false,
            });
            self.objects[object.0].uses.push(index);
        }
        let used = &mut self.uses[index.0];
        used.calls += u64::from(begins);
        used.share(identity).calls += u64::from(begins);
        index
    }

    /// Forgets the addresses of all objects in a range, because their memory is unmapped. Returns
    /// the objects. `file` is the file that was mapped there, if it can be mapped again.
    pub(super) fn unmap(
        &mut self,
        range: &Range<u64>,
        file: Option<FileIndex>,
        last_event: LastEvent,
    ) -> Vec<ObjectIndex> {
        let here = self.mapped.range(range.clone());
        let addresses: Vec<u64> = here.map(|(address, _)| *address).collect();
        let mut gone = Vec::new();
        for address in addresses {
            self.by_address.remove(&address);
            gone.extend(self.mapped.remove(&address).unwrap_or_default());
        }
        let last = gone.iter().map(|object| (*object, last_event));
        self.last_events.extend(last);
        match file {
            Some(file) => drop(self.unloaded.insert(file, gone.clone())),
            None => self.unloaded.clear(),
        }
        gone
    }

    /// Restores the addresses of the objects of a file that is mapped in its former place.
    pub(super) fn map_again(&mut self, file: FileIndex) {
        for index in self.unloaded.remove(&file).unwrap_or_default() {
            let address = self.objects[index.0].address;
            self.last_events.remove(&index);
            self.by_address.insert(address, index);
            self.mapped.entry(address).or_default().push(index);
        }
    }

    /// Sets the symbols and keys of all objects. `last` is the position of the last record.
    pub(super) fn identify(
        &mut self,
        last: usize,
        frames: &mut dyn Frames,
        paths: &[Arc<Backtrace>],
    ) {
        for (index, object) in self.objects.iter_mut().enumerate() {
            let known = self.last_events.get(&ObjectIndex(index));
            let record = known.copied().unwrap_or(last);
            if object.kind != Kind::Join {
                object.symbol = frames.data(record, object.address);
                if object.symbol.is_some() {
                    object.part = frames.part(record, object.address);
                }
                object.is_static = object.symbol.is_some()
                    || frames.place(record, object.address).module.is_some();
            }
            object.key = key(object, paths.get(object.origin.0).map(|path| &**path));
        }
    }
}

/// The hash function's key: "unspool object 1", little-endian halves.
const HASH_KEY: (u64, u64) = (
    u64::from_le_bytes(*b"unspool "),
    u64::from_le_bytes(*b"object 1"),
);

/// Computes an object's key (docs/reference/report-json.md, "Keys of objects").
fn key(object: &Object, origin: Option<&Backtrace>) -> Key {
    let mut hash = SipHasher24::new_with_keys(HASH_KEY.0, HASH_KEY.1);
    hash.write(object.kind.as_str().as_bytes());
    match &object.symbol {
        Some(place) => {
            hash.write(b"S");
            write_place(&mut hash, Some(place));
        }
        None => {
            hash.write(if object.made { b"M" } else { b"U" });
            for frame in origin.into_iter().flat_map(|path| path.physical()) {
                write_place(&mut hash, Some(&frame.place));
            }
        }
    }
    Key(hash.finish())
}

#[cfg(test)]
impl Object {
    /// An unnamed object with one use.
    pub(in crate::model) fn for_test(kind: Kind, used: UseIndex) -> Object {
        let mut objects = Objects::default();
        objects.begin(kind, 0x1000, PathId(0), 0, false);
        let mut object = objects.objects.remove(0);
        object.uses.push(used);
        object
    }
}

#[cfg(test)]
impl Use {
    /// A use on an unknown path.
    pub(in crate::model) fn for_test(
        object: ObjectIndex,
        operation: Operation,
        waiting: Waiting,
    ) -> Use {
        let mut objects = Objects::default();
        objects.begin(Kind::Mutex, 0x1000, PathId(0), 0, false);
        let thread = (ThreadIndex(0), 0);
        objects.used(ObjectIndex(0), operation, PathId(0), thread, true);
        Use {
            object,
            waiting,
            ..objects.uses.remove(0)
        }
    }
}
