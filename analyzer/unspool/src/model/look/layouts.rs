//! Where C libraries keep what a synchronization object says of itself: one table by library and size
//! of a pointer.
//!
//! Layouts are part of glibc's ABI (`sysdeps/nptl/bits/struct_mutex.h`, `struct_rwlock.h`,
//! `thread-shared-types.h`) with one exception: which words of a condition variable are waited at
//! changed with 2.41. musl's are `src/internal/pthread_impl.h`. All are little-endian.

use std::ops::RangeInclusive;
use std::sync::Arc;

/// A program's C library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::model) struct Library {
    pub(in crate::model) family: Family,
    /// The file that it is, or that has it inside.
    pub(in crate::model) path: Arc<str>,
    /// It is part of a program that is linked statically.
    pub(in crate::model) inside: bool,
}

/// Whose layouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::model) enum Family {
    /// glibc, of this minor version of 2; of a static program that is not known.
    Glibc(Option<u32>),
    Musl,
}

/// What lies where, in bytes from the object's address.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) mutex: Mutex,
    pub(super) rwlock: Rwlock,
    /// Where a thread may wait in a condition variable; none if it waits at a word of its own.
    pub(super) cond: &'static [u64],
    pub(super) sem: &'static [u64],
    pub(super) barrier: &'static [u64],
    /// Where threads wait at words of their own.
    pub(super) cond_own: Option<Own>,
    pub(super) barrier_own: Option<Own>,
    pub(super) once: &'static [u64],
    /// From the word that a joining thread waits at to the id of the thread it waits for.
    pub(super) joined_tid: i64,
    /// The word itself becomes 0 at the thread's end; otherwise that is its state.
    pub(super) tid_is_word: bool,
    /// A private lock of the library, in which stdio's locks have their owner's thread pointer.
    pub(super) stdio_owner: Option<u64>,
}

/// A word in a record on some thread's stack, to which the object points.
#[derive(Clone, Copy, Debug)]
pub(super) struct Own {
    /// Where the word is in the record.
    pub(super) words: &'static [u64],
    /// Where the object has pointers to records.
    pub(super) pointers: &'static [u64],
}

/// A mutex.
#[derive(Debug)]
pub(super) struct Mutex {
    /// The word that is waited at.
    pub(super) word: u64,
    /// The owner's thread id, where it is not in the word.
    pub(super) owner: Option<u64>,
    pub(super) kind: u64,
    /// Words that must be plausible.
    pub(super) counts: Option<Counts>,
    pub(super) size: u64,
    /// What the bits of `kind` mean.
    pub(super) flavors: Flavors,
}

/// Where glibc counts what is done with a mutex.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts {
    /// How often its owner has it: 0 unless it is recursive, robust or inheriting.
    pub(super) count: u64,
    /// Who has it or waits with it at a condition variable: not 0 if it is held.
    pub(super) users: u64,
}

/// The bits of a mutex's kind.
#[derive(Debug)]
pub(super) struct Flavors {
    pub(super) kinds: u32,
    pub(super) normal: &'static [u32],
    pub(super) recursive: u32,
    pub(super) robust: u32,
    pub(super) inherits: u32,
    pub(super) protects: u32,
    pub(super) shared: u32,
    /// Anything else is no mutex.
    pub(super) all: u32,
}

/// A read-write lock.
#[derive(Debug)]
pub(super) struct Rwlock {
    /// Words where readers wait, the most usual first.
    pub(super) read_words: &'static [u64],
    pub(super) write_words: &'static [u64],
    /// The word with the number of readers.
    pub(super) readers: u64,
    /// The writer's thread id, where it is recorded.
    pub(super) writer: Option<u64>,
    pub(super) size: u64,
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
    // And two for lock elision.
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
    cond: &'static [u64],
) -> Layout {
    Layout {
        mutex: Mutex {
            word: 0,
            owner: Some(8),
            kind,
            counts: Some(Counts { count: 4, users }),
            size: mutex_size,
            flavors: GLIBC_FLAVORS,
        },
        rwlock: Rwlock {
            // __wrphase_futex, __readers; __writers_futex, __wrphase_futex
            read_words: &[8, 0],
            write_words: &[12, 8],
            readers: 0,
            writer: Some(writer),
            size: rwlock_size,
        },
        cond,
        sem: &[0],
        // current_round, in, out
        barrier: &[4, 0, 16],
        cond_own: None,
        barrier_own: None,
        once: &[0],
        joined_tid: 0,
        tid_is_word: true,
        stdio_owner: Some(8),
    }
}

/// Of glibc's `pthread_cond_t`, everywhere.
pub(super) const COND_SIZE: u64 = 48;
/// Both words of `__g_signals`
const COND: &[u64] = &[40, 44];
/// The same since 2.41, which has no `__g_refs` before them.
const COND_41: &[u64] = &[32, 36];

static GLIBC_64: Layout = glibc(16, 12, 40, 24, 56, COND);
static GLIBC_64_41: Layout = glibc(16, 12, 40, 24, 56, COND_41);
static GLIBC_32: Layout = glibc(12, 16, 24, 28, 32, COND);
static GLIBC_32_41: Layout = glibc(12, 16, 24, 28, 32, COND_41);

const fn musl(mutex_size: u64, rwlock_size: u64, cond_own: Own, barrier_own: Own) -> Layout {
    Layout {
        mutex: Mutex {
            word: 4,
            owner: None,
            kind: 0,
            counts: None,
            size: mutex_size,
            flavors: MUSL_FLAVORS,
        },
        rwlock: Rwlock {
            read_words: &[0],
            write_words: &[0],
            readers: 0,
            writer: None,
            size: rwlock_size,
        },
        cond: &[],
        sem: &[0],
        barrier: &[],
        cond_own: Some(cond_own),
        barrier_own: Some(barrier_own),
        once: &[0],
        // `int tid, errno_val, detach_state` of struct pthread
        joined_tid: -8,
        tid_is_word: false,
        stdio_owner: None,
    }
}

static MUSL_64: Layout = musl(
    40,
    56,
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
    Own {
        words: &[12],
        pointers: &[4, 20],
    },
    Own {
        words: &[12, 4],
        pointers: &[12],
    },
);

/// The versions of glibc that have these layouts: condition variables and read-write locks were made anew
/// in 2.25, and what comes after the last may change anything.
const GLIBC_VERSIONS: RangeInclusive<u32> = 25..=41;

/// The layouts of a library for pointers of `pointer` bytes, or why they are not known.
pub(super) fn of(family: Family, pointer: usize) -> Result<&'static Layout, String> {
    Ok(match (family, pointer) {
        (Family::Glibc(Some(version)), _) if !GLIBC_VERSIONS.contains(&version) => {
            return Err(format!(
                "the C library is glibc 2.{version}, whose layouts are not known: 2.{} to 2.{} are",
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

/// Of a lock word that holds its owner's id (include/uapi/linux/futex.h, FUTEX_TID_MASK).
pub(super) const TID: u32 = 0x3fff_ffff;
/// The kernel's mark that the owner has ended.
pub(super) const OWNER_DIED: u32 = 0x4000_0000;

#[cfg(test)]
mod tests {
    use super::*;

    /// What glibc 2.36's headers say (`tests/programs/waits/layouts.c` on each architecture; the trials `waits::layouts` hold
    /// these files against it).
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
                rwlock.read_words[0],
                rwlock.write_words[0],
                rwlock.writer.unwrap(),
                rwlock.size,
                layout.cond[0],
                layout.cond[1],
                COND_SIZE,
            );
            assert_eq!(ours, headers, "pointers of {pointer}");
        }
    }

    #[test]
    fn versions_that_nobody_has_looked_at_are_not_known() {
        for version in [23, 42, 99] {
            assert!(of(Family::Glibc(Some(version)), 8).is_err(), "{version}");
        }
    }
}
