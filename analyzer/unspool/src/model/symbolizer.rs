//! Turns snapshots into named frames, with the files that were mapped at the time.
//!
//! A recording stores the files' answers when it ends, and they take precedence (`resolve`). Files
//! are opened only when a snapshot holds one of their addresses. A missing file costs only the
//! names of its own frames, and gives a note. All lookups are cached, so that a thousand threads
//! from one place cost as much as one.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use unspool_capture::{Capture, FutexPlace, ModuleLoaded, Record, RegisterLayout, Snapshot};
use unspool_image::{Arch, BuildId};
use unspool_unwind::{
    Frame, ModuleMap, Provenance, RegisterFile, SnapshotMemory, Stack, StackEnd, WalkOptions, walk,
};

use super::Note;
use super::backtrace::{Backtrace, NamedFrame, Place, base_name};
use crate::platform::Architecture;
use crate::store::Store;

mod answers;
mod call_target;
mod edition;
mod epoch;
mod file;
mod onward;
mod program;
mod resolve;
mod stored_answers;

use answers::Answers;
use edition::Editions;
use epoch::Epoch;
use file::Files;

/// An image that was mapped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// Path on the target.
    pub path: String,
    /// Tells its file from the first one of that path ([`Place::edition`]).
    pub edition: Option<Arc<str>>,
    /// Build-id in hex, if known.
    pub build_id: Option<String>,
    /// First address, 0 if not known.
    pub start: u64,
    /// avma = svma + bias, wrapping.
    pub bias: u64,
    /// A server sent its file or debug file, which may name any file as a source.
    pub downloaded: bool,
}

impl Module {
    /// The build-id in binary.
    pub fn id(&self) -> Option<BuildId> {
        let digits = self.build_id.as_deref()?;
        let pairs = (0..digits.len()).step_by(2);
        let bytes = pairs.map(|at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok());
        BuildId::new(&bytes.collect::<Option<Vec<u8>>>()?)
    }
}

/// gdb's name for the code that a signal handler returns to. The C libraries' files often do not
/// name it.
const SIGNAL_TRAMPOLINE: &str = "<signal handler called>";

/// Maximum size of a trampoline of one or two instructions; further on, another function's code
/// begins.
const MAX_TRAMPOLINE_OFFSET: u64 = 8;

/// Turns snapshots into named frames. It caches file contents: use one per capture.
#[derive(Debug)]
pub struct Symbolizer {
    files: Files,
    arch: Option<Arch>,
    layout: Vec<RegisterLayout>,
    /// The position of each register in the layout, by name.
    numbers: HashMap<String, usize>,
    modules: Vec<Module>,
    loads: Vec<Load>,
    /// A map without modules.
    empty: Option<ModuleMap>,
    /// The epochs of the program, and then those of other processes' code.
    epochs: Vec<Epoch>,
    /// Number of the program's epochs.
    own_epochs: usize,
    /// By the indices of records that belong to other processes, the epochs with their code.
    elsewhere: HashMap<usize, usize>,
    names: HashMap<(usize, u64), Arc<[Source]>>,
    stacks: HashMap<StackId, Arc<Backtrace>>,
    /// Targets of pointers in files, by file and position.
    pointers: HashMap<(usize, u64), Option<u64>>,
    walking: WalkOptions,
    /// The answers so far: all that a recording keeps, unless the files are read first.
    answers: Answers,
    /// The recording's own answers, if the files are read first.
    kept: Option<Answers>,
    /// Stacks merged from the recording and the files, by both addresses.
    merged: HashMap<(*const Backtrace, *const Backtrace), Arc<Backtrace>>,
    /// The files are read although the recording keeps answers: they may say more.
    asks_files: bool,
    /// Where modules were mapped and unmapped, as indices into the records.
    mappings: Vec<usize>,
    notes: Vec<Note>,
}

/// The identity of a stack: epoch, pcs with provenance, and the reason of its end.
type StackId = (usize, Vec<(u64, Provenance)>, Option<String>);

/// A module of the capture and its file.
#[derive(Debug)]
struct Load {
    record: ModuleLoaded,
    file: usize,
    path: Arc<str>,
    edition: Option<Arc<str>>,
    link: Option<Arc<str>>,
}

/// A function and line at an address; several if functions were inlined.
#[derive(Clone, Debug)]
struct Source {
    function: Option<Arc<str>>,
    function_svma: Option<u64>,
    file: Option<Arc<str>>,
    line: Option<u32>,
    inlined: bool,
}

impl Symbolizer {
    /// Creates a symbolizer with files from a store or a finder.
    pub fn new(files: impl Into<Store>) -> Symbolizer {
        Symbolizer {
            files: Files::new(files.into()),
            arch: None,
            layout: Vec::new(),
            numbers: HashMap::new(),
            modules: Vec::new(),
            loads: Vec::new(),
            empty: None,
            epochs: Vec::new(),
            own_epochs: 0,
            elsewhere: HashMap::new(),
            names: HashMap::new(),
            stacks: HashMap::new(),
            pointers: HashMap::new(),
            walking: WalkOptions::default(),
            answers: Answers::default(),
            kept: None,
            merged: HashMap::new(),
            asks_files: false,
            mappings: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Reads files even if the recording stores an answer, and takes the more detailed one.
    pub fn asking_files(mut self, asks: bool) -> Symbolizer {
        self.asks_files = asks;
        self
    }

    /// Tries these unwind methods first, in this order, instead of the best one per address.
    pub fn preferring(mut self, ways: Vec<Provenance>) -> Symbolizer {
        self.walking.prefer = ways;
        self
    }

    /// Stores the results of unwinding and lookup, if the store has a cache.
    pub(super) fn keep(&self) {
        self.files.keep();
    }

    /// Notes the mappings of a capture; opens no file yet.
    pub(super) fn open(&mut self, capture: &Capture) {
        self.files.local = capture.target.local;
        self.arch = Arch::from_gdb_name(&capture.target.arch);
        self.layout = capture.target.registers.clone();
        let numbered = self.layout.iter().enumerate();
        self.numbers = numbered
            .map(|(number, layout)| (layout.name.clone(), number))
            .collect();
        let events = capture.events().next().is_some() || capture.calls.count() > 0;
        if self.arch.is_none() && events {
            self.notes.push(Note::error(format!(
                "Stacks cannot be unwound: the recording is of architecture {:?}, and Unspool \
                 knows x86-64, AArch64 and ARM.",
                capture.target.arch
            )));
        }
        self.empty = self.arch.map(ModuleMap::new);
        let mut editions = Editions::default();
        for record in &capture.records {
            if let (Record::GeneratedCode(code), Some(map)) = (record, &mut self.empty) {
                code.ranges()
                    .for_each(|range| map.add_generated_code(range));
            }
            if let Record::ModuleLoaded(module) = record {
                let id = BuildId::new(&module.build_id);
                let edition = editions.of(module);
                self.modules.push(Module {
                    edition: edition.clone(),
                    path: module.path.clone(),
                    build_id: id.as_ref().map(ToString::to_string),
                    start: module.start,
                    bias: module.bias,
                    downloaded: false,
                });
                let link = Some(&module.started_as).filter(|_| module.started_by_link);
                let name = base_name(link.unwrap_or(&module.path));
                self.loads.push(Load {
                    record: module.clone(),
                    file: self.files.add(module, name),
                    edition,
                    path: module.path.as_str().into(),
                    link: link.map(|link| link.as_str().into()),
                });
            }
        }
        self.notes.extend(edition::note(&self.loads));
        self.epochs = epoch::divide(&capture.records, capture.calls.count() > 0);
        self.own_epochs = self.epochs.len();
        self.open_elsewhere(capture, editions);
        self.take_kept(capture);
    }

    /// Notes the code of other processes, and the records that belong to these.
    fn open_elsewhere<'c>(&mut self, capture: &'c Capture, mut editions: Editions<'c>) {
        let mut epochs: HashMap<u32, usize> = HashMap::new();
        for (at, record) in capture.records.iter().enumerate() {
            let (code, modules) = match record {
                Record::CreationStack(created) => (created.code, &created.modules),
                Record::FutexPlace(FutexPlace {
                    code: Some(code),
                    modules,
                    ..
                }) => (*code, modules),
                _ => continue,
            };
            let epoch = *epochs.entry(code).or_insert_with(|| {
                let first = self.loads.len();
                self.loads.extend(modules.iter().map(|module| Load {
                    record: module.clone(),
                    file: self.files.add(module, base_name(&module.path)),
                    edition: editions.of(module),
                    path: module.path.as_str().into(),
                    link: None,
                }));
                let modules: Vec<(usize, &ModuleLoaded)> = (modules.iter().enumerate())
                    .map(|(index, module)| (first + index, module))
                    .collect();
                self.epochs.push(epoch::epoch(at, &modules));
                self.epochs.len() - 1
            });
            self.elsewhere.insert(at, epoch);
        }
    }

    /// The capture's modules.
    pub(super) fn modules(&self) -> &[Module] {
        &self.modules
    }

    /// Returns the notes on unreadable files so far.
    pub(super) fn take_notes(&mut self) -> Vec<Note> {
        let mut notes = std::mem::take(&mut self.notes);
        notes.extend(self.notes_of_files());
        notes.extend(self.files.server_problems());
        notes
    }

    /// Addresses wrap at their size.
    fn address_mask(&self) -> u64 {
        let platform = self.arch.and_then(Architecture::of);
        platform.map_or(u64::MAX, Architecture::address_mask)
    }

    fn epoch(&self, record: usize) -> usize {
        let own = &self.epochs[..self.own_epochs];
        let after = own.partition_point(|epoch| epoch.first <= record);
        let elsewhere = self.elsewhere.get(&record);
        elsewhere.copied().unwrap_or(after.saturating_sub(1))
    }

    /// The module that an address belongs to, whether or not its file exists.
    fn owner(&self, epoch: usize, avma: u64) -> Option<usize> {
        let epoch = self.epochs.get(epoch)?;
        epoch.owner(avma).or_else(|| {
            let (module, _) = epoch.map.as_ref()?.find(avma)?;
            Some(module.id as usize)
        })
    }

    fn unwind(&mut self, arch: Arch, epoch: usize, snapshot: &Snapshot) -> Stack {
        let touched = self.touched(arch, epoch, snapshot);
        let files = touched.iter().map(|&load| self.loads[load].file);
        self.files.find_together(&files.collect());
        for load in touched {
            self.map(arch, epoch, load);
        }
        let mut memory = SnapshotMemory::new();
        for chunk in &snapshot.chunks {
            memory.insert(chunk.address, chunk.bytes.clone());
        }
        let registers = RegisterFile::new(arch, |name| {
            snapshot.register(&self.layout[*self.numbers.get(name)?])
        });
        let empty = ModuleMap::new(arch);
        let map = self.epochs[epoch].map.as_ref();
        let map = map.or(self.empty.as_ref()).unwrap_or(&empty);
        walk(map, &registers, &mut memory, &self.walking)
    }

    /// The modules that any value in a snapshot points into, and that are not yet in the epoch's
    /// map.
    fn touched(&self, arch: Arch, epoch: usize, snapshot: &Snapshot) -> BTreeSet<usize> {
        let here = &self.epochs[epoch];
        if here.is_mapped() {
            return BTreeSet::new();
        }
        let values = self.layout.iter().filter_map(|one| snapshot.register(one));
        let mut wanted: BTreeSet<usize> = values.filter_map(|value| here.owner(value)).collect();
        let size = arch.address_size();
        for chunk in &snapshot.chunks {
            let skip = (chunk.address.wrapping_neg() % size as u64) as usize;
            let words = chunk.bytes.get(skip..).unwrap_or_default();
            for word in words.chunks_exact(size) {
                let mut value = [0; 8];
                value[..size].copy_from_slice(word);
                wanted.extend(here.owner(u64::from_le_bytes(value)));
            }
        }
        wanted.extend(&here.unplaced);
        wanted
    }

    /// Adds a module to the epoch's map, if its file is available.
    fn map(&mut self, arch: Arch, epoch: usize, load: usize) {
        if !self.epochs[epoch].mapped.insert(load) {
            return;
        }
        let Load {
            record, file, path, ..
        } = &self.loads[load];
        let table = self.files.rules(*file, arch);
        let empty = &self.empty;
        let map = self.epochs[epoch]
            .map
            .get_or_insert_with(|| empty.clone().unwrap_or_else(|| ModuleMap::new(arch)));
        if let Some(table) = table {
            map.add(unspool_unwind::Module {
                id: load as u32,
                name: path.to_string(),
                bias: record.bias,
                table,
            });
        } else {
            map.add_unreadable(record.start..record.end);
        }
    }

    /// The source's name for the data at an address, as `l[13]`, if debug information has it.
    fn variable_at(&mut self, file: usize, svma: u64) -> Option<Arc<str>> {
        let (name, start) = self.files.variable(file, svma)?;
        let part = self.files.part(file, start, svma - start)?;
        Some(format!("{name}{part}").into())
    }

    fn sources(&mut self, file: usize, svma: u64) -> Arc<[Source]> {
        if let Some(known) = self.names.get(&(file, svma)) {
            return known.clone();
        }
        let sources: Arc<[Source]> = self.files.sources(file, svma).into();
        self.names.insert((file, svma), sources.clone());
        sources
    }

    /// The places of an address, inlined ones first; `lookup` is inside the instruction meant.
    fn places(&mut self, epoch: usize, avma: u64, lookup: u64) -> Vec<(Place, bool)> {
        let unknown = Place {
            avma,
            offset: avma,
            ..Place::default()
        };
        let Some(load) = self.owner(epoch, lookup) else {
            return vec![(unknown, false)];
        };
        let Load {
            record,
            file,
            path,
            edition,
            link,
        } = &self.loads[load];
        let (file, path, link) = (*file, path.clone(), link.clone());
        let edition = edition.clone();
        let mask = self.address_mask();
        let svma = avma.wrapping_sub(record.bias) & mask;
        let inside = lookup.wrapping_sub(record.bias) & mask;
        self.files.needed(file);
        let sources = self.sources(file, inside);
        let start = sources.iter().rev().find_map(|source| source.function_svma);
        let place = |source: Option<&Source>| Place {
            function: source.and_then(|s| s.function.clone()),
            offset: start.map_or(svma, |start| svma.wrapping_sub(start)),
            module: Some(path.clone()),
            edition: edition.clone(),
            link: link.clone(),
            svma: Some(svma),
            avma,
            file: source.and_then(|s| s.file.clone()),
            line: source.and_then(|s| s.line),
        };
        if sources.is_empty() {
            return vec![(place(None), false)];
        }
        sources
            .iter()
            .map(|source| (place(Some(source)), source.inlined))
            .collect()
    }

    fn named(&mut self, epoch: usize, frame: &Frame) -> Vec<NamedFrame> {
        self.places(epoch, frame.pc, frame.address_for_lookup)
            .into_iter()
            .map(|(place, inlined)| NamedFrame {
                place,
                inlined,
                provenance: frame.provenance,
                called: None,
            })
            .collect()
    }

    fn why(&mut self, epoch: usize, stack: &Stack) -> Option<String> {
        if stack.end.is_complete() {
            return None;
        }
        let pc = match stack.end {
            StackEnd::NoRule { pc } | StackEnd::OutsideText { pc } => Some(pc),
            _ => None,
        };
        if let Some(load) = pc.and_then(|pc| self.owner(epoch, pc)) {
            let file = self.loads[load].file;
            if self.files.is_missing(file) {
                self.files.needed(file);
                let Load { path, link, .. } = &self.loads[load];
                let name = base_name(link.as_ref().unwrap_or(path));
                return Some(format!("the file of {name} is missing"));
            }
        }
        Some(stack.end.to_string())
    }
}

/// Lookups in files, regardless of stored answers.
impl Symbolizer {
    fn backtrace_by_files(&mut self, record: usize, snapshot: &Snapshot) -> Arc<Backtrace> {
        let epoch = self.epoch(record);
        let Some(arch) = self.arch.filter(|_| epoch < self.epochs.len()) else {
            return Arc::new(Backtrace {
                truncated: Some("the architecture is not known".to_owned()),
                ..Backtrace::default()
            });
        };
        let stack = self.unwind(arch, epoch, snapshot);
        for frame in &stack.frames {
            if let (Some(load), Some(svma)) = (frame.module, frame.svma) {
                self.files.doubt(self.loads[load as usize].file, svma);
            }
        }
        let mut truncated = self.why(epoch, &stack);
        if let Some(reason) = truncated.as_mut().filter(|_| !snapshot.note.is_empty()) {
            *reason = format!("{reason}; {}", snapshot.note);
        }
        let frames = stack
            .frames
            .iter()
            .map(|frame| (frame.pc, frame.provenance))
            .collect();
        let id = (epoch, frames, truncated);
        if let Some(known) = self.stacks.get(&id) {
            return known.clone();
        }
        let mut named = Vec::new();
        for (at, frame) in stack.frames.iter().enumerate() {
            let first = named.len();
            named.extend(self.named(epoch, frame));
            let ([.., own], Some(caller)) = (&mut named[first..], stack.frames.get(at + 1)) else {
                continue;
            };
            let known = own.place.function.is_some();
            if caller.signal_frame && (!known || own.place.offset > MAX_TRAMPOLINE_OFFSET) {
                own.place.function = Some(SIGNAL_TRAMPOLINE.into());
                own.place.offset = 0;
            } else if !known && caller.pc != caller.address_for_lookup {
                own.called = self.called(epoch, caller.pc);
            }
        }
        let backtrace = Arc::new(Backtrace {
            frames: named,
            truncated: id.2.clone(),
        });
        self.stacks.insert(id, backtrace.clone());
        backtrace
    }

    fn place_by_files(&mut self, record: usize, avma: u64) -> Place {
        let epoch = self.epoch(record);
        if let (Some(arch), Some(load)) = (self.arch, self.owner(epoch, avma)) {
            self.map(arch, epoch, load);
        }
        // The physical function, not one inlined at its first instruction.
        let places = self.places(epoch, avma, avma);
        let mut place = places
            .into_iter()
            .next_back()
            .map(|(place, _)| place)
            .unwrap_or_default();
        if place.function.is_some() && place.offset != 0 {
            // The address is not the start of the containing symbol, so the symbol is another
            // function's.
            place.function = None;
            place.offset = place.svma.unwrap_or(avma);
        }
        place
    }

    fn start_by_files(&mut self, record: usize, avma: u64) -> Option<Place> {
        let epoch = self.epoch(record);
        let (physical, _) = self.places(epoch, avma, avma).pop()?;
        if let Some(start) = physical.start() {
            return Some(start);
        }
        let (file, svma) = self.file_at(epoch, avma)?;
        let start = self.files.rules(file, self.arch?)?.function_start(svma)?;
        let start = avma.wrapping_sub(svma - start) & self.address_mask();
        Some(self.place_by_files(record, start))
    }

    fn data_by_files(&mut self, record: usize, avma: u64) -> Option<Place> {
        let epoch = self.epoch(record);
        let load = self.owner(epoch, avma)?;
        let Load {
            record,
            file,
            path,
            edition,
            link,
        } = &self.loads[load];
        let (file, path, link) = (*file, path.clone(), link.clone());
        let edition = edition.clone();
        let mask = self.address_mask();
        let svma = avma.wrapping_sub(record.bias) & mask;
        let (name, start) = self.files.variable(file, svma)?;
        Some(Place {
            function: Some(name),
            offset: svma - start,
            module: Some(path),
            edition,
            link,
            svma: Some(svma),
            avma,
            file: None,
            line: None,
        })
    }

    fn pointer_by_files(&mut self, record: usize, avma: u64) -> Option<u64> {
        let epoch = self.epoch(record);
        let load = self.owner(epoch, avma)?;
        let Load { record, file, .. } = &self.loads[load];
        let (bias, file, mask) = (record.bias, *file, self.address_mask());
        let svma = avma.wrapping_sub(bias) & mask;
        let files = &mut self.files;
        let known = self.pointers.entry((file, svma));
        let to = known.or_insert_with(|| files.image(file)?.pointer_at(svma));
        Some((*to)?.wrapping_add(bias) & mask)
    }
}

#[cfg(test)]
mod tests;
