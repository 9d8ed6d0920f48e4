//! What addresses of one file stand for, remembered from one run to the next.
//!
//! Apart from the locator because it reads and writes files: whoever looks at the same program again asks for the same
//! few addresses, and the debug information of a C library alone takes longer to read than all stacks do. What is kept
//! is not believed unless it belongs to the very files that are there (same bytes: a damaged copy has the build-id of the good one)
//! and was found by this very program.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use serde::{Deserialize, Serialize};
use unspool_image::{Function, Image, Location, Locator, SourceFrame};
use unspool_unwind::Cache;
use unspool_unwind::code::is_called;

use super::answers;

/// So many answers of one file are kept; more come from programs that are looked at once.
const MAX_ANSWERS: usize = 20_000;
/// Looks up addresses of one image.
#[derive(Debug)]
pub struct Places {
    locator: Locator,
    image: Image,
    /// Where answers are kept.
    cache: Option<Cache>,
    /// Under what name; none without a build-id.
    name: OnceLock<Option<String>>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// What is kept has been looked for.
    read: bool,
    places: HashMap<u64, Location>,
    /// By a variable's beginning and the offset into it.
    parts: HashMap<(u64, u64), Option<String>>,
    /// As the locator has it, if that is known without it.
    information: Option<Information>,
    /// There are answers that are not in the file.
    news: bool,
}

/// What is known of all debug information.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Information {
    /// Whether there is some.
    there: bool,
    notes: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct Kept {
    information: Information,
    places: Vec<(u64, KeptPlace)>,
    #[serde(default)]
    parts: Vec<(u64, u64, Option<String>)>,
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
    /// Of an image; answers are kept in this cache.
    pub(super) fn new(image: &Image, cache: Option<Cache>) -> Places {
        Places {
            locator: Locator::new(image),
            image: image.clone(),
            cache,
            name: OnceLock::new(),
            known: Mutex::default(),
        }
    }

    /// As [`Locator::locate`]; but a symbol that does not say how far it reaches stands for no other function behind it.
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

    /// As [`Locator::part`].
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

    /// Whether the function that a symbol says begins at `start` is likely to reach as far as `svma`. Assembly's symbols often have
    /// no size; a stripped file may have other functions behind them, which only calls tell of.
    fn reaches(&self, start: u64, svma: u64) -> bool {
        let symbol = self.image.symbols().containing(svma);
        let inferred = symbol.is_some_and(|symbol| symbol.size_inferred);
        !inferred || !is_called(&self.image, &(start + 1..svma + 1))
    }

    /// As [`Locator::has_debug_information`].
    pub fn has_debug_information(&self) -> bool {
        self.information().there
    }

    /// As [`Locator::notes`].
    pub fn notes(&self) -> Vec<String> {
        self.information().notes
    }

    /// Reads what will be needed: the debug information, if nothing of it is known from another run.
    pub(super) fn read_ahead(&self) {
        // Not under the lock: whoever needs a symbol need not wait.
        if self.known().information.is_none() {
            self.locator.has_debug_information();
        }
    }

    /// Keeps what has been asked for. Does nothing if it is kept already.
    ///
    /// # Errors
    /// The file cannot be written.
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
        let kept = Kept {
            information,
            places: places
                .into_iter()
                .map(|(at, of)| (*at, of.into()))
                .collect(),
            parts,
        };
        answers::write(cache, name, &kept)?;
        known.news = false;
        Ok(())
    }

    /// Where answers are kept, and under what name.
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
        // A lookup that panicked would have added nothing.
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
    fn answers_of_another_run_are_the_locators() {
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
        // Nothing of it had to be read.
        assert!(format!("{:?}", third.locator).contains("loaded: false"));
    }

    #[test]
    fn what_is_damaged_is_replaced() {
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
        // e_shoff: no section is found any more (ELF specification, "ELF Header").
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
