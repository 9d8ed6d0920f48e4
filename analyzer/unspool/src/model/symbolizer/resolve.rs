//! Answers the model's questions from the recording if possible, otherwise from files.
//!
//! So a recording gives the same report on another machine, and when files have changed or
//! disappeared. Files are read first only where the user names some, and then they only add to the
//! stored answers.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use unspool_capture::{Capture, Record, Resolution, Snapshot};
use unspool_image::{BuildId, Wanted};

use super::answers::{self, Answers, fuller_place, fuller_stack};
use super::program::LAST;
use super::{Symbolizer, stored_answers};
use crate::model::Note;
use crate::model::backtrace::{Backtrace, Frames, Place};
use crate::model::inspection::{Family, Library, Onward, Program};
use crate::platform::layouts::{self, Layout};
use crate::store::Store;

impl Symbolizer {
    /// All answers, for storage in the recording.
    pub fn resolution(&self) -> Vec<Resolution> {
        let mut answers = self.answers.clone();
        answers.notes = self.notes_of_files();
        answers.downloaded.extend(self.files.downloaded());
        stored_answers::write(&answers)
    }

    /// True if downloaded files could add functions or lines to a capture's stored answers.
    pub fn lacks_files(capture: &Capture, store: &Store) -> bool {
        let stored = stored_answers::read(&capture.resolution);
        let frames = stored.stacks.values().flat_map(|stack| &stack.frames);
        let places = frames.map(|frame| &frame.place).chain(stored.code.values());
        let bare = places.filter(|place| place.function.is_none() || place.line.is_none());
        let bare: HashSet<&str> = bare.filter_map(|place| place.module.as_deref()).collect();
        let store = store.at_hand();
        capture.records.iter().any(|record| match record {
            Record::ModuleLoaded(module) if bare.contains(module.path.as_str()) => {
                let build_id = BuildId::new(&module.build_id);
                let wanted = Wanted {
                    path: &module.path,
                    build_id: build_id.as_ref(),
                    local: capture.target.local,
                };
                match store.find(&wanted, None) {
                    // A file in the servers' cache counts as well.
                    Ok(found) => {
                        !found.image.has_section(".debug_info") || found.image.is_downloaded()
                    }
                    Err(_) => build_id.is_some(),
                }
            }
            _ => false,
        })
    }

    /// Loads the answers that a capture stores.
    pub(super) fn take_kept(&mut self, capture: &Capture) {
        let records = capture.records.iter().enumerate();
        let mappings = records.filter(|(_, record)| {
            matches!(record, Record::ModuleLoaded(_) | Record::ModuleUnloaded(_))
        });
        self.mappings = mappings.map(|(at, _)| at).collect();
        if capture.resolution.is_empty() {
            return;
        }
        self.answers = stored_answers::read(&capture.resolution);
        self.set_editions();
        if self.asks_files {
            self.kept = Some(std::mem::take(&mut self.answers));
        }
    }

    /// Notes on missing or doubtful files: those of the recording's end, and those asked now.
    pub(super) fn notes_of_files(&self) -> Vec<Note> {
        let mut notes = self.answers.notes.clone();
        notes.extend(self.files.notes(self.kept.is_some()));
        let left_out = self.answers.left_out;
        if left_out > 0 {
            notes.push(Note::warning(format!(
                "The recording had no room for {left_out} stacks and names. Unspool looks \
                 them up in the program's files, where this machine has them."
            )));
        }
        notes
    }

    /// True if a server sent the module's file or debug file, now or when the recording ended.
    pub(in crate::model) fn is_downloaded(&self, module: &str) -> bool {
        let stored = [Some(&self.answers), self.kept.as_ref()];
        let mut stored = stored.into_iter().flatten();
        stored.any(|answers| answers.downloaded.contains(module))
            || self.files.downloaded().any(|path| &*path == module)
    }

    fn question(&self, record: usize, of: u64) -> answers::Question {
        let before = match self.elsewhere.get(&record) {
            // Downward, because the numbers of the program's mappings grow upward.
            Some(epoch) => u32::MAX - (epoch - self.own_epochs) as u32,
            None => self.mappings.partition_point(|at| *at <= record) as u32,
        };
        (of, before)
    }

    fn answer<Q, A>(
        &mut self,
        question: Q,
        map: fn(&mut Answers) -> &mut HashMap<Q, A>,
        by_files: impl FnOnce(&mut Symbolizer) -> A,
        fuller: impl FnOnce(A, A) -> A,
    ) -> A
    where
        Q: Copy + Eq + std::hash::Hash,
        A: Clone,
    {
        if let Some(known) = map(&mut self.answers).get(&question) {
            return known.clone();
        }
        let found = by_files(self);
        let kept = self.kept.as_mut();
        let kept = kept.and_then(|kept| map(kept).get(&question).cloned());
        let answer = match kept {
            Some(kept) => fuller(kept, found),
            None => found,
        };
        map(&mut self.answers).insert(question, answer.clone());
        answer
    }
}

impl Frames for Symbolizer {
    fn is_musl(&mut self) -> bool {
        let library = Program::library(self);
        library.is_ok_and(|library| library.family == Family::Musl)
    }

    fn layout(&mut self) -> Option<&'static Layout> {
        let pointer = self.arch?.address_size();
        let library = Program::library(self).ok()?;
        layouts::of(library.family, pointer).ok()
    }

    fn backtrace(&mut self, record: usize, snapshot: &Snapshot) -> Arc<Backtrace> {
        let question = self.question(record, answers::hash(snapshot));
        let preferred = !self.walking.prefer.is_empty();
        let mut merged = std::mem::take(&mut self.merged);
        let stack = self.answer(
            question,
            |answers| &mut answers.stacks,
            |files| files.backtrace_by_files(record, snapshot),
            |kept, found| match preferred && found.truncated.is_none() {
                true => found,
                // Equal stacks are shared, so that pointers can be compared.
                false => merged
                    .entry((Arc::as_ptr(&kept), Arc::as_ptr(&found)))
                    .or_insert_with(|| fuller_stack(&kept, &found))
                    .clone(),
            },
        );
        self.merged = merged;
        stack
    }

    fn place(&mut self, record: usize, avma: u64) -> Place {
        self.answer(
            self.question(record, avma),
            |answers| &mut answers.code,
            |files| files.place_by_files(record, avma),
            fuller_place,
        )
    }

    fn start(&mut self, record: usize, avma: u64) -> Option<Place> {
        self.answer(
            self.question(record, avma),
            |answers| &mut answers.starts,
            |files| files.start_by_files(record, avma),
            |kept, found| kept.or(found),
        )
    }

    fn data(&mut self, record: usize, avma: u64) -> Option<Place> {
        self.answer(
            self.question(record, avma),
            |answers| &mut answers.data,
            |files| files.data_by_files(record, avma),
            |kept, found| kept.or(found),
        )
    }

    fn part(&mut self, record: usize, avma: u64) -> Option<Arc<str>> {
        self.answer(
            self.question(record, avma),
            |answers| &mut answers.symbols,
            |files| files.variable_by_files(record, avma),
            |kept, found| kept.or(found),
        )
    }

    fn pointer(&mut self, record: usize, avma: u64) -> Option<u64> {
        self.answer(
            self.question(record, avma),
            |answers| &mut answers.pointers,
            |files| files.pointer_by_files(record, avma),
            |kept, found| kept.or(found),
        )
    }
}

impl Program for Symbolizer {
    fn library(&mut self) -> Result<Library, String> {
        if let Some(known) = &self.answers.library {
            return known.clone();
        }
        let kept = self.kept.as_ref().and_then(|kept| kept.library.clone());
        let library = match kept {
            Some(Ok(library)) => Ok(library),
            _ => self.library_by_files(),
        };
        self.answers.library = Some(library.clone());
        library
    }

    fn code(&mut self, avma: u64, len: usize) -> Option<Vec<u8>> {
        self.answer(
            (self.question(LAST, avma), len),
            |answers| &mut answers.bytes,
            |files| files.code_by_files(avma, len),
            |kept, found| kept.or(found),
        )
    }

    fn variable(&mut self, avma: u64) -> Option<Arc<str>> {
        self.answer(
            self.question(LAST, avma),
            |answers| &mut answers.symbols,
            |files| files.variable_by_files(LAST, avma),
            |kept, found| kept.or(found),
        )
    }

    fn onward(&mut self, avma: u64) -> Onward {
        self.answer(
            self.question(LAST, avma),
            |answers| &mut answers.onward,
            |files| files.onward_by_files(avma),
            |kept, _| kept,
        )
    }
}
