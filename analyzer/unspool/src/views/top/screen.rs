//! What the user has selected on the screen of `unspool top`, and the state of the command.

use std::time::Duration;

use super::rows::{self, Row};
use crate::model::live::Live;

/// The level that is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Level {
    /// All identities.
    Identities,
    /// The threads of the identity with this title, and the id of one of them.
    Threads(String, u64),
    /// The stack of the thread with this id.
    Stack(u64),
}

/// The order of the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// Most time on processors first.
    #[default]
    Cpu,
    /// Largest runnable share first.
    Runnable,
    /// Largest blocked share first.
    Blocked,
    /// Most threads first.
    Threads,
    /// By name.
    Name,
}

impl Sort {
    /// `CPU`, `runnable` and so on.
    pub fn as_str(self) -> &'static str {
        match self {
            Sort::Cpu => "CPU",
            Sort::Runnable => "runnable",
            Sort::Blocked => "blocked",
            Sort::Threads => "threads",
            Sort::Name => "name",
        }
    }

    fn next(self) -> Sort {
        match self {
            Sort::Cpu => Sort::Runnable,
            Sort::Runnable => Sort::Blocked,
            Sort::Blocked => Sort::Threads,
            Sort::Threads => Sort::Name,
            Sort::Name => Sort::Cpu,
        }
    }
}

/// The state of the command, for the header.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// Time since the latest inspection.
    pub inspected: Duration,
    /// Time until the next inspection. `None` while one is under way.
    pub next: Option<Duration>,
    /// Upper limit of the time for which the latest inspection stopped the program.
    pub stopped: Duration,
    /// Why the latest inspection or sample failed.
    pub problem: Option<String>,
    /// How the program has ended, as a sentence.
    pub ended: Option<String>,
    /// Processors of the program's machine, if known.
    pub processors: Option<usize>,
}

/// The state of the screen.
#[derive(Clone, Debug)]
pub struct Screen {
    /// Use colours.
    pub color: bool,
    /// Text that rows must contain.
    pub filter: String,
    /// The user types the filter.
    pub types_filter: bool,
    /// The order of the rows.
    pub sort: Sort,
    /// The screen does not change.
    pub paused: bool,
    /// The keys are explained.
    pub shows_help: bool,
    /// The state of the command.
    pub status: Status,
    /// The level and the selected row of each level above it.
    levels: Vec<(Level, usize)>,
    selected: usize,
    /// A thread of the row that the user has moved to. The selection stays with it.
    followed: Option<u64>,
}

impl Screen {
    /// The screen at the beginning.
    pub fn new(color: bool) -> Screen {
        Screen {
            color,
            filter: String::new(),
            types_filter: false,
            sort: Sort::default(),
            paused: false,
            shows_help: false,
            status: Status::default(),
            levels: vec![(Level::Identities, 0)],
            selected: 0,
            followed: None,
        }
    }

    /// The level that is shown.
    pub fn level(&self) -> &Level {
        self.levels
            .last()
            .map_or(&Level::Identities, |(level, _)| level)
    }

    /// The selected row, or the first line shown of a stack.
    pub fn selected(&self) -> usize {
        self.selected
    }

    /// Keeps the selection within `count` rows.
    pub(super) fn clamp(&mut self, count: usize) {
        self.selected = self.selected.min(count.saturating_sub(1));
    }

    /// Keeps the selection with its row when the rows change their order. The first row is just the
    /// first one.
    pub(super) fn follow(&mut self, rows: &[Row]) {
        let is_followed = |row: &Row| self.followed.is_some_and(|tid| row.tids.contains(&tid));
        self.selected = rows.iter().position(is_followed).unwrap_or(self.selected);
        self.clamp(rows.len());
        let row = rows
            .get(self.selected)
            .filter(|_| self.selected > 0 || self.followed.is_some());
        self.followed = row.and_then(|row| row.tids.first().copied());
    }

    /// Moves the selection.
    pub fn move_by(&mut self, rows: isize) {
        self.select(self.selected.saturating_add_signed(rows));
    }

    /// Selects the first row.
    pub fn move_to_first(&mut self) {
        self.select(0);
    }

    /// Selects the last row.
    pub fn move_to_last(&mut self) {
        self.select(usize::MAX);
    }

    fn select(&mut self, row: usize) {
        (self.selected, self.followed) = (row, None);
    }

    /// Shows the threads of the selected identity, or the stack of the selected thread.
    pub fn enter(&mut self, live: &Live) {
        let rows = self.rows(live);
        let Some(row) = rows.get(self.selected.min(rows.len().saturating_sub(1))) else {
            return;
        };
        let level = match self.level() {
            Level::Identities => match row.tids[..] {
                [only] => Level::Stack(only),
                [first, ..] => Level::Threads(row.title.clone(), first),
                [] => return,
            },
            Level::Threads(..) => match row.tids[..] {
                [only] => Level::Stack(only),
                _ => return,
            },
            Level::Stack(_) => return,
        };
        self.levels.push((level, self.selected));
        self.select(0);
    }

    /// Goes back one level.
    pub fn leave(&mut self) {
        if self.levels.len() > 1
            && let Some((_, selected)) = self.levels.pop()
        {
            self.select(selected);
        }
    }

    /// Sorts by the next column.
    pub fn sort_by_next(&mut self) {
        self.sort = self.sort.next();
    }

    /// The rows of the level, filtered and sorted.
    pub(super) fn rows(&self, live: &Live) -> Vec<Row> {
        let mut rows = match self.level() {
            Level::Identities => rows::identities(live),
            Level::Threads(title, tid) => rows::threads(live, title, *tid),
            Level::Stack(_) => return Vec::new(),
        };
        let filter = self.filter.to_lowercase();
        rows.retain(|row| filter.is_empty() || row.text().to_lowercase().contains(&filter));
        rows::sort(&mut rows, self.sort);
        rows
    }
}
