//! The states and holds of all threads as columns of the page's data, which `page/states.js` reads.

use super::encode::Column;
use crate::model::Model;
use crate::model::sync::Journal;
use crate::views::states::spans;

/// The spans of all threads as named columns, the spans of a thread together and in order.
pub(super) fn columns(model: &Model) -> Vec<(&'static str, Vec<u8>)> {
    let mut counts = Column::default();
    let [mut from, mut length, mut state] = [const { Column::new() }; 3];
    let [mut used, mut holder, mut waker, mut call] = [const { Column::new() }; 4];
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
            call.push_index(span.call.map(|call| call.0 as usize));
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
        ("state.call", call.into_bytes()),
    ]
}

/// The holds of all threads as named columns, the holds of a thread together and in order.
pub(super) fn hold_columns(model: &Model) -> Vec<(&'static str, Vec<u8>)> {
    let mut by_thread = vec![Vec::new(); model.threads.len() + model.processes.threads.len()];
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
