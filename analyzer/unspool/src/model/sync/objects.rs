//! The synchronization objects of a recording, and the places that use them.
//!
//! An address is not an object: memory is freed and used again. A new object begins where one is
//! made (`pthread_mutex_init` and the like), after one was destroyed, and where an address is used
//! as another kind.

use std::hash::Hasher;
use std::sync::Arc;

use foldhash::HashMap;
use siphasher::sip::SipHasher24;

use super::histogram::Histogram;
use crate::model::backtrace::{Backtrace, Frames, Place};
use crate::model::calls::PathId;
use crate::model::identity::{Key, write_place};
use crate::model::thread::ThreadIndex;
use crate::primitives::{Kind, Operation};

/// An object's place in [`Sync::objects`](super::Sync::objects).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectIndex(pub usize);

/// A use's place in [`Sync::uses`](super::Sync::uses).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UseIndex(pub usize);

/// A synchronization object.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// What it is.
    pub kind: Kind,
    /// Where it is, as mapped. Another object may have been there before.
    pub address: u64,
    /// Its identity, equal in each run: its symbol, or else where it was made or first used.
    pub key: Key,
    /// The variable it is, or is in.
    pub symbol: Option<Place>,
    /// What of that variable it is, the variable's name first, where types tell: `l[13]`,
    /// `acc[1].m`.
    pub part: Option<Arc<str>>,
    /// Where it was made, or used first.
    pub origin: PathId,
    /// What its name has behind it, where objects of other identities have the same.
    pub(super) apart: Option<Arc<str>>,
    /// Only its futex word was seen: `address` is that word's, not necessarily its beginning.
    pub word: bool,
    /// It was seen being made: otherwise `origin` is its first use.
    pub made: bool,
    /// When it was made or first used.
    pub since_ns: u64,
    /// When it was destroyed.
    pub destroyed_ns: Option<u64>,
    /// The operations on it, each with its call path.
    pub uses: Vec<UseIndex>,
    /// Durations of the waits for it.
    pub waits: Histogram,
    /// The part of that in which the recorder may have stopped a thread, nanoseconds.
    pub(super) stood_ns: u64,
    /// Durations of its holds.
    pub holds: Histogram,
    /// How many events were recorded of its holders meanwhile.
    pub(super) hold_events: u64,
    /// How often it was taken.
    pub taken: u64,
    /// Most threads that waited at a time.
    pub longest_queue: usize,
    /// How many waits began with others waiting already.
    pub queued: u64,
    /// Contention by waiter and holder, the longest first.
    pub contention: Vec<Contention>,
    /// The longest hold during which a thread waited.
    pub longest_hold: Option<LongHold>,
    /// What was seen of it does not fit together: events are missing.
    pub doubtful: bool,
}

impl Object {
    /// It was held while others waited: the longest such hold is kept.
    pub(super) fn held_long(&mut self, hold: LongHold) {
        let own = |hold: &LongHold| hold.ns.saturating_sub(hold.stood_ns);
        let longest = self.longest_hold.as_ref().map(own);
        if longest.is_none_or(|longest| longest < own(&hold)) {
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
    /// Where.
    pub path: PathId,
    /// The first thread that did.
    pub thread: ThreadIndex,
    /// Threads that did, by their identities.
    pub shares: Vec<Share>,
    /// How often.
    pub calls: u64,
    /// Durations of the waits there.
    pub waits: Histogram,
    /// Durations of the holds that began there.
    pub holds: Histogram,
    /// What waiting there means.
    pub waiting: Waiting,
    /// Something else was held while it waited.
    pub(super) holding: bool,
    /// Most waits there of a thread that is not the main thread.
    pub(super) of_created: bool,
}

/// The part that threads of one identity have in a use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Their identity, in [`Sync::identities`](super::Sync::identities).
    pub identity: usize,
    /// How often they did it.
    pub calls: u64,
    /// Their total waiting time there.
    pub waited_ns: u64,
}

impl Use {
    /// The part of threads of an identity.
    pub(super) fn share(&mut self, identity: usize) -> &mut Share {
        share(&mut self.shares, identity)
    }
}

/// The part of threads of an identity among those of others, which may be none yet.
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

/// What a wait means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Waiting {
    /// For something that another thread holds: contention.
    #[default]
    Held,
    /// For other threads to come or to finish: barriers, joins, conditions.
    Others,
    /// For work, by design.
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

/// Waits at one place for holders of one identity.
#[derive(Clone, Debug, PartialEq)]
pub struct Contention {
    /// Where it was waited.
    pub waiter: UseIndex,
    /// Where the holder had taken it, if that was seen.
    pub holder: Option<UseIndex>,
    /// Otherwise, where it ended the wait: gave the object up, signalled, came as the last.
    pub ended: Option<PathId>,
    /// Identity of the waiting thread, in [`Sync::identities`](super::Sync::identities).
    pub waiting: usize,
    /// Identity of the holder; of what is not held, of who ended the wait.
    pub holding: usize,
    /// How often.
    pub count: u64,
    /// For how long altogether.
    pub total_ns: u64,
    /// The longest wait.
    pub max_ns: u64,
    /// The thread of the longest wait, and the thread it waited for.
    pub longest: (ThreadIndex, ThreadIndex),
    /// All waits were for the same thread.
    pub for_one: bool,
    /// All waits were of the same thread.
    pub by_one: bool,
}

/// A hold while others waited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LongHold {
    /// The thread that held it.
    pub thread: ThreadIndex,
    /// Where it was taken, if that was seen; otherwise it had been taken before `from_ns`.
    pub taken: Option<UseIndex>,
    /// Where it was given up, if only that was seen.
    pub given_up: Option<PathId>,
    /// Since when.
    pub from_ns: u64,
    /// For how long.
    pub ns: u64,
    /// The part of that in which the recorder may have stopped a thread, nanoseconds.
    pub(super) stood_ns: u64,
    /// How many events were recorded of its holder meanwhile.
    pub(super) events: u64,
    /// The first wait that began meanwhile, if the hold's beginning was seen: where, and whose.
    pub(super) first: Option<(UseIndex, ThreadIndex)>,
    /// Of all waits in that time: which threads waited.
    pub waiting: Vec<ThreadIndex>,
    /// Total length of these waits over all threads.
    pub waited_ns: u64,
    /// Length, place and thread of the longest wait.
    pub longest_wait: Option<(u64, UseIndex, ThreadIndex)>,
}

impl LongHold {
    /// A wait for the object has ended.
    pub(super) fn add_wait(
        &mut self,
        used: UseIndex,
        thread: ThreadIndex,
        from_ns: u64,
        to_ns: u64,
    ) {
        if from_ns >= self.from_ns.saturating_add(self.ns) || to_ns <= self.from_ns {
            return;
        }
        if !self.waiting.contains(&thread) {
            self.waiting.push(thread);
        }
        let ns = to_ns.saturating_sub(from_ns);
        self.waited_ns = self.waited_ns.saturating_add(ns);
        if self.longest_wait.is_none_or(|(longest, ..)| longest < ns) {
            self.longest_wait = Some((ns, used, thread));
        }
    }
}

/// All objects and uses found so far.
#[derive(Debug, Default)]
pub(super) struct Objects {
    pub(super) objects: Vec<Object>,
    pub(super) uses: Vec<Use>,
    by_address: HashMap<u64, ObjectIndex>,
    by_use: HashMap<(ObjectIndex, Operation, PathId), UseIndex>,
}

impl Objects {
    /// The object at an address, which begins here if it is not known.
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

    /// An object of which only a word was seen is at this address.
    pub(super) fn turns_out(&mut self, index: ObjectIndex, address: u64) {
        let object = &mut self.objects[index.0];
        self.by_address.remove(&object.address);
        (object.address, object.word) = (address, false);
        self.by_address.insert(address, index);
    }

    /// An object is made, whatever was there before.
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
            part: None,
            origin: path,
            apart: None,
            word: false,
            made,
            since_ns: ns,
            destroyed_ns: None,
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
            doubtful: false,
        });
        self.by_address.insert(address, index);
        index
    }

    /// Notes a call, and gives the use it belongs to.
    pub(super) fn used(
        &mut self,
        object: ObjectIndex,
        operation: Operation,
        path: PathId,
        thread: ThreadIndex,
        identity: usize,
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
                holds: Histogram::default(),
                waiting: Waiting::default(),
                holding: false,
                of_created: false,
            });
            self.objects[object.0].uses.push(index);
        }
        let used = &mut self.uses[index.0];
        used.calls += 1;
        used.share(identity).calls += 1;
        index
    }

    /// Names all objects, and gives them their keys.
    pub(super) fn identify(
        &mut self,
        record: usize,
        frames: &mut dyn Frames,
        paths: &[Arc<Backtrace>],
    ) {
        for object in &mut self.objects {
            if object.kind != Kind::Join {
                object.symbol = frames.data(record, object.address);
                if object.symbol.is_some() {
                    object.part = frames.part(record, object.address);
                }
            }
            object.key = key(object, paths.get(object.origin.0).map(|path| &**path));
        }
    }
}

/// The hash's own key: "unspool object 1", little-endian halves.
const HASH_KEY: (u64, u64) = (
    u64::from_le_bytes(*b"unspool "),
    u64::from_le_bytes(*b"object 1"),
);

/// Documented in docs/reference/report-json.md, "Keys of objects".
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
