//! The places where functions return and call the kernel, kept from one run to the next.
//!
//! Separate from the analysis because this reads and writes files. Each recording asks the same
//! questions about the same C library, and the analysis takes longer than a short program runs.
//! Code is analysed only for questions without a kept answer.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use unspool_image::Image;
use unspool_unwind::Cache;
use unspool_unwind::code::exits::{ExitFinder as Analysis, Exits};

use super::answers;

/// Maximum number of functions of one image whose exits are kept.
const FUNCTION_LIMIT: usize = 20_000;
/// Maximum number of answers of [`Passages::entered`] that are kept for one image.
const RANGE_SET_LIMIT: usize = 64;

/// Follows functions of one image like [`Analysis`].
pub struct Passages<'i> {
    image: &'i Image,
    analysis: Option<Analysis<'i>>,
    /// The cache, and the name of the answers in it.
    file: Option<(Cache, String)>,
    known: KnownAnswers,
    kept: Kept,
    /// True once likely system calls were requested, because the analysis knows more functions
    /// then.
    searched: bool,
}

/// The answers that this run has already read from the cache.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownAnswers(Arc<Mutex<HashMap<String, Kept>>>);

#[derive(Debug, Default, Serialize, Deserialize)]
struct Kept {
    system_calls: Option<Vec<u64>>,
    /// Answers from before and after likely system calls were requested.
    before: Answers,
    after: Answers,
    /// True if there are answers that are not in the file.
    #[serde(skip)]
    has_news: bool,
}

/// Answers by address; bit 0 is set for ARM's T32 code.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Answers {
    functions: BTreeMap<u64, Option<(u64, bool)>>,
    ways: BTreeMap<u64, Exits>,
    entered: Vec<(Vec<Range<u64>>, BTreeSet<u64>)>,
}

/// The cache, and the name of an image's answers in it.
fn file_of(image: &Image, cache: Option<&Cache>) -> Option<(Cache, String)> {
    cache.cloned().zip(answers::file_name(image, "passages"))
}

impl KnownAnswers {
    /// Reads the kept answers about an image.
    pub(super) fn read_ahead(&self, image: &Image, cache: Option<&Cache>) {
        let Some((cache, name)) = file_of(image, cache) else {
            return;
        };
        if let Some(kept) = answers::read(&cache, &name) {
            self.put(name, kept);
        }
    }

    fn take(&self, name: &str) -> Option<Kept> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.remove(name)
    }

    fn put(&self, name: String, kept: Kept) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(name, kept);
    }
}

impl<'i> Passages<'i> {
    /// Reads the kept answers, unless they are `known`. `None` if code of the architecture cannot
    /// be analysed.
    pub(super) fn new(
        image: &'i Image,
        cache: Option<&Cache>,
        known: &KnownAnswers,
    ) -> Option<Passages<'i>> {
        let file = file_of(image, cache);
        let read = |(cache, name): &(Cache, String)| {
            let kept = known.take(name);
            kept.or_else(|| answers::read(cache, name))
        };
        let kept = file.as_ref().and_then(read);
        let analysis = match kept {
            Some(_) => None,
            None => Some(Analysis::new(image)?),
        };
        Some(Passages {
            image,
            analysis,
            file,
            known: known.clone(),
            kept: kept.unwrap_or_default(),
            searched: false,
        })
    }

    /// See [`Analysis::function_at`].
    pub fn function_at(&mut self, svma: u64) -> Option<(u64, bool)> {
        if let Some(known) = self.answers().functions.get(&svma) {
            return *known;
        }
        let found = self.analysis()?.function_at(svma);
        self.answers().functions.insert(svma, found);
        found
    }

    /// See [`Analysis::likely_system_calls`].
    pub fn likely_system_calls(&mut self) -> Vec<u64> {
        if let Some(known) = &self.kept.system_calls {
            self.searched = true;
            // The analysis must then know the same functions as one that starts now.
            if let Some(analysis) = &mut self.analysis {
                analysis.likely_system_calls();
            }
            return known.clone();
        }
        let found = self.analysis().map(Analysis::likely_system_calls);
        self.searched = true;
        self.kept.system_calls.clone_from(&found);
        found.unwrap_or_default()
    }

    /// See [`Analysis::follow`].
    pub fn follow(&mut self, svma: u64, thumb: bool) -> Exits {
        let key = svma | u64::from(thumb);
        if let Some(known) = self.answers().ways.get(&key) {
            return known.clone();
        }
        let Some(analysis) = self.analysis() else {
            return Exits::default();
        };
        let ways = analysis.follow(svma, thumb);
        let answers = &mut self.answers().ways;
        if answers.len() < FUNCTION_LIMIT {
            answers.insert(key, ways.clone());
        }
        ways
    }

    /// See [`Analysis::entered`].
    pub fn entered(&mut self, ranges: &[Range<u64>]) -> BTreeSet<u64> {
        let known = self.answers().entered.iter();
        if let Some((_, known)) = known.rev().find(|(of, _)| of == ranges) {
            return known.clone();
        }
        let Some(analysis) = self.analysis() else {
            // All ranges then count as entered, and nothing is moved.
            return ranges.iter().map(|range| range.start).collect();
        };
        let entered = analysis.entered(ranges);
        let answers = &mut self.answers().entered;
        if answers.len() == RANGE_SET_LIMIT {
            answers.remove(0);
        }
        answers.push((ranges.to_vec(), entered.clone()));
        entered
    }

    /// Writes new answers to the cache. If the cache is not writable, that only costs time.
    pub fn keep(&mut self) {
        if let Some((cache, name)) = &self.file
            && std::mem::take(&mut self.kept.has_news)
        {
            let _ = answers::write(cache, name, &self.kept);
        }
    }

    fn answers(&mut self) -> &mut Answers {
        match self.searched {
            true => &mut self.kept.after,
            false => &mut self.kept.before,
        }
    }

    /// The analysis itself, for a question without a kept answer.
    fn analysis(&mut self) -> Option<&mut Analysis<'i>> {
        self.kept.has_news = true;
        if self.analysis.is_none() {
            let mut analysis = Analysis::new(self.image)?;
            if self.searched {
                analysis.likely_system_calls();
            }
            self.analysis = Some(analysis);
        }
        self.analysis.as_mut()
    }
}

impl Drop for Passages<'_> {
    /// Leaves the answers to the next user of the same image.
    fn drop(&mut self) {
        if let Some((_, name)) = self.file.take() {
            self.known.put(name, std::mem::take(&mut self.kept));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// A C library, which makes system calls itself.
    fn c_library() -> Image {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("own maps");
        let path = maps
            .lines()
            .filter_map(|line| line.split_whitespace().nth(5))
            .find(|path| crate::platform::c_library::is_c_library(path));
        Image::open(Path::new(path.expect("a C library"))).expect("its file")
    }

    /// Asks the questions of a recording.
    fn ask(passages: &mut Passages<'_>, image: &Image) -> (Vec<Exits>, BTreeSet<u64>) {
        let create = image.symbols().named("pthread_create")[0].svma;
        let mut ways = vec![passages.follow(create, false)];
        let calls = passages.likely_system_calls();
        for svma in calls.into_iter().take(20) {
            let function = passages.function_at(svma).expect("a function");
            ways.push(passages.follow(function.0, function.1));
        }
        let entered = passages.entered(std::slice::from_ref(&(create..create + 8)));
        (ways, entered)
    }

    #[test]
    fn a_second_run_analyses_no_code() {
        let (image, directory) = (c_library(), tempfile::tempdir().expect("a directory"));
        let cache = Cache::at(directory.path());
        let known = KnownAnswers::default();
        let mut first = Passages::new(&image, Some(&cache), &known).expect("known code");
        let truth = ask(&mut first, &image);
        assert!(truth.0.iter().any(|ways| !ways.system_calls.is_empty()));
        first.keep();
        drop(first);
        for known in [known, KnownAnswers::default()] {
            let mut second = Passages::new(&image, Some(&cache), &known).expect("kept");
            assert_eq!(ask(&mut second, &image), truth);
            assert!(second.analysis.is_none() && !second.kept.has_news);
        }
    }

    #[test]
    fn answers_are_read_once() {
        let (image, directory) = (c_library(), tempfile::tempdir().expect("a directory"));
        let cache = Cache::at(directory.path());
        let known = KnownAnswers::default();
        let mut first = Passages::new(&image, Some(&cache), &known).expect("known code");
        let truth = ask(&mut first, &image);
        drop(first);
        // Nothing was kept in a file.
        let mut second = Passages::new(&image, Some(&cache), &known).expect("known answers");
        assert_eq!(ask(&mut second, &image), truth);
        assert!(second.analysis.is_none());
    }

    #[test]
    fn a_new_question_is_answered_as_without_a_cache() {
        let (image, directory) = (c_library(), tempfile::tempdir().expect("a directory"));
        let cache = Cache::at(directory.path());
        let known = KnownAnswers::default();
        let mut first = Passages::new(&image, Some(&cache), &known).expect("known code");
        ask(&mut first, &image);
        first.keep();
        let join = image.symbols().named("pthread_join")[0].svma;
        let answers = [Some(&cache), None].map(|cache| {
            let known = KnownAnswers::default();
            let mut passages = Passages::new(&image, cache, &known).expect("known code");
            ask(&mut passages, &image);
            (passages.follow(join, false), passages.function_at(join))
        });
        assert_eq!(answers[0], answers[1]);
        assert!(!answers[0].0.returns.is_empty());
    }
}
