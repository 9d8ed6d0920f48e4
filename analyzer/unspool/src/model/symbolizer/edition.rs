//! Tells apart the files that one path named during a recording.
//!
//! A program may load a library again after another file has replaced it. Functions of both files
//! can be at equal offsets, so path and offset do not identify them. The first file of a path has
//! no edition, so that keys of ordinary recordings stay what they are.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use unspool_capture::ModuleLoaded;
use unspool_image::BuildId;

use super::{Load, Symbolizer};
use crate::model::backtrace::{Backtrace, Place};
use crate::model::{Note, Topic};

/// Build-id, and number without one.
type File<'a> = (&'a [u8], Option<u32>);

/// The files of each path, in the order of their first mapping.
#[derive(Debug, Default)]
pub(super) struct Editions<'a> {
    files: HashMap<&'a str, Vec<File<'a>>>,
}

impl<'a> Editions<'a> {
    /// The edition of a module's file ([`Place::edition`]). Modules come in order.
    pub(super) fn of(&mut self, module: &'a ModuleLoaded) -> Option<Arc<str>> {
        let file = (&*module.build_id, module.file_number);
        let known = self.files.entry(&module.path).or_default();
        if !known.contains(&file) {
            known.push(file);
        }
        if known.first() == Some(&file) {
            return None;
        }
        let id = BuildId::new(&module.build_id).map(|id| id.to_string());
        let number = || module.file_number.unwrap_or_default().to_string();
        Some(id.unwrap_or_else(number).into())
    }
}

/// A note that names the paths with several files.
pub(super) fn note(loads: &[Load]) -> Option<Note> {
    let replaced = loads.iter().filter(|load| load.edition.is_some());
    let paths: BTreeSet<&str> = replaced.map(|load| &*load.path).collect();
    if paths.is_empty() {
        return None;
    }
    let paths: Vec<&str> = paths.into_iter().collect();
    let (paths, has) = match paths.as_slice() {
        [path] => ((*path).to_owned(), "was"),
        _ => (paths.join(", "), "were"),
    };
    let text = format!(
        "{paths} {has} replaced during the recording. Unspool counts the threads, objects and calls \
         of old and new files separately."
    );
    Some(Note::info(text).about(Topic::Stacks))
}

impl Symbolizer {
    /// Sets the editions of places that a recording stores.
    pub(super) fn set_editions(&mut self) {
        if self.loads.iter().all(|load| load.edition.is_none()) {
            return;
        }
        let mut answers = std::mem::take(&mut self.answers);
        let mut stacks: HashMap<(*const Backtrace, usize), Arc<Backtrace>> = HashMap::new();
        for ((_, mappings), stack) in &mut answers.stacks {
            let epoch = self.epoch_after(*mappings);
            // Equal stacks stay shared, so that pointers can be compared.
            let changed = stacks.entry((Arc::as_ptr(stack), epoch));
            let changed = changed.or_insert_with(|| {
                let mut changed = Backtrace::clone(stack);
                for frame in &mut changed.frames {
                    self.set_edition(epoch, &mut frame.place);
                }
                Arc::new(changed)
            });
            *stack = changed.clone();
        }
        for ((_, mappings), place) in &mut answers.code {
            self.set_edition(self.epoch_after(*mappings), place);
        }
        for places in [&mut answers.starts, &mut answers.data] {
            for ((_, mappings), place) in places {
                let place = place.as_mut().into_iter();
                place.for_each(|place| self.set_edition(self.epoch_after(*mappings), place));
            }
        }
        self.answers = answers;
    }

    /// The epoch of a [`Question`](super::answers::Question): after this number of modules was
    /// mapped and unmapped, or of another process.
    fn epoch_after(&self, mappings: u32) -> usize {
        let elsewhere = (u32::MAX - mappings) as usize;
        if elsewhere < self.epochs.len() - self.own_epochs {
            return self.own_epochs + elsewhere;
        }
        let last = (mappings as usize).checked_sub(1);
        last.and_then(|last| self.mappings.get(last))
            .map_or(0, |record| self.epoch(*record))
    }

    fn set_edition(&self, epoch: usize, place: &mut Place) {
        let load: Option<&Load> = self.owner(epoch, place.avma).map(|load| &self.loads[load]);
        let load = load.filter(|load| place.module.as_deref() == Some(&*load.path));
        place.edition = load.and_then(|load| load.edition.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_file_of_a_path_has_no_edition() {
        let module = |path: &str, build_id: &[u8], file_number| ModuleLoaded {
            path: path.to_owned(),
            build_id: build_id.to_vec(),
            file_number,
            ..ModuleLoaded::default()
        };
        let modules = [
            module("/x", &[0xab; 20], None),
            module("/x", &[0xcd; 20], None),
            module("/x", &[0xab; 20], None),
            module("/x", &[0xcd; 20], None),
            module("/y", &[], Some(0)),
            module("/y", &[], Some(1)),
            module("/y", &[], Some(0)),
            module("/z", &[], None),
            module("/z", &[], None),
        ];
        let mut editions = Editions::default();
        let found = modules.iter().map(|module| editions.of(module));
        let found: Vec<Option<Arc<str>>> = found.collect();
        let other: Option<Arc<str>> = Some("cd".repeat(20).into());
        let second: Option<Arc<str>> = Some("1".into());
        assert_eq!(
            found,
            [
                None,
                other.clone(),
                None,
                other,
                None,
                second,
                None,
                None,
                None
            ]
        );
    }
}
