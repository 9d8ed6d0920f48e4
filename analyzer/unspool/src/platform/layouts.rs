//! Layouts of the C libraries' synchronization objects, by library and pointer size.
//!
//! Layouts are part of glibc's ABI (`sysdeps/nptl/bits/struct_mutex.h`, `struct_rwlock.h`,
//! `thread-shared-types.h`), with one exception: the words of a condition variable that threads
//! wait at changed with 2.41. musl's are `src/internal/pthread_impl.h`. All are little-endian.

use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::primitives::{Kind, Operation};

/// A program's C library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Library {
    pub(crate) family: Family,
    /// The file that is the library, or that contains it.
    pub(crate) path: Arc<str>,
    /// True if it is part of a statically linked program.
    pub(crate) inside: bool,
}

/// The library of the layouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// glibc, with its minor version of 2; unknown in a static program.
    Glibc(Option<u32>),
    Musl,
}

/// Offsets of fields, in bytes from the object's address.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) mutex: Mutex,
    pub(crate) rwlock: Rwlock,
    pub(crate) cond: Cond,
    pub(crate) barrier: Barrier,
    /// The records of objects whose threads wait at words of their own.
    pub(crate) cond_own: Option<Own>,
    pub(crate) barrier_own: Option<Own>,
    /// The alignment of all objects but condition variables: the size of a pointer.
    align: u64,
    /// Offset from the word that a joining thread waits at to the id of the joined thread.
    pub(crate) joined_tid: i64,
    /// True if the word itself becomes 0 at the thread's end; otherwise it is the thread's state.
    pub(crate) tid_is_word: bool,
    /// Offset of the owner's thread pointer in a private lock of stdio.
    pub(crate) stdio_owner: Option<u64>,
}

/// A word of an object at which a thread may wait, recognized by the value that the thread expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    /// Bytes from the object's address.
    pub(crate) at: u64,
    mask: u32,
    bits: u32,
}

impl Word {
    /// A word at which threads wait for any value.
    const fn at(at: u64) -> Word {
        Word::of(at, 0, 0)
    }

    /// A word at which threads wait for values whose bits in `mask` are `bits`.
    const fn of(at: u64, mask: u32, bits: u32) -> Word {
        Word { at, mask, bits }
    }

    fn allows(&self, expected: Option<u32>) -> bool {
        expected.is_none_or(|value| value & self.mask == self.bits)
    }
}

/// The words of a condition variable at which threads wait. Waiters have none if each waits at a
/// word of its own.
#[derive(Debug)]
pub(crate) struct Cond {
    wait: &'static [Word],
    /// Words where signalling threads wait for each other, and for waiters about to leave.
    signal: &'static [Word],
    /// Words where a destroying thread waits until all waiters have left.
    destroy: &'static [Word],
}

/// The words of a barrier at which threads wait; none if each waits at a word of its own.
#[derive(Debug)]
pub(crate) struct Barrier {
    arrive: &'static [Word],
    destroy: &'static [Word],
}

/// A word in a record on a thread's stack that the object points to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    /// Offsets of the word in the record.
    pub(crate) words: &'static [u64],
    /// Offsets of the pointers to records in the object.
    pub(crate) pointers: &'static [u64],
}

/// A mutex.
#[derive(Debug)]
pub(crate) struct Mutex {
    /// The word that is waited at, and where it is.
    words: &'static [Word],
    pub(crate) word: u64,
    /// Offset of the owner's thread id, if it is not in the word.
    pub(crate) owner: Option<u64>,
    pub(crate) kind: u64,
    /// Words that must be plausible.
    pub(crate) counts: Option<Counts>,
    pub(crate) size: u64,
    /// The meaning of the bits of `kind`.
    pub(crate) flavors: Flavors,
}

/// Offsets of glibc's counters of a mutex.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts {
    /// Number of times the owner has locked it: 0 unless it is recursive, robust or inheriting.
    pub(crate) count: u64,
    /// Count of holders and of waiters at a condition variable: not 0 if the lock is held.
    pub(crate) users: u64,
}

/// The bits of a mutex's kind.
#[derive(Debug)]
pub(crate) struct Flavors {
    pub(crate) kinds: u32,
    pub(crate) normal: &'static [u32],
    pub(crate) recursive: u32,
    pub(crate) robust: u32,
    pub(crate) inherits: u32,
    pub(crate) protects: u32,
    pub(crate) shared: u32,
    /// Valid bits; with any other bit the memory is not a mutex.
    pub(crate) all: u32,
}

/// A read-write lock.
#[derive(Debug)]
pub(crate) struct Rwlock {
    /// Words where readers wait, the most usual first.
    pub(crate) read_words: &'static [Word],
    pub(crate) write_words: &'static [Word],
    /// The word with the number of readers.
    pub(crate) readers: u64,
    /// The writer's thread id, where it is recorded.
    pub(crate) writer: Option<u64>,
    pub(crate) size: u64,
}

const GLIBC_FLAVORS: Flavors = Flavors {
    kinds: 3,
    // PTHREAD_MUTEX_TIMED_NP, PTHREAD_MUTEX_ADAPTIVE_NP
    normal: &[0, 3],
    recursive: 1,
    robust: 16,
    inherits: 32,
    protects: 64,
    shared: 128,
    // And two bits for lock elision.
    all: 3 | 16 | 32 | 64 | 128 | 256 | 512,
};

const MUSL_FLAVORS: Flavors = Flavors {
    kinds: 3,
    normal: &[0],
    recursive: 1,
    robust: 4,
    inherits: 8,
    protects: 0,
    shared: 128,
    all: 3 | 4 | 8 | 128,
};

const fn glibc(
    kind: u64,
    users: u64,
    mutex_size: u64,
    writer: u64,
    rwlock_size: u64,
    align: u64,
    cond: Cond,
) -> Layout {
    Layout {
        mutex: Mutex {
            words: FIRST,
            word: 0,
            owner: Some(8),
            kind,
            counts: Some(Counts { count: 4, users }),
            size: mutex_size,
            flavors: GLIBC_FLAVORS,
        },
        rwlock: Rwlock {
            // nptl/pthread_rwlock_common.c. __wrphase_futex, for 1 and PTHREAD_RWLOCK_FUTEX_USED;
            // __readers, for a value with PTHREAD_RWLOCK_RWAITING
            read_words: const { &[Word::of(8, u32::MAX, 3), Word::of(0, 4, 4)] },
            // __writers_futex, for 1 and PTHREAD_RWLOCK_FUTEX_USED; __wrphase_futex, for the latter
            // alone
            write_words: const { &[Word::of(12, u32::MAX, 3), Word::of(8, u32::MAX, 2)] },
            readers: 0,
            writer: Some(writer),
            size: rwlock_size,
        },
        cond,
        barrier: Barrier {
            // current_round, in; out
            arrive: const { &[Word::at(4), Word::at(0)] },
            destroy: const { &[Word::at(16)] },
        },
        cond_own: None,
        barrier_own: None,
        align,
        joined_tid: 0,
        tid_is_word: true,
        stdio_owner: Some(8),
    }
}

/// Size of glibc's `pthread_cond_t` on all architectures, bytes.
pub(crate) const COND_SIZE: u64 = 48;
/// Alignment of a `pthread_cond_t` on all architectures: that of a `long long`.
const COND_ALIGN: u64 = 8;

/// The words of glibc's condition until 2.40 (nptl/pthread_cond_common.c, pthread_cond_destroy.c).
/// Waits: both words of `__g_signals`. Signals: `__g1_orig_size`, whose lowest bits are a lock, and
/// both words of `__g_refs`, if bit 0 is set. Destruction: `__wrefs`, if bit 2 is set.
const COND: Cond = Cond {
    wait: &[Word::at(40), Word::at(44)],
    signal: &[Word::of(32, 3, 2), Word::of(16, 1, 1), Word::of(20, 1, 1)],
    destroy: &[Word::of(36, 4, 4)],
};
/// The words since 2.41, which has no `__g_refs` before them.
const COND_41: Cond = Cond {
    wait: &[Word::at(32), Word::at(36)],
    signal: &[Word::of(24, 3, 2)],
    destroy: &[Word::of(28, 4, 4)],
};

static GLIBC_64: Layout = glibc(16, 12, 40, 24, 56, 8, COND);
static GLIBC_64_41: Layout = glibc(16, 12, 40, 24, 56, 8, COND_41);
static GLIBC_32: Layout = glibc(12, 16, 24, 28, 32, 4, COND);
static GLIBC_32_41: Layout = glibc(12, 16, 24, 28, 32, 4, COND_41);

const fn musl(
    mutex_size: u64,
    rwlock_size: u64,
    align: u64,
    cond_own: Own,
    barrier_own: Own,
) -> Layout {
    Layout {
        mutex: Mutex {
            words: const { &[Word::at(4)] },
            word: 4,
            owner: None,
            kind: 0,
            counts: None,
            size: mutex_size,
            flavors: MUSL_FLAVORS,
        },
        rwlock: Rwlock {
            read_words: const { &[Word::at(0)] },
            write_words: const { &[Word::at(0)] },
            readers: 0,
            writer: None,
            size: rwlock_size,
        },
        cond: Cond {
            wait: &[],
            // _c_lock
            signal: const { &[Word::at(32)] },
            destroy: &[],
        },
        barrier: Barrier {
            arrive: &[],
            destroy: &[],
        },
        cond_own: Some(cond_own),
        barrier_own: Some(barrier_own),
        align,
        // `int tid, errno_val, detach_state` of struct pthread
        joined_tid: -8,
        tid_is_word: false,
        stdio_owner: None,
    }
}

static MUSL_64: Layout = musl(
    40,
    56,
    8,
    // `barrier` of struct waiter; _c_head, _c_tail
    Own {
        words: &[20],
        pointers: &[8, 40],
    },
    // `finished` and `last` of struct instance; _b_inst
    Own {
        words: &[12, 4],
        pointers: &[24],
    },
);
static MUSL_32: Layout = musl(
    24,
    32,
    4,
    Own {
        words: &[12],
        pointers: &[4, 20],
    },
    Own {
        words: &[12, 4],
        pointers: &[12],
    },
);

/// The word at the beginning of an object.
const FIRST: &[Word] = &[Word::at(0)];

impl Layout {
    /// The words of an object at which a thread may wait in this operation, the most usual first.
    fn words(&self, kind: Kind, operation: Operation) -> &'static [Word] {
        match (kind, operation) {
            (Kind::Mutex, _) => self.mutex.words,
            (Kind::Rwlock, Operation::WriteLock) => self.rwlock.write_words,
            (Kind::Rwlock, _) => self.rwlock.read_words,
            (Kind::Cond, Operation::Wait) => self.cond.wait,
            (Kind::Cond, Operation::Destroy) => self.cond.destroy,
            (Kind::Cond, _) => self.cond.signal,
            (Kind::Barrier, Operation::Destroy) => self.barrier.destroy,
            (Kind::Barrier, _) => self.barrier.arrive,
            (Kind::Sem | Kind::Once, _) => FIRST,
            (Kind::Join | Kind::Future | Kind::Futex, _) => &[],
        }
    }

    /// True if each thread that waits at such an object waits at a word of its own.
    pub(crate) fn has_own_words(&self, kind: Kind) -> bool {
        match kind {
            Kind::Cond => self.cond_own.is_some(),
            Kind::Barrier => self.barrier_own.is_some(),
            _ => false,
        }
    }

    /// Possible start addresses of an object whose thread waits at `word` for the value `expected`,
    /// the likeliest first. Usually there is one. There is none if threads wait at words of their
    /// own, or if it is not an object.
    pub(crate) fn beginnings(
        &self,
        (kind, operation): (Kind, Operation),
        word: u64,
        expected: Option<u32>,
    ) -> Vec<u64> {
        let align = match kind {
            Kind::Cond => COND_ALIGN,
            _ => self.align,
        };
        let words = self.words(kind, operation).iter();
        let of = |one: &Word| word.wrapping_sub(one.at);
        let mut all: Vec<u64> = words.filter(|one| one.allows(expected)).map(of).collect();
        // A program may pack its objects, without alignment.
        if all.iter().any(|at| at.is_multiple_of(align)) {
            all.retain(|at| at.is_multiple_of(align));
        }
        all
    }
}

/// Start of an object of a language's own library, in which a thread waits at `word`. Rust's
/// read-write lock has `state`, at which readers wait, before `writer_notify`
/// (library/std/src/sys/sync/rwlock/futex.rs).
pub(crate) fn beginning_in_language(kind: Kind, operation: Operation, word: u64) -> u64 {
    match (kind, operation) {
        (Kind::Rwlock, Operation::WriteLock) => word.wrapping_sub(4),
        _ => word,
    }
}

/// The value of glibc's plain locks while threads wait for them (sysdeps/nptl/lowlevellock.h).
pub(crate) const LOCKED_WITH_WAITERS: u32 = 2;

/// True if a thread inside a wait at glibc's condition variable takes the mutex again.
///
/// It waits for the condition by `FUTEX_WAIT_BITSET`, before 2.34 also by `FUTEX_WAIT` for 0. For a
/// mutex it waits by `FUTEX_WAIT` for 2, or for an owner's id with `FUTEX_WAITERS`, or the kernel
/// hands it over (sysdeps/nptl/lowlevellock.h, nptl/pthread_mutex_lock.c).
pub(crate) fn takes_mutex(expected: Option<u32>, has_bits: bool) -> bool {
    let held = |value: u32| value == LOCKED_WITH_WAITERS || value & FUTEX_WAITERS != 0;
    !has_bits && expected.is_none_or(held)
}

/// The versions of glibc with these layouts. Condition variables and read-write locks were
/// redesigned in 2.25; later versions may change anything.
const GLIBC_VERSIONS: RangeInclusive<u32> = 25..=41;

/// The layouts of a library for pointers of `pointer` bytes, or the reason why they are unknown.
pub(crate) fn of(family: Family, pointer: usize) -> Result<&'static Layout, String> {
    Ok(match (family, pointer) {
        (Family::Glibc(Some(version)), _) if !GLIBC_VERSIONS.contains(&version) => {
            return Err(format!(
                "the C library is glibc 2.{version}; Unspool knows the structure layouts of 2.{} \
                 to 2.{} only",
                GLIBC_VERSIONS.start(),
                GLIBC_VERSIONS.end()
            ));
        }
        (Family::Glibc(Some(41..)), 8) => &GLIBC_64_41,
        (Family::Glibc(Some(41..)), _) => &GLIBC_32_41,
        (Family::Glibc(_), 8) => &GLIBC_64,
        (Family::Glibc(_), _) => &GLIBC_32,
        (Family::Musl, 8) => &MUSL_64,
        (Family::Musl, _) => &MUSL_32,
    })
}

/// Mask of the owner's id in a lock word (include/uapi/linux/futex.h, FUTEX_TID_MASK).
pub(crate) const TID: u32 = 0x3fff_ffff;
/// The kernel's mark that threads wait, so that a release must wake them.
const FUTEX_WAITERS: u32 = 0x8000_0000;
/// The kernel's mark that the owner has ended.
pub(crate) const OWNER_DIED: u32 = 0x4000_0000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the layouts with those that glibc 2.36's headers declare. The program
    /// `tests/programs/waits/layouts.c` prints them on each architecture, and `layouts/*.txt` hold
    /// its output. The tests `waits::layouts` compare these files with the program's output.
    #[test]
    fn as_the_libraries_own_headers_have_it() {
        for (pointer, headers) in [
            (8, include_str!("layouts/glibc-64.txt")),
            (4, include_str!("layouts/glibc-32.txt")),
        ] {
            let layout = of(Family::Glibc(Some(36)), pointer).unwrap();
            let (mutex, rwlock) = (&layout.mutex, &layout.rwlock);
            let counts = mutex.counts.unwrap();
            let ours = format!(
                "mutex.word {}\nmutex.owner {}\nmutex.kind {}\nmutex.count {}\nmutex.users {}\n\
                 rwlock.readers {}\nrwlock.read_word {}\nrwlock.write_word {}\nrwlock.writer {}\n\
                 rwlock.size {}\ncond.words {} {}\ncond.size {}\n",
                mutex.word,
                mutex.owner.unwrap(),
                mutex.kind,
                counts.count,
                counts.users,
                rwlock.readers,
                rwlock.read_words[0].at,
                rwlock.write_words[0].at,
                rwlock.writer.unwrap(),
                rwlock.size,
                layout.cond.wait[0].at,
                layout.cond.wait[1].at,
                COND_SIZE,
            );
            assert_eq!(ours, headers, "pointers of {pointer}");
        }
    }

    #[test]
    fn unverified_versions_are_unknown() {
        for version in [23, 42, 99] {
            assert!(of(Family::Glibc(Some(version)), 8).is_err(), "{version}");
        }
    }
}
