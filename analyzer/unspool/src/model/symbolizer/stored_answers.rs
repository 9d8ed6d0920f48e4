//! Stores answers as records of a capture when a recording ends, and reads them when it is opened.
//!
//! Tables hold each name and place once. The size is limited (`SIZE_LIMIT`). Answers that do not
//! fit are counted, and then come from files if possible.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use prost::Message;
use unspool_capture::{
    AddressAspect, AddressMeaning, CLibrary, CLibraryFamily, Note as KeptNote, Resolution,
    ResolvedFrame, ResolvedPlace, ResolvedStack, Severity as KeptSeverity, SnapshotStack,
};
use unspool_unwind::Provenance;

use super::answers::{Answers, Question};
use crate::model::backtrace::{Backtrace, NamedFrame, Place};
use crate::model::inspection::{Family, Library, Onward};
use crate::model::{Note, Severity, Topic};

/// Maximum size of all answers of a capture, bytes before compression.
const SIZE_LIMIT: usize = 64 << 20;
/// Approximate size of one record, bytes.
const PART_SIZE: usize = 256 << 10;

/// All ways in which frames are found.
const PROVENANCES: [Provenance; 7] = [
    Provenance::Registers,
    Provenance::Cfi,
    Provenance::Exidx,
    Provenance::Code,
    Provenance::FramePointer,
    Provenance::LinkRegister,
    Provenance::Scan,
];

/// Returns the records that store these answers.
pub(super) fn write(answers: &Answers) -> Vec<Resolution> {
    write_within(answers, SIZE_LIMIT)
}

fn write_within(answers: &Answers, limit: usize) -> Vec<Resolution> {
    let mut writing = Writing {
        limit,
        ..Writing::default()
    };
    // The most important answers come first.
    for note in &answers.notes {
        writing.add(|part| &mut part.notes, kept_note(note));
    }
    for module in &answers.downloaded {
        let module = writing.string(module);
        writing.part().downloaded.push(module);
    }
    if let Some(library) = &answers.library {
        writing.part().c_library = Some(kept_library(library));
    }
    for (&question, stack) in sorted(&answers.stacks) {
        writing.stack(question, stack);
    }
    for (&question, place) in sorted(&answers.code) {
        writing.place(AddressAspect::Code, question, Some(place));
    }
    for (&question, place) in sorted(&answers.starts) {
        writing.place(AddressAspect::Start, question, place.as_ref());
    }
    for (&question, place) in sorted(&answers.data) {
        writing.place(AddressAspect::Data, question, place.as_ref());
    }
    for (&question, value) in sorted(&answers.pointers) {
        let value = *value;
        writing.address(AddressMeaning {
            value,
            ..meaning(AddressAspect::Pointer, question)
        });
    }
    for (&question, onward) in sorted(&answers.onward) {
        let value = u64::from(onward.ends_waits) | u64::from(onward.returns) << 1;
        writing.address(AddressMeaning {
            value: Some(value),
            ..meaning(AddressAspect::Onward, question)
        });
    }
    for (&(question, len), bytes) in sorted(&answers.bytes) {
        writing.address(AddressMeaning {
            len: u32::try_from(len).unwrap_or(u32::MAX),
            bytes: bytes.clone(),
            ..meaning(AddressAspect::Bytes, question)
        });
    }
    for (&question, name) in sorted(&answers.symbols) {
        let name = name.as_ref().map(|name| writing.string(name));
        writing.address(AddressMeaning {
            name,
            ..meaning(AddressAspect::Symbol, question)
        });
    }
    writing.part().left_out = writing.left_out;
    writing.parts
}

/// Sorts the answers, so that equal answers give equal bytes.
fn sorted<Q: Ord, A>(answers: &HashMap<Q, A>) -> Vec<(&Q, &A)> {
    let mut all: Vec<(&Q, &A)> = answers.iter().collect();
    all.sort_unstable_by_key(|(question, _)| *question);
    all
}

fn meaning(aspect: AddressAspect, (avma, mapping): Question) -> AddressMeaning {
    AddressMeaning {
        aspect: aspect.into(),
        avma,
        mapping,
        ..AddressMeaning::default()
    }
}

fn kept_note(note: &Note) -> KeptNote {
    let severity = match note.severity {
        Severity::Error => KeptSeverity::Error,
        Severity::Warning => KeptSeverity::Warning,
        Severity::Info => KeptSeverity::Info,
    };
    KeptNote {
        severity: severity.into(),
        text: note.text.clone(),
        ..KeptNote::default()
    }
}

fn kept_library(library: &Result<Library, String>) -> CLibrary {
    let mut kept = CLibrary::default();
    match library {
        Ok(library) => {
            let (family, version) = match library.family {
                Family::Glibc(version) => (CLibraryFamily::Glibc, version),
                Family::Musl => (CLibraryFamily::Musl, None),
            };
            kept.family = family.into();
            kept.minor_version = version;
            kept.path = library.path.to_string();
            kept.inside = library.inside;
        }
        Err(why) => kept.error.clone_from(why),
    }
    kept
}

/// Records under construction, and the contents of their tables.
#[derive(Default)]
struct Writing<'a> {
    limit: usize,
    parts: Vec<Resolution>,
    /// Size of the last record, and of those before it, in bytes.
    part_size: usize,
    size: usize,
    left_out: u64,
    strings: HashMap<&'a str, u32>,
    places: HashMap<&'a Place, u32>,
    frames: HashMap<(u32, bool, u32, Option<u32>), u32>,
    stacks: HashMap<*const Backtrace, u32>,
}

impl<'a> Writing<'a> {
    fn part(&mut self) -> &mut Resolution {
        if self.parts.is_empty() || self.part_size >= PART_SIZE {
            self.size += std::mem::take(&mut self.part_size);
            self.parts.push(Resolution::default());
        }
        let last = self.parts.len() - 1;
        &mut self.parts[last]
    }

    fn add<M: Message>(&mut self, list: fn(&mut Resolution) -> &mut Vec<M>, item: M) {
        // The tag and the length.
        let size = item.encoded_len() + 4;
        list(self.part()).push(item);
        self.part_size += size;
    }

    fn is_full(&mut self) -> bool {
        let full = self.size + self.part_size >= self.limit;
        self.left_out += u64::from(full);
        full
    }

    fn string(&mut self, string: &'a str) -> u32 {
        let next = index(self.strings.len());
        if let Some(known) = self.strings.get(string) {
            return *known;
        }
        self.strings.insert(string, next);
        self.part().strings.push(string.to_owned());
        self.part_size += string.len() + 4;
        next
    }

    fn place_index(&mut self, place: &'a Place) -> u32 {
        if let Some(known) = self.places.get(place) {
            return *known;
        }
        let kept = ResolvedPlace {
            function: place.function.as_deref().map(|name| self.string(name)),
            offset: place.offset,
            module: place.module.as_deref().map(|path| self.string(path)),
            link: place.link.as_deref().map(|path| self.string(path)),
            svma: place.svma,
            avma: place.avma,
            file: place.file.as_deref().map(|path| self.string(path)),
            line: place.line,
        };
        self.add(|part| &mut part.places, kept);
        entry(&mut self.places, place)
    }

    fn frame_index(&mut self, frame: &'a NamedFrame) -> u32 {
        let kept = ResolvedFrame {
            place: self.place_index(&frame.place),
            inlined: frame.inlined,
            provenance: self.string(frame.provenance.as_str()),
            called: frame.called.as_deref().map(|name| self.string(name)),
        };
        let key = (kept.place, kept.inlined, kept.provenance, kept.called);
        if let Some(known) = self.frames.get(&key) {
            return *known;
        }
        self.add(|part| &mut part.frames, kept);
        entry(&mut self.frames, key)
    }

    fn stack(&mut self, (snapshot, mapping): Question, stack: &'a Arc<Backtrace>) {
        if self.is_full() {
            return;
        }
        let pointer = Arc::as_ptr(stack);
        let index = match self.stacks.get(&pointer) {
            Some(known) => *known,
            None => {
                let frames = stack.frames.iter().map(|frame| self.frame_index(frame));
                let kept = ResolvedStack {
                    frames: frames.collect(),
                    truncated: stack.truncated.as_deref().map(|why| self.string(why)),
                };
                self.add(|part| &mut part.stacks, kept);
                entry(&mut self.stacks, pointer)
            }
        };
        let kept = SnapshotStack {
            snapshot,
            mapping,
            stack: index,
        };
        self.add(|part| &mut part.snapshots, kept);
    }

    fn place(&mut self, aspect: AddressAspect, question: Question, place: Option<&'a Place>) {
        if self.is_full() {
            return;
        }
        let kept = AddressMeaning {
            place: place.map(|place| self.place_index(place)),
            ..meaning(aspect, question)
        };
        self.add(|part| &mut part.addresses, kept);
    }

    fn address(&mut self, kept: AddressMeaning) {
        if !self.is_full() {
            self.add(|part| &mut part.addresses, kept);
        }
    }
}

/// Adds an entry to a table, and returns its index.
fn entry<K: Eq + Hash>(table: &mut HashMap<K, u32>, key: K) -> u32 {
    let next = index(table.len());
    table.insert(key, next);
    next
}

fn index(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// Reads the answers from these records. Damaged answers are left out.
pub(super) fn read(parts: &[Resolution]) -> Answers {
    let strings: Vec<Arc<str>> = parts
        .iter()
        .flat_map(|part| &part.strings)
        .map(|string| string.as_str().into())
        .collect();
    let string = |at: Option<u32>| strings.get(at? as usize).cloned();
    let places: Vec<Place> = parts
        .iter()
        .flat_map(|part| &part.places)
        .map(|kept| Place {
            function: string(kept.function),
            offset: kept.offset,
            module: string(kept.module),
            edition: None,
            link: string(kept.link),
            svma: kept.svma,
            avma: kept.avma,
            file: string(kept.file),
            line: kept.line,
        })
        .collect();
    let place = |at: u32| places.get(at as usize).cloned();
    let frames: Vec<Option<NamedFrame>> = parts
        .iter()
        .flat_map(|part| &part.frames)
        .map(|kept| {
            let provenance = string(Some(kept.provenance))?;
            let found = PROVENANCES.iter().find(|one| one.as_str() == &*provenance);
            Some(NamedFrame {
                place: place(kept.place)?,
                inlined: kept.inlined,
                provenance: *found?,
                called: string(kept.called),
            })
        })
        .collect();
    let stacks: Vec<Option<Arc<Backtrace>>> = parts
        .iter()
        .flat_map(|part| &part.stacks)
        .map(|kept| {
            let frame = |at: &u32| frames.get(*at as usize).cloned().flatten();
            let frames: Option<Vec<NamedFrame>> = kept.frames.iter().map(frame).collect();
            Some(Arc::new(Backtrace {
                frames: frames?,
                truncated: string(kept.truncated).map(|why| why.to_string()),
            }))
        })
        .collect();
    let mut answers = Answers::default();
    for kept in parts.iter().flat_map(|part| &part.snapshots) {
        if let Some(Some(stack)) = stacks.get(kept.stack as usize) {
            let question = (kept.snapshot, kept.mapping);
            answers.stacks.insert(question, stack.clone());
        }
    }
    for kept in parts.iter().flat_map(|part| &part.addresses) {
        let question = (kept.avma, kept.mapping);
        let there = kept.place.and_then(place);
        match kept.aspect() {
            AddressAspect::Code => {
                if let Some(place) = there {
                    answers.code.insert(question, place);
                }
            }
            AddressAspect::Start => {
                answers.starts.insert(question, there);
            }
            AddressAspect::Data => {
                answers.data.insert(question, there);
            }
            AddressAspect::Pointer => {
                answers.pointers.insert(question, kept.value);
            }
            AddressAspect::Bytes => {
                let question = (question, kept.len as usize);
                answers.bytes.insert(question, kept.bytes.clone());
            }
            AddressAspect::Symbol => {
                answers.symbols.insert(question, string(kept.name));
            }
            AddressAspect::Onward => {
                if let Some(value) = kept.value {
                    let onward = Onward {
                        ends_waits: value & 1 != 0,
                        returns: value & 2 != 0,
                    };
                    answers.onward.insert(question, onward);
                }
            }
            AddressAspect::Unspecified => {}
        }
    }
    for part in parts {
        answers.notes.extend(part.notes.iter().map(note));
        answers.left_out += part.left_out;
        let downloaded = part.downloaded.iter();
        answers
            .downloaded
            .extend(downloaded.filter_map(|&module| string(Some(module))));
        if let Some(kept) = &part.c_library {
            answers.library = Some(library(kept));
        }
    }
    answers
}

fn note(kept: &KeptNote) -> Note {
    let text = kept.text.clone();
    let note = match kept.severity() {
        KeptSeverity::Error => Note::error(text),
        KeptSeverity::Warning => Note::warning(text),
        KeptSeverity::Info => Note::info(text),
    };
    note.about(Topic::Stacks)
}

fn library(kept: &CLibrary) -> Result<Library, String> {
    let family = match kept.family() {
        CLibraryFamily::Glibc => Family::Glibc(kept.minor_version),
        CLibraryFamily::Musl => Family::Musl,
        CLibraryFamily::Unspecified => return Err(kept.error.clone()),
    };
    Ok(Library {
        family,
        path: kept.path.as_str().into(),
        inside: kept.inside,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(function: &str, avma: u64) -> Place {
        Place {
            function: Some(function.into()),
            offset: 4,
            module: Some("/bin/x".into()),
            edition: None,
            link: None,
            svma: Some(avma - 0x1000),
            avma,
            file: Some("x.c".into()),
            line: Some(7),
        }
    }

    fn answers() -> Answers {
        let mut answers = Answers::default();
        for at in 0..100 {
            let frame = |inlined| NamedFrame {
                place: place("work", 0x2000 + at % 3),
                inlined,
                provenance: PROVENANCES[at as usize % PROVENANCES.len()],
                called: (at == 5).then(|| "start".into()),
            };
            let stack = Backtrace {
                frames: vec![frame(true), frame(false)],
                truncated: (at == 9).then(|| "the stack ends".to_owned()),
            };
            answers.stacks.insert((at << 56, 2), Arc::new(stack));
        }
        answers.code.insert((1, 0), place("main", 0x2000));
        answers.starts.insert((1, 0), Some(place("main", 0x2000)));
        answers.starts.insert((1, 1), None);
        answers.data.insert((1, 0), None);
        answers.data.insert((1, 1), Some(place("lock", 0x3000)));
        answers.pointers.insert((8, 1), Some(u64::MAX));
        answers.pointers.insert((9, 1), None);
        answers.bytes.insert(((8, 1), 3), Some(vec![1, 2, 3]));
        answers.bytes.insert(((8, 1), 4), None);
        answers.symbols.insert((8, 1), Some("table+0x8".into()));
        answers.library = Some(Ok(Library {
            family: Family::Glibc(Some(36)),
            path: "/lib/libc.so.6".into(),
            inside: false,
        }));
        answers.downloaded.insert("/bin/x".into());
        answers
            .notes
            .push(Note::info("No lines.").about(Topic::Stacks));
        answers
    }

    #[test]
    fn stored_answers_are_read_back() {
        let answers = answers();
        let parts = write(&answers);
        let read = read(&parts);
        assert_eq!(read.stacks, answers.stacks);
        assert_eq!(read.code, answers.code);
        assert_eq!(read.starts, answers.starts);
        assert_eq!(read.data, answers.data);
        assert_eq!(read.pointers, answers.pointers);
        assert_eq!(read.bytes, answers.bytes);
        assert_eq!(read.symbols, answers.symbols);
        assert_eq!(read.library, answers.library);
        assert_eq!(read.notes, answers.notes);
        assert_eq!(read.downloaded, answers.downloaded);
        assert_eq!(read.left_out, 0);
        assert_eq!(parts[0].places.len(), 5, "each place once");
    }

    #[test]
    fn answers_beyond_the_limit_are_counted() {
        let answers = answers();
        let all = answers.stacks.len() + 10;
        let read = read(&write_within(&answers, 600));
        assert!((1..50).contains(&read.stacks.len()));
        assert_eq!(read.stacks.len() as u64 + read.left_out, all as u64);
        assert!(read.library.is_some());
    }

    #[test]
    fn damaged_indices_leave_answers_out() {
        let mut parts = write(&answers());
        parts[0].frames[0].place = 99;
        parts[0].snapshots[7].stack = 1 << 30;
        let read = read(&parts);
        assert!((1..99).contains(&read.stacks.len()));
    }
}
