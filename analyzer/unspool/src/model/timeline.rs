//! Divides every thread's time into columns of equal length, at any resolution.
//!
//! Timelines are computed for a window on demand, so that the model need not keep each thread's
//! states.

use std::collections::BTreeMap;

use super::sync::{Slots, Sync, Turn, UseIndex, Waiting};
use super::window::Window;
use super::{Model, Thread};

/// The state of a thread in a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Cell {
    /// The thread did not exist.
    #[default]
    Absent,
    /// The thread lived, and no wait was recorded.
    Alive,
    /// The thread lived, and waits were not recorded at that time.
    Unknown,
    /// The thread was runnable, without a processor, for at least half of the time.
    Runnable,
    /// The thread did not run for at least three quarters of the time, because it was in an
    /// unrecorded system call.
    Away,
    /// The thread waited, most of the time or for contended objects; the use has the longest wait.
    Waits(UseIndex),
}

/// A window and what each thread did in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// The window that the timeline shows.
    pub window: Window,
    /// Per thread, in the order of the model's threads, one cell per column.
    pub threads: Vec<Vec<Cell>>,
}

impl Timeline {
    /// Builds the timeline of a window, at the detail that the model was built with.
    pub fn of(model: &Model, window: Window) -> Timeline {
        let end_ns = model.recording.duration_ns;
        let life = |thread: &Thread| {
            let mut cells = vec![Cell::Absent; window.columns];
            // A thread whose end was not recorded may have ended at any time.
            let span = thread
                .started_ns
                .or(thread.created_ns)
                .map(|from| (from, thread.ended_ns.unwrap_or(end_ns).max(from)));
            if let Some(columns) = span.and_then(|(from, to)| window.columns_of(from, to)) {
                for column in columns {
                    if let Some(cell) = cells.get_mut(column) {
                        *cell = Cell::Alive;
                    }
                }
            }
            cells
        };
        let mut threads: Vec<Vec<Cell>> = model.threads.iter().map(life).collect();
        for column in 0..window.columns {
            let (from, to) = (window.column_ns(column), window.column_ns(column + 1));
            if model.recording.too_little_seen() || model.sync.paused_probes.covers(from, to) {
                for cells in &mut threads {
                    if let Some(cell @ Cell::Alive) = cells.get_mut(column) {
                        *cell = Cell::Unknown;
                    }
                }
            }
        }
        for (index, cells) in threads.iter_mut().enumerate() {
            turns(&model.sync, index, &window, cells);
            waits(&model.sync, index, &window, cells);
        }
        Timeline { window, threads }
    }
}

/// Marks the cells in which a thread lived and did not run.
fn turns(sync: &Sync, thread: usize, window: &Window, cells: &mut [Cell]) {
    let slots = &sync.slots.window;
    let total = sync.processors.totals.get(thread);
    if total.is_none_or(|total| total.known_ns == 0) {
        return;
    }
    for (column, cell) in cells.iter_mut().enumerate() {
        let (from, to) = (window.column_ns(column), window.column_ns(column + 1));
        let mut turn = Turn::default();
        for slot in slots.columns_of(from, to).into_iter().flatten() {
            turn.add(sync.processors.turn(thread, slot));
        }
        if !matches!(cell, Cell::Alive | Cell::Unknown) || turn.known_ns == 0 {
            continue;
        }
        if turn.runnable_ns * 2 >= turn.known_ns {
            *cell = Cell::Runnable;
        } else if (turn.on_cpu_ns + turn.runnable_ns) * 4 <= turn.known_ns {
            *cell = Cell::Away;
        } else {
            *cell = Cell::Alive;
        }
    }
}

/// Marks the cells in which a thread waited.
fn waits(sync: &Sync, thread: usize, window: &Window, cells: &mut [Cell]) {
    let slots: &Slots = &sync.slots;
    let Some(mine) = slots.threads.get(thread).filter(|mine| !mine.is_empty()) else {
        return;
    };
    for (column, cell) in cells.iter_mut().enumerate() {
        let (from, to) = (window.column_ns(column), window.column_ns(column + 1));
        let Some(within) = slots.window.columns_of(from, to) else {
            continue;
        };
        let mut length = 0;
        let mut by_use: BTreeMap<UseIndex, u64> = BTreeMap::new();
        for slot in within {
            length += slots.window.column_ns(slot + 1) - slots.window.column_ns(slot);
            if let Some(slot) = mine.get(slot)
                && let Some(used) = slot.used
            {
                *by_use.entry(used).or_default() += slot.waited_ns;
            }
        }
        let longest = |of: &dyn Fn(Waiting) -> bool| {
            by_use
                .iter()
                .filter(|(used, _)| of(sync.used(**used).waiting))
                .max_by_key(|(_, ns)| **ns)
                .map(|(used, _)| *used)
        };
        let sum = |of: &dyn Fn(Waiting) -> bool| -> u64 {
            let uses = by_use.iter();
            uses.filter(|(used, _)| of(sync.used(**used).waiting))
                .map(|(_, ns)| ns)
                .sum()
        };
        let held = |waiting: Waiting| waiting == Waiting::Held;
        // Contention matters most, so a quarter of the time is enough to show it.
        let used = if sum(&held) * 4 >= length {
            longest(&held)
        } else if sum(&|_| true) * 2 >= length {
            longest(&|_| true)
        } else {
            None
        };
        if let Some(used) = used {
            *cell = Cell::Waits(used);
        }
    }
}
