//! The timeline: one line of blocks per thread, in the order of their starts.
//!
//! If there are many threads, those of one identity share a line that shows how many lived at each
//! time, unless the user asks for separate lines.

mod rows;

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::line::{Ink, Line, Page, width};
use super::{notes, tree};
use crate::model::schedule::CallIndex;
use crate::model::sync::{ObjectIndex, Waiting};
use crate::model::{Cell, Model, ProcessorLevel, ThreadIndex, Timeline, Topic, Window};
use crate::primitives::Kind;
use crate::views::{Style, blocking_call, object_name, wording};
use rows::{Row, rows};

/// Topics of the notes that this view shows.
const TOPICS: &[Topic] = &[Topic::Threads, Topic::Calls, Topic::Times];

/// The part of the recording to show, and the form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Zoom {
    /// Start, in nanoseconds since the recording began. `None` is the beginning.
    pub from_ns: Option<u64>,
    /// End, in nanoseconds since the recording began. `None` is the end.
    pub to_ns: Option<u64>,
    /// Show one line per thread, regardless of their number.
    pub each: bool,
}

/// Maximum number of system calls that have letters.
const MAX_CALL_LETTERS: usize = 8;
/// Heights of a shared line, from no thread to the largest number of threads that ever lived at
/// once.
const HEIGHTS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Writes the timeline as text.
pub fn write(model: &Model, zoom: Zoom, out: &mut dyn Write, style: &Style) -> io::Result<()> {
    let mut page = Page::new(out, style);
    let page = &mut page;
    notes::first(page, model)?;
    let end = model.recording.duration_ns.max(1);
    let from_ns = zoom.from_ns.unwrap_or(0);
    let to_ns = zoom.to_ns.unwrap_or(end).max(from_ns.saturating_add(1));
    let part = match (zoom.from_ns, zoom.to_ns) {
        (None, None) => 0..u64::MAX,
        _ => from_ns..to_ns,
    };
    let (rows, left_out) = rows(model, zoom.each, part);
    let room = page.width / 3;
    let labels: Vec<String> = rows.iter().map(|row| row.label(model, room)).collect();
    let measured = model.processor_levels();
    let levels = [
        Level::of("running", &measured, |level| level.running),
        Level::of("runnable", &measured, |level| level.runnable),
    ];
    let all = labels
        .iter()
        .chain(levels.iter().flatten().map(|level| &level.label));
    let gutter = all.map(|label| width(label)).max().unwrap_or(0) + 2;
    let window = Window {
        from_ns,
        to_ns,
        columns: page.width.saturating_sub(gutter).max(1),
    };
    let timeline = Timeline::of(model, window);
    page.paragraph(
        &Line::new(),
        &Line::new(),
        Ink::Plain,
        &summary(model, &rows, left_out, &window),
    )?;
    let marks = Marks::of(model, &timeline);
    marks.legend(page, model)?;
    let path = model.critical_path.as_ref();
    let path = path.map_or(Vec::new(), |path| path.columns(&window));
    if path.iter().any(Option::is_some) {
        let text = "━ the critical path, below the thread that has most of it";
        page.line(&Line::new().with(Ink::Plain, text))?;
    }
    page.blank()?;
    axis(page, gutter, &window)?;
    for level in levels.iter().flatten() {
        let mut line = Line::new().with(Ink::Faint, level.label.as_str());
        line.pad(gutter);
        line.push(Ink::Faint, level.heights(&window));
        page.line(&line)?;
    }
    for (row, label) in rows.iter().zip(&labels) {
        let mut line = Line::new().with(Ink::Plain, label.as_str());
        line.pad(gutter);
        let cells: Vec<&[Cell]> = row
            .members
            .iter()
            .filter_map(|index| timeline.threads.get(*index))
            .map(Vec::as_slice)
            .collect();
        match cells[..] {
            [one] => blocks(&mut line, &marks, one),
            _ => {
                let ran_ns = timeline.running_ns(model, &row.members);
                let full = |column| {
                    let length_ns = window.column_ns(column + 1) - window.column_ns(column);
                    length_ns.saturating_mul(row.most as u64).max(1)
                };
                let ran = ran_ns.iter().enumerate();
                let shares: Vec<f64> = ran
                    .map(|(column, ns)| *ns as f64 / full(column) as f64)
                    .collect();
                heights(&mut line, &marks, &cells, &shares);
            }
        }
        page.line(&line)?;
        let is_here = |thread: &Option<ThreadIndex>| {
            thread.is_some_and(|thread| row.members.contains(&thread.0))
        };
        if path.iter().any(is_here) {
            let marks = path
                .iter()
                .map(|thread| if is_here(thread) { '━' } else { ' ' });
            let marks: String = marks.collect();
            let mut line = Line::new();
            line.pad(gutter);
            line.push(Ink::Alarm, marks.trim_end());
            page.line(&line)?;
        }
    }
    notes::last(page, model, TOPICS)
}

/// Number of all recorded threads in some state over time: a line above the threads.
struct Level<'a> {
    label: String,
    most: f64,
    levels: &'a [ProcessorLevel],
    of: fn(&ProcessorLevel) -> f64,
}

impl Level<'_> {
    /// `None` if the numbers are unknown.
    fn of<'a>(
        what: &str,
        levels: &'a [ProcessorLevel],
        of: fn(&ProcessorLevel) -> f64,
    ) -> Option<Level<'a>> {
        let most = levels.iter().map(of).reduce(f64::max)?;
        let label = format!("{what} (≤ {most:.1})");
        Some(Level {
            label,
            most,
            levels,
            of,
        })
    }

    fn heights(&self, window: &Window) -> String {
        let column = |column: usize| {
            let (from, to) = (window.column_ns(column), window.column_ns(column + 1));
            let here = self.levels.iter();
            let here = here.filter(|level| level.from_ns < to && level.to_ns > from);
            let known: Vec<f64> = here.map(self.of).collect();
            let mean = known.iter().sum::<f64>() / known.len().max(1) as f64;
            HEIGHTS[((mean / self.most.max(1e-9) * 8.0).ceil() as usize).min(8)]
        };
        (0..window.columns).map(column).collect()
    }
}

/// `left_out` threads have no row.
fn summary(model: &Model, rows: &[Row], left_out: usize, window: &Window) -> String {
    let shared = rows.iter().filter(|row| row.members.len() > 1).count();
    let others = match model.processes.threads.len() {
        0 => String::new(),
        count => format!(
            " and {} of other processes,",
            wording::count(count, "thread")
        ),
    };
    let mut text = format!(
        "{}{}{} from {} to {}; a column is {}.",
        tree::about(model),
        wording::count(model.threads.len(), "thread"),
        others,
        wording::moment(window.from_ns),
        wording::moment(window.to_ns),
        wording::duration(window.length_ns() / window.columns.max(1) as u64),
    );
    if shared > 0 {
        text.push_str(
            " A line with a count shows all threads with the same function and creation stack. A \
             higher bar means that more of them ran. `≤ n` is the largest number of them alive at \
             the same time. --each shows every thread.",
        );
    }
    match left_out {
        0 => {}
        1 => {
            text.push_str(" 1 thread that lived only before or after this time range is left out.")
        }
        count => text.push_str(&format!(
            " {count} threads that lived only before or after this time range are left out."
        )),
    }
    text
}

/// Writes round times above the columns, as many as fit.
fn axis(page: &mut Page<'_>, gutter: usize, window: &Window) -> io::Result<()> {
    const TICK_COLUMNS: u64 = 14;
    let columns = window.columns as u64;
    let least =
        u128::from(window.length_ns()) * u128::from(TICK_COLUMNS) / u128::from(columns.max(1));
    let steps = (0..19_u32).flat_map(|power| [1, 2, 5].map(|digit| digit * 10_u64.pow(power)));
    let step = steps
        .take(56)
        .find(|step| u128::from(*step) >= least)
        .unwrap_or(u64::MAX);
    // Number of decimals that distinguish two ticks.
    let digits = 9usize.saturating_sub(step.ilog10() as usize).clamp(1, 9);
    let mut times = Line::new();
    let mut marks = Line::new();
    times.pad(gutter);
    marks.pad(gutter);
    let mut tick = window.from_ns.div_ceil(step).saturating_mul(step);
    while tick < window.to_ns && tick != u64::MAX {
        let offset = u128::from(tick - window.from_ns) * u128::from(columns);
        let column = gutter + (offset / u128::from(window.length_ns())) as usize;
        times.pad(column);
        times.push(Ink::Faint, format!("{:.digits$} s", tick as f64 / 1e9));
        let filled = column.saturating_sub(marks.width());
        marks.push(Ink::Faint, "─".repeat(filled));
        marks.push(Ink::Faint, "┬");
        tick = tick.saturating_add(step);
    }
    let rest = (gutter + window.columns).saturating_sub(marks.width());
    marks.push(Ink::Faint, "─".repeat(rest));
    page.line(&times)?;
    page.line(&marks)
}

/// The signs of waits: capital letters for objects that other threads hold, small letters for
/// events that other threads must cause.
struct Marks<'a> {
    model: &'a Model,
    /// Letters by identity: equal objects share one.
    letters: Vec<(ObjectIndex, char)>,
    /// Small letters of the system calls in which threads were blocked most.
    calls: Vec<(CallIndex, char)>,
    /// True if the system call of a blocked thread has no letter.
    other_calls: bool,
    /// True if a wait has no letter.
    others: bool,
    idle: bool,
    partly: bool,
    runnable: bool,
    away: bool,
    stopped: bool,
    unknown: bool,
}

impl Marks<'_> {
    fn of<'a>(model: &'a Model, timeline: &Timeline) -> Marks<'a> {
        let mut columns: Vec<(ObjectIndex, Waiting, usize)> = Vec::new();
        let mut calls: BTreeMap<CallIndex, usize> = BTreeMap::new();
        let mut marks = Marks {
            model,
            letters: Vec::new(),
            calls: Vec::new(),
            other_calls: false,
            others: false,
            idle: false,
            partly: false,
            runnable: false,
            away: false,
            stopped: false,
            unknown: false,
        };
        for cell in timeline.threads.iter().flatten() {
            marks.partly |= *cell == Cell::Partly;
            marks.runnable |= *cell == Cell::Runnable;
            marks.away |= *cell == Cell::Away(None);
            marks.stopped |= *cell == Cell::Stopped;
            if let Cell::Away(Some(call)) = cell {
                *calls.entry(*call).or_default() += 1;
            }
            marks.unknown |= *cell == Cell::Unknown;
            let Cell::Waits(used) = cell else { continue };
            let used = model.sync.used(*used);
            if used.waiting == Waiting::Idle {
                marks.idle = true;
                continue;
            }
            let same = |(object, waiting, _): &&mut (ObjectIndex, Waiting, usize)| {
                let key = |object| model.sync.object(object).key;
                (key(*object), *waiting) == (key(used.object), used.waiting)
            };
            match columns.iter_mut().find(same) {
                Some((_, _, count)) => *count += 1,
                None => columns.push((used.object, used.waiting, 1)),
            }
        }
        columns.sort_by_key(|(object, _, count)| (std::cmp::Reverse(*count), *object));
        let (mut capital, mut small) = ('A'..='Z', 'a'..='z');
        for (object, waiting, _) in columns {
            let joined = model.sync.object(object).kind == Kind::Join;
            let letter = match waiting {
                Waiting::Held => capital.next(),
                _ if joined => None,
                _ => small.next(),
            };
            match letter {
                Some(letter) => marks.letters.push((object, letter)),
                None => marks.others = true,
            }
        }
        let mut calls: Vec<(CallIndex, usize)> = calls.into_iter().collect();
        calls.sort_by_key(|(call, count)| (std::cmp::Reverse(*count), *call));
        marks.other_calls = calls.len() > MAX_CALL_LETTERS;
        for (call, _) in calls.into_iter().take(MAX_CALL_LETTERS) {
            match small.next() {
                Some(letter) => marks.calls.push((call, letter)),
                None => marks.other_calls = true,
            }
        }
        marks
    }

    fn sign(&self, cell: Cell) -> (Ink, char) {
        let Cell::Waits(used) = cell else {
            return match cell {
                Cell::Absent => (Ink::Plain, ' '),
                Cell::Partly => (Ink::Function, '▓'),
                Cell::Runnable => (Ink::Alarm, '▒'),
                Cell::Away(call) => {
                    let letter = self.calls.iter().find(|(known, _)| Some(*known) == call);
                    (Ink::Faint, letter.map_or('╌', |(_, letter)| *letter))
                }
                Cell::Stopped => (Ink::Faint, '×'),
                Cell::Unknown => (Ink::Faint, '?'),
                _ => (Ink::Function, '█'),
            };
        };
        let used = self.model.sync.used(used);
        let capital = used.waiting == Waiting::Held;
        let letter = self.letters.iter().find(|(object, sign)| {
            let key = |object| self.model.sync.object(object).key;
            key(*object) == key(used.object) && sign.is_uppercase() == capital
        });
        match (used.waiting, letter) {
            (Waiting::Idle, _) => (Ink::Faint, '·'),
            (Waiting::Held, Some((_, sign))) => (Ink::Alarm, *sign),
            (_, Some((_, sign))) => (Ink::Name, *sign),
            (_, None) => (Ink::Faint, '░'),
        }
    }

    fn legend(&self, page: &mut Page<'_>, model: &Model) -> io::Result<()> {
        let scheduled = model.schedule.is_known();
        let blocked = self.away || self.other_calls || !self.calls.is_empty();
        let measured = self.partly || self.runnable || blocked;
        let mut parts = vec![match (model.sync.recorded, measured) {
            _ if scheduled => "█ ran".to_owned(),
            (true, false) => "█ ran".to_owned(),
            // Samples show only roughly when a thread ran.
            (true, true) => "█ ran, as far as is known".to_owned(),
            (false, _) => "█ lived".to_owned(),
        }];
        if self.partly {
            parts.push("▓ ran less than half of the time".to_owned());
        }
        if self.unknown {
            parts.push("? unknown (waits were not recorded then)".to_owned());
        }
        if self.runnable {
            parts.push("▒ runnable (waited for a processor)".to_owned());
        }
        if self.away || self.other_calls {
            parts.push(match (scheduled, self.away, self.other_calls) {
                (false, ..) => "╌ in a system call that was not recorded".to_owned(),
                (_, true, false) => "╌ blocked (reason not recorded)".to_owned(),
                (_, false, _) => "╌ blocked in another system call".to_owned(),
                (_, true, true) => {
                    "╌ blocked in another system call, or reason not recorded".to_owned()
                }
            });
        }
        if self.stopped {
            parts.push("× stopped by the recorder".to_owned());
        }
        if self.idle {
            parts.push("· idle (waited for work)".to_owned());
        }
        if self.others {
            parts.push("░ waited for another thread or object".to_owned());
        }
        let lead = Line::new();
        page.paragraph(&lead, &lead, Ink::Plain, &format!("{}.", parts.join(", ")))?;
        for (object, letter) in &self.letters {
            let what = match letter.is_uppercase() {
                true => "waited for",
                false => "waited at",
            };
            let text = format!(
                "{letter} {what} {}",
                object_name::one(&model.sync, *object, page.width)
            );
            page.line(&Line::new().with(Ink::Plain, text))?;
        }
        let calls = self.calls.iter();
        for (call, letter) in
            calls.filter_map(|(call, sign)| Some((model.schedule.call(*call)?, sign)))
        {
            let text = format!("{letter} blocked in {}", blocking_call::title(call));
            page.line(&Line::new().with(Ink::Plain, text))?;
        }
        Ok(())
    }
}

/// Appends the cells of one thread.
fn blocks(line: &mut Line, marks: &Marks<'_>, cells: &[Cell]) {
    let signs: Vec<(Ink, char)> = cells.iter().map(|cell| marks.sign(*cell)).collect();
    for run in signs.chunk_by(|a, b| a.0 == b.0) {
        line.push(
            run[0].0,
            run.iter().map(|(_, sign)| *sign).collect::<String>(),
        );
    }
}

/// Appends, for several threads, how many of them ran on average as a height: a share of the
/// largest number alive at the same time. If none ran, appends the most frequent wait.
fn heights(line: &mut Line, marks: &Marks<'_>, threads: &[&[Cell]], shares: &[f64]) {
    let mut signs: Vec<(Ink, char)> = Vec::new();
    for (column, share) in shares.iter().enumerate() {
        let here = threads
            .iter()
            .filter_map(|cells| cells.get(column).copied());
        let runs = |cell| matches!(cell, Cell::Alive | Cell::Partly);
        if here.clone().any(runs) {
            let height = (share * 8.0).ceil() as usize;
            signs.push((Ink::Function, HEIGHTS[height.clamp(1, 8)]));
            continue;
        }
        let mut kinds: Vec<((Ink, char), usize)> = Vec::new();
        for cell in here.filter(|cell| *cell != Cell::Absent) {
            let sign = marks.sign(cell);
            match kinds.iter_mut().find(|(kind, _)| *kind == sign) {
                Some((_, count)) => *count += 1,
                None => kinds.push((sign, 1)),
            }
        }
        let most = kinds.iter().max_by_key(|(_, count)| *count);
        signs.push(most.map_or((Ink::Plain, ' '), |(sign, _)| *sign));
    }
    for run in signs.chunk_by(|a, b| a.0 == b.0) {
        line.push(
            run[0].0,
            run.iter().map(|(_, sign)| *sign).collect::<String>(),
        );
    }
}
