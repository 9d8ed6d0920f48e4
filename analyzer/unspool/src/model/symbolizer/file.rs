//! The files behind modules: found once, opened on demand, with notes on missing ones.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use unspool_capture::ModuleLoaded;
use unspool_image::{Arch, BuildId, Image, Wanted};
use unspool_unwind::Table;

use super::Source;
use crate::model::backtrace::base_name;
use crate::model::{Note, Topic};
use crate::platform::c_library::has_threads;
use crate::store::{self, DataSymbol, Store};

/// All files of a capture, each once even if mapped repeatedly.
#[derive(Debug)]
pub(super) struct Files {
    store: Store,
    /// True if the target runs on this machine.
    pub(super) local: bool,
    files: Vec<File>,
    index: HashMap<FileKey, usize>,
}

/// Path, build-id, and number among the files of the path without one.
type FileKey = (String, Option<BuildId>, Option<u32>);

#[derive(Debug)]
struct File {
    path: String,
    /// The file's name for people.
    name: String,
    build_id: Option<BuildId>,
    /// Its number among the files of its path without build-ids, if known.
    number: Option<u32>,
    state: State,
    /// A frame was in the file, so its problems matter to readers of the frames.
    needed: bool,
    /// True if the line of some frame was found.
    lines: bool,
}

#[derive(Debug)]
enum State {
    Closed,
    Missing(String),
    Open(Box<Opened>),
}

#[derive(Debug)]
struct Opened {
    found: store::Opened,
    table: Option<Arc<Table>>,
    /// Doubts about functions on stacks.
    doubts: BTreeSet<String>,
}

impl File {
    fn wanted(&self, local: bool) -> Wanted<'_> {
        Wanted {
            path: &self.path,
            build_id: self.build_id.as_ref(),
            local,
        }
    }
}

impl Files {
    pub(super) fn new(store: Store) -> Files {
        Files {
            store,
            local: false,
            files: Vec::new(),
            index: HashMap::new(),
        }
    }

    pub(super) fn add(&mut self, module: &ModuleLoaded, name: &str) -> usize {
        let next = self.files.len();
        let (path, number) = (&module.path, module.file_number);
        let build_id = BuildId::new(&module.build_id);
        let key = (path.clone(), build_id.clone(), number);
        let index = *self.index.entry(key).or_insert(next);
        if index == next {
            self.files.push(File {
                path: path.clone(),
                name: name.to_owned(),
                build_id,
                number,
                state: State::Closed,
                needed: false,
                lines: false,
            });
        }
        index
    }

    /// Finds files at the same time, if some may have to be downloaded.
    pub(super) fn find_together(&self, files: &BTreeSet<usize>) {
        let closed = |file: &&File| matches!(file.state, State::Closed);
        let files = files.iter().map(|&file| &self.files[file]).filter(closed);
        let wanted: Vec<Wanted<'_>> = files.map(|file| file.wanted(self.local)).collect();
        if self.store.downloads() && wanted.len() > 1 {
            self.store.find_together(&wanted);
        }
    }

    /// Notes on servers that sent no usable files.
    pub(super) fn server_problems(&self) -> Vec<Note> {
        let problems = self.store.server_problems().into_iter();
        problems
            .map(|text| Note::warning(text).about(Topic::Stacks))
            .collect()
    }

    pub(super) fn needed(&mut self, file: usize) {
        self.files[file].needed = true;
    }

    /// The paths of open files that a server sent, or their debug files.
    pub(super) fn downloaded(&self) -> impl Iterator<Item = Arc<str>> + '_ {
        let downloaded = |file: &&File| match &file.state {
            State::Open(opened) => opened.found.image.is_downloaded(),
            _ => false,
        };
        let files = self.files.iter().filter(downloaded);
        files.map(|file| file.path.as_str().into())
    }

    /// The file itself.
    pub(super) fn image(&mut self, file: usize) -> Option<&Image> {
        self.open(file).map(|opened| &opened.found.image)
    }

    pub(super) fn is_missing(&mut self, file: usize) -> bool {
        self.open(file).is_none()
    }

    /// The unwind rules of a file.
    pub(super) fn rules(&mut self, file: usize, arch: Arch) -> Option<Arc<Table>> {
        let store = self.store.clone();
        let opened = self.open(file)?;
        if opened.found.image.arch() != arch {
            let seen = opened.found.image.arch();
            self.files[file].state = State::Missing(format!(
                "the file found is for {}, the program is {}",
                seen.name(),
                arch.name()
            ));
            return None;
        }
        let image = &opened.found.image;
        let compile = || store.table(image);
        Some(opened.table.get_or_insert_with(compile).clone())
    }

    /// Stores the analysis of code and lines for the next run.
    pub(super) fn keep(&self) {
        for file in &self.files {
            if let State::Open(opened) = &file.state {
                if let Some(table) = &opened.table {
                    self.store.keep_table(table);
                }
                // An unwritable cache only costs time.
                let _ = opened.found.places.keep();
            }
        }
    }

    /// Checks the unwind rules of a function at `svma` that is on a stack, and notes doubts.
    pub(super) fn doubt(&mut self, file: usize, svma: u64) {
        if let State::Open(opened) = &mut self.files[file].state
            && let Some(doubt) = opened.table.as_ref().and_then(|table| table.doubt_at(svma))
        {
            opened.doubts.insert(doubt.text);
        }
    }

    /// The functions and lines at an address, innermost first; empty if unknown.
    pub(super) fn sources(&mut self, file: usize, svma: u64) -> Vec<Source> {
        let Some(opened) = self.open(file) else {
            return Vec::new();
        };
        let location = opened.found.places.locate(svma);
        let function = location.function;
        let start = function.as_ref().map(|function| function.start);
        let mut sources: Vec<Source> = location
            .lines
            .into_iter()
            .map(|line| Source {
                function: line.function.map(Into::into),
                function_svma: start,
                file: line.file.map(Into::into),
                line: line.line,
                inlined: line.inlined,
            })
            .collect();
        self.files[file].lines |= sources.iter().any(|source| source.line.is_some());
        let name = function.map(|function| Arc::from(function.name));
        match sources.last_mut() {
            Some(last) => {
                last.inlined = false;
                last.function = last.function.take().or(name);
            }
            None if name.is_some() => sources.push(Source {
                function: name,
                function_svma: start,
                file: None,
                line: None,
                inlined: false,
            }),
            None => {}
        }
        sources
    }

    /// The variable that contains an address, and its start.
    pub(super) fn variable(&mut self, file: usize, svma: u64) -> Option<(Arc<str>, u64)> {
        let symbol = self.data_symbol(file, svma)?;
        symbol
            .is_variable
            .then(|| (symbol.name.into(), symbol.start))
    }

    /// The symbol of data that contains an address.
    pub(super) fn data_symbol(&mut self, file: usize, svma: u64) -> Option<DataSymbol> {
        self.open(file)?.found.places.data_symbol(svma)
    }

    /// The part of the variable at `start` that is `offset` bytes in: `[13]`, `[1].m`. The C
    /// library is skipped, because its debug information takes too long to read.
    pub(super) fn part(&mut self, file: usize, start: u64, offset: u64) -> Option<String> {
        let path = &self.files.get(file)?.path;
        if has_threads(path) || base_name(path).starts_with("ld-") {
            return None;
        }
        self.open(file)?.found.places.part(start, offset)
    }

    /// Notes on problems of files that frames were in. If `answered`, the recording has its own
    /// answers for missing files.
    pub(super) fn notes(&self, answered: bool) -> Vec<Note> {
        let mut notes = Vec::new();
        let with_lines: Vec<&str> = self
            .files
            .iter()
            .filter(|f| f.lines)
            .map(|f| f.name.as_str())
            .collect();
        // Files without debug information, and files whose debug information covers no frame.
        let (mut bare, mut uncovered) = (Vec::new(), Vec::new());
        let mut replaced: BTreeSet<&str> = BTreeSet::new();
        for file in self.files.iter().filter(|file| file.needed) {
            match &file.state {
                // The kernel's own page has no file.
                _ if file.path.starts_with('[') => {}
                State::Missing(why) if answered => notes.push(Note::info(format!(
                    "The file of {} could not be used: {}. Its frames are shown as the recording keeps them.",
                    file.path,
                    why.trim_end_matches('.')
                ))),
                State::Missing(why) => notes.push(Note::warning(format!(
                    "The file of {} could not be used: {}. Its frames have no names, and stacks may end there.",
                    file.path,
                    why.trim_end_matches('.')
                ))),
                State::Open(opened) => {
                    let name = file.name.as_str();
                    if opened.found.is_replaced {
                        replaced.insert(name);
                    }
                    notes.extend(opened.doubts.iter().map(|text| {
                        Note::warning(format!("Stacks through {name} may be wrong: {text}."))
                    }));
                    let note = |text: &String| Note::info(format!("{name}: {text}"));
                    notes.extend(opened.found.notes.iter().map(note));
                    notes.extend(opened.found.image.notes().iter().map(note));
                    notes.extend(opened.found.places.notes().iter().map(note));
                    let seen = with_lines.contains(&name)
                        || self.local && is_of_distribution(&file.path);
                    if !seen && opened.found.places.has_debug_information() {
                        uncovered.push(name);
                    } else if !seen && opened.found.places.notes().is_empty() {
                        bare.push(name);
                    }
                }
                State::Closed => {}
            }
        }
        for (mut names, why) in [
            (bare, "No debug information (-g) was found for"),
            (
                uncovered,
                "The functions seen are not in the debug information of",
            ),
        ] {
            names.sort_unstable();
            names.dedup();
            if !names.is_empty() {
                let names = names.join(", ");
                notes.push(Note::info(format!(
                    "{why} {names}, so frames there have no source lines."
                )));
            }
        }
        if !replaced.is_empty() {
            let names = Vec::from_iter(replaced).join(", ");
            notes.push(Note::info(format!(
                "{names}: deleted or replaced since the program loaded it; the loaded file was read."
            )));
        }
        let notes = notes.into_iter();
        notes.map(|note| note.about(Topic::Stacks)).collect()
    }

    /// True if another file without a build-id replaced this one.
    fn is_replaced(&self, file: &File) -> bool {
        let is_later = |other: &File| other.path == file.path && other.number > file.number;
        file.number.is_some() && self.files.iter().any(is_later)
    }

    fn open(&mut self, file: usize) -> Option<&mut Opened> {
        let is_replaced = self.is_replaced(&self.files[file]);
        let file = &mut self.files[file];
        if matches!(file.state, State::Closed) {
            let number = file.number;
            let replaced = number.and_then(|number| self.store.replaced(&file.path, number));
            let found = match replaced {
                Some(file) => Ok(file),
                None if is_replaced => Err("another file has replaced it".to_owned()),
                None => {
                    let found = self.store.find(&file.wanted(self.local), None);
                    found.map_err(|error| error.to_string())
                }
            };
            file.state = match found {
                Ok(found) => State::Open(Box::new(Opened {
                    found,
                    table: None,
                    doubts: BTreeSet::new(),
                })),
                Err(error) => State::Missing(error),
            };
        }
        match &mut file.state {
            State::Open(opened) => Some(opened),
            _ => None,
        }
    }
}

/// True if a package of the distribution has installed this file, so that its user does not build
/// it. On a board, such directories have the user's own programs, too.
fn is_of_distribution(path: &str) -> bool {
    let path = path.strip_prefix("/usr").unwrap_or(path);
    let folders = [
        "/bin/",
        "/sbin/",
        "/lib/",
        "/lib32/",
        "/lib64/",
        "/libexec/",
        "/libx32/",
    ];
    folders.iter().any(|folder| path.starts_with(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_distribution() {
        for (path, is) in [
            ("/usr/bin/python3.11", true),
            ("/lib/libc.so.6", true),
            ("/usr/lib64/libz.so.1", true),
            ("/usr/local/bin/mine", false),
            ("/opt/mine/bin/mine", false),
            ("/library/mine", false),
        ] {
            assert_eq!(is_of_distribution(path), is, "{path}");
        }
    }
}
