//! The states of each thread over time, as spans.
//!
//! A thread runs outside all spans, so the state "running" has none. Waits are exact. Between them
//! the kernel's schedule shows the state. If no schedule was recorded, slices of time have
//! estimated states. New kinds of spans need a new [`State`] here and in `page/states.js`.

use super::encode::Column;
use crate::model::schedule::{Interval, RunState};
use crate::model::sync::{Journal, Waiting};
use crate::model::{Cell, Model, ThreadIndex, Timeline, Window};

/// Number of slices with estimated states, as many as the model keeps.
const SLICES: usize = 1000;

/// The state of a thread. The numbers are part of the page's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Runnable = 1,
    Held = 2,
    Others = 3,
    Idle = 4,
    Away = 5,
    Unknown = 6,
}

/// A span of time in which a thread has one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    from_ns: u64,
    to_ns: u64,
    state: State,
    /// The use that waited, in `Sync::uses`.
    used: Option<usize>,
    holder: Option<usize>,
    waker: Option<usize>,
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
        }
    }
}

/// The spans of all threads as named columns, the spans of a thread together and in order.
pub(super) fn columns(model: &Model) -> Vec<(&'static str, Vec<u8>)> {
    let mut counts = Column::default();
    let [mut from, mut length, mut state] = [const { Column::new() }; 3];
    let [mut used, mut holder, mut waker] = [const { Column::new() }; 3];
    for spans in spans(model) {
        counts.push(spans.len() as u64);
        let mut at = 0_i64;
        for span in spans {
            from.push_signed(span.from_ns as i64 - at);
            length.push(span.to_ns - span.from_ns);
            at = span.to_ns as i64;
            state.push(span.state as u64);
            used.push_index(span.used);
            holder.push_index(span.holder);
            waker.push_index(span.waker);
        }
    }
    vec![
        ("state.count", counts.into_bytes()),
        ("state.from", from.into_bytes()),
        ("state.length", length.into_bytes()),
        ("state.kind", state.into_bytes()),
        ("state.use", used.into_bytes()),
        ("state.holder", holder.into_bytes()),
        ("state.waker", waker.into_bytes()),
    ]
}

/// The holds of all threads as named columns, the holds of a thread together and in order.
pub(super) fn hold_columns(model: &Model) -> Vec<(&'static str, Vec<u8>)> {
    let mut by_thread = vec![Vec::new(); model.threads.len()];
    for hold in model.sync.journal.iter().flat_map(|j: &Journal| &j.holds) {
        if let Some(mine) = by_thread.get_mut(hold.thread.0) {
            mine.push((hold.from_ns, hold.to_ns.max(hold.from_ns), hold.taken.0));
        }
    }
    let mut counts = Column::default();
    let [mut from, mut length, mut taken] = [const { Column::new() }; 3];
    for mut holds in by_thread {
        holds.sort_unstable();
        counts.push(holds.len() as u64);
        let mut at = 0_i64;
        for (from_ns, to_ns, used) in holds {
            from.push_signed(from_ns as i64 - at);
            length.push(to_ns - from_ns);
            at = to_ns as i64;
            taken.push(used as u64);
        }
    }
    vec![
        ("hold.count", counts.into_bytes()),
        ("hold.from", from.into_bytes()),
        ("hold.length", length.into_bytes()),
        ("hold.use", taken.into_bytes()),
    ]
}

/// The spans of each thread, in the order of the model's threads.
fn spans(model: &Model) -> Vec<Vec<Span>> {
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
            });
        }
    }
    let window = Window {
        from_ns: 0,
        to_ns: model.recording.duration_ns.max(1),
        columns: SLICES,
    };
    let estimates = Timeline::of(model, window);
    for (index, spans) in by_thread.iter_mut().enumerate() {
        // If two spans begin together, the longer one encloses the other.
        spans.sort_by_key(|span| (span.from_ns, std::cmp::Reverse(span.to_ns)));
        let scheduled = model.schedule.of_thread(ThreadIndex(index));
        let cells = estimates.threads.get(index).map_or(&[][..], Vec::as_slice);
        let others = match scheduled {
            [] => estimated(&window, cells),
            intervals => exact(intervals),
        };
        fill(spans, others);
    }
    by_thread
}

/// The states of a thread from the kernel's schedule.
fn exact(intervals: &[Interval]) -> Vec<Span> {
    let spans = intervals.iter().filter_map(|interval| {
        let state = match interval.state {
            RunState::Running { .. } => return None,
            RunState::Preempted | RunState::Woken { .. } => State::Runnable,
            RunState::Blocked => State::Away,
            RunState::Unknown => State::Unknown,
        };
        (interval.from_ns < interval.to_ns)
            .then(|| Span::without_use(interval.from_ns, interval.to_ns, state))
    });
    spans.collect()
}

/// The states of a thread estimated from slices of time.
fn estimated(window: &Window, cells: &[Cell]) -> Vec<Span> {
    let mut estimated: Vec<Span> = Vec::new();
    for (column, cell) in cells.iter().enumerate() {
        let state = match cell {
            Cell::Runnable => State::Runnable,
            Cell::Away => State::Away,
            Cell::Unknown => State::Unknown,
            Cell::Absent | Cell::Alive | Cell::Waits(_) => continue,
        };
        let (from_ns, to_ns) = (window.column_ns(column), window.column_ns(column + 1));
        match estimated.last_mut() {
            Some(last) if last.state == state && last.to_ns == from_ns => last.to_ns = to_ns,
            _ => estimated.push(Span::without_use(from_ns, to_ns, state)),
        }
    }
    estimated
}

/// Adds other states where a thread does not wait. Both lists are in order.
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
                    ..other
                });
            }
            at = at.max(wait.to_ns);
            spans.push(wait);
        }
        // An earlier wait may last into this span.
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
    use super::*;

    fn wait(from_ns: u64, to_ns: u64) -> Span {
        Span {
            from_ns,
            to_ns,
            state: State::Held,
            used: Some(0),
            holder: None,
            waker: None,
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
}
