//! The functions and lines at addresses of one file, kept from one run to the next.
//!
//! Separate from the locator because this reads and writes files. A user who looks at the same
//! program again needs the same few addresses, and reading the debug information of a C library
//! alone takes longer than reading all stacks. Kept answers are used only if they belong to the
//! very same files and were found by this very build of Unspool. "Same" means equal bytes, because
//! a damaged copy has the build-id of the good one.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use serde::{Deserialize, Serialize};
use unspool_image::{Function, Image, Location, Locator, SourceFrame, SymbolKind};
use unspool_unwind::Cache;
use unspool_unwind::code::is_called;

use super::answers;

/// Maximum number of answers kept for one file. More come from programs that are inspected only
/// once.
const MAX_ANSWERS: usize = 20_000;
/// Looks up addresses of one image.
#[derive(Debug)]
pub struct Places {
    locator: Locator,
    image: Image,
    /// The cache for answers.
    cache: Option<Cache>,
    /// The name in the cache. `None` without a build-id.
    name: OnceLock<Option<String>>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// True once the kept answers were read, if there are any.
    read: bool,
    places: HashMap<u64, Location>,
    /// By start of the variable, and offset into it.
    parts: HashMap<(u64, u64), Option<String>>,
    /// By an address inside.
    data: HashMap<u64, Option<DataSymbol>>,
    /// As the locator has it. Filled without the locator if it was kept.
    information: Option<Information>,
    /// True if there are answers that are not in the file.
    news: bool,
}

/// Facts about all debug information.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Information {
    /// True if there is any.
    there: bool,
    notes: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct Kept {
    information: Information,
    places: Vec<(u64, KeptPlace)>,
    #[serde(default)]
    parts: Vec<(u64, u64, Option<String>)>,
    #[serde(default)]
    data: Vec<(u64, Option<DataSymbol>)>,
}

/// A symbol of data.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DataSymbol {
    /// The demangled name.
    pub name: String,
    /// Its address in the file.
    pub start: u64,
    /// False if the symbol table does not say that it is a variable.
    pub is_variable: bool,
}

#[derive(Serialize, Deserialize)]
struct KeptPlace {
    /// Name, name in the symbol table, start.
    function: Option<(String, String, u64)>,
    lines: Vec<KeptLine>,
}

#[derive(Serialize, Deserialize)]
struct KeptLine {
    function: Option<String>,
    file: Option<String>,
    line: Option<u32>,
    column: Option<u32>,
    inlined: bool,
}

impl Places {
    /// Looks up addresses of an image, and keeps answers in this cache.
    pub(super) fn new(image: &Image, cache: Option<Cache>) -> Places {
        Places {
            locator: Locator::new(image),
            image: image.clone(),
            cache,
            name: OnceLock::new(),
            known: Mutex::default(),
        }
    }

    /// Like [`Locator::locate`]. But a symbol without a size does not name another function behind
    /// it.
    pub fn locate(&self, svma: u64) -> Location {
        let mut known = self.known();
        if let Some(location) = known.places.get(&svma) {
            return location.clone();
        }
        let mut location = self.locator.locate(svma);
        if location.lines.is_empty() {
            location.function = location
                .function
                .filter(|function| self.reaches(function.start, svma));
        }
        if known.places.len() < MAX_ANSWERS {
            known.places.insert(svma, location.clone());
            known.news = true;
        }
        location
    }

    /// See [`Locator::part`].
    pub fn part(&self, start: u64, offset: u64) -> Option<String> {
        let mut known = self.known();
        if let Some(part) = known.parts.get(&(start, offset)) {
            return part.clone();
        }
        let part = self.locator.part(start, offset);
        if known.parts.len() < MAX_ANSWERS {
            known.parts.insert((start, offset), part.clone());
            known.news = true;
        }
        part
    }

    /// The symbol that contains `svma`, unless it is a function's.
    pub fn data_symbol(&self, svma: u64) -> Option<DataSymbol> {
        let mut known = self.known();
        if let Some(symbol) = known.data.get(&svma) {
            return symbol.clone();
        }
        let symbol = self.image.symbols().containing(svma);
        let symbol = symbol.filter(|symbol| symbol.kind != SymbolKind::Function);
        let symbol = symbol.map(|symbol| DataSymbol {
            name: unspool_image::demangle(symbol.name),
            start: symbol.svma,
            is_variable: symbol.kind == SymbolKind::Object,
        });
        if known.data.len() < MAX_ANSWERS {
            known.data.insert(svma, symbol.clone());
            known.news = true;
        }
        symbol
    }

    /// True if the function at `start` probably extends to `svma`. Assembly symbols often have no
    /// size. In a stripped file other functions may follow, which only calls reveal.
    fn reaches(&self, start: u64, svma: u64) -> bool {
        let symbol = self.image.symbols().containing(svma);
        let inferred = symbol.is_some_and(|symbol| symbol.size_inferred);
        !inferred || !is_called(&self.image, &(start + 1..svma + 1))
    }

    /// See [`Locator::has_debug_information`].
    pub fn has_debug_information(&self) -> bool {
        self.information().there
    }

    /// See [`Locator::notes`].
    pub fn notes(&self) -> Vec<String> {
        self.information().notes
    }

    /// Reads the debug information ahead, if no kept answer makes it unnecessary.
    pub(super) fn read_ahead(&self) {
        // Done without the lock, so that other threads can look up symbols meanwhile.
        if self.known().information.is_none() {
            self.locator.has_debug_information();
        }
    }

    /// Keeps all answers so far. Does nothing if they are kept already.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn keep(&self) -> std::io::Result<()> {
        let mut known = self.known();
        let (Some((cache, name)), true) = (self.kept(), known.news) else {
            return Ok(());
        };
        let information = self.of_locator(&mut known);
        let mut places: Vec<_> = known.places.iter().collect();
        places.sort_unstable_by_key(|(svma, _)| **svma);
        let parts = known.parts.iter();
        let mut parts: Vec<_> = parts.map(|(at, of)| (at.0, at.1, of.clone())).collect();
        parts.sort_unstable();
        let data = known.data.iter();
        let mut data: Vec<_> = data.map(|(at, of)| (*at, of.clone())).collect();
        data.sort_unstable();
        let kept = Kept {
            information,
            places: places
                .into_iter()
                .map(|(at, of)| (*at, of.into()))
                .collect(),
            parts,
            data,
        };
        answers::write(cache, name, &kept)?;
        known.news = false;
        Ok(())
    }

    /// The cache, and the name under which it keeps this image's answers.
    fn kept(&self) -> Option<(&Cache, &str)> {
        let cache = self.cache.as_ref()?;
        let name = self
            .name
            .get_or_init(|| answers::file_name(&self.image, "places"));
        Some((cache, name.as_deref()?))
    }

    fn information(&self) -> Information {
        self.of_locator(&mut self.known())
    }

    fn of_locator(&self, known: &mut Known) -> Information {
        let read = || Information {
            there: self.locator.has_debug_information(),
            notes: self.locator.notes().to_vec(),
        };
        known.information.get_or_insert_with(read).clone()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // A lookup that panicked has added nothing.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.read {
            known.read = true;
            let kept = self.kept();
            let kept: Option<Kept> = kept.and_then(|(cache, name)| answers::read(cache, name));
            if let Some(kept) = kept {
                known.information = Some(kept.information);
                known.places = kept
                    .places
                    .into_iter()
                    .map(|(at, of)| (at, of.into()))
                    .collect();
                let parts = kept.parts.into_iter();
                known.parts = parts.map(|(at, by, of)| ((at, by), of)).collect();
                known.data = kept.data.into_iter().collect();
            }
        }
        known
    }
}

impl From<&Location> for KeptPlace {
    fn from(location: &Location) -> KeptPlace {
        let function = location.function.clone();
        let line = |frame: &SourceFrame| KeptLine {
            function: frame.function.clone(),
            file: frame.file.clone(),
            line: frame.line,
            column: frame.column,
            inlined: frame.inlined,
        };
        KeptPlace {
            function: function.map(|function| (function.name, function.raw, function.start)),
            lines: location.lines.iter().map(line).collect(),
        }
    }
}

impl From<KeptPlace> for Location {
    fn from(kept: KeptPlace) -> Location {
        let function = |(name, raw, start)| Function { name, raw, start };
        let frame = |line: KeptLine| SourceFrame {
            function: line.function,
            file: line.file,
            line: line.line,
            column: line.column,
            inlined: line.inlined,
        };
        Location {
            function: kept.function.map(function),
            lines: kept.lines.into_iter().map(frame).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;

    fn places(image: &Image, directory: &Path) -> Places {
        Places::new(image, Some(Cache::at(directory)))
    }

    fn own() -> Image {
        Image::open(&std::env::current_exe().expect("a path")).expect("this program")
    }

    fn kept(directory: &Path) -> PathBuf {
        let mut files = std::fs::read_dir(directory).expect("made by keep");
        let file = files.next().expect("one").expect("readable").path();
        assert!(files.next().is_none());
        file
    }

    fn is_whole(file: &Path) -> bool {
        let cache = Cache::at(file.parent().expect("a directory"));
        let name = file.file_name().and_then(|name| name.to_str());
        answers::read::<Kept>(&cache, name.expect("text")).is_some()
    }

    #[test]
    fn kept_answers_equal_the_locators() {
        let (image, directory) = (own(), tempfile::tempdir().expect("a directory"));
        let code = image.text_ranges()[0].clone();
        let asked: Vec<u64> = code.step_by(4099).take(200).collect();
        let locator = Locator::new(&image);
        let truth: Vec<Location> = asked.iter().map(|svma| locator.locate(*svma)).collect();
        assert!(truth.iter().any(|location| location.lines.len() > 1));
        let first = places(&image, directory.path());
        first.locate(asked[0]);
        first.keep().expect("kept");
        let second = places(&image, directory.path());
        assert!(
            asked
                .iter()
                .map(|svma| second.locate(*svma))
                .eq(truth.clone())
        );
        second.keep().expect("kept");
        let third = places(&image, directory.path());
        assert!(asked.iter().map(|svma| third.locate(*svma)).eq(truth));
        assert!(third.has_debug_information());
        // No debug information was read.
        assert!(format!("{:?}", third.locator).contains("loaded: false"));
    }

    #[test]
    fn symbols_of_data_are_kept() {
        let (image, directory) = (own(), tempfile::tempdir().expect("a directory"));
        let data = image.section(".data.rel.ro").expect("variables");
        let mut symbols = image.symbols().iter();
        let end = data.svma + data.data.len() as u64;
        let variable = symbols.find(|symbol| {
            symbol.kind == SymbolKind::Object && (data.svma..end).contains(&symbol.svma)
        });
        let asked = (0..2000).map(|index| data.svma + 8 * index);
        // The linker decides whether one is among the first ones.
        let asked: Vec<u64> = asked.chain(variable.map(|symbol| symbol.svma)).collect();
        let first = places(&image, directory.path());
        for svma in &asked {
            let symbol = image.symbols().containing(*svma);
            let symbol = symbol.filter(|symbol| symbol.kind != SymbolKind::Function);
            let start = symbol.map(|symbol| symbol.svma);
            assert_eq!(first.data_symbol(*svma).map(|symbol| symbol.start), start);
        }
        let known = first.known().data.clone();
        let is_variable =
            |symbol: &Option<DataSymbol>| symbol.as_ref().is_some_and(|it| it.is_variable);
        assert!(known.values().any(is_variable));
        first.keep().expect("kept");
        assert_eq!(places(&image, directory.path()).known().data, known);
    }

    #[test]
    fn a_damaged_file_is_replaced() {
        let (image, directory) = (own(), tempfile::tempdir().expect("a directory"));
        let svma = image.text_ranges()[0].start;
        let truth = Locator::new(&image).locate(svma);
        for damage in 0..3 {
            let asked = places(&image, directory.path());
            assert_eq!(asked.locate(svma), truth);
            asked.keep().expect("kept");
            let file = kept(directory.path());
            let mut bytes = std::fs::read(&file).expect("kept");
            match damage {
                0 => bytes.truncate(bytes.len() / 2),
                1 => bytes.iter_mut().rev().take(9).for_each(|byte| *byte ^= 1),
                _ => bytes.clear(),
            }
            std::fs::write(&file, bytes).expect("written");
            assert!(!is_whole(&file));
        }
        let asked = places(&image, directory.path());
        assert_eq!(asked.locate(svma), truth);
        asked.keep().expect("kept");
        assert!(is_whole(&kept(directory.path())));
    }

    #[test]
    fn other_debug_information_has_other_answers() {
        let image = own();
        let with = own().with_debug_file(own());
        let name = |image: &Image| answers::file_name(image, "places");
        assert_ne!(name(&image), name(&with));
    }

    #[test]
    fn a_damaged_copy_does_not_answer_for_the_good_one() {
        let (image, directory) = (own(), tempfile::tempdir().expect("a directory"));
        let mut bytes = image.bytes().to_vec();
        // e_shoff: with 0 there are no sections (ELF specification, "ELF Header").
        bytes[0x28..0x30].fill(0);
        let damaged = Image::parse("damaged", bytes).expect("its segments are there");
        assert_eq!(damaged.build_id(), image.build_id());
        let svma = image.text_ranges()[0].start;
        let of_damaged = places(&damaged, directory.path());
        of_damaged.locate(svma);
        of_damaged.keep().expect("kept");
        let truth = Locator::new(&image).locate(svma);
        assert_ne!(of_damaged.locate(svma), truth);
        assert_eq!(places(&image, directory.path()).locate(svma), truth);
    }
}
