//! The tables of a profile: strings, functions, locations and mappings, each written once.
//!
//! Separate from the samples, which refer to them by number. A profile's fields need no order, so
//! an entry is written as soon as a sample needs it, and only its number stays in memory.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

use super::super::protobuf::Message;
use super::super::tracks;
use super::field;
use crate::model::{Backtrace, Model, Place};

/// A profile that is being written.
pub(super) struct Tables<W> {
    out: W,
    strings: HashMap<String, u64>,
    /// By name and file.
    functions: HashMap<(u64, u64), u64>,
    locations: HashMap<Location, u64>,
    mappings: HashMap<MappedFile, Mapping>,
}

#[derive(PartialEq, Eq, Hash)]
struct Location {
    mapping: u64,
    address: u64,
    /// Functions and lines, the innermost inlined function first.
    lines: Vec<(u64, u64)>,
}

/// Path and edition of a file.
type MappedFile = (Arc<str>, Option<Arc<str>>);

struct Mapping {
    id: u64,
    /// Behind the highest known address.
    limit: u64,
}

impl<W: Write> Tables<W> {
    pub(super) fn new(out: W) -> io::Result<Tables<W>> {
        let mut tables = Tables {
            out,
            strings: HashMap::new(),
            functions: HashMap::new(),
            locations: HashMap::new(),
            mappings: HashMap::new(),
        };
        // The format demands that the empty string comes first.
        tables.string("")?;
        Ok(tables)
    }

    /// Writes a field of the profile.
    pub(super) fn field(&mut self, fill: impl FnOnce(&mut Message)) -> io::Result<()> {
        let mut message = Message::default();
        fill(&mut message);
        self.out.write_all(&message.into_bytes())
    }

    /// The number of a string.
    pub(super) fn string(&mut self, text: &str) -> io::Result<u64> {
        if let Some(known) = self.strings.get(text) {
            return Ok(*known);
        }
        let number = self.strings.len() as u64;
        self.strings.insert(text.to_owned(), number);
        self.field(|profile| profile.text(field::STRING_TABLE, text))?;
        Ok(number)
    }

    /// The locations of a stack, the innermost first. Inlined functions share their location.
    pub(super) fn stack(&mut self, stack: &Backtrace) -> io::Result<Vec<u64>> {
        let mut locations = Vec::new();
        let mut lines = Vec::new();
        for frame in &stack.frames {
            lines.push(self.line(&frame.place)?);
            if !frame.inlined {
                locations.push(self.location(&frame.place, std::mem::take(&mut lines))?);
            }
        }
        Ok(locations)
    }

    /// The location of a function.
    pub(super) fn place(&mut self, place: &Place) -> io::Result<u64> {
        let line = self.line(place)?;
        self.location(place, vec![line])
    }

    /// A location in a file that has only a name.
    pub(super) fn named(&mut self, name: &str, module: &str) -> io::Result<u64> {
        let function = self.function(name, "")?;
        let place = Place {
            module: Some(module.into()).filter(|_| !module.is_empty()),
            ..Place::default()
        };
        self.location(&place, vec![(function, 0)])
    }

    fn line(&mut self, place: &Place) -> io::Result<(u64, u64)> {
        let file = place.file.as_deref().unwrap_or_default();
        let function = self.function(&tracks::function(place), file)?;
        Ok((function, place.line.unwrap_or(0).into()))
    }

    fn function(&mut self, name: &str, file: &str) -> io::Result<u64> {
        let key = (self.string(name)?, self.string(file)?);
        if let Some(known) = self.functions.get(&key) {
            return Ok(*known);
        }
        // Numbers of functions, locations and mappings begin at 1.
        let id = self.functions.len() as u64 + 1;
        self.functions.insert(key, id);
        self.field(|profile| {
            profile.message(field::FUNCTION, |function| {
                function.number(field::FUNCTION_ID, id);
                function.number(field::FUNCTION_NAME, key.0);
                function.number(field::FUNCTION_FILE, key.1);
            });
        })?;
        Ok(id)
    }

    fn location(&mut self, place: &Place, lines: Vec<(u64, u64)>) -> io::Result<u64> {
        // Addresses in files are the same in every run.
        let address = place.svma.unwrap_or(place.avma);
        let mapping = place.module.as_ref().map_or(0, |module| {
            let id = self.mappings.len() as u64 + 1;
            let mapping = self
                .mappings
                .entry((Arc::clone(module), place.edition.clone()));
            let mapping = mapping.or_insert(Mapping { id, limit: 0 });
            mapping.limit = mapping.limit.max(address.saturating_add(1));
            mapping.id
        });
        let location = Location {
            mapping,
            address,
            lines,
        };
        if let Some(known) = self.locations.get(&location) {
            return Ok(*known);
        }
        let id = self.locations.len() as u64 + 1;
        self.field(|profile| {
            profile.message(field::LOCATION, |message| {
                message.number(field::LOCATION_ID, id);
                message.number(field::LOCATION_MAPPING, location.mapping);
                message.number(field::LOCATION_ADDRESS, location.address);
                for (function, number) in &location.lines {
                    message.message(field::LOCATION_LINE, |line| {
                        line.number(field::LINE_FUNCTION, *function);
                        line.number(field::LINE_NUMBER, *number);
                    });
                }
            });
        })?;
        self.locations.insert(location, id);
        Ok(id)
    }

    /// Writes the mappings, and returns the output. pprof takes the first one for the program's.
    pub(super) fn finish(mut self, model: &Model) -> io::Result<W> {
        let mut mappings: Vec<(MappedFile, Mapping)> = self.mappings.drain().collect();
        mappings
            .sort_by_key(|((path, _), mapping)| (**path != *model.target.executable, mapping.id));
        for ((path, edition), mapping) in mappings {
            let module = model.module(&path, edition.as_ref());
            let build_id = module.and_then(|module| module.build_id.as_deref());
            let build_id = self.string(build_id.unwrap_or_default())?;
            let file = self.string(&path)?;
            self.field(|profile| {
                profile.message(field::MAPPING, |message| {
                    message.number(field::MAPPING_ID, mapping.id);
                    message.number(field::MEMORY_LIMIT, mapping.limit);
                    message.number(field::MAPPING_FILE, file);
                    message.number(field::BUILD_ID, build_id);
                    // Names are complete, so that pprof looks for none in the files.
                    for known in [
                        field::HAS_FUNCTIONS,
                        field::HAS_FILE_NAMES,
                        field::HAS_LINE_NUMBERS,
                        field::HAS_INLINE_FRAMES,
                    ] {
                        message.number(known, 1);
                    }
                });
            })?;
        }
        Ok(self.out)
    }
}
