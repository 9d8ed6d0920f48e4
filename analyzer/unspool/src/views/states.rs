//! What each thread did, as spans of time with a state.
//!
//! A thread runs when no span says otherwise, so spans of the state "running" are left out. Waits
//! are exact. Between them the kernel's schedule says what a thread did. Where no schedule was
//! recorded, slices of time have estimated states. New kinds of spans need a new [`State`] here and
//! in `html/page/states.js`.

use std::cell::LazyCell;

use crate::model::schedule::{CallIndex, Interval, RunState, Waker};
use crate::model::sync::{Journal, Waiting};
use crate::model::{Cell, Model, ThreadIndex, Timeline, Window};

/// Slices of estimated states. The model keeps this many.
const SLICES: usize = 1000;

/// What a thread does. The numbers are part of the page's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Runnable = 1,
    Held = 2,
    Others = 3,
    Idle = 4,
    Away = 5,
    Unknown = 6,
    Stopped = 7,
}

/// A span of time in which a thread did one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
    pub(super) state: State,
    /// The use that waited, in `Sync::uses`.
    pub(super) used: Option<usize>,
    pub(super) holder: Option<usize>,
    /// The thread that woke it at the end of the span.
    pub(super) waker: Option<usize>,
    /// The system call in which the thread was blocked.
    pub(super) call: Option<CallIndex>,
}

impl Span {
    fn without_use(from_ns: u64, to_ns: u64, state: State) -> Span {
        Span {
            from_ns,
            to_ns,
            state,
            used: None,
            holder: None,
            waker: None,
            call: None,
        }
    }
}

/// The spans of each thread: the model's threads, and then those of the processes that it started.
pub(super) fn spans(model: &Model) -> Vec<Vec<Span>> {
    let mut by_thread: Vec<Vec<Span>> = vec![Vec::new(); model.threads.len()];
    for wait in model.sync.journal.iter().flat_map(|j: &Journal| &j.waits) {
        if let Some(mine) = by_thread.get_mut(wait.thread.0) {
            mine.push(Span {
                from_ns: wait.from_ns,
                to_ns: wait.to_ns.max(wait.from_ns),
                state: match model.sync.used(wait.used).waiting {
                    Waiting::Held => State::Held,
                    Waiting::Others => State::Others,
                    Waiting::Idle => State::Idle,
                },
                used: Some(wait.used.0),
                holder: wait.holder.map(|thread| thread.0),
                waker: wait.waker.map(|thread| thread.0),
                call: None,
            });
        }
    }
    let window = Window {
        from_ns: 0,
        to_ns: model.recording.duration_ns.max(1),
        columns: SLICES,
    };
    let estimates = LazyCell::new(|| Timeline::of(model, window));
    let wakers = model.wakers();
    for (index, spans) in by_thread.iter_mut().enumerate() {
        // The longer one of two that begin together encloses the other.
        spans.sort_by_key(|span| (span.from_ns, std::cmp::Reverse(span.to_ns)));
        let others = match model.schedule.of_thread(ThreadIndex(index)) {
            [] => estimates
                .threads
                .get(index)
                .map_or_else(Vec::new, |cells| estimated(&window, cells)),
            intervals => {
                let wakes = wakers.of_calls(ThreadIndex(index));
                exact(intervals, wakes.map(|(blocked, _, waker)| (blocked, waker)))
            }
        };
        fill(spans, others);
    }
    let others = model.processes.intervals.iter();
    by_thread.extend(others.map(|intervals| {
        let pairs = intervals.windows(2);
        let wakes = pairs.filter_map(|pair| match pair {
            [blocked, next] => Some((blocked, wakers.before(next)?)),
            _ => None,
        });
        exact(
            intervals,
            wakes.filter(|(blocked, _)| blocked.state == RunState::Blocked),
        )
    }));
    by_thread
}

/// The states of a thread by the kernel's schedule. `wakes`: what ended its blocked times, in
/// order.
fn exact<'a>(
    intervals: &[Interval],
    wakes: impl Iterator<Item = (&'a Interval, Waker)>,
) -> Vec<Span> {
    let mut wakes = wakes.peekable();
    let spans = intervals.iter().filter_map(|interval| {
        let state = match interval.state {
            RunState::Running { .. } => return None,
            RunState::Preempted | RunState::Woken { .. } => State::Runnable,
            RunState::Blocked => State::Away,
            RunState::Stopped => State::Stopped,
            RunState::Unknown => State::Unknown,
        };
        let wake = wakes.next_if(|(blocked, _)| blocked.from_ns == interval.from_ns);
        (interval.from_ns < interval.to_ns).then(|| Span {
            call: interval.call,
            waker: match wake {
                Some((_, Waker::Thread(ThreadIndex(waker)))) => Some(waker),
                _ => None,
            },
            ..Span::without_use(interval.from_ns, interval.to_ns, state)
        })
    });
    spans.collect()
}

/// The states of a thread by slices of time.
fn estimated(window: &Window, cells: &[Cell]) -> Vec<Span> {
    let mut estimated: Vec<Span> = Vec::new();
    for (column, cell) in cells.iter().enumerate() {
        let state = match cell {
            Cell::Runnable => State::Runnable,
            Cell::Away(_) => State::Away,
            Cell::Stopped => State::Stopped,
            Cell::Unknown => State::Unknown,
            Cell::Absent | Cell::Alive | Cell::Partly | Cell::Waits(_) => continue,
        };
        let (from_ns, to_ns) = (window.column_ns(column), window.column_ns(column + 1));
        match estimated.last_mut() {
            Some(last) if last.state == state && last.to_ns == from_ns => last.to_ns = to_ns,
            _ => estimated.push(Span::without_use(from_ns, to_ns, state)),
        }
    }
    estimated
}

/// Adds other states where a thread does not wait. Both are in order.
fn fill(spans: &mut Vec<Span>, others: Vec<Span>) {
    if others.is_empty() {
        return;
    }
    let waits = std::mem::take(spans);
    let mut waits = waits.into_iter().peekable();
    for other in others {
        let mut at = other.from_ns;
        while let Some(wait) = waits.next_if(|wait| wait.from_ns < other.to_ns) {
            if wait.from_ns > at {
                spans.push(Span {
                    from_ns: at,
                    to_ns: wait.from_ns,
                    waker: None,
                    ..other
                });
            }
            at = at.max(wait.to_ns);
            spans.push(wait);
        }
        // A wait of before this span may last into it.
        let reached = spans.last().map_or(0, |span| span.to_ns);
        at = at.max(reached.min(other.to_ns));
        if at < other.to_ns {
            spans.push(Span {
                from_ns: at,
                ..other
            });
        }
    }
    spans.extend(waits);
}

#[cfg(test)]
mod tests {
    use unspool_capture::{Record, ScheduleKind as Kind};

    use super::*;
    use crate::model::fixture::{PID, Stage, schedule_begins, scheduled};

    fn wait(from_ns: u64, to_ns: u64) -> Span {
        Span {
            from_ns,
            to_ns,
            state: State::Held,
            used: Some(0),
            holder: None,
            waker: None,
            call: None,
        }
    }

    #[test]
    fn estimates_fill_the_gaps_between_waits() {
        let window = Window {
            from_ns: 0,
            to_ns: 100,
            columns: 10,
        };
        let mut cells = vec![Cell::Alive; 10];
        cells[2..6].fill(Cell::Runnable);
        let mut spans = vec![wait(5, 25), wait(30, 35), wait(70, 80)];
        fill(&mut spans, estimated(&window, &cells));
        let seen: Vec<_> = (spans.iter())
            .map(|span| (span.from_ns, span.to_ns, span.state))
            .collect();
        assert_eq!(
            seen,
            [
                (5, 25, State::Held),
                (25, 30, State::Runnable),
                (30, 35, State::Held),
                (35, 60, State::Runnable),
                (70, 80, State::Held),
            ]
        );
    }

    /// A thread of another process is blocked until the program wakes it.
    #[test]
    fn threads_of_other_processes_follow() {
        let mut stage = Stage::new();
        stage.add(schedule_begins());
        stage.add(scheduled(&[
            (1000, Kind::Runs, PID, 0),
            (9000, Kind::Ended, PID, 0),
        ]));
        stage.add(Record::Processes(scheduled(&[
            (1500, Kind::ProcessCreated, 20, PID),
            (2000, Kind::Runs, 20, 0),
            (3000, Kind::Blocks, 20, 0),
            (5000, Kind::Woken, 20, PID),
            (6000, Kind::Runs, 20, 0),
            (8000, Kind::Ended, 20, 0),
        ])));
        stage.end(10);
        let all = spans(&stage.model());
        let [_, other] = &all[..] else {
            panic!("{all:?}")
        };
        let seen = other.iter().map(|span| {
            let ms = |ns: u64| ns as f64 / 1e6;
            (ms(span.from_ns), ms(span.to_ns), span.state, span.waker)
        });
        assert_eq!(
            seen.collect::<Vec<_>>(),
            [
                (1.5, 2.0, State::Runnable, None),
                (3.0, 5.0, State::Away, Some(0)),
                (5.0, 6.0, State::Runnable, None),
            ]
        );
    }
}
