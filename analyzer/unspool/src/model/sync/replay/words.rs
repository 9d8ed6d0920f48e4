//! Which object a futex word is part of, where only the system call was seen.
//!
//! Threads wait at several words of one object, and none of them need be its first. The function
//! that waits, the value it expects and the C library's layout tell which word it is. musl's
//! threads wait at conditions and barriers by words on their own stacks: which object that is, only
//! the call of the function tells. Where that was not recorded, it is taken for the one that other
//! threads have waited at from there.

use foldhash::HashMap;

use super::Replay;
use crate::model::calls::{Call, Calls, PathId, futex};
use crate::model::layouts::{beginning_in_language, takes_mutex};
use crate::model::sync::meaning::{self, in_path};
use crate::model::sync::naming::caller;
use crate::model::sync::objects::ObjectIndex;
use crate::primitives::{self, Kind, Operation, Primitive};

/// What a system call waits at.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitedAt {
    pub(super) primitive: &'static Primitive,
    /// Of the object; of the word, if that is all that is known.
    pub(super) address: u64,
    pub(super) only_word: bool,
}

/// The objects that threads have waited at by words of their own, by kind and the code that calls
/// the function; `None`: several.
pub(super) type ByCaller = HashMap<(Kind, u64), Option<ObjectIndex>>;

impl Replay<'_> {
    pub(super) fn waited_at(&self, calls: &Calls, call: &Call) -> Option<WaitedAt> {
        let word = *call.args.first()?;
        let expected = futex::expected(&call.args);
        let mut primitive = in_path(calls, call.path);
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

    /// A function that waits was called with an object's address: if threads were seen that waited
    /// from there by words of their own, it is theirs.
    pub(super) fn names_object(&mut self, calls: &Calls, path: PathId, kind: Kind, address: u64) {
        let known = self.called_from(calls, path, kind);
        let known = known.and_then(|caller| *self.by_caller.get(&caller)?);
        if let Some(object) = known.filter(|known| self.objects.objects[known.0].word)
            && self.objects.known(kind, address).is_none()
        {
            self.objects.turns_out(object, address);
        }
    }

    /// A thread waits at an object from there.
    pub(super) fn waits_from(&mut self, calls: &Calls, path: PathId, object: ObjectIndex) {
        let kind = self.objects.objects[object.0].kind;
        if let Some(caller) = self.called_from(calls, path, kind) {
            let known = self.by_caller.entry(caller).or_insert(Some(object));
            known.take_if(|known| *known != object);
        }
    }

    /// The code that calls the function, where threads wait by words of their own.
    fn called_from(&self, calls: &Calls, path: PathId, kind: Kind) -> Option<(Kind, u64)> {
        self.layout.filter(|layout| layout.has_own_words(kind))?;
        Some((kind, caller(calls.path(path))?.place.avma))
    }
}
