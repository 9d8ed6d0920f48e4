//! Addresses as people and logs write them, and the files that explain them.
//!
//! Separate from `addr2line` and `symbolize` because both need it: one prints an answer for each
//! address, the other writes answers into a text.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use unspool_capture::{Capture, Record};
use unspool_image::{
    Arch, BinutilsFile, BinutilsFrame, BinutilsLocator, BuildId, Finder, Image, ImageKind, Symbol,
    SymbolKind, Wanted,
};

use super::symbols::Symbols;
use super::terminal;
use crate::maps;

/// Frames of an address, innermost first.
pub(super) type Frames = Vec<BinutilsFrame<'static>>;

/// The files that addresses are looked up in. Files stay open until the process ends.
pub(super) struct Files {
    finder: Finder,
    open: Vec<OpenFile>,
    /// Indices in `open`. `None` for a file that cannot be used; an error message has named it.
    by_name: HashMap<(String, Option<BuildId>), Option<usize>>,
    reported: BTreeSet<String>,
    /// Answers as binutils does, even where it misses inlined functions or names a wrong file.
    like_binutils: bool,
}

/// An open file.
struct OpenFile {
    name: String,
    image: Image,
    locator: BinutilsLocator<'static>,
}

/// An image in the memory of a process.
#[derive(Clone, Debug)]
pub(super) struct Mapping {
    range: Range<u64>,
    path: String,
    build_id: Option<BuildId>,
    local: bool,
    is_executable: bool,
    place: Place,
}

impl Mapping {
    fn wanted(&self) -> Wanted<'_> {
        Wanted {
            path: &self.path,
            build_id: self.build_id.as_ref(),
            local: self.local,
        }
    }
}

/// How a mapping relates to its file.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// svma = avma - bias
    Bias(u64),
    /// Offset in the file of the first byte
    Offset(u64),
}

impl Files {
    pub(super) fn new(symbols: &Symbols, like_binutils: bool) -> anyhow::Result<Files> {
        Ok(Files {
            finder: symbols.finder()?,
            open: Vec::new(),
            by_name: HashMap::new(),
            reported: BTreeSet::new(),
            like_binutils,
        })
    }

    /// Opens a file that the user named.
    pub(super) fn open(&mut self, path: &Path) -> anyhow::Result<usize> {
        let metadata = fs::metadata(path);
        let metadata = metadata.with_context(|| format!("cannot read {}", path.display()))?;
        if metadata.is_dir() {
            bail!("{} is a directory; name an ELF file", path.display());
        }
        let mut finder = self.finder.clone();
        if let Some(root) = finder.sysroot.take() {
            // The file is on this machine, but its debug file can be in the sysroot.
            let below = |dir: &PathBuf| root.join(dir.strip_prefix("/").unwrap_or(dir));
            let there: Vec<PathBuf> = finder.debug_directories.iter().map(below).collect();
            finder.debug_directories.splice(0..0, there);
        }
        let wanted = Wanted {
            path: &path.to_string_lossy(),
            build_id: None,
            local: true,
        };
        // Reports what is wrong with the file itself, not with the search for it.
        Image::open(path)?;
        let found = finder.find(&wanted, None);
        self.report_servers();
        let found = found?;
        Ok(self.add(
            path.to_string_lossy().into_owned(),
            found.image.with_placed_sections()?,
            &found.notes,
        ))
    }

    /// Opens a file that a log, a recording or a process names. Reports once why it cannot be used.
    pub(super) fn find(&mut self, wanted: &Wanted<'_>) -> Option<usize> {
        let key = (wanted.path.to_owned(), wanted.build_id.cloned());
        if let Some(known) = self.by_name.get(&key) {
            return *known;
        }
        let found = self.finder.find(wanted, None);
        self.report_servers();
        let found = match found {
            Ok(found) => Some(self.add(wanted.path.to_owned(), found.image, &found.notes)),
            Err(error) => {
                self.report(&error.to_string());
                None
            }
        };
        self.by_name.insert(key, found);
        found
    }

    /// Reports problems with servers of debug files.
    fn report_servers(&mut self) {
        let servers = self.finder.servers.as_ref();
        for problem in servers.map_or_else(Vec::new, |servers| servers.problems()) {
            self.report(&problem);
        }
    }

    fn add(&mut self, name: String, image: Image, notes: &[String]) -> usize {
        for note in notes {
            self.report(note);
        }
        let mut file = BinutilsFile::new(&image);
        if !self.like_binutils {
            file = file.with_standard();
        }
        // Lookups borrow from the file, and both live until the process ends.
        let file: &'static BinutilsFile = Box::leak(Box::new(file));
        self.open.push(OpenFile {
            name,
            image,
            locator: file.locator(),
        });
        self.open.len() - 1
    }

    /// Prints a problem on standard error, once.
    pub(super) fn report(&mut self, problem: &str) {
        if self.reported.insert(problem.to_owned()) {
            terminal::say(problem);
        }
    }

    pub(super) fn arch(&self, file: usize) -> Arch {
        self.open[file].image.arch()
    }

    /// Whether the file always lies at its own addresses: it is not position-independent.
    pub(super) fn is_fixed(&self, file: usize) -> bool {
        self.open[file].image.kind() == ImageKind::Executable
    }

    pub(super) fn locator(&mut self, file: usize) -> &mut BinutilsLocator<'static> {
        &mut self.open[file].locator
    }

    /// Whether a file has this build-id, if one is given. Reports it if not.
    pub(super) fn is_build(&mut self, file: usize, wanted: Option<&BuildId>) -> bool {
        let OpenFile { name, image, .. } = &self.open[file];
        let (Some(wanted), seen) = (wanted, image.build_id()) else {
            return true;
        };
        if seen == Some(wanted) {
            return true;
        }
        let seen = seen.map_or("none".to_owned(), ToString::to_string);
        let problem = format!("{name} is another build: expected build-id {wanted}, found {seen}");
        self.report(&problem);
        false
    }

    /// The file among `files` with this path or base name.
    pub(super) fn named(&self, files: &[usize], module: &str) -> Option<usize> {
        let base = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
        let is = |file: &&usize| {
            let name = &self.open[**file].name;
            name == module || base(name) == base(module)
        };
        files.iter().find(is).copied()
    }

    /// The file and address of `function+offset`. With a size, only a function of that size counts.
    /// Reports why no single function is meant.
    pub(super) fn in_function(
        &mut self,
        files: &[usize],
        function: &str,
        offset: u64,
        size: Option<u64>,
    ) -> Option<(usize, u64)> {
        let mut named = Vec::new();
        for &file in files {
            let image = &self.open[file].image;
            let symbols = image.symbols().named(function).into_iter();
            named.extend(symbols.map(|symbol| (file, image, symbol)));
        }
        // A variable can have the name of a function.
        if named.iter().any(|(_, _, symbol)| is_code(symbol)) {
            named.retain(|(_, _, symbol)| is_code(symbol));
        }
        let fits = |image, symbol| size.is_none_or(|size| has_size(image, symbol, size));
        let fitting = named
            .iter()
            .filter(|(_, image, symbol)| fits(image, symbol));
        let places = fitting.map(|(file, _, symbol)| (*file, symbol.svma.wrapping_add(offset)));
        let places: Vec<(usize, u64)> = places.collect();
        let problem = match (places.as_slice(), named.as_slice(), size) {
            (&[place], _, _) => return Some(place),
            ([], [(file, _, symbol)], Some(size)) => {
                let (file, own) = (&self.open[*file].name, symbol.size);
                format!(
                    "{function} has size {own:#x} in {file}, not {size:#x}: is it another build? \
                     Its addresses are not looked up"
                )
            }
            ([], [_, ..], Some(size)) => {
                let count = named.len();
                format!(
                    "none of {count} functions named {function} has size {size:#x}: \
                     is it another build? Its addresses are not looked up"
                )
            }
            ([], ..) => return None,
            (several, _, size) => {
                let count = several.len();
                let size =
                    size.map_or_else(String::new, |size| format!(" and have size {size:#x}"));
                format!(
                    "{count} functions are named {function}{size}; its addresses are not looked up"
                )
            }
        };
        self.report(&problem);
        None
    }

    /// The file and address of an address in a process.
    pub(super) fn in_memory(&mut self, mappings: &[Mapping], avma: u64) -> Option<(usize, u64)> {
        // A later mapping replaces earlier ones.
        let mut mappings = mappings.iter().rev();
        let mapping = mappings.find(|mapping| mapping.range.contains(&avma))?;
        let file = self.find(&mapping.wanted())?;
        let svma = match mapping.place {
            Place::Bias(bias) => avma.wrapping_sub(bias),
            Place::Offset(offset) => {
                let at = offset.checked_add(avma - mapping.range.start)?;
                self.open[file].image.svma_of_offset(at)?
            }
        };
        Some((file, svma))
    }
}

fn is_code(symbol: &Symbol<'_>) -> bool {
    symbol.kind != SymbolKind::Object
}

/// Whether a symbol has this size by itself, or in a list of addresses such as the kernel's. There
/// a function ends where the next symbol begins, and the list can lack labels.
fn has_size(image: &Image, symbol: &Symbol<'_>, size: u64) -> bool {
    let start = symbol.svma;
    if size == symbol.size {
        return true;
    }
    let mut after = image.symbols().after(start);
    let next = after.next();
    let sections = image.text_ranges();
    let section = sections.iter().find(|section| section.contains(&start));
    if let Some(section) = section
        && next.is_none_or(|(next, _)| next >= section.end)
    {
        // The kernel decides which section follows that of a module.
        if image.is_relocatable() {
            return size >= symbol.size;
        }
        if start.checked_add(size) == Some(section.end) {
            return true;
        }
    }
    let mut rest = next.into_iter().chain(after);
    let function = rest.find(|(_, kind)| *kind == SymbolKind::Function);
    [next, function]
        .into_iter()
        .flatten()
        .any(|(next, _)| next - start == size)
}

/// The file among the mapped ones with this path or base name; else all of them.
pub(super) fn files_of(
    files: &mut Files,
    mappings: &[Mapping],
    name: &str,
) -> Result<usize, Vec<usize>> {
    let base = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let (mut all, mut seen) = (Vec::new(), BTreeSet::new());
    for mapping in mappings {
        if mapping.path.starts_with('[') || !seen.insert((&mapping.path, &mapping.build_id)) {
            continue;
        }
        let wanted = mapping.wanted();
        let is_named = mapping.path == name || base(&mapping.path) == base(name);
        // Data files are mapped, too.
        if is_named || mapping.is_executable {
            let Some(file) = files.find(&wanted) else {
                continue;
            };
            if is_named {
                return Ok(file);
            }
            all.push(file);
        }
    }
    Err(all)
}

/// The files that a running process has mapped.
pub(super) fn of_process(pid: u32) -> anyhow::Result<Vec<Mapping>> {
    let maps = fs::read(format!("/proc/{pid}/maps"))
        .with_context(|| format!("cannot read the mappings of process {pid}"))?;
    let maps = String::from_utf8_lossy(&maps);
    let mappings = maps::files(&maps).map(|file| Mapping {
        path: file.readable(pid.into()),
        range: file.range,
        build_id: None,
        local: true,
        is_executable: file.executable,
        place: Place::Offset(file.offset),
    });
    Ok(mappings.collect())
}

/// True if the file exists and begins as a recording does.
pub(super) fn is_recording(path: &Path) -> bool {
    let mut head = [0; unspool_capture::MAGIC.len()];
    fs::File::open(path)
        .and_then(|mut file| file.read_exact(&mut head))
        .is_ok_and(|()| head == unspool_capture::MAGIC)
}

/// The modules of a recording. `None` if the file is not a recording.
pub(super) fn of_recording(path: &Path) -> anyhow::Result<Option<Vec<Mapping>>> {
    if !is_recording(path) {
        return Ok(None);
    }
    let capture =
        Capture::read(path).map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?;
    let modules = capture.records.iter().filter_map(|record| match record {
        Record::ModuleLoaded(module) if module.end > module.start => Some(Mapping {
            range: module.start..module.end,
            path: module.path.clone(),
            build_id: BuildId::new(&module.build_id),
            local: capture.target.local,
            is_executable: true,
            place: Place::Bias(module.bias),
        }),
        _ => None,
    });
    Ok(Some(modules.collect()))
}

/// An address as it is written.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Written<'t> {
    /// `NAME+0xOFFSET` or `NAME+0xOFFSET/0xSIZE`; the name is that of a function or a file.
    Named {
        name: &'t str,
        offset: u64,
        size: Option<u64>,
    },
    /// Hexadecimal digits.
    Plain(u64),
}

impl Written<'_> {
    /// Reads an address as binutils does (`strtoull`: leading blanks, sign, `0x`; the rest is
    /// ignored), unless it has a name that is not a number.
    pub(super) fn parse(text: &str) -> Written<'_> {
        if let Some(named) = named(text.trim()) {
            return named;
        }
        let text = text.trim_start_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']);
        let (is_negative, text) = match text.as_bytes() {
            [b'-', ..] => (true, &text[1..]),
            [b'+', ..] => (false, &text[1..]),
            _ => (false, text),
        };
        let value = leading_hex(without_prefix(text)).1;
        Written::Plain(if is_negative {
            value.wrapping_neg()
        } else {
            value
        })
    }
}

fn without_prefix(text: &str) -> &str {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let is_digit = |digits: &&str| digits.starts_with(|c: char| c.is_ascii_hexdigit());
    digits.filter(is_digit).unwrap_or(text)
}

/// The number of hexadecimal digits that a text begins with, and their value.
fn leading_hex(text: &str) -> (usize, u64) {
    let len = text.bytes().take_while(u8::is_ascii_hexdigit).count();
    let digits = text[..len].trim_start_matches('0');
    let value = match digits {
        "" => 0,
        digits => u64::from_str_radix(digits, 16).unwrap_or(u64::MAX),
    };
    (len, value)
}

fn named(text: &str) -> Option<Written<'_>> {
    let (name, offset) = text.rsplit_once("+0x")?;
    let (len, offset_value) = leading_hex(offset);
    let size = match offset[len..].strip_prefix("/0x") {
        Some(size) => {
            let (digits, value) = leading_hex(size);
            (digits > 0 && digits == size.len()).then_some(Some(value))?
        }
        None if len == offset.len() => None,
        None => return None,
    };
    let is_number = name.strip_prefix("0x").is_some_and(|digits| {
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    });
    (len > 0 && !name.is_empty() && !is_number).then_some(Written::Named {
        name,
        offset: offset_value,
        size,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_like_strtoull() {
        for (text, value) in [
            ("401136", 0x40_1136),
            (" \t0x401136\n", 0x40_1136),
            ("0X1fz", 0x1f),
            ("0x", 0),
            ("", 0),
            ("main", 0),
            ("-1", u64::MAX),
            ("+10", 0x10),
            ("fffffffffffffffff", u64::MAX),
            ("000000000000000000001", 1),
            ("0x10+0x5", 0x10),
        ] {
            assert_eq!(Written::parse(text), Written::Plain(value), "{text:?}");
        }
    }

    #[test]
    fn names_have_an_offset_and_perhaps_a_size() {
        let named = |name, offset, size| Written::Named { name, offset, size };
        assert_eq!(Written::parse("add+0x1"), named("add", 1, None));
        assert_eq!(
            Written::parse("f+0x1a/0x30\n"),
            named("f", 0x1a, Some(0x30))
        );
        assert_eq!(
            Written::parse("/a/b+c.so+0x12"),
            named("/a/b+c.so", 0x12, None)
        );
        assert_eq!(Written::parse("f+0x1/0x"), Written::Plain(0xf));
        assert_eq!(Written::parse("f+12"), Written::Plain(0xf));
    }
}
