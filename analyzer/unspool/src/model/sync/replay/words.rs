//! Finds the object of a futex word, if only the system call was recorded.
//!
//! Threads wait at several words of one object, and the first word need not be among them. The
//! waiting function, the expected value and the C library's layout identify the word.
//!
//! musl's threads wait at conditions and barriers by words on their own stacks, so only the
//! function call names the object. If that call was not recorded, the object is assumed to be the
//! one that other threads have waited at from the same code.

use foldhash::HashMap;

use super::Replay;
use crate::model::calls::{Call, Calls, PathId, futex};
use crate::model::sync::meaning::{self, in_path};
use crate::model::sync::naming::caller;
use crate::model::sync::objects::ObjectIndex;
use crate::platform::layouts::{LOCKED_WITH_WAITERS, beginning_in_language, takes_mutex};
use crate::primitives::{self, Kind, Operation, Primitive};

/// The object or word that a system call waits at.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitedAt {
    pub(super) primitive: &'static Primitive,
    /// Address of the object, or of the word if only that is known.
    pub(super) address: u64,
    pub(super) only_word: bool,
}

/// The objects at which threads have waited by words of their own, by kind and calling code. `None`
/// stands for several objects.
pub(super) type ByCaller = HashMap<(Kind, u64), Option<ObjectIndex>>;

impl Replay<'_> {
    pub(super) fn waited_at(&self, calls: &Calls, call: &Call) -> Option<WaitedAt> {
        let word = *call.args.first()?;
        let expected = futex::expected(&call.args);
        let waits_as_lock = self.glibc && expected == Some(LOCKED_WITH_WAITERS);
        let mut primitive = in_path(calls, call.path, waits_as_lock);
        let at = |primitive, address, only_word| WaitedAt {
            primitive,
            address,
            only_word,
        };
        let does = (primitive.kind, primitive.operation);
        if primitive.is_of_a_language() {
            let address = beginning_in_language(does.0, does.1, word);
            return Some(at(primitive, address, false));
        }
        if primitive.kind == Kind::Futex || meaning::is_own_lock(primitive) {
            return Some(at(primitive, word, true));
        }
        let Some(layout) = self.layout else {
            return Some(at(primitive, meaning::pair(primitive, word), true));
        };
        if self.glibc
            && does == (Kind::Cond, Operation::Wait)
            && takes_mutex(expected, futex::has_bits(&call.args))
        {
            primitive = primitives::find("pthread_mutex_lock").unwrap_or(primitive);
        }
        let does = (primitive.kind, primitive.operation);
        let bases = layout.beginnings(does, word, expected);
        let is_known = |at: &&u64| self.objects.known(primitive.kind, **at).is_some();
        if let Some(address) = bases.iter().find(is_known).or(bases.first()) {
            return Some(at(primitive, *address, false));
        }
        let known = self.called_from(calls, call.path, primitive.kind);
        let known = known.and_then(|caller| *self.by_caller.get(&caller)?);
        let address = known.map_or(word, |object| self.objects.objects[object.0].address);
        Some(at(primitive, address, true))
    }

    /// Gives an object its address when a waiting function is called with it. The object is the one
    /// at which threads waited from the same code by words of their own.
    pub(super) fn names_object(&mut self, calls: &Calls, path: PathId, kind: Kind, address: u64) {
        let known = self.called_from(calls, path, kind);
        let known = known.and_then(|caller| *self.by_caller.get(&caller)?);
        if let Some(object) = known.filter(|known| self.objects.objects[known.0].word)
            && self.objects.known(kind, address).is_none()
        {
            self.objects.turns_out(object, address);
        }
    }

    /// Notes that a thread waits at an object from the path's code.
    pub(super) fn waits_from(&mut self, calls: &Calls, path: PathId, object: ObjectIndex) {
        let kind = self.objects.objects[object.0].kind;
        if let Some(caller) = self.called_from(calls, path, kind) {
            let known = self.by_caller.entry(caller).or_insert(Some(object));
            known.take_if(|known| *known != object);
        }
    }

    /// The calling code of a function whose threads wait by words of their own.
    fn called_from(&self, calls: &Calls, path: PathId, kind: Kind) -> Option<(Kind, u64)> {
        self.layout.filter(|layout| layout.has_own_words(kind))?;
        Some((kind, caller(calls.path(path))?.place.avma))
    }
}
