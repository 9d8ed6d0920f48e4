//! What addresses of one file stand for, remembered from one run to the next.
//!
//! Apart from the locator because it reads and writes files: whoever looks at the same program again asks for the same
//! few addresses, and the debug information of a C library alone takes longer to read than all stacks do. What is kept
//! is not believed unless it belongs to the very files that are there (same bytes: a damaged copy has the build-id of the good one)
//! and was found by this very program.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use unspool_image::{Function, Image, Location, Locator, SourceFrame};
use unspool_unwind::Cache;

/// So many answers of one file are kept; more come from programs that are looked at once.
const MOST: usize = 20_000;
/// Larger files are none of ours.
const SIZE_LIMIT: u64 = 64 << 20;

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

    /// As [`Locator::locate`].
    pub fn locate(&self, svma: u64) -> Location {
        let mut known = self.known();
        if let Some(location) = known.places.get(&svma) {
            return location.clone();
        }
        let location = self.locator.locate(svma);
        if known.places.len() < MOST {
            known.places.insert(svma, location.clone());
            known.news = true;
        }
        location
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
        let kept = Kept {
            information,
            places: places
                .into_iter()
                .map(|(at, of)| (*at, of.into()))
                .collect(),
        };
        let text = serde_json::to_vec(&kept)?;
        let head = head(&text) + "\n";
        cache.write(name, &[head.as_bytes(), &text].concat())?;
        known.news = false;
        Ok(())
    }

    /// Where answers are kept, and under what name.
    fn kept(&self) -> Option<(&Cache, &str)> {
        let cache = self.cache.as_ref()?;
        let name = self.name.get_or_init(|| file_name(&self.image));
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
            let bytes = kept.and_then(|(cache, name)| cache.read(name, SIZE_LIMIT));
            if let Some(kept) = bytes.as_deref().and_then(parse) {
                known.information = Some(kept.information);
                known.places = kept
                    .places
                    .into_iter()
                    .map(|(at, of)| (at, of.into()))
                    .collect();
            }
        }
        known
    }
}

/// The files that answers come from.
fn file_name(image: &Image) -> Option<String> {
    let id = image.build_id()?;
    let others = [image.debug_image(), image.supplementary_image()];
    let mut identity = Vec::new();
    for file in [Some(image)].into_iter().chain(others) {
        let bytes = file.map_or(&[][..], Image::bytes);
        identity.extend((bytes.len() as u64).to_le_bytes());
        identity.extend(crc32c::crc32c(bytes).to_le_bytes());
    }
    Some(format!("{id}-{:08x}.places", crc32c::crc32c(&identity)))
}

/// What is not as it was written is not believed, and replaced.
fn parse(bytes: &[u8]) -> Option<Kept> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let (line, text) = (&bytes[..end], &bytes[end + 1..]);
    (line == head(text).as_bytes()).then_some(())?;
    serde_json::from_slice(text).ok()
}

/// The first line of a file with these lines after it: which program wrote it, and their checksum.
fn head(text: &[u8]) -> String {
    let program = std::env::current_exe().and_then(std::fs::metadata).ok();
    let built = program.as_ref().and_then(|file| file.modified().ok());
    let built = built.and_then(|built| built.duration_since(SystemTime::UNIX_EPOCH).ok());
    let (length, built) = (
        program.map_or(0, |file| file.len()),
        built.unwrap_or_default(),
    );
    let sum = crc32c::crc32c(text);
    format!("unspool places {length} {} {sum:08x}", built.as_nanos())
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
            assert!(parse(&std::fs::read(&file).expect("written")).is_none());
        }
        let asked = places(&image, directory.path());
        assert_eq!(asked.locate(svma), truth);
        asked.keep().expect("kept");
        let file = std::fs::read(kept(directory.path())).expect("kept");
        assert!(parse(&file).is_some());
    }

    #[test]
    fn other_debug_information_has_other_answers() {
        let image = own();
        let with = own().with_debug_file(own());
        assert_ne!(file_name(&image), file_name(&with));
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
