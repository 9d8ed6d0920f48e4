//! Handles notices other than hits and threads: losses, pauses and delays, and notices that only an
//! observer gets.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use unspool_capture::{Dropped, Gap, GapKind, Missed, Severity, ShortStops, StallCause, Stood};
use unspool_rsp::{Control, Notice, TraceMark};

use super::server_clock::ServerClock;
use super::sink::Sink;

/// The state that notices change.
#[derive(Debug, Default)]
pub(super) struct Notices {
    pub(super) clock: ServerClock,
    /// Observers' notices that wait for the event loop.
    pub(super) pending: VecDeque<Notice>,
    /// Number of lost hits per probe, as last reported.
    dropped: HashMap<u32, u64>,
    /// Number and total duration of stops shorter than a millisecond, not yet recorded.
    short_stops: Option<(u64, Duration)>,
    /// The state of the program's control, if another client may have it.
    control: Option<Control>,
}

impl Notices {
    /// Updates the clock from a batch of notices.
    pub(super) fn begin(&mut self, now_ns: u64, batch: &[Notice]) {
        let sent = batch.iter().filter_map(|notice| match notice {
            Notice::Frame(frame) => Some((frame.sent_ns, frame.since)),
            Notice::Thread {
                sent_ns: Some(sent_ns),
                since,
                ..
            }
            | Notice::Schedule { sent_ns, since, .. }
            | Notice::Processes { sent_ns, since, .. }
            | Notice::Samples { sent_ns, since, .. } => Some((*sent_ns, *since)),
            _ => None,
        });
        self.clock.begin(now_ns, sent);
    }

    /// Handles a notice about the recording itself, and keeps other notices for the event loop.
    /// `probe_of` returns the probe of a tracepoint.
    pub(super) fn take(
        &mut self,
        sink: &mut Sink,
        notice: Notice,
        probe_of: impl Fn(u32) -> Option<u32>,
    ) {
        match notice {
            Notice::Mark { tracepoint, mark } => {
                if let Some(probe) = probe_of(tracepoint) {
                    self.mark(sink, probe, mark);
                }
            }
            Notice::Dropped { tracepoint, count } => {
                if let Some(probe) = probe_of(tracepoint) {
                    self.drop_hits(sink, probe, count);
                }
            }
            Notice::Missed {
                tracepoint,
                pauses,
                paused,
                hits,
            } => {
                if let Some(probe) = probe_of(tracepoint) {
                    let time_ns = sink.now_ns();
                    sink.record(Missed {
                        probe,
                        pauses,
                        paused_ns: u64::try_from(paused.as_nanos()).unwrap_or(u64::MAX),
                        hits,
                        time_ns,
                    });
                }
            }
            Notice::Stood {
                from_ns,
                to_ns,
                since,
            } => self.stall(sink, StallCause::Unspecified, [from_ns, to_ns], since),
            Notice::Halted {
                from_ns,
                to_ns,
                since,
            } => self.stall(sink, StallCause::Halted, [from_ns, to_ns], since),
            Notice::ShortStops { count, total } => {
                self.short_stops = Some((count, total));
            }
            other => self.pending.push_back(other),
        }
    }

    fn mark(&mut self, sink: &mut Sink, probe: u32, mark: TraceMark) {
        let kind = match mark {
            TraceMark::Paused => GapKind::Paused,
            TraceMark::Resumed => GapKind::Resumed,
            // A mark that this version does not know may stand for any missing data.
            _ => GapKind::Dropped,
        };
        sink.record(Gap {
            probe,
            kind: kind.into(),
            time_ns: self.clock.last(),
        });
    }

    fn drop_hits(&mut self, sink: &mut Sink, probe: u32, count: u64) {
        let before = self.dropped.insert(probe, count).unwrap_or(0);
        let time_ns = sink.now_ns();
        sink.record(Dropped {
            probe,
            count: count.saturating_sub(before),
            time_ns,
        });
    }

    fn stall(&mut self, sink: &mut Sink, cause: StallCause, range: [u64; 2], since: Duration) {
        let [from_ns, to_ns] = range.map(|ns| self.clock.sent(Some(ns), since));
        sink.record(Stood {
            from_ns,
            to_ns,
            cause: cause.into(),
        });
    }

    /// Records the stops that are too short for their own records.
    pub(super) fn record_short_stops(&mut self, sink: &mut Sink) {
        if let Some((count, total)) = self.short_stops.take() {
            sink.record(ShortStops {
                time_ns: sink.now_ns(),
                count,
                total_ns: u64::try_from(total.as_nanos()).unwrap_or(u64::MAX),
            });
        }
    }

    /// Notes that another client has taken or given up control of the program.
    pub(super) fn on_control(&mut self, sink: &mut Sink, control: Control) {
        let before = self.control.replace(control);
        if before.is_none() || (before, control) == (Some(Control::Halted), Control::Free) {
            // The first report is not a change. A halted program was resumed for this recording.
            return;
        }
        let text = match control {
            Control::Taken => "another client took control of the program",
            Control::Free => "no client controls the program; it runs",
            Control::Halted => {
                "the program is stopped, and no client controls it; connect gdb to the stub, or \
                 start another recording"
            }
            _ => return,
        };
        sink.note(Severity::Info, text);
    }
}
