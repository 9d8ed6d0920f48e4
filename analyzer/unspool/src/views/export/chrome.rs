//! Chrome's trace event format, JSON: one event a line ("Trace Event Format", Google, 2016).
//!
//! Waits and states are complete events (`X`). A living thread without an event was running.

use std::io::{self, Write};

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::exporter::{Error, Exporter, Options};
use super::tracks::{self, Texts, Tracks};
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
        "Trace JSON: states and waits, for viewers of Chrome's traces"
    }

    fn detail(&self) -> Detail {
        Detail::JOURNAL
    }

    fn write(&self, model: &Model, _: &Options, out: &mut dyn Write) -> Result<(), Error> {
        let (tracks, texts) = (Tracks::of(model), Texts::of(model));
        let mut events = Events {
            model,
            tracks: &tracks,
            texts: &texts,
            out,
            is_first: true,
            flows: 0,
        };
        events
            .out
            .write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        events.names()?;
        for (index, spans) in spans(model).into_iter().enumerate() {
            for span in spans {
                events.span(index, &span)?;
            }
        }
        for (ns, running) in tracks::running(model) {
            let event = events.event("C", "running threads", ns, None);
            events.write(&Event {
                args: Args::Running(running),
                ..event
            })?;
        }
        events.findings()?;
        events.out.write_all(b"\n]}\n")?;
        Ok(())
    }
}

/// An event, with the format's own names.
#[derive(Serialize)]
struct Event<'a> {
    ph: &'static str,
    name: &'a str,
    /// The category.
    #[serde(skip_serializing_if = "str::is_empty")]
    cat: &'static str,
    /// Microseconds, with all digits.
    ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    pid: u64,
    tid: u64,
    /// Number of a flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    /// `e`: a flow ends at the slice around it.
    #[serde(skip_serializing_if = "Option::is_none")]
    bp: Option<&'static str>,
    /// Scope of an instant; `p` is the process.
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<&'static str>,
    #[serde(skip_serializing_if = "Args::is_none")]
    args: Args<'a>,
}

enum Args<'a> {
    None,
    Running(f64),
    Texts(&'a [(&'a str, &'a str)]),
}

impl Args<'_> {
    fn is_none(&self) -> bool {
        matches!(self, Args::None)
    }
}

impl Serialize for Args<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self {
            Args::None => {}
            Args::Running(running) => map.serialize_entry("running", running)?,
            Args::Texts(texts) => {
                for (name, text) in *texts {
                    map.serialize_entry(name, text)?;
                }
            }
        }
        map.end()
    }
}

struct Events<'a> {
    model: &'a Model,
    tracks: &'a Tracks,
    texts: &'a Texts,
    out: &'a mut dyn Write,
    is_first: bool,
    flows: u64,
}

impl Events<'_> {
    fn names(&mut self) -> io::Result<()> {
        let tracks = self.tracks;
        for process in &tracks.processes {
            let event = self.event("M", "process_name", 0, None);
            self.write(&Event {
                args: Args::Texts(&[("name", &process.name)]),
                pid: process.pid,
                tid: process.pid,
                ..event
            })?;
        }
        for (index, track) in tracks.threads.iter().enumerate() {
            let key = self.model.threads.get(index);
            let key = key.map(|thread| thread.key.to_string());
            let texts = [("name", track.name.as_str())];
            let texts = texts
                .into_iter()
                .chain(key.iter().map(|key| ("key", key.as_str())));
            let event = self.event("M", "thread_name", 0, Some(index));
            self.write(&Event {
                args: Args::Texts(&texts.collect::<Vec<_>>()),
                ..event
            })?;
        }
        Ok(())
    }

    fn span(&mut self, thread: usize, span: &Span) -> io::Result<()> {
        let length = Some(micros(span.to_ns.saturating_sub(span.from_ns)));
        let Some(used) = span.used.map(UseIndex) else {
            let name = match span.state {
                State::Runnable => "runnable",
                State::Away => "blocked",
                State::Stopped => "stopped by the recorder",
                _ => "unknown",
            };
            let event = self.event("X", name, span.from_ns, Some(thread));
            self.write(&Event {
                cat: "state",
                dur: length,
                ..event
            })?;
            return self.wake_up(thread, span);
        };
        let wait = WaitSpan {
            thread: ThreadIndex(thread),
            used,
            from_ns: span.from_ns,
            to_ns: span.to_ns,
            holder: span.holder.map(ThreadIndex),
            waker: span.waker.map(ThreadIndex),
        };
        let (tracks, texts) = (self.tracks, self.texts);
        let facts: Vec<(&str, &str)> = texts.facts(tracks, &wait).collect();
        let event = self.event("X", texts.object(used), span.from_ns, Some(thread));
        self.write(&Event {
            cat: "wait",
            dur: length,
            args: Args::Texts(&facts),
            ..event
        })?;
        self.wake_up(thread, span)
    }

    /// Writes an arrow from the waker to the thread that it woke.
    fn wake_up(&mut self, thread: usize, span: &Span) -> io::Result<()> {
        let Some(waker) = span.waker else {
            return Ok(());
        };
        self.flows += 1;
        let id = Some(self.flows);
        for (phase, on, bp) in [("s", waker, None), ("f", thread, Some("e"))] {
            let event = self.event(phase, "wakes", span.to_ns, Some(on));
            self.write(&Event {
                cat: "wake",
                id,
                bp,
                ..event
            })?;
        }
        Ok(())
    }

    fn findings(&mut self) -> io::Result<()> {
        let waits = tracks::waits(self.model);
        for finding in &self.model.findings {
            let (ns, thread) = tracks::time_of(self.model, &waits, finding);
            let text = finding_text::text(self.model, finding);
            let proved = finding.proved.to_string();
            let thread = thread.map(|thread| thread.0);
            let event = self.event("i", finding.kind.as_str(), ns, thread);
            self.write(&Event {
                cat: "finding",
                s: Some("p"),
                args: Args::Texts(&[("text", &text), ("proved", &proved)]),
                ..event
            })?;
        }
        Ok(())
    }

    fn event<'e>(
        &self,
        ph: &'static str,
        name: &'e str,
        ns: u64,
        thread: Option<usize>,
    ) -> Event<'e> {
        let track = thread.and_then(|thread| self.tracks.threads.get(thread));
        let program = self.tracks.processes[0].pid;
        Event {
            ph,
            name,
            cat: "",
            ts: micros(ns),
            dur: None,
            pid: track.map_or(program, |track| self.tracks.pid(track)),
            tid: track.map_or(program, |track| track.id),
            id: None,
            bp: None,
            s: None,
            args: Args::None,
        }
    }

    fn write(&mut self, event: &Event<'_>) -> io::Result<()> {
        let before: &[u8] = if self.is_first { b"\n" } else { b",\n" };
        self.is_first = false;
        self.out.write_all(before)?;
        serde_json::to_writer(&mut *self.out, event).map_err(io::Error::from)
    }
}

fn micros(ns: u64) -> f64 {
    ns as f64 / 1000.0
}
