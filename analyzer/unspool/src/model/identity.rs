//! Thread identity: thread function, creation backtrace and the creator's identity, as one key.
//!
//! A key must be equal in every run of the same program, whatever the addresses, and differ where
//! the creation paths differ. So only what the files state goes into it: module file names and
//! svmas. The encoding is part of the JSON's contract (`docs/reference/report-json.md`, "Keys"):
//! changing it breaks comparisons with old reports.

use std::fmt;
use std::hash::Hasher;

use siphasher::sip::SipHasher24;

use super::backtrace::{Place, base_name};
use super::{Creation, Model, Note, Thread, ThreadIndex, Topic};

/// A thread's identity. Written as 16 hex digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub u64);

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The hash function's key: "unspool thread 1", little-endian halves.
const HASH_KEY: (u64, u64) = (
    u64::from_le_bytes(*b"unspool "),
    u64::from_le_bytes(*b"thread 1"),
);

/// Assigns a key to every thread, creators before created threads.
pub(super) fn assign(model: &mut Model) {
    let executable = base_name(&model.target.executable).to_owned();
    let mut done = vec![false; model.threads.len()];
    for first in 0..model.threads.len() {
        // Climb to a creator whose key is known. A circle cannot come from real records; it ends
        // the climb.
        let mut path = vec![first];
        let mut at = first;
        while let Some(ThreadIndex(creator)) = model.threads[at].creator() {
            if creator >= model.threads.len() || done[creator] || path.contains(&creator) {
                break;
            }
            path.push(creator);
            at = creator;
        }
        for index in path.into_iter().rev() {
            if !done[index] {
                let creator = model.threads[index].creator();
                let creator = creator.and_then(|c| model.threads.get(c.0)).map(|t| t.key);
                model.threads[index].key = key(&model.threads[index], creator, &executable);
                done[index] = true;
            }
        }
    }
    note_weak_keys(model);
}

/// Assigns a key to the threads of other processes whose creation was recorded.
pub(super) fn assign_in_processes(model: &mut Model) {
    let (own, all) = (model.threads.len(), &mut model.processes);
    for process in &all.all {
        let main = Thread {
            creation: Creation::Main,
            ..Thread::new(None)
        };
        let main = key(&main, None, all.program_name(process));
        for index in process.first_thread..process.first_thread + process.threads {
            let thread = &all.threads[index];
            let Some(ThreadIndex(creator)) = thread.creator() else {
                continue;
            };
            // Creators come before the threads that they created.
            let creator = creator.checked_sub(own).filter(|creator| *creator < index);
            let creator = creator.map(|creator| &all.threads[creator]);
            let creator = creator.filter(|creator| creator.creator().is_some());
            let creator = creator.map_or(main, |creator| creator.key);
            all.threads[index].key = key(thread, Some(creator), "");
        }
    }
}

fn note_weak_keys(model: &mut Model) {
    let weak = |thread: &&Thread| {
        let frames = thread
            .creation_stack()
            .into_iter()
            .flat_map(|s| s.physical());
        frames
            .map(|f| &f.place)
            .chain(&thread.function)
            .any(|place| place.svma.is_none())
    };
    let count = model.threads.iter().filter(weak).count();
    if count > 0 {
        let text = format!(
            "{count} {} created by code that belongs to no known file.",
            if count == 1 {
                "thread was"
            } else {
                "threads were"
            }
        );
        let details = "Identities leave that code out, so different creation paths may have the same \
             identity.";
        let note = Note::warning(text).about(Topic::Threads);
        model.notes.push(note.with_details(details));
    }
}

fn key(thread: &Thread, creator: Option<Key>, executable: &str) -> Key {
    let mut hash = SipHasher24::new_with_keys(HASH_KEY.0, HASH_KEY.1);
    match &thread.creation {
        Creation::Main => {
            hash.write(b"M");
            write_name(&mut hash, executable);
        }
        Creation::Seen { stack, .. } => {
            hash.write(b"C");
            write_place(&mut hash, thread.function.as_ref());
            hash.write(&creator.unwrap_or_default().0.to_le_bytes());
            for frame in stack.physical() {
                write_place(&mut hash, Some(&frame.place));
            }
        }
        // Data from another recording does not enter the key.
        Creation::Before | Creation::Recorded { .. } => {
            hash.write(b"B");
            write_place(&mut hash, thread.function.as_ref());
        }
        Creation::Unseen => {
            hash.write(b"U");
            write_place(&mut hash, thread.function.as_ref());
        }
    }
    Key(hash.finish())
}

/// Writes `1`, name and svma, or `0` for a place outside any file. For a file that replaced another
/// one, writes `2`, name, svma and edition. Absolute addresses never enter.
pub(super) fn write_place(hash: &mut SipHasher24, place: Option<&Place>) {
    match place.and_then(|place| Some((place.module_name()?, place.svma?))) {
        Some((module, svma)) => {
            let edition = place.and_then(|place| place.edition.as_deref());
            hash.write(&[1 + u8::from(edition.is_some())]);
            write_name(hash, module);
            hash.write(&svma.to_le_bytes());
            if let Some(edition) = edition {
                write_name(hash, edition);
            }
        }
        None => hash.write(&[0]),
    }
}

fn write_name(hash: &mut SipHasher24, name: &str) {
    hash.write(&(name.len() as u64).to_le_bytes());
    hash.write(name.as_bytes());
}

#[cfg(test)]
mod tests;
