//! Perfetto's trace format, protobuf (protos/perfetto/trace/ in Perfetto's source).
//!
//! Waits are slices of the threads' tracks. The kernel's schedule goes out as the ftrace events
//! that the trace processor computes thread states from: `sched_switch` and `sched_waking`. Packets
//! need no order, because the trace processor sorts them by time. CPU samples go out as those of
//! Perfetto's own profiler: `perf_sample`, whose frames have names.

mod field;
mod samples;

use std::io::Write;

use super::exporter::{Error, Exporter, Options};
use super::protobuf::Message;
use super::switches::{self, OTHER, Switch};
use super::tracks::{self, Texts, Tracks};
use crate::model::sync::WaitSpan;
use crate::model::{Detail, Model, ThreadIndex};
use crate::views::finding_text;

/// Maximum number of a processor's events in one packet.
const BUNDLE: usize = 256;

/// Our tracks. Those of threads follow, and then those of other processes.
const PROCESS: u64 = 1;
const RUNNING: u64 = 2;
const FINDINGS: u64 = 3;
const THREADS: u64 = 16;

/// `TrackEvent.Type`
const BEGIN: u64 = 1;
const END: u64 = 2;
const INSTANT: u64 = 3;
const COUNTER: u64 = 4;

#[derive(Debug)]
pub(super) struct Perfetto;

impl Exporter for Perfetto {
    fn name(&self) -> &'static str {
        "perfetto"
    }

    fn about(&self) -> &'static str {
        "Perfetto's trace: states, waits, wake-ups, CPU samples, for ui.perfetto.dev and SQL"
    }

    fn detail(&self) -> Detail {
        Detail::JOURNAL
    }

    fn is_binary(&self) -> bool {
        true
    }

    fn write(&self, model: &Model, _: &Options, out: &mut dyn Write) -> Result<(), Error> {
        let mut trace = Trace {
            model,
            tracks: Tracks::of(model),
            out,
            flows: 0,
        };
        trace.descriptors()?;
        trace.lives()?;
        let waits = tracks::waits(model);
        let texts = Texts::of(model);
        for waits in &waits {
            trace.waits(waits, &texts)?;
        }
        trace.schedule()?;
        trace.samples()?;
        for (ns, running) in tracks::running(model) {
            trace.event(ns, COUNTER, RUNNING, |event| {
                event.double(field::DOUBLE_COUNTER_VALUE, running);
            })?;
        }
        trace.findings(&waits)
    }
}

struct Trace<'a> {
    model: &'a Model,
    tracks: Tracks,
    out: &'a mut dyn Write,
    flows: u64,
}

impl Trace<'_> {
    fn packet(&mut self, fill: impl FnOnce(&mut Message)) -> Result<(), Error> {
        let mut packet = Message::default();
        packet.number(field::SEQUENCE_ID, 1);
        fill(&mut packet);
        let mut trace = Message::default();
        trace.bytes(field::PACKET, &packet.into_bytes());
        self.out.write_all(&trace.into_bytes())?;
        Ok(())
    }

    fn descriptor(
        &mut self,
        track: u64,
        fill: impl FnOnce(&mut Message, &Tracks),
    ) -> Result<(), Error> {
        let mut descriptor = Message::default();
        descriptor.number(field::UUID, track);
        fill(&mut descriptor, &self.tracks);
        self.packet(|packet| packet.bytes(field::TRACK_DESCRIPTOR, &descriptor.into_bytes()))
    }

    fn descriptors(&mut self) -> Result<(), Error> {
        let model = self.model;
        self.packet(|packet| {
            packet.number(field::SEQUENCE_FLAGS, 1);
            samples::defaults(&model.profile, packet);
        })?;
        for index in 0..self.tracks.processes.len() {
            let uuid = match index {
                0 => PROCESS,
                _ => THREADS + (self.tracks.threads.len() + index) as u64,
            };
            self.descriptor(uuid, |track, tracks| {
                let process = &tracks.processes[index];
                track.message(field::PROCESS, |message| {
                    message.number(field::PROCESS_PID, process.pid);
                    message.text(field::PROCESS_NAME, &process.name);
                });
            })?;
        }
        for index in 0..self.tracks.threads.len() {
            self.descriptor(THREADS + index as u64, |track, tracks| {
                let thread = &tracks.threads[index];
                track.message(field::THREAD, |message| {
                    message.number(field::THREAD_PID, tracks.pid(thread));
                    message.number(field::THREAD_TID, thread.id);
                    message.text(field::THREAD_NAME, &thread.name);
                });
            })?;
        }
        self.descriptor(RUNNING, |track, _| {
            track.number(field::PARENT_UUID, PROCESS);
            track.text(field::TRACK_NAME, "running threads");
            track.message(field::COUNTER, |_| {});
        })?;
        self.descriptor(FINDINGS, |track, _| {
            track.number(field::PARENT_UUID, PROCESS);
            track.text(field::TRACK_NAME, "findings");
        })
    }

    fn event(
        &mut self,
        ns: u64,
        kind: u64,
        track: u64,
        fill: impl FnOnce(&mut Message),
    ) -> Result<(), Error> {
        self.packet(|packet| {
            packet.number(field::TIMESTAMP, ns);
            packet.message(field::TRACK_EVENT, |event| {
                event.number(field::EVENT_TYPE, kind);
                event.number(field::TRACK_UUID, track);
                fill(event);
            });
        })
    }

    /// Beginnings of threads, with a flow from the thread that created each.
    fn lives(&mut self) -> Result<(), Error> {
        for (index, thread) in self.model.any_threads().enumerate() {
            let Some(first_ns) = thread.started_ns.or(thread.created_ns) else {
                continue;
            };
            let is_own = index < self.model.threads.len();
            let mut facts = Vec::new();
            facts.extend(is_own.then(|| ("key", thread.key.to_string())));
            facts.extend(thread.tid.map(|tid| ("tid", tid.to_string())));
            let frame = thread
                .creation_stack()
                .and_then(|stack| stack.frames.first());
            let place = frame.map(|frame| ("created_in", crate::model::sync::place(frame)));
            facts.extend(place);
            let creator = tracks::creation(self.model, ThreadIndex(index));
            if creator.is_some() {
                self.flows += 1;
            }
            let flow = self.flows;
            if let Some((ThreadIndex(creator), created_ns)) = creator {
                let name = format!("creates {}", self.tracks.threads[index].name);
                self.event(created_ns, INSTANT, THREADS + creator as u64, |event| {
                    event.text(field::CATEGORIES, "life");
                    event.text(field::EVENT_NAME, &name);
                    event.fixed(field::FLOW_IDS, flow);
                })?;
            }
            self.event(first_ns, INSTANT, THREADS + index as u64, |event| {
                event.text(field::CATEGORIES, "life");
                event.text(field::EVENT_NAME, "starts");
                annotate(event, borrowed(&facts));
                if creator.is_some() {
                    event.fixed(field::TERMINATING_FLOW_IDS, flow);
                }
            })?;
        }
        Ok(())
    }

    /// The waits of one thread as nested slices. A wait ends with a flow from the waker.
    fn waits(&mut self, waits: &[WaitSpan], texts: &Texts) -> Result<(), Error> {
        let mut open: Vec<WaitSpan> = Vec::new();
        for wait in waits {
            while let Some(ended) = open.pop_if(|open| open.to_ns <= wait.from_ns) {
                self.wait_ends(&ended)?;
            }
            let limit = open.last().map_or(u64::MAX, |outer| outer.to_ns);
            let wait = WaitSpan {
                to_ns: wait.to_ns.min(limit),
                ..*wait
            };
            let mut facts = Message::default();
            annotate(&mut facts, texts.facts(&self.tracks, &wait));
            let track = THREADS + wait.thread.0 as u64;
            self.event(wait.from_ns, BEGIN, track, |event| {
                event.text(field::CATEGORIES, "wait");
                event.text(field::EVENT_NAME, texts.object(wait.used));
                event.append(&facts);
            })?;
            open.push(wait);
        }
        while let Some(ended) = open.pop() {
            self.wait_ends(&ended)?;
        }
        Ok(())
    }

    fn wait_ends(&mut self, wait: &WaitSpan) -> Result<(), Error> {
        let track = THREADS + wait.thread.0 as u64;
        let Some(ThreadIndex(waker)) = wait.waker else {
            return self.event(wait.to_ns, END, track, |_| {});
        };
        self.flows += 1;
        let flow = self.flows;
        let name = format!("wakes {}", self.tracks.threads[wait.thread.0].name);
        self.event(wait.to_ns, INSTANT, THREADS + waker as u64, |event| {
            event.text(field::CATEGORIES, "wake");
            event.text(field::EVENT_NAME, &name);
            event.fixed(field::FLOW_IDS, flow);
        })?;
        self.event(wait.to_ns, END, track, |event| {
            event.fixed(field::TERMINATING_FLOW_IDS, flow);
        })
    }

    fn schedule(&mut self) -> Result<(), Error> {
        let (processors, wakes) = switches::of(self.model, &self.tracks);
        for wakes in wakes.chunks(BUNDLE) {
            self.bundle(0, |bundle| {
                for wake in wakes {
                    bundle.message(field::FTRACE_EVENT, |event| {
                        event.number(field::FTRACE_TIMESTAMP, wake.ns);
                        event.number(field::FTRACE_PID, wake.waker);
                        event.message(field::SCHED_WAKING, |waking| {
                            waking.number(field::WAKING_PID, wake.id);
                            waking.number(field::WAKING_SUCCESS, 1);
                        });
                    });
                }
            })?;
        }
        for (cpu, switches) in processors {
            for switches in switches.chunks(BUNDLE) {
                self.switches(cpu, switches)?;
            }
        }
        Ok(())
    }

    fn switches(&mut self, cpu: u32, switches: &[Switch]) -> Result<(), Error> {
        let other = self.tracks.other;
        self.bundle(cpu, |bundle| {
            for switch in switches {
                bundle.message(field::FTRACE_EVENT, |event| {
                    event.number(field::FTRACE_TIMESTAMP, switch.ns);
                    event.number(field::FTRACE_PID, switch.from.0);
                    event.message(field::SCHED_SWITCH, |message| {
                        if switch.from.0 == other {
                            message.text(field::PREV_COMM, OTHER);
                        }
                        if switch.to == other {
                            message.text(field::NEXT_COMM, OTHER);
                        }
                        message.number(field::PREV_PID, switch.from.0);
                        message.number(field::PREV_PRIO, 120);
                        message.number(field::PREV_STATE, switch.from.1);
                        message.number(field::NEXT_PID, switch.to);
                        message.number(field::NEXT_PRIO, 120);
                    });
                });
            }
        })
    }

    fn bundle(&mut self, cpu: u32, fill: impl FnOnce(&mut Message)) -> Result<(), Error> {
        self.packet(|packet| {
            packet.message(field::FTRACE_EVENTS, |bundle| {
                bundle.number(field::FTRACE_CPU, cpu.into());
                fill(bundle);
            });
        })
    }

    fn findings(&mut self, waits: &[Vec<WaitSpan>]) -> Result<(), Error> {
        for finding in &self.model.findings {
            let (ns, thread) = tracks::time_of(self.model, waits, finding);
            let thread = thread.and_then(|thread| self.tracks.threads.get(thread.0));
            let mut facts = vec![
                ("text", finding_text::text(self.model, finding)),
                ("proved", finding.proved.to_string()),
            ];
            facts.extend(thread.map(|thread| ("thread", thread.name.clone())));
            self.event(ns, INSTANT, FINDINGS, |event| {
                event.text(field::CATEGORIES, "finding");
                event.text(field::EVENT_NAME, finding.kind.as_str());
                annotate(event, borrowed(&facts));
            })?;
        }
        Ok(())
    }
}

fn borrowed<'t>(
    facts: &'t [(&'static str, String)],
) -> impl Iterator<Item = (&'static str, &'t str)> {
    facts.iter().map(|(name, value)| (*name, value.as_str()))
}

fn annotate<'t>(event: &mut Message, facts: impl Iterator<Item = (&'static str, &'t str)>) {
    for (name, value) in facts {
        event.message(field::DEBUG_ANNOTATIONS, |annotation| {
            annotation.text(field::ANNOTATION_NAME, name);
            annotation.text(field::ANNOTATION_STRING, value);
        });
    }
}
