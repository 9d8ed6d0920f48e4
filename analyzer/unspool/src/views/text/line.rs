//! Coloured lines of text, never wider than the page.
//!
//! All text of the text views passes through this file. It removes control characters from external
//! text, counts widths in columns, and wraps or cuts lines that are too wide.

use std::io::{self, Write};

use crate::views::Style;

/// The meaning of a piece of text, which determines its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::views) enum Ink {
    Plain,
    /// The main information: thread functions.
    Strong,
    /// Functions in stacks.
    Function,
    /// Names given by the program.
    Name,
    /// Structure and secondary information.
    Faint,
    /// An error or a problem.
    Alarm,
}

impl Ink {
    fn style(self) -> anstyle::Style {
        use anstyle::{AnsiColor, Style};
        let style = Style::new();
        match self {
            Ink::Plain => style,
            Ink::Strong => style.bold(),
            Ink::Function => AnsiColor::Cyan.on_default(),
            Ink::Name => AnsiColor::Green.on_default(),
            Ink::Faint => style.dimmed(),
            Ink::Alarm => AnsiColor::Red.on_default().bold(),
        }
    }
}

/// A line under construction.
#[derive(Clone, Debug, Default)]
pub(in crate::views) struct Line(Vec<(Ink, String)>);

impl Line {
    pub(in crate::views) fn new() -> Line {
        Line::default()
    }

    pub(in crate::views) fn with(mut self, ink: Ink, text: impl Into<String>) -> Line {
        self.push(ink, text);
        self
    }

    pub(in crate::views) fn push(&mut self, ink: Ink, text: impl Into<String>) {
        let text = text.into();
        if !text.is_empty() {
            self.0.push((ink, text));
        }
    }

    pub(in crate::views) fn width(&self) -> usize {
        self.0.iter().map(|(_, text)| width(text)).sum()
    }

    /// Appends blanks up to a column.
    pub(in crate::views) fn pad(&mut self, column: usize) {
        let missing = column.saturating_sub(self.width());
        self.push(Ink::Plain, " ".repeat(missing));
    }
}

/// Writes lines to an output.
pub(in crate::views) struct Page<'a> {
    out: &'a mut dyn Write,
    color: bool,
    pub(in crate::views) width: usize,
    all_rows: bool,
    is_cut: bool,
}

impl<'a> Page<'a> {
    pub(in crate::views) fn new(out: &'a mut dyn Write, style: &Style) -> Page<'a> {
        Page {
            out,
            color: style.color,
            width: style.width.max(40),
            all_rows: style.all_rows,
            is_cut: false,
        }
    }

    /// The number of rows to show out of `count`: at most `most`, unless all are wanted.
    pub(in crate::views) fn rows(&mut self, most: usize, count: usize) -> usize {
        let shown = if self.all_rows {
            count
        } else {
            most.min(count)
        };
        self.is_cut |= shown < count;
        shown
    }

    /// True if rows were left out.
    pub(in crate::views) fn is_cut(&self) -> bool {
        self.is_cut
    }

    pub(in crate::views) fn blank(&mut self) -> io::Result<()> {
        writeln!(self.out)
    }

    /// Shows all text written so far.
    pub(in crate::views) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Writes a line. Cuts a line that is too wide, and marks the cut with `…`.
    pub(in crate::views) fn line(&mut self, line: &Line) -> io::Result<()> {
        let mut room = self.width;
        let too_wide = line.width() > room;
        room -= usize::from(too_wide);
        let mut pieces: Vec<(Ink, &str)> = Vec::new();
        for (ink, text) in &line.0 {
            let fitting = head(text, room);
            room -= width(fitting);
            pieces.push((*ink, fitting));
            if fitting.len() < text.len() {
                break;
            }
        }
        if too_wide {
            pieces.push((Ink::Faint, "…"));
        }
        while let Some((_, last)) = pieces.last_mut() {
            *last = last.trim_end();
            if !last.is_empty() {
                break;
            }
            pieces.pop();
        }
        for (ink, text) in pieces {
            let style = ink.style();
            if self.color && ink != Ink::Plain {
                write!(self.out, "{style}{text}{style:#}")?;
            } else {
                self.out.write_all(text.as_bytes())?;
            }
        }
        writeln!(self.out)
    }

    /// Writes a paragraph, wrapped at spaces. `first` precedes its first line, `rest` the others.
    pub(in crate::views) fn paragraph(
        &mut self,
        first: &Line,
        rest: &Line,
        ink: Ink,
        text: &str,
    ) -> io::Result<()> {
        let room = self
            .width
            .saturating_sub(first.width().max(rest.width()))
            .max(10);
        for (at, part) in wrap(&clean(text), room).into_iter().enumerate() {
            let lead = if at == 0 { first } else { rest };
            self.line(&lead.clone().with(ink, part))?;
        }
        Ok(())
    }
}

/// Breaks text at spaces, and inside words that are too long.
pub(in crate::views) fn wrap(text: &str, room: usize) -> Vec<String> {
    let room = room.max(1);
    let mut lines = Vec::new();
    let mut line = String::new();
    for mut word in text.split_whitespace() {
        let gap = usize::from(!line.is_empty());
        if width(&line) + gap + width(word) > room && !line.is_empty() {
            lines.push(std::mem::take(&mut line));
        }
        while width(word) > room {
            let part = head(word, room);
            // A character wider than the room gets its own line.
            let part = if part.is_empty() {
                &word[..word.chars().next().map_or(0, char::len_utf8)]
            } else {
                part
            };
            lines.push(part.to_owned());
            word = &word[part.len()..];
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

/// Width of a text in columns.
pub(in crate::views) fn width(text: &str) -> usize {
    match text.is_ascii() {
        true => text.len(),
        false => text.chars().map(columns).sum(),
    }
}

/// Width of a character. East Asian wide characters and emoji take two columns.
fn columns(c: char) -> usize {
    match c as u32 {
        0x1100..=0x115f | 0x2e80..=0xa4cf | 0xac00..=0xd7a3 | 0xf900..=0xfaff => 2,
        0xfe30..=0xfe6f | 0xff00..=0xff60 | 0xffe0..=0xffe6 | 0x1f300..=0x1faff => 2,
        0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

/// The longest beginning of `text` that fits.
pub(in crate::views) fn head(text: &str, room: usize) -> &str {
    if text.is_ascii() {
        return &text[..text.len().min(room)];
    }
    let mut used = 0;
    for (at, c) in text.char_indices() {
        used += columns(c);
        if used > room {
            return &text[..at];
        }
    }
    text
}

/// The longest end of `text` that fits.
pub(in crate::views) fn tail(text: &str, room: usize) -> &str {
    let mut used = 0;
    for (at, c) in text.char_indices().rev() {
        used += columns(c);
        if used > room {
            return &text[at + c.len_utf8()..];
        }
    }
    text
}

/// Replaces characters that would affect a terminal: control and direction characters.
pub(in crate::views) fn clean(text: &str) -> String {
    let harmless = |c: char| {
        let direction = matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if c.is_control() || direction {
            '\u{fffd}'
        } else {
            c
        }
    };
    match text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        true => text.to_owned(),
        false => text.chars().map(harmless).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_never_exceeds_the_page() {
        let mut out = Vec::new();
        let style = Style {
            width: 40,
            ..Style::default()
        };
        let mut page = Page::new(&mut out, &style);
        let line = Line::new()
            .with(Ink::Strong, "x".repeat(30))
            .with(Ink::Plain, "漢".repeat(30));
        page.line(&line).unwrap();
        page.paragraph(&Line::new(), &Line::new(), Ink::Plain, &"word ".repeat(40))
            .unwrap();
        for line in String::from_utf8(out).unwrap().lines() {
            assert!(width(line) <= 40, "{line}");
        }
    }

    #[test]
    fn escapes_do_not_reach_the_terminal() {
        assert_eq!(
            clean("a\x1b[31mb\u{202e}c\n"),
            "a\u{fffd}[31mb\u{fffd}c\u{fffd}"
        );
    }

    #[test]
    fn wrapping_breaks_long_words() {
        assert_eq!(wrap("ab cdefgh i", 4), ["ab", "cdef", "gh i"]);
        assert_eq!(wrap("漢字", 1), ["漢", "字"]);
    }
}
