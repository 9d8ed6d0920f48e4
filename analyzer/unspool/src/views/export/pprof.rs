//! Profiles for pprof: the gzipped messages of profile.proto (github.com/google/pprof).
//!
//! There is one sample for the waits of a thread in one call path, and one for each creation. If
//! the kernel sampled stacks, there is one for each thread and stack, otherwise one for each
//! thread's processor time. Labels name the thread and the object.

mod field;
mod tables;

use std::collections::BTreeMap;
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

use self::tables::Tables;
use super::exporter::{Error, Exporter, Options};
use super::protobuf::Message;
use super::tracks::{self, Tracks};
use crate::model::sync::UseIndex;
use crate::model::{Detail, Key, Model, ThreadIndex};
use crate::views::{finding_text, off_cpu};

/// Types and units of a sample's values. Only a recording with a schedule or with CPU samples has
/// processor times, only one with CPU samples has their number, and only one with off-CPU samples
/// has blocked times.
const VALUES: [(&str, &str); 6] = [
    ("waits", "count"),
    ("wait", "nanoseconds"),
    ("creations", "count"),
    ("cpu", "nanoseconds"),
    ("samples", "count"),
    ("off-cpu", "nanoseconds"),
];

#[derive(Debug)]
pub(super) struct Pprof;

impl Exporter for Pprof {
    fn name(&self) -> &'static str {
        "pprof"
    }

    fn about(&self) -> &'static str {
        "Profile of waits, creations and processor time, for pprof"
    }

    fn detail(&self) -> Detail {
        Detail::JOURNAL
    }

    fn is_binary(&self) -> bool {
        true
    }

    fn write(&self, model: &Model, _: &Options, out: &mut dyn Write) -> Result<(), Error> {
        let waits = waits(model);
        let has_creations = (model.any_threads()).any(|thread| thread.creation_stack().is_some());
        let is_sampled = model.profile.is_known();
        if waits.is_empty() && !has_creations && !model.schedule.is_known() && !is_sampled {
            let text = "the recording has no waits, creations or schedule to make a profile of; \
                        `unspool record` records creations, `--sync` waits, and `--cpu` CPU samples";
            return Err(Error::Missing(text.to_owned()));
        }
        let values = match (is_sampled, model.schedule.is_known()) {
            (true, _) if model.profile.off_cpu.is_ok() => VALUES.len(),
            (true, _) => VALUES.len() - 1,
            (false, true) => VALUES.len() - 2,
            (false, false) => VALUES.len() - 3,
        };
        let mut profile = Profile {
            model,
            tracks: Tracks::of(model),
            tables: Tables::new(GzEncoder::new(out, Compression::default()))?,
            values,
        };
        profile.head()?;
        profile.waits(&waits)?;
        profile.creations()?;
        match is_sampled {
            true => profile.samples()?,
            false => profile.processors()?,
        }
        profile.off_cpu()?;
        profile.tables.finish(model)?.finish()?.flush()?;
        Ok(())
    }
}

/// Number and total length of the waits of each thread in each use.
fn waits(model: &Model) -> BTreeMap<(ThreadIndex, UseIndex), (u64, u64)> {
    let mut waits: BTreeMap<_, (u64, u64)> = BTreeMap::new();
    for wait in model.sync.journal.iter().flat_map(|journal| &journal.waits) {
        let (count, ns) = waits.entry((wait.thread, wait.used)).or_default();
        *count += 1;
        *ns += wait.to_ns.saturating_sub(wait.from_ns);
    }
    waits
}

struct Profile<'a, W> {
    model: &'a Model,
    tracks: Tracks,
    tables: Tables<W>,
    /// Number of values in a sample.
    values: usize,
}

/// A label's value.
enum Label<'t> {
    Number(u64),
    Text(&'t str),
}

impl<W: Write> Profile<'_, W> {
    fn head(&mut self) -> io::Result<()> {
        for (name, unit) in &VALUES[..self.values] {
            let (name, unit) = (self.tables.string(name)?, self.tables.string(unit)?);
            self.tables.field(|profile| {
                profile.message(field::SAMPLE_TYPE, |kind| {
                    kind.number(field::TYPE, name);
                    kind.number(field::UNIT, unit);
                });
            })?;
        }
        let recording = &self.model.recording;
        // The type that pprof shows first.
        let default = match self.model.profile.is_known() {
            true => "cpu",
            false => "wait",
        };
        let default = self.tables.string(default)?;
        self.tables.field(|profile| {
            profile.number(field::DEFAULT_SAMPLE_TYPE, default);
            profile.number(field::TIME_NANOS, recording.start_unix_ns);
            profile.number(field::DURATION_NANOS, recording.duration_ns);
        })?;
        let findings = self.model.findings.iter();
        let findings = findings.map(|finding| {
            let text = finding_text::text(self.model, finding);
            format!("{}: {text}", finding.kind.as_str())
        });
        for comment in std::iter::once(recording.product.clone()).chain(findings) {
            let comment = self.tables.string(&comment)?;
            self.tables
                .field(|profile| profile.number(field::COMMENT, comment))?;
        }
        Ok(())
    }

    fn waits(&mut self, waits: &BTreeMap<(ThreadIndex, UseIndex), (u64, u64)>) -> io::Result<()> {
        let sync = &self.model.sync;
        for ((thread, used), (count, ns)) in waits {
            let used = sync.used(*used);
            let stack = self.tables.stack(sync.path(used))?;
            let object = tracks::object(self.model, used.object);
            let key = sync.object(used.object).key.to_string();
            let labels = [
                ("object", Label::Text(&object)),
                ("object_key", Label::Text(&key)),
                ("operation", Label::Text(used.operation.as_str())),
                ("waiting_for", Label::Text(used.waiting.as_str())),
            ];
            self.sample(Some(*thread), &stack, [*count, *ns, 0, 0, 0, 0], &labels)?;
        }
        Ok(())
    }

    fn creations(&mut self) -> io::Result<()> {
        let model = self.model;
        for (index, thread) in model.any_threads().enumerate() {
            let Some(stack) = thread.creation_stack() else {
                continue;
            };
            let stack = self.tables.stack(stack)?;
            let created = self.tracks.threads[index].name.clone();
            let key = thread.key.to_string();
            let labels = [
                ("creates", Label::Text(&created)),
                ("created_identity", Label::Text(&key)),
                ("created_tid", Label::Number(thread.tid.unwrap_or(0))),
            ];
            self.sample(thread.creator(), &stack, [0, 0, 1, 0, 0, 0], &labels)?;
        }
        Ok(())
    }

    /// The processor time of each thread, at its function.
    fn processors(&mut self) -> io::Result<()> {
        let model = self.model;
        for (index, thread) in model.threads.iter().enumerate() {
            let index = ThreadIndex(index);
            let running_ns = model.schedule.times(index).running_ns;
            if running_ns == 0 {
                continue;
            }
            let location = match &thread.function {
                Some(function) => self.tables.place(function)?,
                None => {
                    let name = &self.tracks.threads[index.0].name;
                    self.tables.named(name, &model.target.executable)?
                }
            };
            self.sample(Some(index), &[location], [0, 0, 0, running_ns, 0, 0], &[])?;
        }
        Ok(())
    }

    /// The processor time of each thread and stack, by the kernel's samples.
    fn samples(&mut self) -> io::Result<()> {
        let profile = &self.model.profile;
        for ((thread, stack), count) in profile.thread_counts() {
            let stack = self.tables.stack(&profile.stacks[stack])?;
            let values = [0, 0, 0, profile.time_ns(count), count, 0];
            self.sample(thread, &stack, values, &[])?;
        }
        Ok(())
    }

    /// The blocked time of each thread and stack, with the reason and the waker.
    fn off_cpu(&mut self) -> io::Result<()> {
        let model = self.model;
        let sums = model.profile.off_cpu.iter();
        for sum in sums.flat_map(|off_cpu| &off_cpu.sums) {
            let stack = sum.key.stack.and_then(|at| model.profile.stacks.get(at));
            let stack = match stack {
                Some(stack) => self.tables.stack(stack)?,
                None => vec![self.tables.named("[no stack]", &model.target.executable)?],
            };
            let reason = off_cpu::reason(model, &sum.key);
            let waker = sum.key.waker.map(|waker| off_cpu::waker(model, waker));
            let reason = reason.as_deref().map(|text| ("reason", Label::Text(text)));
            let waker = waker.as_deref().map(|text| ("waker", Label::Text(text)));
            let labels: Vec<(&str, Label<'_>)> = reason.into_iter().chain(waker).collect();
            let values = [0, 0, 0, 0, 0, sum.ns];
            self.sample(Some(sum.key.thread), &stack, values, &labels)?;
        }
        Ok(())
    }

    /// Writes a sample with the labels of its thread, and these.
    fn sample(
        &mut self,
        thread: Option<ThreadIndex>,
        stack: &[u64],
        values: [u64; VALUES.len()],
        labels: &[(&str, Label<'_>)],
    ) -> io::Result<()> {
        let mut sample = Message::default();
        for location in stack {
            sample.number(field::SAMPLE_LOCATION, *location);
        }
        for value in &values[..self.values] {
            sample.number(field::SAMPLE_VALUE, *value);
        }
        if let Some((index, thread)) = thread.and_then(|at| Some((at, self.model.any_thread(at)?)))
        {
            let name = &self.tracks.threads[index.0].name;
            label(&mut self.tables, &mut sample, "thread", &Label::Text(name))?;
            // The first threads of processes have none.
            if thread.key != Key::default() {
                let key = thread.key.to_string();
                let key = Label::Text(&key);
                label(&mut self.tables, &mut sample, "identity", &key)?;
            }
            if let Some(tid) = thread.tid {
                label(&mut self.tables, &mut sample, "tid", &Label::Number(tid))?;
            }
        }
        for (name, value) in labels {
            label(&mut self.tables, &mut sample, name, value)?;
        }
        let sample = sample.into_bytes();
        self.tables
            .field(|profile| profile.bytes(field::SAMPLE, &sample))
    }
}

/// Adds a label to a sample. A number of 0 means that it is not known.
fn label<W: Write>(
    tables: &mut Tables<W>,
    sample: &mut Message,
    name: &str,
    value: &Label<'_>,
) -> io::Result<()> {
    let name = tables.string(name)?;
    let text = match value {
        Label::Number(0) => return Ok(()),
        Label::Number(_) => 0,
        Label::Text(text) => tables.string(text)?,
    };
    sample.message(field::SAMPLE_LABEL, |label| {
        label.number(field::LABEL_KEY, name);
        match value {
            Label::Number(number) => label.number(field::LABEL_NUMBER, *number),
            Label::Text(_) => label.number(field::LABEL_TEXT, text),
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::model::fixture::{PID, Stage};

    #[test]
    fn nothing_is_written_if_there_is_nothing_to_count() {
        let mut out = Vec::new();
        let model = Stage::new().model();
        let error = Pprof.write(&model, &Options::default(), &mut out);
        assert!(matches!(error, Err(Error::Missing(_))), "{error:?}");
        assert!(out.is_empty());
    }

    #[test]
    fn each_string_is_written_once_and_the_empty_one_first() {
        let mut stage = Stage::new();
        for tid in 11..14 {
            let stack = ["orders!start@orders.c:9", "orders!main@orders.c:12"];
            stage.spawn(PID, tid, tid - 10, "orders!work@orders.c:20", &stack);
        }
        stage.end(10);
        let mut out = Vec::new();
        let model = stage.model();
        Pprof.write(&model, &Options::default(), &mut out).unwrap();
        let mut bytes = Vec::new();
        let mut gzip = flate2::read::GzDecoder::new(&out[..]);
        gzip.read_to_end(&mut bytes).unwrap();
        assert!(bytes.starts_with(&[(field::STRING_TABLE << 3 | 2) as u8, 0]));
        let name = b"orders.c";
        let times = bytes.windows(name.len()).filter(|at| at == name).count();
        assert_eq!(times, 1);
    }
}
