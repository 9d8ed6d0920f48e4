//! What each thread did, as spans of time with a state.
//!
//! A thread runs when no span says otherwise, so spans of the state "running" are left out. Waits are
//! exact. Between them, the kernel's account divides the recording into slices, whose states are
//! estimates. New kinds of spans need a new [`State`] here and in `page/states.js`.

use super::encode::Column;
use crate::model::sync::{Journal, Waiting};
use crate::model::{Cell, Model, Timeline, Window};

/// Slices of estimated states. The model keeps this many.
const SLICES: usize = 1000;

/// What a thread does. The numbers are part of the page's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Runnable = 1,
    Held = 2,
    Others = 3,
    Idle = 4,
    Away = 5,
    Unknown = 6,
}

/// A span of time in which a thread did one thing.
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
    for (spans, cells) in by_thread.iter_mut().zip(&estimates.threads) {
        // The longer one of two that begin together encloses the other.
        spans.sort_by_key(|span| (span.from_ns, std::cmp::Reverse(span.to_ns)));
        fill(spans, &window, cells);
    }
    by_thread
}

/// Adds the estimated states where a thread does not wait.
fn fill(spans: &mut Vec<Span>, window: &Window, cells: &[Cell]) {
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
            _ => estimated.push(Span {
                from_ns,
                to_ns,
                state,
                used: None,
                holder: None,
                waker: None,
            }),
        }
    }
    if estimated.is_empty() {
        return;
    }
    let waits = std::mem::take(spans);
    let mut waits = waits.into_iter().peekable();
    for estimate in estimated {
        let mut at = estimate.from_ns;
        while let Some(wait) = waits.next_if(|wait| wait.from_ns < estimate.to_ns) {
            if wait.from_ns > at {
                spans.push(Span {
                    from_ns: at,
                    to_ns: wait.from_ns,
                    ..estimate
                });
            }
            at = at.max(wait.to_ns);
            spans.push(wait);
        }
        // A wait of before this estimate may last into it.
        let reached = spans.last().map_or(0, |span| span.to_ns);
        at = at.max(reached.min(estimate.to_ns));
        if at < estimate.to_ns {
            spans.push(Span {
                from_ns: at,
                ..estimate
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
        fill(&mut spans, &window, &cells);
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
