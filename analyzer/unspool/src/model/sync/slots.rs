//! Divides each thread's time into slices, each with the place of its longest wait.
//!
//! The number of slices does not depend on the recording. Timelines and the level of concurrency
//! are drawn from them.

use foldhash::{HashMap, HashMapExt};

use super::objects::UseIndex;
use crate::model::ThreadIndex;
use crate::model::window::Window;

/// A slice of one thread's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// The use with the longest wait, if the thread waited.
    pub used: Option<UseIndex>,
    /// Total waiting time in the slice.
    pub waited_ns: u64,
}

/// All threads' slices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Slots {
    /// The time span, divided into slices.
    pub window: Window,
    /// Per thread, its slices; empty if it never waited.
    pub threads: Vec<Vec<Slot>>,
    /// Total waiting time at each use, per slice.
    pub waits: Vec<HashMap<UseIndex, u64>>,
    /// Per thread, its current slice, and its waiting time at each use there.
    open: Vec<(usize, HashMap<UseIndex, u64>)>,
}

impl Slots {
    pub(super) fn new(window: Window, threads: usize) -> Slots {
        Slots {
            window,
            threads: vec![Vec::new(); threads],
            waits: vec![HashMap::new(); window.columns],
            open: vec![(0, HashMap::new()); threads],
        }
    }

    pub(super) fn waited(&mut self, thread: ThreadIndex, used: UseIndex, from: u64, to: u64) {
        let Some(columns) = self.window.columns_of(from, to) else {
            return;
        };
        for column in columns {
            let begin = self.window.column_ns(column).max(from);
            let end = self.window.column_ns(column + 1).min(to);
            let ns = end.saturating_sub(begin);
            if let Some(waits) = self.waits.get_mut(column) {
                *waits.entry(used).or_default() += ns;
            }
            self.add(thread, column, used, ns);
        }
    }

    fn add(&mut self, thread: ThreadIndex, column: usize, used: UseIndex, ns: u64) {
        let columns = self.window.columns;
        let (Some(open), Some(slots)) =
            (self.open.get_mut(thread.0), self.threads.get_mut(thread.0))
        else {
            return;
        };
        if open.0 != column {
            close(open, slots, columns);
            open.0 = column;
        }
        *open.1.entry(used).or_default() += ns;
    }

    pub(super) fn finish(&mut self) {
        for (open, slots) in self.open.iter_mut().zip(&mut self.threads) {
            close(open, slots, self.window.columns);
        }
        self.open = Vec::new();
    }
}

fn close(open: &mut (usize, HashMap<UseIndex, u64>), slots: &mut Vec<Slot>, columns: usize) {
    let (column, waits) = open;
    let longest = waits.iter().max_by_key(|(used, ns)| (**ns, **used));
    let Some((&used, _)) = longest else { return };
    slots.resize(columns, Slot::default());
    if let Some(slot) = slots.get_mut(*column) {
        // A clock that goes backwards visits a slice twice.
        slot.used = Some(used);
        slot.waited_ns += waits.values().sum::<u64>();
    }
    waits.clear();
}
