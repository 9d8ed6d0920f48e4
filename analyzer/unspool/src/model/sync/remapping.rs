//! Finds the times at which memory was unmapped, by an exec or by the unloading of a library. The
//! objects that were there exist no longer.
//!
//! If the same file is mapped there again, its variables stand for the same objects, so that a
//! plugin that is loaded a thousand times does not have a thousand locks of one name.

use std::collections::HashMap;
use std::ops::Range;

use unspool_capture::{Capture, ModuleLoaded, Record};

use crate::model::Model;

/// A change of the mapped memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Remapping {
    /// Nanoseconds since the recording began.
    pub(super) at_ns: u64,
    pub(super) change: Change,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Another program replaces all memory.
    Exec(LastEvent),
    /// This range of a file was unmapped.
    Unloaded(Range<u64>, FileIndex, LastEvent),
    /// A file that was unloaded is in its former place again.
    Reloaded(FileIndex),
}

/// Position of the last event before a change, at which addresses still have their former names.
pub(super) type LastEvent = usize;

/// Number of a file with its addresses.
pub(super) type FileIndex = usize;

/// Build-id, number, path, addresses and bias.
type File<'a> = (&'a [u8], Option<u32>, &'a str, [u64; 3]);

impl Remapping {
    /// All changes of a recording, in order of time.
    pub(super) fn all(model: &Model, capture: &Capture) -> Vec<Remapping> {
        let records = &capture.records;
        // Call events are not among the records, and may be between any two of them.
        let has_calls = capture.calls.count() > 0;
        let mut all = Vec::new();
        let mut add = |at_ns, change| all.push(Remapping { at_ns, change });
        let mut loaded: HashMap<u32, &ModuleLoaded> = HashMap::new();
        let mut files: HashMap<File<'_>, FileIndex> = HashMap::new();
        let mut execs = model.recording.execs().iter().peekable();
        let mut last_event = 0;
        for (at, record) in records.iter().enumerate() {
            if let Some((at_ns, _)) = execs.next_if(|(_, next)| *next <= at) {
                files.clear();
                add(*at_ns, Change::Exec(last_event));
            }
            match record {
                Record::Event(_) => last_event = at,
                Record::ModuleLoaded(module) => {
                    // Without a build-id and a number, the file may be another one.
                    let is_known = !module.build_id.is_empty() || module.file_number.is_some();
                    let known = files.get(&file(module));
                    if let Some(known) = known.filter(|_| is_known) {
                        add(module.time_ns, Change::Reloaded(*known));
                    }
                    loaded.insert(module.id, module);
                }
                Record::ModuleUnloaded(unloaded) => {
                    if let Some(module) = loaded.remove(&unloaded.id) {
                        let next = files.len();
                        let file = *files.entry(file(module)).or_insert(next);
                        let range = module.start..module.end;
                        if has_calls {
                            last_event = at.saturating_sub(1);
                        }
                        add(unloaded.time_ns, Change::Unloaded(range, file, last_event));
                    }
                }
                _ => {}
            }
        }
        all.sort_by_key(|remapping| remapping.at_ns);
        all
    }
}

fn file(module: &ModuleLoaded) -> File<'_> {
    let addresses = [module.start, module.end, module.bias];
    (
        &module.build_id,
        module.file_number,
        &module.path,
        addresses,
    )
}
