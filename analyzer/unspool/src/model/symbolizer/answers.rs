//! Answers to the model's questions about snapshots and addresses.
//!
//! Separate from the symbolizer, because answers outlive their files. A recording stores them
//! (`stored_answers`), so that its report stays the same without the files.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hasher;
use std::sync::Arc;

use siphasher::sip::SipHasher24;
use unspool_capture::Snapshot;

use crate::model::Note;
use crate::model::backtrace::{Backtrace, NamedFrame, Place};
use crate::model::inspection::{Library, Onward};

/// An address or a snapshot's hash, with the number of modules mapped and unmapped before.
pub(super) type Question = (u64, u32);

/// The questions and their answers.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers {
    /// The stacks of snapshots.
    pub(super) stacks: HashMap<Question, Arc<Backtrace>>,
    /// The functions at addresses.
    pub(super) code: HashMap<Question, Place>,
    /// The starts of the functions at addresses, as symbols or the code show them.
    pub(super) starts: HashMap<Question, Option<Place>>,
    /// The variables at addresses.
    pub(super) data: HashMap<Question, Option<Place>>,
    /// The pointers at addresses, as the modules' files contain them.
    pub(super) pointers: HashMap<Question, Option<u64>>,
    /// The bytes at addresses, as the modules' files contain them, by address and length.
    pub(super) bytes: HashMap<(Question, usize), Option<Vec<u8>>>,
    /// Names of symbols that are not functions, with the offsets into them.
    pub(super) symbols: HashMap<Question, Option<Arc<str>>>,
    /// The effects of code from addresses on.
    pub(super) onward: HashMap<Question, Onward>,
    /// The C library, or the reason why it is unknown.
    pub(super) library: Option<Result<Library, String>>,
    /// Notes on missing or doubtful files.
    pub(super) notes: Vec<Note>,
    /// Paths of modules whose file or debug file a server sent.
    pub(super) downloaded: BTreeSet<Arc<str>>,
    /// Number of answers that did not fit into the recording.
    pub(super) left_out: u64,
}

/// The hash function's key: "unspool snapshot", little-endian halves.
const HASH_KEY: (u64, u64) = (
    u64::from_le_bytes(*b"unspool "),
    u64::from_le_bytes(*b"snapshot"),
);

/// The hash by which a recording names a snapshot; see docs/reference/capture-format.md.
pub(super) fn hash(snapshot: &Snapshot) -> u64 {
    let mut hash = SipHasher24::new_with_keys(HASH_KEY.0, HASH_KEY.1);
    let mut write = |bytes: &[u8]| {
        hash.write(&(bytes.len() as u64).to_le_bytes());
        hash.write(bytes);
    };
    write(&snapshot.registers);
    write(&snapshot.known);
    for chunk in &snapshot.chunks {
        write(&chunk.address.to_le_bytes());
        write(&chunk.bytes);
    }
    write(snapshot.note.as_bytes());
    hash.finish()
}

/// Returns the more detailed stack, from the recording or from the current files. A whole stack
/// keeps the recording's frames, so that keys stay equal; they may get names and lines.
pub(super) fn fuller_stack(kept: &Arc<Backtrace>, found: &Arc<Backtrace>) -> Arc<Backtrace> {
    let counters = |stack: &Backtrace| -> Vec<u64> {
        let frames = stack.physical();
        frames.map(|frame| frame.place.avma).collect()
    };
    let (here, there) = (counters(kept), counters(found));
    if here != there {
        let longer = found.truncated.is_none() || there.len() > here.len();
        let chosen = match kept.truncated.is_some() && longer {
            true => found,
            false => kept,
        };
        return chosen.clone();
    }
    let mut merged = Vec::new();
    let pairs = calls(kept).zip(calls(found));
    for (ours, theirs) in pairs {
        let better = detail(theirs) > detail(ours);
        merged.extend_from_slice(if better { theirs } else { ours });
    }
    if merged == kept.frames {
        return kept.clone();
    }
    Arc::new(Backtrace {
        frames: merged,
        truncated: kept.truncated.clone().and(found.truncated.clone()),
    })
}

/// The frames of a stack, each together with the functions inlined into it.
fn calls(stack: &Backtrace) -> impl Iterator<Item = &[NamedFrame]> {
    stack.frames.split_inclusive(|frame| !frame.inlined)
}

/// Says whether frames have lines, and names.
fn detail(frames: &[NamedFrame]) -> (bool, bool) {
    let any = |has: fn(&Place) -> bool| frames.iter().any(|frame| has(&frame.place));
    (
        any(|place| place.line.is_some()),
        any(|place| place.function.is_some()),
    )
}

/// Returns the more detailed place, like [`fuller_stack`].
pub(super) fn fuller_place(kept: Place, found: Place) -> Place {
    let detail = |place: &Place| (place.function.is_some(), place.line.is_some());
    match detail(&found) > detail(&kept) {
        true => found,
        false => kept,
    }
}
