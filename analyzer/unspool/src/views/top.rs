//! The screen of `unspool top`: identities with their states, waits by object, and findings; below
//! an identity its threads, and below a thread its stack.
//!
//! [`Screen`] holds what the user has selected, and [`draw`] draws it. The caller owns the terminal
//! and turns keys into the methods of [`Screen`].

mod detail;
mod panes;
mod rows;
mod screen;
#[cfg(test)]
mod tests;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

pub use screen::{Level, Screen, Sort, Status};

use super::text::line::{clean, head, width};
use crate::model::live::Live;

/// Minimum size of a terminal that is drawn to.
const MIN_COLUMNS: u16 = 40;
const MIN_ROWS: u16 = 10;

/// Draws the whole screen.
pub fn draw(frame: &mut Frame<'_>, live: &Live, screen: &mut Screen) {
    let area = frame.area();
    if area.width < MIN_COLUMNS || area.height < MIN_ROWS {
        let text = "unspool top needs 40 columns and 10 rows";
        frame.render_widget(Line::from(cut(text, area.width)), area);
        return;
    }
    let mut lines = panes::header(live, screen, area.width);
    let rows = usize::from(area.height) - lines.len() - 1;
    lines.extend(match screen.level() {
        _ if screen.shows_help => detail::help(rows),
        Level::Identities => panes::identities(live, screen, area.width, rows),
        Level::Threads(..) => panes::threads(live, screen, area.width, rows),
        Level::Stack(tid) => detail::stack(live, screen, *tid, area.width, rows),
    });
    lines.truncate(usize::from(area.height) - 1);
    lines.resize(usize::from(area.height) - 1, Line::default());
    lines.push(panes::keys(screen, area.width));
    for (row, line) in lines.into_iter().enumerate() {
        let row = area.y + row as u16;
        let area = Rect::new(area.x, row, area.width, 1);
        frame.render_widget(line, area);
    }
}

/// The meaning of a piece of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ink {
    Plain,
    Strong,
    Faint,
    Title,
    Alarm,
    Selected,
}

impl Ink {
    /// Without colours, attributes alone carry the meaning.
    fn style(self, color: bool) -> Style {
        let style = Style::new();
        let colored = |hue: Color| match color {
            true => style.fg(hue),
            false => style,
        };
        match self {
            Ink::Plain => style,
            Ink::Strong => style.add_modifier(Modifier::BOLD),
            Ink::Faint => style.add_modifier(Modifier::DIM),
            Ink::Title => colored(Color::Cyan).add_modifier(Modifier::BOLD),
            Ink::Alarm => colored(Color::Red).add_modifier(Modifier::BOLD),
            Ink::Selected => style.add_modifier(Modifier::REVERSED),
        }
    }
}

/// A line of one ink. Removes control characters and cuts the text to the width.
fn line(screen: &Screen, ink: Ink, text: &str, columns: u16) -> Line<'static> {
    Line::from(span(screen, ink, &cut(&clean(text), columns)))
}

fn span(screen: &Screen, ink: Ink, text: &str) -> Span<'static> {
    Span::styled(text.to_owned(), ink.style(screen.color))
}

/// Cuts text that is too wide, and marks the cut with `…`.
fn cut(text: &str, columns: u16) -> String {
    let columns = usize::from(columns);
    match width(text) > columns {
        true => format!("{}…", head(text, columns.saturating_sub(1))),
        false => text.to_owned(),
    }
}

/// Text of exactly `columns` columns.
fn padded(text: &str, columns: usize) -> String {
    let text = cut(text, u16::try_from(columns).unwrap_or(u16::MAX));
    let missing = columns.saturating_sub(width(&text));
    text + &" ".repeat(missing)
}

/// `0.4 s`, `12 s`, `3 min`, `2 h`
fn age(ns: u64) -> String {
    let seconds = ns as f64 / 1e9;
    match seconds {
        ..9.95 => format!("{seconds:.1} s"),
        ..120.0 => format!("{seconds:.0} s"),
        ..7200.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.0} h", seconds / 3600.0),
    }
}
