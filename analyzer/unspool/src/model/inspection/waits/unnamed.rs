//! Finds mutexes and joins in static programs without symbols, where no function identifies the
//! word.
//!
//! A held mutex has marks that other memory lacks. The thread expects the C library's value for
//! "held, and threads wait", and a live thread's id stands where the library stores the owner. A
//! thread that joins another one waits at the other's id, or at a state beside it.

use std::ops::RangeInclusive;

use super::super::object::{self, Said};
use super::{Inspector, Wait, Waiter, Word};
use crate::model::backtrace::{Backtrace, base_name};
use crate::platform::layouts::{self, Family, TID};
use crate::primitives::Kind;

/// glibc's lock word when threads wait (sysdeps/nptl/lowlevellock.h).
const GLIBC_CONTENDED: u32 = 2;
/// Bit of musl's lock words, and of all robust locks, when threads wait.
const WAITERS: u32 = 1 << 31;
/// Value of a held normal mutex of musl, in place of an owner (`EBUSY`).
const MUSL_HELD: u32 = 16;
/// `DT_EXITING` and `DT_JOINABLE` (musl, src/internal/pthread_impl.h).
const MUSL_JOINABLE: RangeInclusive<u32> = 1..=2;
/// Upper bound of musl's `struct pthread`, at one end of which the thread pointer stands.
const MUSL_DESCRIPTOR: u64 = 512;

impl Inspector<'_> {
    /// Describes a wait in code without names by the words in memory; `None` if there are names.
    pub(super) fn said_by_words(
        &mut self,
        waiter: &Waiter<'_>,
        stack: &Backtrace,
        wait: &mut Wait,
    ) -> Option<Said> {
        let apart = self.library.as_ref().is_ok_and(|library| !library.inside);
        let module = stack.frames.first()?.place.module.clone()?;
        let mut frames = stack.frames.iter();
        if apart || frames.any(|frame| frame.place.function.is_some()) {
            return None;
        }
        for family in [Family::Glibc(None), Family::Musl] {
            if let Some((address, said)) = self.held_mutex(family, waiter) {
                wait.object.kind = Kind::Mutex;
                wait.object.address = address;
                return Some(said);
            }
        }
        if let Some(said) = self.joined(waiter) {
            wait.object.kind = Kind::Join;
            return Some(said);
        }
        wait.word = Word::Unnamed;
        let unknown = format!(
            "the kind of object could not be determined: {} has no symbols; name an unstripped \
             copy with --exec, or the directory of its debug file with --debug-dir",
            base_name(&module)
        );
        Some(Said {
            unknown: Some(unknown),
            ..Said::default()
        })
    }

    fn joined(&self, waiter: &Waiter<'_>) -> Option<Said> {
        let tid = self
            .joined_in_glibc(waiter)
            .or_else(|| self.joined_in_musl(waiter))?;
        let index = self.by_tid.get(&tid)?;
        let known = self.model.thread(*index)?.tid?;
        (known != waiter.event.tid).then(|| Said {
            holders: vec![tid],
            len: 4,
            ..Said::default()
        })
    }

    /// glibc joins a thread at the word that has its id. The kernel wakes as another process does.
    fn joined_in_glibc(&self, waiter: &Waiter<'_>) -> Option<u64> {
        let futex = &waiter.futex;
        let tid = futex.expected.filter(|tid| futex.shared && *tid != 0)?;
        (self.memory.word(futex.address) == Some(tid)).then_some(tid.into())
    }

    /// musl joins a thread at a state in its descriptor, behind its id. Other memory may hold an
    /// id, but not beside that thread's own pointer.
    fn joined_in_musl(&self, waiter: &Waiter<'_>) -> Option<u64> {
        let layout = layouts::of(Family::Musl, self.pointer).ok()?;
        let futex = &waiter.futex;
        let state = futex.expected.filter(|_| !futex.shared)?;
        let at = futex.address.wrapping_add_signed(layout.joined_tid);
        let tid = u64::from(self.memory.word(at)?);
        let mut pointers = self.pointers.iter();
        let is_near = pointers.any(|(pointer, owner)| {
            *owner == tid && pointer.abs_diff(futex.address) < MUSL_DESCRIPTOR
        });
        (MUSL_JOINABLE.contains(&state) && is_near).then_some(tid)
    }

    fn held_mutex(&self, family: Family, waiter: &Waiter<'_>) -> Option<(u64, Said)> {
        let layout = layouts::of(family, self.pointer).ok()?;
        let futex = &waiter.futex;
        let address = futex.address.checked_sub(layout.mutex.word)?;
        let expected = futex.expected?;
        let said = object::mutex(&self.memory, layout, address, Some(futex));
        let owner = said.holders.first().copied();
        if owner.is_some_and(|owner| !self.by_tid.contains_key(&owner)) {
            return None;
        }
        let held = match (family, owner) {
            (Family::Glibc(_), Some(owner)) => {
                let robust = said.flavor.contains(&"robust");
                let by_owner = expected & WAITERS != 0 && u64::from(expected & TID) == owner;
                if robust {
                    by_owner
                } else {
                    expected == GLIBC_CONTENDED
                }
            }
            (Family::Musl, Some(_)) => expected & WAITERS != 0,
            // The holder is unknown, but the mutex is certain.
            (Family::Musl, None) => expected == WAITERS | MUSL_HELD && said.flavor.is_empty(),
            (Family::Glibc(_), None) => false,
        };
        let aligned = address.is_multiple_of(self.pointer as u64);
        (held && aligned && said.len > 0).then_some((address, said))
    }
}
