//! Stacks as aligned columns: function and location.
//!
//! Recursion is folded, and the start code at the end of every stack is left out. JSON has
//! everything.

use std::io;

use unspool_unwind::Provenance;

use super::line::{Ink, Line, Page, clean, width};
use crate::model::{Backtrace, Model, NamedFrame, Place, start_code};
use crate::views::names::{middle, shorten};

/// Maximum number of rows. Longer stacks lose their middle.
const MAX_ROWS: usize = 60;

/// The common directory of the program's own source files, which is left out of every location.
#[derive(Debug, Default)]
pub(in crate::views) struct Sources(Option<String>);

impl Sources {
    /// Finds the common directory of the source files of `module`.
    pub(in crate::views) fn of<'a>(
        frames: impl Iterator<Item = &'a NamedFrame>,
        module: &str,
    ) -> Sources {
        let mut common: Option<String> = None;
        for frame in frames.filter(|frame| frame.place.module.as_deref() == Some(module)) {
            let Some(file) = frame.place.file.as_deref().filter(|file| own(file)) else {
                continue;
            };
            let directory = file.rfind('/').map_or("", |at| &file[..=at]);
            common = Some(match common {
                None => directory.to_owned(),
                Some(before) => shared(&before, directory).to_owned(),
            });
        }
        Sources(common.filter(|directory| directory.len() > 1))
    }

    /// `file:line` with a useful part of the path, in at most `room` columns.
    pub(in crate::views) fn location(&self, place: &Place, room: usize) -> String {
        let Some(file) = &place.file else {
            let module = place.shown_module().unwrap_or("unknown code");
            return match place.function {
                Some(_) => middle(&format!("in {}", clean(module)), room),
                None => String::new(),
            };
        };
        let line = place.line.map_or(String::new(), |line| format!(":{line}"));
        let file = clean(file);
        let directory = self.0.as_deref().unwrap_or_default();
        let path = match file.strip_prefix(directory) {
            Some(inside) if !directory.is_empty() => inside.to_owned(),
            _ => last_parts(&file),
        };
        if width(&path) + width(&line) <= room {
            return path + &line;
        }
        let name = path.rsplit('/').next().unwrap_or(&path);
        let short = format!("…/{name}{line}");
        if width(&short) <= room && name != path {
            return short;
        }
        format!("{}{line}", middle(name, room.saturating_sub(width(&line))))
    }
}

/// True for a source path of the program, false for one of the C library, a toolchain or a package
/// registry.
fn own(file: &str) -> bool {
    file.starts_with('/')
        && !["/rustc/", "/usr/", "/build/"]
            .iter()
            .any(|place| file.starts_with(place))
        && ![
            "/.cargo/",
            "/registry/src/",
            "/.rustup/",
            "/library/std/",
            "/library/core/",
        ]
        .iter()
        .any(|part| file.contains(part))
}

/// The common beginning of two directories, which ends in `/`.
fn shared<'a>(a: &'a str, b: &str) -> &'a str {
    let mut end = 0;
    for (at, (x, y)) in a.bytes().zip(b.bytes()).enumerate() {
        if x != y {
            break;
        }
        if x == b'/' {
            end = at + 1;
        }
    }
    &a[..end]
}

/// The last two components of a path.
fn last_parts(path: &str) -> String {
    match path.rmatch_indices('/').nth(1) {
        Some((at, _)) if at > 0 => format!("…{}", &path[at..]),
        _ => path.to_owned(),
    }
}

/// The name of a place: its function, or its module and offset.
pub(in crate::views) fn function(place: &Place, room: usize) -> String {
    match (&place.function, place.shown_module()) {
        (Some(name), _) => shorten(&clean(name), room),
        (None, Some(module)) => {
            let offset = format!("+{:#x}", place.svma.unwrap_or(place.offset));
            let module = clean(module);
            format!(
                "{}{offset}",
                middle(&module, room.saturating_sub(width(&offset)).max(8))
            )
        }
        (None, None) => format!("{:#x}", place.avma),
    }
}

/// A row of a stack.
enum Row<'a> {
    Frame(&'a NamedFrame, usize),
    Again { frames: usize, times: usize },
    Left { frames: usize },
}

/// Writes a stack. `label` precedes its first line, `prefix` precedes all lines.
pub(in crate::views) fn write(
    page: &mut Page<'_>,
    prefix: &Line,
    label: &str,
    stack: &Backtrace,
    sources: &Sources,
    whole: bool,
) -> io::Result<()> {
    let shown = stack.frames.len() - if whole { 0 } else { start_code(stack) };
    let rows = rows(&stack.frames[..shown]);
    let indent = prefix.width() + width(label);
    let room = page.width.saturating_sub(indent);
    let names: Vec<String> = rows.iter().map(|row| name(row, usize::MAX)).collect();
    let places: Vec<usize> = rows
        .iter()
        .map(|row| match row {
            Row::Frame(frame, _) => {
                width(&sources.location(&frame.place, usize::MAX)) + width(remark(frame))
            }
            _ => 0,
        })
        .collect();
    let widest = names.iter().map(|name| width(name)).max().unwrap_or(0);
    let location = places.iter().copied().max().unwrap_or(0);
    // The column of functions shrinks for locations, but not below half of the room.
    let column = widest.min(room.saturating_sub(location + 2).max(room / 2));
    for (at, row) in rows.iter().enumerate() {
        let mut line = prefix.clone();
        line.push(
            Ink::Faint,
            if at == 0 {
                label.to_owned()
            } else {
                " ".repeat(width(label))
            },
        );
        match row {
            Row::Frame(frame, _) => {
                line.push(Ink::Function, name(row, column));
                let rest = room.saturating_sub(column + 2 + width(remark(frame)));
                let location = sources.location(&frame.place, rest);
                line.pad(indent + column + 2);
                line.push(Ink::Plain, location);
                line.push(Ink::Faint, remark(frame));
            }
            other => line.push(Ink::Faint, name(other, room)),
        }
        page.line(&line)?;
    }
    let Some(reason) = &stack.truncated else {
        return Ok(());
    };
    let mut lead = prefix.clone();
    lead.push(
        Ink::Faint,
        if rows.is_empty() {
            label.to_owned()
        } else {
            " ".repeat(width(label))
        },
    );
    let mut rest = prefix.clone();
    rest.push(Ink::Plain, " ".repeat(width(label)));
    page.paragraph(
        &lead,
        &rest,
        Ink::Alarm,
        &match rows.is_empty() {
            true => format!("unknown functions: {reason}"),
            false => format!("… its callers are not known: {reason}"),
        },
    )
}

/// A remark on a frame whose correctness is less certain.
fn remark(frame: &NamedFrame) -> &'static str {
    match frame.provenance {
        _ if frame.inlined => " (inlined)",
        Provenance::Scan => " (guessed)",
        Provenance::FramePointer => " (by frame pointer)",
        Provenance::LinkRegister => " (by link register)",
        _ => "",
    }
}

fn name(row: &Row<'_>, room: usize) -> String {
    match row {
        Row::Frame(frame, 1) => function(&frame.place, room),
        Row::Frame(frame, times) => {
            let suffix = format!(" × {times}");
            function(&frame.place, room.saturating_sub(width(&suffix))) + &suffix
        }
        Row::Again { frames, times } => format!("┊ these {frames} again, {times} times"),
        Row::Left { frames } => format!("┊ {frames} more frames, all of them in JSON"),
    }
}

/// Converts frames to rows. Folds recursion, and leaves out the middle of a stack that is still too
/// long.
fn rows(frames: &[NamedFrame]) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    let mut at = 0;
    while at < frames.len() {
        let folded = (1..=4).find_map(|period| {
            let times = repeats(&frames[at..], period);
            (times >= if period == 1 { 2 } else { 3 }).then_some((period, times))
        });
        match folded {
            Some((1, times)) => {
                rows.push(Row::Frame(&frames[at], times));
                at += times;
            }
            Some((period, times)) => {
                rows.extend(
                    frames[at..at + period]
                        .iter()
                        .map(|frame| Row::Frame(frame, 1)),
                );
                rows.push(Row::Again {
                    frames: period,
                    times: times - 1,
                });
                at += period * times;
            }
            None => {
                rows.push(Row::Frame(&frames[at], 1));
                at += 1;
            }
        }
    }
    if rows.len() > MAX_ROWS {
        let left = rows.len() - MAX_ROWS + 1;
        let from = MAX_ROWS * 2 / 3;
        let frames = rows[from..from + left]
            .iter()
            .map(|row| match row {
                Row::Frame(_, times) => *times,
                Row::Again { frames, times } => frames * times,
                Row::Left { frames } => *frames,
            })
            .sum();
        rows.splice(from..from + left, [Row::Left { frames }]);
    }
    rows
}

/// Number of times that the first `period` frames repeat in a row.
fn repeats(frames: &[NamedFrame], period: usize) -> usize {
    let mut times = 1;
    while let Some(next) = frames.get(times * period..(times + 1) * period)
        && next.iter().zip(frames).all(|(a, b)| a.place == b.place)
    {
        times += 1;
    }
    times
}

/// The common directory of the program's sources, derived from its call paths.
pub(in crate::views) fn sources(model: &Model) -> Sources {
    let created = model
        .threads
        .iter()
        .filter_map(|thread| thread.creation_stack());
    let called = model.sync.paths.iter().map(|path| &**path);
    Sources::of(
        created.chain(called).flat_map(|stack| &stack.frames),
        &model.target.executable,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recursion_is_folded_also_without_names() {
        let frame = |avma: u64, function: Option<&str>| NamedFrame {
            place: Place {
                avma,
                svma: Some(avma),
                function: function.map(Into::into),
                ..Place::default()
            },
            inlined: false,
            provenance: Provenance::Cfi,
            called: None,
        };
        for function in [None, Some("visit")] {
            let calls = [0x10, 0x20, 0x20, 0x20, 0x30].map(|avma| frame(avma, function));
            let shown: Vec<String> = rows(&calls).iter().map(|row| name(row, 80)).collect();
            assert_eq!(shown.len(), 3, "{shown:?}");
            assert!(shown[1].ends_with(" × 3"), "{shown:?}");
        }
    }

    #[test]
    fn paths_are_short_but_telling() {
        assert_eq!(
            last_parts("/rustc/abc/library/std/src/thread/mod.rs"),
            "…/thread/mod.rs"
        );
        assert_eq!(last_parts("/a/b.c"), "/a/b.c");
        assert_eq!(shared("/a/bc/d/", "/a/be/"), "/a/");
    }
}
