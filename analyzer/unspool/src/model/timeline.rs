//! Divides every thread's time into columns of equal length, at any resolution.
//!
//! Timelines are computed for a window on demand, so that the model need not keep each thread's
//! states.

use std::collections::BTreeMap;

use super::schedule::{CallIndex, Interval, RunState, call_within, stopped_within};
use super::sync::{Slots, Sync, Turn, UseIndex, Waiting};
use super::window::Window;
use super::{Model, Thread, ThreadIndex};

/// The state of a thread in a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Cell {
    /// The thread did not exist.
    #[default]
    Absent,
    /// The thread lived, and no wait was recorded. It ran at least half of the time, if that is
    /// known.
    Alive,
    /// The thread ran for a quarter of the time or more, but for less than half.
    Partly,
    /// The thread lived, and waits were not recorded at that time.
    Unknown,
    /// The thread was runnable, without a processor, for at least half of the time. Or it ran less
    /// than a quarter, and was runnable for most of the rest.
    Runnable,
    /// The thread ran for less than a quarter of the time, because it was blocked. The value is the
    /// system call that blocked it for the longest time, if most of that time's calls are known.
    Away(Option<CallIndex>),
    /// The recorder had stopped the thread for at least half of the time.
    Stopped,
    /// The thread waited for half of the time or longer than it ran, or for contended objects. The
    /// use has the longest wait.
    Waits(UseIndex),
}

/// A window and what each thread did in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// The window that the timeline shows.
    pub window: Window,
    /// Per thread, in the order of the model's threads and then of [`Processes::threads`], one cell
    /// per column.
    ///
    /// [`Processes::threads`]: super::Processes::threads
    pub threads: Vec<Vec<Cell>>,
}

impl Timeline {
    /// Builds the timeline of a window, at the detail that the model was built with.
    pub fn of(model: &Model, window: Window) -> Timeline {
        let life = |thread: &Thread| {
            let mut cells = vec![Cell::Absent; window.columns];
            if let Some(columns) = model
                .span(thread)
                .and_then(|(from, to)| window.columns_of(from, to))
            {
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
            let ran = turns(&model.sync, index, &window, cells);
            waits(&model.sync, index, &window, &ran, cells);
        }
        let others = model.processes.intervals.iter();
        threads.extend(others.map(|intervals| scheduled(intervals, &window)));
        for (index, cells) in threads.iter_mut().enumerate() {
            calls(model.intervals(ThreadIndex(index)), &window, cells);
        }
        Timeline { window, threads }
    }

    /// Time that these threads ran in each column together, nanoseconds. Without a schedule, it
    /// is estimated by their lives and cells.
    pub fn running_ns(&self, model: &Model, threads: &[usize]) -> Vec<u64> {
        let window = &self.window;
        let mut columns = vec![0; window.columns];
        let mut add = |from_ns: u64, to_ns: u64, share: &dyn Fn(usize) -> u64| {
            for at in window.columns_of(from_ns, to_ns).into_iter().flatten() {
                let from = window.column_ns(at).max(from_ns);
                let to = window.column_ns(at + 1).min(to_ns);
                if let Some(column) = columns.get_mut(at) {
                    *column += to.saturating_sub(from) * share(at) / 4;
                }
            }
        };
        for index in threads {
            let intervals = model.intervals(ThreadIndex(*index));
            for interval in intervals {
                if matches!(interval.state, RunState::Running { .. }) {
                    add(interval.from_ns, interval.to_ns, &|_| 4);
                }
            }
            let thread = model.any_thread(ThreadIndex(*index));
            if let Some((from_ns, to_ns)) = thread.and_then(|thread| model.span(thread))
                && intervals.is_empty()
            {
                let cells = self.threads.get(*index);
                add(
                    from_ns,
                    to_ns,
                    &|at| match cells.and_then(|cells| cells.get(at)) {
                        Some(Cell::Alive) => 4,
                        Some(Cell::Partly) => 2,
                        _ => 0,
                    },
                );
            }
        }
        columns
    }
}

impl Model {
    /// The time in which a thread lived, or may have lived because its end was not recorded. `None`
    /// if its start is not known.
    pub fn span(&self, thread: &Thread) -> Option<(u64, u64)> {
        let from = thread.started_ns.or(thread.created_ns)?;
        let to = thread.ended_ns.unwrap_or(self.recording.duration_ns);
        Some((from, to.max(from)))
    }
}

/// The cells of a thread of which only the schedule is known.
fn scheduled(intervals: &[Interval], window: &Window) -> Vec<Cell> {
    /// Time in one column.
    #[derive(Clone, Copy, Default)]
    struct Column {
        ran_ns: u64,
        runnable_ns: u64,
        blocked_ns: u64,
        unknown_ns: u64,
    }
    let mut columns = vec![Column::default(); window.columns];
    for interval in intervals {
        let touched = window.columns_of(interval.from_ns, interval.to_ns);
        for at in touched.into_iter().flatten() {
            let Some(column) = columns.get_mut(at) else {
                continue;
            };
            let from = window.column_ns(at).max(interval.from_ns);
            let to = window.column_ns(at + 1).min(interval.to_ns);
            let sum = match interval.state {
                RunState::Running { .. } => &mut column.ran_ns,
                RunState::Blocked | RunState::Stopped => &mut column.blocked_ns,
                RunState::Unknown => &mut column.unknown_ns,
                RunState::Preempted | RunState::Woken { .. } => &mut column.runnable_ns,
            };
            *sum += to.saturating_sub(from);
        }
    }
    let cell = |column: Column| {
        let known_ns = column.ran_ns + column.runnable_ns + column.blocked_ns;
        match (known_ns, column.unknown_ns) {
            (0, 0) => Cell::Absent,
            (known_ns, unknown_ns) if known_ns < unknown_ns => Cell::Unknown,
            _ => cell_of(column.ran_ns, column.runnable_ns, known_ns),
        }
    };
    columns.into_iter().map(cell).collect()
}

/// The cell of a column with these times.
fn cell_of(on_cpu_ns: u64, runnable_ns: u64, known_ns: u64) -> Cell {
    let blocked_ns = known_ns.saturating_sub(on_cpu_ns + runnable_ns);
    if runnable_ns * 2 >= known_ns {
        Cell::Runnable
    } else if on_cpu_ns * 2 >= known_ns {
        Cell::Alive
    } else if on_cpu_ns * 4 >= known_ns {
        Cell::Partly
    } else if runnable_ns > blocked_ns {
        Cell::Runnable
    } else {
        Cell::Away(None)
    }
}

/// Marks the cells in which a thread lived and did not run for most of the time. Returns its
/// processor time per column; none if that is not known.
fn turns(sync: &Sync, thread: usize, window: &Window, cells: &mut [Cell]) -> Vec<Option<u64>> {
    let mut ran = vec![None; cells.len()];
    let slots = &sync.slots.window;
    let total = sync.processors.totals.get(thread);
    if total.is_none_or(|total| total.known_ns == 0) {
        return ran;
    }
    for (column, cell) in cells.iter_mut().enumerate() {
        let (from, to) = (window.column_ns(column), window.column_ns(column + 1));
        let mut turn = Turn::default();
        for slot in slots.columns_of(from, to).into_iter().flatten() {
            turn.add(sync.processors.turn(thread, slot));
        }
        if !matches!(cell, Cell::Alive | Cell::Unknown) {
            continue;
        }
        if turn.known_ns == 0 {
            *cell = Cell::Unknown;
            continue;
        }
        ran[column] = Some(turn.on_cpu_ns);
        *cell = cell_of(turn.on_cpu_ns, turn.runnable_ns, turn.known_ns);
    }
    ran
}

/// Tells what blocked a thread in the cells in which it was blocked: a system call or the recorder.
fn calls(intervals: &[Interval], window: &Window, cells: &mut [Cell]) {
    for (column, cell) in cells.iter_mut().enumerate() {
        if *cell == Cell::Away(None) {
            let (from, to) = (window.column_ns(column), window.column_ns(column + 1));
            *cell = match stopped_within(intervals, from, to) * 2 >= to - from {
                true => Cell::Stopped,
                false => Cell::Away(call_within(intervals, from, to)),
            };
        }
    }
}

/// Marks the cells in which a thread waited.
fn waits(sync: &Sync, thread: usize, window: &Window, ran: &[Option<u64>], cells: &mut [Cell]) {
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
        } else if sum(&|_| true) * 2 >= length
            || *cell == Cell::Partly && ran[column].is_some_and(|ran| ran < sum(&|_| true))
        {
            longest(&|_| true)
        } else {
            None
        };
        if let Some(used) = used {
            *cell = Cell::Waits(used);
        }
    }
}
