//! The places at which threads wait in futex calls, from the few words of the stack that the
//! kernel's records have.
//!
//! Separate from `blocking_calls`, which finds the call: a place shows the function that called it,
//! and so whether the thread waits for a mutex, a condition or something else.

use std::collections::HashMap;

use unspool_capture::{FutexPlace, Snapshot};
use unspool_image::Arch;
use unspool_rsp::BlockPlace;
use unspool_unwind::{ModuleMap, Provenance, WalkOptions, returns_to, walk};

use super::code_of_processes::ProcessCodes;
use super::hits::snapshot_of;
use super::modules::Modules;
use super::other_processes::OtherProcesses;
use super::samples::SampledStack;
use super::session::Session;

/// Maximum number of calls with a place in a recording. Further ones have none.
const MAX_IDS: usize = 1 << 13;
/// Maximum number of places with the same system call.
const MAX_OF_CALL: usize = 1 << 8;
/// Maximum number of frames of a place.
const MAX_FRAMES: usize = 6;
/// The stack pointer, which the kernel's records do not have. Only distances from it count.
const STACK: u64 = 0x10000;

/// A part of a record that may have a return address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Link,
    /// A word of the stack, by its index.
    Word(usize),
}

impl Slot {
    /// The address to which a function returns by this slot of a record.
    fn address(self, waits: &BlockPlace, arch: Arch) -> Option<u64> {
        let word = match self {
            Slot::Link => waits.link,
            Slot::Word(at) => *waits.stack.get(at)?,
        };
        Some(returns_to(arch, word?))
    }
}

/// The calls of one place, which differ by their futexes.
#[derive(Debug)]
struct Place {
    /// Its return addresses, and where the records have them.
    returns: Vec<(Slot, u64)>,
    /// The program's module at the last of them, because another one may take its addresses.
    module: Option<u32>,
    snapshot: Snapshot,
    /// By futex, the ids of the calls.
    ids: HashMap<u64, u64>,
}

/// The places that the recording has so far.
#[derive(Debug, Default)]
pub(super) struct FutexPlaces {
    /// By the number of the code, if it is not the program's, and the program counter.
    places: HashMap<(Option<usize>, u64), Vec<Place>>,
    /// Number of ids.
    count: usize,
    /// Those that are not written yet: the code, and the rest of the record.
    new: Vec<(Option<usize>, FutexPlace)>,
}

impl FutexPlaces {
    /// The id of the call of a thread that waits at a futex in the program or in another process.
    /// `next` is the id of a call that the recording does not have. `None` if the stack shows no
    /// caller.
    pub(super) fn id(
        &mut self,
        waits: &BlockPlace,
        other: Option<(&OtherProcesses, u64)>,
        ((session, modules), codes): ((&Session, &Modules), &mut ProcessCodes),
        next: u64,
    ) -> Option<u64> {
        let (code, map) = match other {
            Some((others, pid)) => {
                let code = others.code(pid)?;
                let number = codes.number(&code, (session, modules), others)?;
                (Some(number), &codes.get(number)?.map)
            }
            None => (None, modules.map()),
        };
        let module = |place: &Place| {
            let (_, caller) = place.returns.last().filter(|_| code.is_none())?;
            Some(modules.at(*caller)?.id)
        };
        let known = self.places.entry((code, waits.pc)).or_default();
        let is_same = |place: &Place| {
            let arch = session.abi.arch;
            let mut returns = place.returns.iter();
            returns.all(|(slot, address)| slot.address(waits, arch) == Some(*address))
                && place.module == module(place)
        };
        let at = match known.iter().position(is_same) {
            Some(at) => at,
            None if known.len() >= MAX_OF_CALL => return None,
            None => {
                let mut place = place(session, map, waits)?;
                place.module = module(&place);
                known.push(place);
                known.len() - 1
            }
        };
        let Place { snapshot, ids, .. } = &mut known[at];
        let futex = waits.args[0];
        if let Some(id) = ids.get(&futex) {
            return Some(*id);
        }
        if self.count >= MAX_IDS {
            return None;
        }
        self.count += 1;
        ids.insert(futex, next);
        let record = FutexPlace {
            call: next,
            snapshot: Some(snapshot.clone()),
            code: code.map(|number| number as u32),
            modules: Vec::new(),
        };
        self.new.push((code, record));
        Some(next)
    }

    /// The records of the places that are not written yet.
    pub(super) fn take_new(&mut self, codes: &mut ProcessCodes) -> Vec<FutexPlace> {
        let new = std::mem::take(&mut self.new).into_iter();
        new.map(|(code, place)| FutexPlace {
            modules: code.map_or_else(Vec::new, |number| codes.take_modules(number)),
            ..place
        })
        .collect()
    }
}

/// The place of a wait, up to the first function in another file than the system call's. Its stack
/// leads from one return address to the next by constant distances, because only the stack pointer
/// and the link register are known.
fn place(session: &Session, map: &ModuleMap, waits: &BlockPlace) -> Option<Place> {
    let abi = &session.abi;
    let mut registers = abi.registers_at(waits.pc, STACK);
    if let Some(link) = waits.link {
        abi.set_link(&mut registers, link);
    }
    let mut memory = SampledStack::new(STACK, bytes(waits, abi.pointer));
    let mut options = WalkOptions::default();
    (options.max_frames, options.scan) = (MAX_FRAMES, false);
    let stack = walk(map, &abi.register_file(&registers), &mut memory, &options);
    let (first, callers) = stack.frames.split_first()?;
    // A return address that no rule has found may be an old one.
    let callers = callers.iter().take_while(|frame| {
        !matches!(
            frame.provenance,
            Provenance::FramePointer | Provenance::LinkRegister
        )
    });
    let inside = callers.clone();
    let inside = inside
        .take_while(|frame| frame.module == first.module)
        .count();
    let words = memory.words_read(abi.pointer);
    let words = words.map(|offset| Slot::Word(offset / abi.pointer));
    let slots: Vec<Slot> = words.chain([Slot::Link]).collect();
    let mut returns = Vec::new();
    for frame in callers.take(inside + 1) {
        let of_frame = slots
            .iter()
            .filter(|slot| slot.address(waits, abi.arch) == Some(frame.pc));
        let known = returns.len();
        returns.extend(of_frame.map(|slot| (*slot, frame.pc)));
        if returns.len() == known {
            return None;
        }
    }
    (!returns.is_empty()).then(|| Place {
        returns,
        module: None,
        snapshot: Snapshot {
            chunks: memory.into_chunks(),
            ..snapshot_of(&registers)
        },
        ids: HashMap::new(),
    })
}

/// The words of the stack, of `size` bytes each.
fn bytes(place: &BlockPlace, size: usize) -> Vec<u8> {
    let words = place.stack.iter().map(|word| word.unwrap_or(0));
    let bytes = words.flat_map(|word| word.to_le_bytes().into_iter().take(size));
    bytes.collect()
}
