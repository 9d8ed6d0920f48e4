//! Finds the primitive that a thread waits in, and the object that its word is part of.
//!
//! Here the C library's layouts meet the stack. They hold only for the C library's own functions: a
//! program may bring its own `pthread_mutex_lock`.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use super::super::object::{self, Said};
use super::{Inspector, Wait, Waiter, Word};
use crate::model::backtrace::{Backtrace, Place, base_name};
use crate::model::finding::ObjectName;
use crate::platform::layouts::{self, COND_SIZE, Family, Layout, Library, Own, takes_mutex};
use crate::platform::syscall::Futex;
use crate::primitives::{self, Kind, Operation, Primitive};

/// Maximum number of frames between a system call and the function called by the program.
pub(super) const DEEPEST: usize = 16;
/// Maximum number of places that are read to find one object.
const MAX_REQUESTS: usize = 48;
/// Maximum width of the program's addresses: 47 bits on x86-64, 48 on AArch64.
const ADDRESS_BITS: u32 = 48;

/// The function of a primitive, and the file that it is in.
type Waited = (&'static Primitive, Option<Arc<str>>);

impl Inspector<'_> {
    /// The awaited primitive. In a wait at a condition variable, it may be the mutex.
    pub(super) fn waits_for(&self, (function, module): Waited, futex: &Futex) -> Waited {
        let library = self.library.as_ref();
        let is_glibc = library.is_ok_and(|library| matches!(library.family, Family::Glibc(_)));
        let at_cond = (function.kind, function.operation) == (Kind::Cond, Operation::Wait)
            && !function.is_of_a_language();
        match primitives::find("pthread_mutex_lock") {
            Some(lock) if is_glibc && at_cond && takes_mutex(futex.expected, futex.has_bits) => {
                (lock, module)
            }
            _ => (function, module),
        }
    }

    /// Reads the object of a primitive.
    pub(super) fn said(
        &mut self,
        (function, module): &Waited,
        waiter: &Waiter<'_>,
        wait: &mut Wait,
    ) -> Said {
        if function.is_of_a_language() {
            return self.of_language(function, wait);
        }
        let unknown = match (&self.library, &self.layout) {
            (Ok(library), _) if is_foreign(function, module.as_deref(), library) => {
                let whose = module.as_deref().map_or("another library", base_name);
                format!(
                    "the function {} belongs to {whose}, not to the C library",
                    function.name()
                )
            }
            (Ok(_), Ok(layout)) => return self.of_posix(function, layout, waiter, wait),
            (Err(why), _) | (_, Err(why)) => why.clone(),
        };
        // The kernel itself knows the holder of such a mutex.
        if waiter.futex.inherits {
            return object::inherited(&self.memory, &waiter.futex);
        }
        Said {
            unknown: Some(unknown),
            ..Said::default()
        }
    }

    /// Describes a wait outside any known primitive: perhaps an internal lock of the C library.
    pub(super) fn said_by_library(
        &mut self,
        waiter: &Waiter<'_>,
        stack: &Backtrace,
        wait: &mut Wait,
    ) -> Said {
        let whose = self.entered(stack);
        if let (Ok(layout), Some(_)) = (&self.layout, &whose)
            && let Some(said) = self.stdio_owner(layout, &waiter.futex)
        {
            wait.object.kind = Kind::Mutex;
            return said;
        }
        if whose.is_none()
            && let Some(said) = self.said_by_words(waiter, stack, wait)
        {
            return said;
        }
        wait.word = match whose {
            Some(_) => Word::LibraryLock,
            None if self.is_unnamed(stack) => Word::Unnamed,
            None => Word::Own,
        };
        let unknown = match whose {
            Some(function) => format!(
                "it is an internal lock of the C library, in {function}, which does not store its owner"
            ),
            None => "the kind of object could not be determined".to_owned(),
        };
        Said {
            unknown: Some(unknown),
            ..Said::default()
        }
    }

    /// True if no name shows the function outside the C library that waits.
    fn is_unnamed(&self, stack: &Backtrace) -> bool {
        let library = self.library.as_ref().ok().filter(|one| !one.inside);
        let path = library.map(|one| &*one.path);
        let mut frames = stack.frames.iter();
        let waits = frames.find(|frame| path.is_none() || frame.place.module.as_deref() != path);
        waits.is_none_or(|frame| frame.place.function.is_none())
    }

    /// The C library's function that the program called, if it waits at a lock there.
    fn entered(&mut self, stack: &Backtrace) -> Option<String> {
        let library = self.library.clone().ok()?;
        let of_library = |place: &Place| {
            place.module.as_deref() == Some(&*library.path)
                && (!library.inside || place.function.as_deref().is_some_and(is_own_lock))
        };
        let innermost = stack.frames.iter().find(|frame| !frame.inlined)?;
        if !of_library(&innermost.place) {
            return None;
        }
        let named = innermost.place.function.as_deref().is_none_or(is_own_lock);
        let mut entered = None;
        for frame in stack.frames.iter().take(DEEPEST) {
            let place = &frame.place;
            if place.module.as_deref() != Some(&*library.path) {
                break;
            }
            let function = frame.name().cloned();
            entered = function.filter(|name| !is_own_lock(name)).or(entered);
            if library.inside && entered.is_some() {
                break;
            }
        }
        entered.filter(|_| named).map(|name| name.to_string())
    }

    fn of_language(&mut self, function: &Primitive, wait: &mut Wait) -> Said {
        let mut said = Said {
            unknown: match function.kind {
                Kind::Mutex | Kind::Rwlock => {
                    Some("Rust's std::sync does not record who holds it".to_owned())
                }
                _ => None,
            },
            ..Said::default()
        };
        if function.kind == Kind::Rwlock {
            wait.object.address = layouts::beginning_in_language(
                function.kind,
                function.operation,
                wait.object.address,
            );
            let count = self
                .memory
                .word(wait.object.address)
                .map(|word| word & 0x3fff_ffff);
            said.readers = count.filter(|count| (1..0x3fff_ffff).contains(count));
        }
        said
    }

    fn of_posix(
        &mut self,
        function: &Primitive,
        layout: &'static Layout,
        waiter: &Waiter<'_>,
        wait: &mut Wait,
    ) -> Said {
        let futex = &waiter.futex;
        let does = (function.kind, function.operation);
        let bases = layout.beginnings(does, futex.address, futex.expected);
        let mut found = || {
            let named = bases.iter().find(|base| waiter.words.contains(base));
            // Only a number tells which of its words this is.
            wait.proved &= named.is_some() || bases.len() == 1;
            if let Some(base) = named.or(bases.first()) {
                wait.object.address = *base;
            }
            wait.object.address
        };
        match function.kind {
            Kind::Mutex if self.is_refused(waiter) => self.refused(layout, waiter, wait),
            Kind::Mutex => {
                let address = found();
                object::mutex(&self.memory, layout, address, Some(futex))
            }
            Kind::Rwlock => {
                let address = found();
                object::rwlock(&self.memory, layout, address)
            }
            Kind::Join => {
                let at = futex.address.wrapping_add_signed(layout.joined_tid);
                let tid = match self.memory.word(at) {
                    Some(tid) if layout.tid_is_word => {
                        Some(tid).filter(|tid| futex.expected == Some(*tid))
                    }
                    tid => tid,
                };
                Said {
                    holders: tid
                        .filter(|tid| *tid != 0)
                        .map(u64::from)
                        .into_iter()
                        .collect(),
                    unknown: tid
                        .is_none()
                        .then(|| "which thread it joins could not be read".to_owned()),
                    len: 4,
                    ..Said::default()
                }
            }
            Kind::Cond if !bases.is_empty() => {
                let cond = found();
                wait.mutex = self.mutex_of(cond, layout, &waiter.near);
                Said::default()
            }
            Kind::Barrier if !bases.is_empty() => {
                found();
                Said::default()
            }
            Kind::Sem | Kind::Once => {
                found();
                Said::default()
            }
            // musl's threads wait at a word on their own stack.
            Kind::Cond | Kind::Barrier => {
                let own = match function.kind {
                    Kind::Cond => layout.cond_own,
                    _ => layout.barrier_own,
                };
                match own.and_then(|own| self.pointing_at(own, waiter)) {
                    Some(address) => {
                        wait.object.address = address;
                        Said::default()
                    }
                    None => Said {
                        unknown: Some(
                            "the thread waits at a word of its own, not at a lock".to_owned(),
                        ),
                        ..Said::default()
                    },
                }
            }
            Kind::Future | Kind::Futex => Said::default(),
        }
    }

    /// True if the kernel refused the thread a priority-inheriting mutex.
    ///
    /// The kernel does so if the mutex would close a circle, or if its owner has ended. If the
    /// program did not ask for error checks, the C library then lets the thread wait forever at a
    /// zero on its own stack (glibc, nptl/pthread_mutex_lock.c; musl,
    /// src/thread/pthread_mutex_timedlock.c).
    fn is_refused(&self, waiter: &Waiter<'_>) -> bool {
        let futex = &waiter.futex;
        !futex.inherits
            && futex.expected == Some(0)
            && self.stack_of(waiter).contains(&futex.address)
    }

    /// Finds the refused mutex: the held one among those whose address the thread has at hand.
    fn refused(&mut self, layout: &Layout, waiter: &Waiter<'_>, wait: &mut Wait) -> Said {
        let inherits = |said: &Said| said.flavor.contains(&"priority-inheriting");
        // glibc has the kind's address at hand, instead of the mutex's.
        let kind = layout.mutex.kind;
        let places = self.at_hand(waiter, kind, layout.mutex.size);
        let mut places: Vec<u64> = places.iter().flat_map(|at| [*at, at - kind]).collect();
        places.sort_unstable();
        places.dedup();
        let mut held = Vec::new();
        for address in places {
            let said = object::mutex(&self.memory, layout, address, None);
            if inherits(&said) && !said.holders.is_empty() {
                held.push((address, said));
            }
        }
        let own = self.by_tid.iter().find_map(|(tid, index)| {
            let known = self.model.thread(*index)?.tid?;
            (known == waiter.event.tid).then_some(*tid)
        });
        // The C library has its object in registers; deeper on the stack there may be others.
        let (registers, _) = waiter
            .words
            .split_at(waiter.words.len() - waiter.near.len());
        let rank = |address: u64| match () {
            () if waiter.words.contains(&(address + kind)) => 0,
            () if registers.contains(&address) => 1,
            () => 2,
        };
        let best = held.iter().map(|(address, _)| rank(*address)).min();
        held.retain(|(address, _)| Some(rank(*address)) == best);
        let is_own = |said: &Said| said.holders.first().copied() == own;
        if !held.iter().all(|(_, said)| is_own(said)) {
            held.retain(|(_, said)| !is_own(said));
        }
        // Such an address may be at hand for another reason.
        wait.proved = false;
        wait.refused = true;
        match <[_; 1]>::try_from(held) {
            Ok([(address, said)]) => {
                wait.object.address = address;
                said
            }
            Err(_) => Said {
                unknown: Some(
                    "the kernel has refused this thread a priority-inheriting mutex that it can \
                     never get; Unspool could not determine which mutex"
                        .to_owned(),
                ),
                ..Said::default()
            },
        }
    }

    fn stack_of(&self, waiter: &Waiter<'_>) -> Range<u64> {
        let len = (waiter.near.len() * self.pointer) as u64;
        waiter.sp..waiter.sp.saturating_add(len)
    }

    /// The places outside the stack that the thread has at hand, each once, if enough bytes around
    /// them were read. The others are requested.
    fn at_hand(&mut self, waiter: &Waiter<'_>, before: u64, after: u64) -> Vec<u64> {
        let mut seen = HashSet::new();
        let words = waiter.words.iter().copied();
        let mut places: Vec<u64> = words.filter(|word| seen.insert(*word)).collect();
        let aligned = |at: &u64| at.is_multiple_of(self.pointer as u64);
        let stack = self.stack_of(waiter);
        places.retain(|at| {
            *at >= 4096 && *at >> ADDRESS_BITS == 0 && aligned(at) && !stack.contains(at)
        });
        let mut asked = 0;
        places.retain(|at| {
            let start = at - before;
            let read = self.memory.bytes(start, (before + after) as usize);
            if read.is_none() && !self.memory.was_asked(start) && asked < MAX_REQUESTS {
                asked += 1;
                self.inspection.wanted.push(start..at + after);
            }
            read.is_some()
        });
        places
    }

    /// The object that points at the record with the awaited word, among the addresses at hand.
    fn pointing_at(&mut self, own: Own, waiter: &Waiter<'_>) -> Option<u64> {
        let records = own
            .words
            .iter()
            .map(|word| waiter.futex.address.wrapping_sub(*word));
        let records: Vec<u64> = records.collect();
        let len = own.pointers.iter().max()? + self.pointer as u64;
        let places = self.at_hand(waiter, 0, len);
        places.into_iter().find(|place| {
            let pointers = own.pointers.iter();
            let pointers = pointers.filter_map(|at| self.memory.pointer(place + at, self.pointer));
            let pointers: Vec<u64> = pointers.filter(|pointer| *pointer > 4096).collect();
            let any = pointers.iter().any(|pointer| records.contains(pointer));
            any && pointers.len() == own.pointers.len()
        })
    }

    /// glibc keeps both addresses on the stack, side by side, to take the mutex again should the
    /// thread be cancelled (nptl/pthread_cond_wait.c, `struct _condvar_cleanup_buffer`).
    fn mutex_of(&mut self, cond: u64, layout: &Layout, near: &[u64]) -> Option<ObjectName> {
        let pairs = near.windows(2).filter(|pair| pair[0] == cond);
        // Not inside the condition variable: one of its own words may stand beside it, too.
        let outside = |at: &u64| {
            *at >= 4096
                && at.is_multiple_of(4)
                && !(cond..cond.saturating_add(COND_SIZE)).contains(at)
        };
        let candidates: Vec<u64> = pairs.map(|pair| pair[1]).filter(outside).collect();
        for address in candidates {
            let len = layout.mutex.size as usize;
            if self.memory.bytes(address, len).is_none() {
                if !self.memory.was_asked(address) {
                    self.inspection
                        .wanted
                        .push(address..address.saturating_add(len as u64));
                }
                continue;
            }
            if object::looks_like_mutex(&self.memory, layout, address) {
                return Some(ObjectName {
                    kind: Kind::Mutex,
                    address,
                    name: self.program.variable(address),
                });
            }
        }
        None
    }

    /// The lock of a stdio stream (glibc, sysdeps/nptl/stdio-lock.h): the word, a count, the
    /// owner's thread pointer.
    fn stdio_owner(&self, layout: &Layout, futex: &Futex) -> Option<Said> {
        let offset = layout.stdio_owner?;
        let count = self.memory.word(futex.address.wrapping_add(4))?;
        let owner = self
            .memory
            .pointer(futex.address.wrapping_add(offset), self.pointer)
            .filter(|owner| *owner != 0)?;
        // What glibc calls a thread's address is its thread pointer, or lies a little below it.
        let after = self
            .pointers
            .partition_point(|(pointer, _)| *pointer < owner);
        let (pointer, tid) = self.pointers.get(after)?;
        let near = self.platform.thread_descriptor_size;
        (pointer - owner <= near && count > 0 && futex.expected == self.memory.word(futex.address))
            .then(|| Said {
                holders: vec![*tid],
                flavor: vec!["stdio stream's"],
                len: offset as usize + self.pointer,
                ..Said::default()
            })
    }
}

/// True if the function is not the C library's own, so that its object may have any layout.
fn is_foreign(function: &Primitive, module: Option<&str>, library: &Library) -> bool {
    // Their origin does not matter, because their object is not read.
    let plain = matches!(function.kind, Kind::Once | Kind::Future | Kind::Futex);
    let apart = module.is_some_and(|module| {
        // A separate file until glibc 2.33.
        let threads = matches!(library.family, Family::Glibc(_)) && !library.inside;
        *module == *library.path || threads && base_name(module).starts_with("libpthread")
    });
    !plain && !apart
}

/// glibc's functions that wait for its own locks (sysdeps/nptl/lowlevellock.h).
fn is_own_lock(function: &str) -> bool {
    let starts = ["__lll_", "lll_", "futex_", "__futex_", "__GI___lll_"];
    starts.iter().any(|start| function.starts_with(start))
}
