//! The stack of a thread, and the explanation of the keys, in `unspool top`.

use ratatui::text::Line;

use super::{Ink, Screen, age, line};
use crate::model::Thread;
use crate::model::live::Live;
use crate::views::text::frames::{self, Sources};
use crate::views::text::line::{Line as TextLine, Page, wrap};
use crate::views::text::thread_state;

const HELP: &str = "\
A row is an identity: threads of one function and name.
RUN  share of the time on a processor
RDY  share of the time waiting for a processor (runnable)
BLK  share of the time blocked: waiting, sleeping, reading
CPU  processors used by the row; 200% is two processors
These are exact for the last half second.

The last column, the waits and the stacks are from the last
inspection, which stops the program for a moment.

Up Down j k  select       Enter  threads, then the stack
Esc          back         s      sort by the next column
/            filter rows  i      inspect now
p            pause        q      quit; the program runs on";

/// The explanation of the columns and keys.
pub(super) fn help(room: usize) -> Vec<Line<'static>> {
    HELP.lines().take(room).map(Line::from).collect()
}

/// The state and the stack of a thread.
pub(super) fn stack(
    live: &Live,
    screen: &mut Screen,
    tid: u64,
    columns: u16,
    room: usize,
) -> Vec<Line<'static>> {
    let columns_wide = usize::from(columns);
    let thread = live.threads.get(&tid);
    let inspected = thread
        .and_then(|thread| thread.index)
        .and_then(|index| Some((index, live.model.thread(index)?)));
    let title = match inspected {
        Some((index, _)) => live.model.thread_name(index),
        None => format!("thread {tid}"),
    };
    let title = format!("Stack of {title}");
    let mut lines = vec![line(screen, Ink::Title, &title, columns)];
    let Some(thread) = thread else {
        lines.push(line(screen, Ink::Alarm, "The thread has ended.", columns));
        return lines;
    };
    let Some((index, of)) = inspected else {
        let text = "The thread is newer than the last inspection; i inspects now.";
        lines.push(line(screen, Ink::Plain, text, columns));
        return lines;
    };
    if let Some(state) = thread_state::state(&live.model, index) {
        let age = match thread.has_run {
            false => format!("{state}. It has not run for {}.", age(thread.idle_ns)),
            true => format!("{state}. It has run since that inspection."),
        };
        let text = format!("At the last inspection: {age}");
        for part in wrap(&text, columns_wide) {
            lines.push(line(screen, Ink::Plain, &part, columns));
        }
    }
    let frames = frames(live, of, columns_wide);
    let shown = room.saturating_sub(lines.len());
    screen.clamp(frames.len().saturating_sub(shown) + 1);
    for text in frames.iter().skip(screen.selected()).take(shown) {
        lines.push(line(screen, Ink::Plain, text, columns));
    }
    lines
}

/// The lines of a stack, as `unspool inspect` prints them.
fn frames(live: &Live, thread: &Thread, columns: usize) -> Vec<String> {
    let Some(stack) = &thread.stack else {
        return vec!["Its registers were not read.".to_owned()];
    };
    let threads = live.model.threads.iter();
    let all = threads.flat_map(|thread| thread.stack.as_deref());
    let sources = Sources::of(
        all.flat_map(|stack| &stack.frames),
        &live.model.target.executable,
    );
    let mut out = Vec::new();
    let style = crate::views::Style {
        width: columns,
        ..crate::views::Style::default()
    };
    let mut page = Page::new(&mut out, &style);
    // Writing to memory does not fail.
    let _ = frames::write(&mut page, &TextLine::new(), "  ", stack, &sources, true);
    let text = String::from_utf8_lossy(&out);
    text.lines().map(str::to_owned).collect()
}
