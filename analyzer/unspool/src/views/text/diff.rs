//! The comparison of recordings: the wall time, what changed it, and the tables of threads, objects
//! and the critical path.

use std::io::{self, Write};

use super::frames;
use super::line::{Ink, Line, Page, clean, width};
use crate::model::diff::{
    Cause, Change, Diff, Effect, ObjectChange, Spread, Subject, ThreadChange,
};
use crate::views::diff_wording::{self, both, percent, range, signed, span};
use crate::views::names::{middle, shorten};
use crate::views::{Style, wording};

/// Maximum number of effects shown.
const MAX_EFFECTS: usize = 12;
/// Maximum number of rows of each table.
const MAX_ROWS: usize = 20;

/// Writes a comparison as text.
///
/// # Errors
/// Returns an error if `out` cannot be written.
pub fn write(diff: &Diff, out: &mut dyn Write, style: &Style) -> io::Result<()> {
    let page = &mut Page::new(out, style);
    for doubt in &diff.doubts {
        let lead = Line::new().with(Ink::Alarm, "! ");
        let rest = Line::new().with(Ink::Plain, "  ");
        page.paragraph(&lead, &rest, Ink::Alarm, diff_wording::doubt(*doubt))?;
    }
    if !diff.doubts.is_empty() {
        page.blank()?;
    }
    summary(page, diff)?;
    effects(page, diff)?;
    threads(page, diff)?;
    objects(page, diff)?;
    critical(page, diff)?;
    noise(page, diff)
}

fn summary(page: &mut Page<'_>, diff: &Diff) -> io::Result<()> {
    let lead = Line::new();
    page.paragraph(&lead, &lead, Ink::Plain, &diff_wording::headline(diff))?;
    if let Some(text) = diff_wording::left_out(diff) {
        page.paragraph(&lead, &lead, Ink::Faint, &text)?;
    }
    Ok(())
}

fn effects(page: &mut Page<'_>, diff: &Diff) -> io::Result<()> {
    page.blank()?;
    page.line(&Line::new().with(Ink::Strong, "What changed the run"))?;
    let real = diff.effects.iter().filter(|effect| !effect.is_noise);
    let mut shown = 0;
    for effect in real.clone().take(MAX_EFFECTS) {
        shown += 1;
        let ink = match effect.effect_ns > 0 {
            true => Ink::Alarm,
            false => Ink::Name,
        };
        let mut line = Line::new().with(ink, format!("  {:>9}  ", signed(effect.effect_ns)));
        let room = page.width.saturating_sub(line.width());
        let reason = reason(diff, effect);
        let room = room.saturating_sub(width(&reason) + 2).max(16);
        line.push(Ink::Plain, subject(diff, effect.subject, room));
        line.push(Ink::Faint, format!("  {reason}"));
        page.line(&line)?;
    }
    let more = real.count() - shown;
    let noise = diff.effects.iter().filter(|effect| effect.is_noise).count();
    let text = match (shown, more, noise) {
        (0, _, 0) => "  Nothing.".to_owned(),
        (0, _, noise) => format!(
            "  Nothing beyond noise. {} noise.",
            these(noise, "difference")
        ),
        (_, 0, 0) => return Ok(()),
        (_, 0, noise) => format!("  {} noise.", these(noise, "other difference")),
        (_, more, 0) => format!("  {}.", wording::count(more, "smaller difference")),
        (_, more, noise) => format!(
            "  {}. {} noise.",
            wording::count(more, "smaller difference"),
            these(noise, "other")
        ),
    };
    page.line(&Line::new().with(Ink::Faint, text))
}

/// `1 difference is`, `3 differences are`.
fn these(number: usize, noun: &str) -> String {
    let verb = if number == 1 { "is" } else { "are" };
    format!("{} {verb}", wording::count(number, noun))
}

/// Why an item has an effect, with its values.
fn reason(diff: &Diff, effect: &Effect) -> String {
    let path = both(&effect.path_ns);
    let grows = effect.effect_ns > 0;
    match (effect.cause, effect.subject) {
        (Cause::New, _) => "new".to_owned(),
        (Cause::Gone, _) => "gone".to_owned(),
        (Cause::Number, Subject::Threads(index)) => {
            let number = diff.threads[index].number;
            let noun = match diff.threads[index].program {
                Some(_) => "processes",
                None => "threads",
            };
            format!("{} → {} {noun}", number.before.median, number.after.median)
        }
        (Cause::Contention, _) => format!("costs {path} by contention"),
        (Cause::Parallelism, _) if grows => format!("as much work, less of it in parallel: {path}"),
        (Cause::Parallelism, _) => format!("as much work, more of it in parallel: {path}"),
        (Cause::Work | Cause::Number, _) => {
            let change = effect
                .path_ns
                .share()
                .map(|share| format!(", {}", percent(share)));
            format!("{path} of the critical path{}", change.unwrap_or_default())
        }
    }
}

fn subject(diff: &Diff, subject: Subject, room: usize) -> String {
    match subject {
        Subject::Threads(index) => {
            let threads = &diff.threads[index];
            if threads.program.is_some() {
                return thread_name(diff, index, room);
            }
            let noun = if threads.number.larger_median() == 1 {
                "thread"
            } else {
                "threads"
            };
            let room = room.saturating_sub(noun.len() + 1);
            format!("{noun} {}", thread_name(diff, index, room))
        }
        Subject::Lock(index) => object_name(&diff.objects[index], room),
        Subject::Function(index) => {
            let place = &diff.functions[index].place;
            format!(
                "function {}",
                frames::function(place, room.saturating_sub(9))
            )
        }
    }
}

/// The name of threads, and what distinguishes them from others with the same name.
fn thread_name(diff: &Diff, index: usize, room: usize) -> String {
    /// A name keeps this many columns.
    const MIN_NAME_WIDTH: usize = 12;
    let threads = &diff.threads[index];
    match diff_wording::distinction(diff, index) {
        Some(words) => {
            let room = room.saturating_sub(width(&words) + 1);
            let name = name_of_function(threads, room.max(MIN_NAME_WIDTH));
            format!("{name} {words}")
        }
        None => name_of_function(threads, room),
    }
}

/// The threads' function, and their own name if there is room. Of processes that the program
/// started, their program.
fn name_of_function(threads: &ThreadChange, room: usize) -> String {
    if let Some(program) = &threads.program {
        return shorten(&format!("process {}", clean(program)), room);
    }
    let title = match &threads.function {
        _ if threads.is_main => return "main".to_owned(),
        Some(place) => frames::function(place, room),
        None => "of unknown function".to_owned(),
    };
    let own = clean(&threads.name);
    let is_anonymous = title.starts_with("std::");
    match own.as_str() {
        "" => title,
        own if is_anonymous => shorten(own, room),
        own if width(&title) + width(own) + 3 <= room => format!("{title} \"{own}\""),
        _ => title,
    }
}

fn object_name(object: &ObjectChange, room: usize) -> String {
    let noun = object.kind.map_or("object", |kind| kind.noun());
    let number = match object.number.larger_median() {
        0 | 1 => String::new(),
        number => format!("{number} × "),
    };
    let name = object
        .name
        .as_deref()
        .map_or_else(|| "without a name".to_owned(), clean);
    let process = object
        .program
        .as_deref()
        .map_or_else(String::new, |program| {
            format!(" of process {}", clean(program))
        });
    let rest = noun.len() + number.len() + process.len() + 1;
    let room = room.saturating_sub(rest).max(12);
    format!("{number}{noun} {}{process}", middle(&name, room))
}

/// A value of a table before and after.
struct Cell {
    before: String,
    after: String,
    differs: bool,
}

impl Cell {
    fn time(change: &Change) -> Cell {
        Cell {
            before: span(&change.before),
            after: span(&change.after),
            differs: change.is_marked(),
        }
    }

    fn number(change: &Change, differs: bool) -> Cell {
        Cell {
            before: range(&change.before),
            after: range(&change.after),
            differs,
        }
    }

    /// Both values on one line; one value if they are equal.
    fn inline(&self) -> Text {
        let text = match self.before == self.after {
            true => self.before.clone(),
            false => format!("{} → {}", self.before, self.after),
        };
        marked(text, self.differs)
    }
}

/// A text, and whether it is emphasized.
type Text = (String, bool);

fn marked(text: String, differs: bool) -> Text {
    match differs {
        true => (text + " *", true),
        false => (text, false),
    }
}

/// Writes a table with names in its first column. If it is too wide, the values before and after
/// have a line each.
fn table(
    page: &mut Page<'_>,
    titles: &[&str],
    rows: &[(String, Vec<Cell>)],
    hidden: usize,
) -> io::Result<()> {
    let titles: Vec<&str> = [""].iter().chain(titles).copied().collect();
    let inline = rows.iter().map(|(name, cells)| {
        let cells = cells.iter().map(Cell::inline);
        [(name.clone(), false)].into_iter().chain(cells).collect()
    });
    let inline: Vec<Vec<Text>> = inline.collect();
    match fits(page.width, &titles, &inline) {
        true => lines(page, &titles, &inline)?,
        false => {
            let stacked = rows.iter().flat_map(|(name, cells)| {
                let before = cells.iter().map(|cell| (cell.before.clone(), false));
                let after = cells.iter();
                let after = after.map(|cell| marked(cell.after.clone(), cell.differs));
                let head = [(name.clone(), false), ("before".to_owned(), false)];
                let next = [(String::new(), false), ("after".to_owned(), false)];
                let before = head.into_iter().chain(before).collect();
                let after = next.into_iter().chain(after).collect();
                [before, after]
            });
            let stacked: Vec<Vec<Text>> = stacked.collect();
            let titles: Vec<&str> = ["", ""].iter().chain(&titles[1..]).copied().collect();
            lines(page, &titles, &stacked)?;
        }
    }
    if hidden > 0 {
        let hidden = wording::count(hidden, "more row");
        let text = format!("  {hidden} with less time; JSON has all.");
        page.line(&Line::new().with(Ink::Faint, text))?;
    }
    Ok(())
}

/// Width of the columns of a table.
fn widths(titles: &[&str], rows: &[Vec<Text>]) -> Vec<usize> {
    let columns = titles.iter().enumerate().map(|(at, title)| {
        let cells = rows.iter().filter_map(|row| row.get(at));
        let widest = cells.map(|(text, _)| width(text)).max();
        widest.unwrap_or(0).max(width(title))
    });
    columns.collect()
}

fn fits(room: usize, titles: &[&str], rows: &[Vec<Text>]) -> bool {
    let all: usize = widths(titles, rows).iter().map(|width| width + 2).sum();
    all <= room
}

fn lines(page: &mut Page<'_>, titles: &[&str], rows: &[Vec<Text>]) -> io::Result<()> {
    /// A name keeps this many columns.
    const MIN_NAME_WIDTH: usize = 16;
    let mut widths = widths(titles, rows);
    let others: usize = widths[1..].iter().map(|width| width + 2).sum();
    let room = page.width.saturating_sub(others + 2);
    widths[0] = widths[0].min(room.max(MIN_NAME_WIDTH));
    let titles: Vec<Text> = titles
        .iter()
        .map(|title| ((*title).to_owned(), false))
        .collect();
    for row in [&titles].into_iter().chain(rows) {
        let mut line = Line::new();
        let mut column = 2;
        for (at, ((text, is_strong), width)) in row.iter().zip(&widths).enumerate() {
            line.pad(column);
            let ink = match (at, is_strong) {
                (0, _) => Ink::Plain,
                (_, true) => Ink::Strong,
                (_, false) => Ink::Faint,
            };
            line.push(ink, middle(text, *width));
            column += width + 2;
        }
        page.line(&line)?;
    }
    Ok(())
}

fn threads(page: &mut Page<'_>, diff: &Diff) -> io::Result<()> {
    let mut order: Vec<(usize, &ThreadChange)> = diff.threads.iter().enumerate().collect();
    order.sort_by_key(|(_, threads)| {
        let exists = |spread: &Spread| spread.max > 0;
        let differs = exists(&threads.number.before) != exists(&threads.number.after);
        (!differs, std::cmp::Reverse(threads.work_ns.larger_median()))
    });
    page.blank()?;
    let has_processes = order.iter().any(|(_, threads)| threads.program.is_some());
    let title = match has_processes {
        true => "Threads and processes",
        false => "Threads",
    };
    page.line(&Line::new().with(Ink::Strong, title))?;
    let rows = order.iter().take(MAX_ROWS).map(|(index, threads)| {
        let mut name = thread_name(diff, *index, page.width / 3);
        if threads.identities > 1 {
            name.push_str(" †");
        }
        let mark = match (threads.number.before.max, threads.number.after.max) {
            (0, _) => "new: ",
            (_, 0) => "gone: ",
            _ => "",
        };
        let cells = vec![
            Cell::number(
                &threads.number,
                threads.number.has_spread() && threads.number.gap() > 0,
            ),
            Cell::time(&threads.running_ns),
            Cell::time(&threads.runnable_ns),
            Cell::time(&threads.waiting_ns),
        ];
        (format!("{mark}{name}"), cells)
    });
    let rows: Vec<_> = rows.collect();
    let titles = ["number", "running", "runnable", "waiting"];
    table(page, &titles, &rows, order.len().saturating_sub(MAX_ROWS))?;
    if diff.threads.iter().any(|threads| threads.identities > 1) {
        let text = diff_wording::COMPARED_AS_ONE;
        let [lead, rest] = ["  ", "  "].map(|space| Line::new().with(Ink::Plain, space));
        page.paragraph(&lead, &rest, Ink::Faint, text)?;
    }
    Ok(())
}

fn objects(page: &mut Page<'_>, diff: &Diff) -> io::Result<()> {
    let mut order: Vec<&ObjectChange> = diff.objects.iter().collect();
    let waited = |object: &ObjectChange| object.waited_ns.before.max + object.waited_ns.after.max;
    let held = |object: &ObjectChange| object.held_ns.before.max + object.held_ns.after.max;
    order.retain(|object| waited(object) + held(object) > 0);
    if order.is_empty() {
        return Ok(());
    }
    order.sort_by_key(|object| {
        let delta = object.waited_ns.delta().unsigned_abs();
        std::cmp::Reverse((delta, waited(object)))
    });
    page.blank()?;
    page.line(&Line::new().with(Ink::Strong, "Synchronization objects"))?;
    let has_holds = order.iter().any(|object| held(object) > 0);
    let rows = order.iter().take(MAX_ROWS).map(|object| {
        let differs = object.waited_ns.is_marked() && object.waits.gap() > 0;
        let mut cells = vec![
            Cell::number(&object.waits, differs),
            Cell::time(&object.waited_ns),
        ];
        if has_holds {
            let differs = object.held_ns.is_marked() && object.taken.gap() > 0;
            cells.push(Cell::number(&object.taken, differs));
            cells.push(Cell::time(&object.held_ns));
        }
        (object_name(object, page.width / 3), cells)
    });
    let rows: Vec<_> = rows.collect();
    let titles = match has_holds {
        true => &["waits", "waited", "taken", "held"][..],
        false => &["waits", "waited"],
    };
    table(page, titles, &rows, order.len().saturating_sub(MAX_ROWS))
}

fn critical(page: &mut Page<'_>, diff: &Diff) -> io::Result<()> {
    let threads = diff
        .threads
        .iter()
        .enumerate()
        .map(|(index, threads)| (Subject::Threads(index), threads.path_ns));
    let objects = diff
        .objects
        .iter()
        .enumerate()
        .map(|(index, object)| (Subject::Lock(index), object.path_ns));
    let functions = diff
        .functions
        .iter()
        .enumerate()
        .map(|(index, function)| (Subject::Function(index), function.path_ns));
    let mut items: Vec<(Subject, Change)> = threads.chain(objects).chain(functions).collect();
    let most = |change: &Change| change.before.max.max(change.after.max);
    items.retain(|(_, change)| most(change) > 0);
    if items.is_empty() {
        return Ok(());
    }
    items.sort_by_key(|(_, change)| std::cmp::Reverse(most(change)));
    page.blank()?;
    page.line(&Line::new().with(Ink::Strong, "Critical path"))?;
    let (before, after) = (diff.net_ns.before.median, diff.net_ns.after.median);
    let rows = items.iter().take(MAX_ROWS).map(|(item, change)| {
        let part =
            |part: u64, whole: u64| format!("{:.0} %", part as f64 * 100.0 / whole.max(1) as f64);
        let shares = Cell {
            before: part(change.before.median, before),
            after: part(change.after.median, after),
            differs: false,
        };
        let cells = vec![Cell::time(change), shares];
        let name = subject(diff, *item, page.width / 2);
        match item {
            Subject::Lock(_) => (format!("while others waited for {name}"), cells),
            _ => (name, cells),
        }
    });
    let rows: Vec<_> = rows.collect();
    let titles = ["time", "share"];
    table(page, &titles, &rows, items.len().saturating_sub(MAX_ROWS))
}

/// Says what counts as noise here.
fn noise(page: &mut Page<'_>, diff: &Diff) -> io::Result<()> {
    page.blank()?;
    let lead = Line::new();
    let mark = match diff.net_ns.has_spread() {
        true => "* differs. ",
        false => "",
    };
    let text = format!("{mark}{}", diff_wording::noise(diff));
    page.paragraph(&lead, &lead, Ink::Faint, &text)
}

#[cfg(test)]
mod tests {
    use unspool_unwind::Provenance;

    use super::*;
    use crate::model::{Backtrace, NamedFrame, Place};

    #[test]
    fn threads_with_one_function_are_told_apart() {
        let place = |name: &str| Place {
            function: Some(name.into()),
            ..Place::default()
        };
        let threads = |function: &str, stack: &[(&str, u32)]| ThreadChange {
            function: Some(place(function)),
            creation: (
                None,
                Some(Backtrace {
                    frames: stack
                        .iter()
                        .map(|(creator, line)| NamedFrame {
                            place: Place {
                                file: Some("/src/pool.cpp".into()),
                                line: Some(*line),
                                ..place(creator)
                            },
                            inlined: false,
                            provenance: Provenance::Registers,
                            called: None,
                        })
                        .collect(),
                    truncated: None,
                }),
            ),
            ..ThreadChange::default()
        };
        let start = ("std::thread::_M_start_thread", 9);
        let diff = Diff {
            threads: vec![
                threads("work", &[start, ("first", 1)]),
                threads("work", &[start, ("second", 1)]),
                threads("load", &[start, ("main", 1)]),
                threads("load", &[start, ("main", 2)]),
                threads("store", &[start, ("main", 1)]),
                threads("store", &[start, ("main", 1)]),
                threads("serve", &[start, ("main", 1)]),
            ],
            ..Diff::default()
        };
        let all = 0..diff.threads.len();
        let names: Vec<String> = all.map(|index| thread_name(&diff, index, 40)).collect();
        let expected = [
            "work of first",
            "work of second",
            "load of pool.cpp:1",
            "load of pool.cpp:2",
            "store #1",
            "store #2",
            "serve",
        ];
        assert_eq!(names, expected);
    }
}
