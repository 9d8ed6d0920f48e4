//! The panes of `unspool top`: header, tables, waits by object, findings, and the line of keys.

use ratatui::text::Line;

use super::rows::{self, Row};
use super::{Ink, Level, Screen, age, cut, line, padded, span};
use crate::model::live::{Live, Shares};
use crate::views::finding_text;
use crate::views::names::middle;
use crate::views::text::line::{clean, width, wrap};
use crate::views::text::thread_state;

/// Columns of a percentage with its gap.
const SHARE_COLUMNS: usize = 5;
/// Columns of the number of threads with its gap.
const COUNT_COLUMNS: usize = 5;
/// Minimum number of rows of the table, so that findings do not hide it.
const MIN_TABLE_ROWS: usize = 3;

/// The lines above the panes: the program, and the state of the command.
pub(super) fn header(live: &Live, screen: &Screen, columns: u16) -> Vec<Line<'static>> {
    let target = &live.model.target;
    let status = &screen.status;
    let mut text = format!("{} (pid {})", clean(&target.name), target.pid);
    let threads = live.threads.len();
    text += &format!("  {threads} thread{}", if threads == 1 { "" } else { "s" });
    if let Some(used) = live.processors() {
        let of = status.processors.map(|all| format!(" of {all}"));
        text += &format!("  {used:.2}{} CPUs", of.unwrap_or_default());
    }
    text += &format!("  watched {}", age(live.watched_ns()));
    let mut lines = vec![line(screen, Ink::Strong, &text, columns)];
    lines.push(match (&status.ended, &status.problem) {
        (Some(ended), _) => line(screen, Ink::Alarm, ended, columns),
        (None, Some(problem)) => line(screen, Ink::Alarm, problem, columns),
        (None, None) => {
            let nanoseconds = |time: std::time::Duration| time.as_nanos() as u64;
            let next = match status.next {
                _ if screen.paused => "paused".to_owned(),
                Some(next) => format!("next in {}", age(nanoseconds(next))),
                None => "inspecting".to_owned(),
            };
            let text = format!(
                "Inspected {} ago, stopped ≤ {:.1} ms; {next}",
                age(nanoseconds(status.inspected)),
                status.stopped.as_secs_f64() * 1e3
            );
            line(screen, Ink::Faint, &text, columns)
        }
    });
    lines
}

/// The identities, the objects that threads wait for, and the findings.
pub(super) fn identities(
    live: &Live,
    screen: &mut Screen,
    columns: u16,
    room: usize,
) -> Vec<Line<'static>> {
    let rows = screen.rows(live);
    let findings = findings(live, screen, columns, room / 3);
    // Waits get what the table leaves, and a quarter at least.
    let left = room.saturating_sub(rows.len() + 2 + findings.len());
    let mut below = waits(live, screen, columns, left.max(room / 4).max(2));
    below.extend(findings);
    below.truncate(room.saturating_sub(MIN_TABLE_ROWS + 1));
    let mut lines = table(screen, &rows, columns, room - below.len());
    lines.resize(room - below.len(), Line::default());
    lines.extend(below);
    lines
}

/// The threads of an identity.
pub(super) fn threads(
    live: &Live,
    screen: &mut Screen,
    columns: u16,
    room: usize,
) -> Vec<Line<'static>> {
    let Level::Threads(title, _) = screen.level() else {
        return Vec::new();
    };
    let title = format!("Threads of {title}");
    let mut lines = vec![line(screen, Ink::Title, &title, columns)];
    let rows = screen.rows(live);
    lines.extend(table(screen, &rows, columns, room - 1));
    lines
}

fn table(screen: &mut Screen, rows: &[Row], columns: u16, room: usize) -> Vec<Line<'static>> {
    screen.follow(rows);
    let all = usize::from(columns);
    let counts = *screen.level() == Level::Identities;
    let first = if counts { COUNT_COLUMNS } else { 0 };
    let fixed = first + 4 * SHARE_COLUMNS + 2;
    let widest = rows.iter().map(|row| width(&row.title)).max().unwrap_or(0);
    let title = widest.max(8).min(all.saturating_sub(fixed) / 2);
    let state = all.saturating_sub(fixed + title);
    let number = if counts { "THR  " } else { "" };
    let name = if counts { "IDENTITY" } else { "THREAD" };
    let head = format!(
        "{number}{}  RUN  RDY  BLK  CPU  {}",
        padded(name, title),
        cut(
            "AT THE LAST INSPECTION",
            u16::try_from(state).unwrap_or(u16::MAX)
        )
    );
    let mut lines = vec![line(screen, Ink::Title, &head, columns)];
    if rows.is_empty() {
        let text = match screen.filter.is_empty() {
            true => "no threads".to_owned(),
            false => format!("nothing contains \"{}\"", screen.filter),
        };
        lines.push(line(screen, Ink::Faint, &text, columns));
    }
    let shown = room.saturating_sub(1).max(1);
    // The selected row stays visible.
    let from = (screen.selected() + 1).saturating_sub(shown);
    for (at, row) in rows.iter().enumerate().skip(from).take(shown) {
        let number = match counts {
            true => format!("{:>3}  ", row.tids.len()),
            false => String::new(),
        };
        let text = format!(
            "{number}{}{}  {}",
            padded(&middle(&row.title, title), title),
            percentages(row.shares, row.processors),
            row.state
        );
        let is_selected = at == screen.selected();
        let ink = if is_selected {
            Ink::Selected
        } else {
            Ink::Plain
        };
        let text = match is_selected {
            true => padded(&clean(&text), all),
            false => text,
        };
        lines.push(line(screen, ink, &text, columns));
    }
    let hidden = rows.len().saturating_sub(from + shown);
    if hidden > 0 && lines.len() > 2 {
        lines.pop();
        let text = format!("     {} more", hidden + 1);
        lines.push(line(screen, Ink::Faint, &text, columns));
    }
    lines
}

/// Running, runnable and blocked in percent of the threads' time, and processors in percent of one.
fn percentages(shares: Option<Shares>, processors: f64) -> String {
    let Some(shares) = shares else {
        return format!(
            "{:>SHARE_COLUMNS$}{:>SHARE_COLUMNS$}{:>SHARE_COLUMNS$}{:>SHARE_COLUMNS$}",
            "-", "-", "-", "-"
        );
    };
    // The three add up to 100.
    let (running, runnable) = (percent(shares.running), percent(shares.runnable));
    let blocked = (100 - running).saturating_sub(runnable);
    let columns = SHARE_COLUMNS - 1;
    let cpu = percent(processors);
    format!("{running:>columns$}%{runnable:>columns$}%{blocked:>columns$}%{cpu:>columns$}%")
}

fn percent(share: f64) -> u64 {
    (share * 100.0).round() as u64
}

/// The objects that threads wait for, with the holders.
fn waits(live: &Live, screen: &Screen, columns: u16, room: usize) -> Vec<Line<'static>> {
    let objects = live.awaited();
    // A program that has ended waits for nothing.
    if objects.is_empty() || room < 2 || screen.status.ended.is_some() {
        return Vec::new();
    }
    let title = "THR  TIME     WAITS FOR (time: the longest)";
    let mut lines = vec![line(screen, Ink::Title, title, columns)];
    let rows = objects.iter().map(|object| {
        let count = object.tids.len();
        let what = rows::object(&live.model, object.wait);
        let holder = rows::holder(&live.model, object.wait);
        let holder = holder.map_or(String::new(), |holder| format!(", {holder}"));
        format!("{count:>3}  {:<7}  {what}{holder}", age(object.longest_ns))
    });
    let shown = match objects.len() < room {
        true => objects.len(),
        false => room - 2,
    };
    for text in rows.take(shown) {
        lines.push(line(screen, Ink::Plain, &text, columns));
    }
    if objects.len() > shown {
        let text = format!("              {} more objects", objects.len() - shown);
        lines.push(line(screen, Ink::Faint, &text, columns));
    }
    lines
}

/// The findings of the latest inspection.
fn findings(live: &Live, screen: &Screen, columns: u16, room: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for (at, finding) in live.model.findings.iter().enumerate() {
        let sure = if finding.proved { "proved" } else { "inferred" };
        let since = live.findings.get(at).map_or(0, |(_, since_ns)| *since_ns);
        let title = format!(
            "{} ({sure}), known for {}",
            thread_state::title(finding),
            age(live.now_ns.saturating_sub(since))
        );
        lines.push(line(screen, Ink::Alarm, &title, columns));
        let text = clean(&finding_text::text(&live.model, finding));
        for part in wrap(&text, usize::from(columns).saturating_sub(2)) {
            lines.push(line(screen, Ink::Plain, &format!("  {part}"), columns));
        }
    }
    if lines.len() > room && room > 0 {
        lines.truncate(room - 1);
        let text = "  … `unspool inspect` shows all findings with their stacks";
        lines.push(line(screen, Ink::Faint, text, columns));
    }
    lines
}

/// The last line: the filter, or the keys of the level.
pub(super) fn keys(screen: &Screen, columns: u16) -> Line<'static> {
    if screen.types_filter {
        let text = format!(
            "Filter: {}_  (Enter keeps it, Esc removes it)",
            screen.filter
        );
        return line(screen, Ink::Strong, &text, columns);
    }
    let filter = match screen.filter.as_str() {
        "" => "filter".to_owned(),
        some => format!("filter: {some}"),
    };
    let sort = format!("sort: {}", screen.sort.as_str());
    let keys: Vec<(&str, &str)> = match screen.level() {
        _ if screen.shows_help => vec![("?", "close"), ("q", "quit")],
        Level::Stack(_) => vec![
            ("q", "quit"),
            ("Esc", "back"),
            ("i", "inspect"),
            ("?", "help"),
        ],
        level => {
            let enter = match level {
                Level::Identities => ("Enter", "threads"),
                _ => ("Enter", "stack"),
            };
            let pause = if screen.paused { "go on" } else { "pause" };
            vec![
                ("q", "quit"),
                enter,
                ("s", &sort),
                ("/", &filter),
                ("p", pause),
                ("i", "inspect"),
                ("?", "help"),
            ]
        }
    };
    let mut spans = Vec::new();
    let mut room = usize::from(columns);
    for (key, does) in keys {
        let does = clean(&format!(" {does}  "));
        if width(key) + width(does.trim_end()) > room {
            break;
        }
        room = room.saturating_sub(width(key) + width(&does));
        spans.push(span(screen, Ink::Strong, key));
        spans.push(span(screen, Ink::Plain, &does));
    }
    Line::from(spans)
}
