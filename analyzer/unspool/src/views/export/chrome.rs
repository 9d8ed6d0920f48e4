//! Chrome's trace event format, JSON: one event a line ("Trace Event Format", Google, 2016).
//!
//! Waits and states are complete events (`X`). Where a thread lives and has none, it ran.

use std::io::Write;

use serde_json::{Value, json};

use super::exporter::{Error, Exporter, Options};
use super::tracks::{self, Tracks};
use crate::model::sync::{UseIndex, WaitSpan};
use crate::model::{Detail, Model, ThreadIndex};
use crate::views::finding_text;
use crate::views::states::{Span, State, spans};

#[derive(Debug)]
pub(super) struct Chrome;

impl Exporter for Chrome {
    fn name(&self) -> &'static str {
        "chrome"
    }

    fn about(&self) -> &'static str {
        "Trace JSON: states and waits, for chrome://tracing, Perfetto and speedscope"
    }

    fn detail(&self) -> Detail {
        Detail {
            journal: true,
            ..Detail::default()
        }
    }

    fn write(&self, model: &Model, _: &Options, out: &mut dyn Write) -> Result<(), Error> {
        out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        let mut events = Events {
            model,
            tracks: Tracks::of(model),
            out,
            is_first: true,
            flows: 0,
        };
        events.names()?;
        for (index, spans) in spans(model).into_iter().enumerate() {
            for span in spans {
                events.span(index, &span)?;
            }
        }
        for (ns, running) in tracks::running(model) {
            events.event("C", "running threads", ns, None, |event| {
                event["args"] = json!({ "running": running });
            })?;
        }
        events.findings()?;
        events.out.write_all(b"\n]}\n")?;
        Ok(())
    }
}

struct Events<'a> {
    model: &'a Model,
    tracks: Tracks,
    out: &'a mut dyn Write,
    is_first: bool,
    flows: u64,
}

impl Events<'_> {
    fn names(&mut self) -> Result<(), Error> {
        let process = self.tracks.process.clone();
        self.event("M", "process_name", 0, None, |event| {
            event["args"] = json!({ "name": process });
        })?;
        for index in 0..self.tracks.threads.len() {
            let name = self.tracks.threads[index].name.clone();
            let key = self.model.threads[index].key.to_string();
            self.event("M", "thread_name", 0, Some(index), |event| {
                event["args"] = json!({ "name": name, "key": key });
            })?;
        }
        Ok(())
    }

    fn span(&mut self, thread: usize, span: &Span) -> Result<(), Error> {
        let length = micros(span.to_ns.saturating_sub(span.from_ns));
        let Some(used) = span.used.map(UseIndex) else {
            let name = match span.state {
                State::Runnable => "runnable",
                State::Away => "blocked",
                _ => "unknown",
            };
            return self.event("X", name, span.from_ns, Some(thread), |event| {
                event["cat"] = "state".into();
                event["dur"] = length;
            });
        };
        let wait = WaitSpan {
            thread: ThreadIndex(thread),
            used,
            from_ns: span.from_ns,
            to_ns: span.to_ns,
            holder: span.holder.map(ThreadIndex),
            waker: span.waker.map(ThreadIndex),
        };
        let facts = tracks::facts(self.model, &self.tracks, &wait);
        let facts = facts
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.into()));
        let facts: serde_json::Map<String, Value> = facts.collect();
        let name = tracks::object(self.model, self.model.sync.used(used).object);
        self.event("X", &name, span.from_ns, Some(thread), |event| {
            event["cat"] = "wait".into();
            event["dur"] = length;
            event["args"] = facts.into();
        })?;
        let Some(waker) = span.waker else {
            return Ok(());
        };
        self.flows += 1;
        let id = self.flows;
        for (phase, on) in [("s", waker), ("f", thread)] {
            self.event(phase, "wakes", span.to_ns, Some(on), |event| {
                event["cat"] = "wake".into();
                event["id"] = id.into();
                if phase == "f" {
                    event["bp"] = "e".into();
                }
            })?;
        }
        Ok(())
    }

    fn findings(&mut self) -> Result<(), Error> {
        let waits = tracks::waits(self.model);
        for finding in &self.model.findings {
            let (ns, thread) = tracks::time_of(self.model, &waits, finding);
            let text = finding_text::text(self.model, finding);
            let thread = thread.map(|thread| thread.0);
            self.event("i", finding.kind.as_str(), ns, thread, |event| {
                event["cat"] = "finding".into();
                event["s"] = "p".into();
                event["args"] = json!({ "text": text, "proved": finding.proved });
            })?;
        }
        Ok(())
    }

    fn event(
        &mut self,
        phase: &str,
        name: &str,
        ns: u64,
        thread: Option<usize>,
        more: impl FnOnce(&mut Value),
    ) -> Result<(), Error> {
        let mut event =
            json!({ "ph": phase, "name": name, "ts": micros(ns), "pid": self.tracks.pid });
        let track = thread.and_then(|thread| self.tracks.threads.get(thread));
        event["tid"] = track.map_or(self.tracks.pid, |track| track.id).into();
        more(&mut event);
        let before: &[u8] = if self.is_first { b"\n" } else { b",\n" };
        self.is_first = false;
        self.out.write_all(before)?;
        serde_json::to_writer(&mut *self.out, &event).map_err(std::io::Error::from)?;
        Ok(())
    }
}

/// Microseconds, the format's unit, with all digits.
fn micros(ns: u64) -> Value {
    (ns as f64 / 1000.0).into()
}
