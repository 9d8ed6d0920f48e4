//! Reads the kind and the holder of a synchronization object from its memory.
//!
//! Memory may hold anything. If it does not look like the expected object, it yields no facts, and
//! a clause gives the reason.

use super::memory::Memory;
use crate::platform::layouts::{Layout, OWNER_DIED, TID};
use crate::platform::syscall::Futex;

/// Upper bound of thread ids (include/linux/threads.h, PID_MAX_LIMIT).
const MAX_TID: u32 = 4 << 20;

/// Upper bound of the threads that hold a mutex or wait with it at condition variables.
const MAX_USERS: u32 = MAX_TID;

/// The facts that an object stores.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) holders: Vec<u64>,
    pub(super) readers: Option<u32>,
    pub(super) flavor: Vec<&'static str>,
    pub(super) shared: bool,
    /// Length of the words with the facts, from the object's address.
    pub(super) len: usize,
    pub(super) unknown: Option<String>,
}

impl Said {
    fn unknown(why: impl Into<String>) -> Said {
        Said {
            unknown: Some(why.into()),
            ..Said::default()
        }
    }
}

/// Reads the mutex at `address`; `futex` is given if a thread waits at it.
pub(super) fn mutex(memory: &Memory, layout: &Layout, address: u64, futex: Option<&Futex>) -> Said {
    let mutex = &layout.mutex;
    let flavors = &mutex.flavors;
    let at = |offset: u64| memory.word(address.wrapping_add(offset));
    let (Some(kind), Some(word)) = (at(mutex.kind), at(mutex.word)) else {
        return Said::unknown(format!("the mutex at {address:#x} could not be read"));
    };
    if kind == u32::MAX && mutex.counts.is_some() {
        // nptl/pthread_mutex_destroy.c
        return Said::unknown(format!("the mutex at {address:#x} has been destroyed"));
    }
    if kind & !flavors.all != 0 {
        return Said::unknown(format!(
            "the memory at {address:#x} is not a mutex, or is damaged: its kind is {kind:#x}"
        ));
    }
    let has = |bit: u32| bit != 0 && kind & bit != 0;
    let mut said = Said {
        shared: has(flavors.shared),
        len: mutex.size as usize,
        ..Said::default()
    };
    let basic = kind & flavors.kinds;
    let normal = flavors.normal.contains(&basic);
    for (is, word) in [
        (has(flavors.robust), "robust"),
        (has(flavors.inherits), "priority-inheriting"),
        (has(flavors.protects), "priority-protecting"),
        (!normal && basic == flavors.recursive, "recursive"),
        (!normal && basic != flavors.recursive, "error-checking"),
    ] {
        if is {
            said.flavor.push(word);
        }
    }
    if let Some(counts) = mutex.counts {
        let counted = has(flavors.robust) || has(flavors.inherits) || basic == flavors.recursive;
        match (at(counts.count), at(counts.users)) {
            (Some(0), Some(0)) => {
                said.unknown = Some("its owner was changing when Unspool read it".to_owned());
                return said;
            }
            (Some(count), Some(users)) if (count == 0 || counted) && users < MAX_USERS => {}
            _ => {
                return Said::unknown(format!(
                    "the memory at {address:#x} is not a mutex, or is damaged: \
                     its counts are impossible"
                ));
            }
        }
    }
    let in_word = mutex.owner.is_none() || has(flavors.robust) || has(flavors.inherits);
    // glibc's robust mutexes store their owner's id twice.
    let twice = mutex.owner.filter(|_| has(flavors.robust));
    if twice.is_some_and(|owner| at(owner) != Some(word & TID)) && word & OWNER_DIED == 0 {
        said.unknown = Some("its owner was changing when Unspool read it".to_owned());
        return said;
    }
    let moved = |expected: u32| expected != word;
    let owner = if mutex.owner.is_none() && normal && !has(flavors.robust) && !has(flavors.inherits)
    {
        said.unknown = Some("musl does not record who holds a normal mutex".to_owned());
        return said;
    } else if in_word {
        word & TID
    } else {
        mutex.owner.and_then(at).unwrap_or(0)
    };
    if word == 0 || futex.and_then(|futex| futex.expected).is_some_and(moved) {
        said.unknown = Some("its owner was changing when Unspool read it".to_owned());
    } else if in_word && word & OWNER_DIED != 0 {
        said.unknown = Some("its last owner ended without releasing it".to_owned());
    } else if owner == 0 {
        said.unknown = Some("it stored no owner when Unspool read it".to_owned());
    } else if owner >= MAX_TID {
        said.unknown = Some(format!("it is damaged: its owner field is {owner:#x}"));
    } else {
        said.holders = vec![owner.into()];
    }
    said
}

/// Reads the kernel's part of any priority-inheriting mutex: the futex word holds the owner's id
/// (futex(2), "Priority-inheritance futexes").
pub(super) fn inherited(memory: &Memory, futex: &Futex) -> Said {
    let word = memory.word(futex.address).unwrap_or(0);
    let owner = word & TID;
    if word & OWNER_DIED != 0 || !(1..MAX_TID).contains(&owner) {
        return Said::unknown("its owner was changing when Unspool read it");
    }
    Said {
        holders: vec![owner.into()],
        flavor: vec!["priority-inheriting"],
        shared: futex.shared,
        len: 4,
        ..Said::default()
    }
}

/// True if the memory at `address` looks like a mutex, held or not.
pub(super) fn looks_like_mutex(memory: &Memory, layout: &Layout, address: u64) -> bool {
    let mutex = &layout.mutex;
    let at = |offset: u64| memory.word(address.wrapping_add(offset));
    let kind = at(mutex.kind).is_some_and(|kind| kind & !mutex.flavors.all == 0);
    let owner = mutex.owner.map_or(Some(0), at);
    kind && owner.is_some_and(|owner| owner < MAX_TID)
}

/// Reads the read-write lock at `address`.
pub(super) fn rwlock(memory: &Memory, layout: &Layout, address: u64) -> Said {
    let rwlock = &layout.rwlock;
    let at = |offset: u64| memory.word(address.wrapping_add(offset));
    let Some(word) = at(rwlock.readers) else {
        return Said::unknown(format!(
            "the read-write lock at {address:#x} could not be read"
        ));
    };
    let mut said = Said {
        len: rwlock.size as usize,
        ..Said::default()
    };
    match rwlock.writer.map(at) {
        Some(None) => {
            said.unknown = Some(format!(
                "the read-write lock at {address:#x} could not be read"
            ))
        }
        // glibc, nptl/pthread_rwlock_common.c: bit 0 marks a writer's phase, bit 1 a present
        // writer. From bit 3 on it counts readers, including waiting ones.
        Some(Some(0)) if word & 1 == 0 && word >> 3 > 0 => {
            said.readers = Some(word >> 3);
            said.unknown =
                Some("glibc does not record which threads hold it for reading".to_owned());
        }
        Some(Some(0)) => {
            said.unknown = Some("its owner was changing when Unspool read it".to_owned())
        }
        Some(Some(writer)) if writer >= MAX_TID => {
            said.unknown = Some(format!("it is damaged: its writer field is {writer:#x}"));
        }
        Some(Some(writer)) => said.holders = vec![writer.into()],
        // musl: INT_MAX is a writer, anything else the number of readers; bit 31, threads wait.
        None if word & 0x7fff_ffff == 0x7fff_ffff => {
            said.unknown = Some("musl does not record who holds a read-write lock".to_owned());
        }
        None => {
            said.readers = Some(word & 0x7fff_ffff).filter(|readers| *readers > 0);
            said.unknown = Some("musl does not record who holds a read-write lock".to_owned());
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use unspool_capture::Record;

    use super::*;
    use crate::platform::layouts::{self, Family};

    const AT: u64 = 0x5000;

    fn memory(words: &[u32]) -> Memory {
        let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let read = unspool_capture::Memory {
            time_ns: 1,
            address: AT,
            bytes,
        };
        Memory::of([Record::Memory(read)].iter())
    }

    fn glibc(words: &[u32]) -> Said {
        let layout = layouts::of(Family::Glibc(Some(36)), 8).unwrap();
        mutex(&memory(words), layout, AT, None)
    }

    #[test]
    fn owners_of_glibc_mutexes() {
        let said = glibc(&[2, 0, 77, 1, 0, 0]);
        assert_eq!((said.holders, said.flavor), (vec![77], vec![]));
        let said = glibc(&[2, 3, 77, 1, 1, 0]);
        assert_eq!((said.holders, said.flavor), (vec![77], vec!["recursive"]));
        // Robust and inheriting: the word itself, of which the upper bits mean something else.
        let said = glibc(&[0x8000_0000 | 77, 1, 77, 1, 16, 0]);
        assert_eq!((said.holders, said.flavor), (vec![77], vec!["robust"]));
        let said = glibc(&[77, 1, 0, 1, 32 | 128, 0]);
        assert_eq!(said.flavor, ["priority-inheriting"]);
        assert!(said.shared && said.holders == [77]);
    }

    #[test]
    fn memory_that_is_no_held_mutex_has_no_holder() {
        for words in [
            &[0, 0, 77, 1, 0, 0][..],
            &[2, 0, 0, 1, 0, 0],
            &[2, 0, 0x4141_4141, 1, 0, 0],
            &[2, 0, 77, 1, 0x4141_4141, 0],
            // Destroyed; never locked; with a count, which this kind does not have.
            &[2, 0, 77, 1, u32::MAX, 0],
            &[2, 0, 77, 0, 0, 0],
            &[2, 7, 77, 1, 0, 0],
            &[2, 0, 77, 0x4141_4141, 0, 0],
            // Robust, with another owner in the word.
            &[2, 1, 77, 1, 16, 0],
            &[OWNER_DIED, 0, 77, 1, 16, 0],
            &[2, 0],
            &[],
        ] {
            let said = glibc(words);
            assert!(
                said.holders.is_empty() && said.unknown.is_some(),
                "{words:x?}"
            );
        }
    }

    #[test]
    fn musl_has_the_owner_in_the_word() {
        let layout = layouts::of(Family::Musl, 8).unwrap();
        let recursive = mutex(&memory(&[1, 0x8000_0000 | 77, 1, 0]), layout, AT, None);
        assert_eq!(
            (recursive.holders, recursive.flavor),
            (vec![77], vec!["recursive"])
        );
        let normal = mutex(&memory(&[0, 0x8000_0010, 1, 0]), layout, AT, None);
        assert!(normal.holders.is_empty() && normal.unknown.unwrap().contains("musl"));
    }

    #[test]
    fn read_write_locks() {
        let layout = layouts::of(Family::Glibc(None), 8).unwrap();
        let said = rwlock(&memory(&[3, 0, 1, 0, 0, 0, 77, 0]), layout, AT);
        assert_eq!(said.holders, [77]);
        let said = rwlock(&memory(&[2 << 3, 1, 0, 2, 0, 0, 0, 0]), layout, AT);
        assert_eq!((said.holders, said.readers), (vec![], Some(2)));
        let said = rwlock(&memory(&[3, 0, 1, 0, 0, 0, u32::MAX, 0]), layout, AT);
        assert!(said.holders.is_empty());
    }
}
