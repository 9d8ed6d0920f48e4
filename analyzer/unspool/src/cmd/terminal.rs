//! The output of commands: style of the terminal, closed pipes, error messages.

use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::path::Path;

use anyhow::{Context, ensure};
use terminal_size::{Height, Width};

use super::whole_file;
use crate::views::Style;

/// Prints `error` and its causes as one sentence. Leaves out causes that their parents already
/// quote. Ignores a missing standard error.
pub(super) fn print_error(error: &anyhow::Error) {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    say(&format!("error: {text}"));
}

/// Prints one line on standard error, prefixed with the program's name.
pub(super) fn say(text: &str) {
    let _ = writeln!(io::stderr(), "unspool: {text}");
}

/// The style of views on standard output.
pub(super) fn style_for_stdout() -> Style {
    let columns = terminal_size::terminal_size_of(io::stdout());
    style(io::stdout().is_terminal(), columns)
}

/// The style of views on standard error.
pub(super) fn style_for_stderr() -> Style {
    let columns = terminal_size::terminal_size_of(io::stderr());
    style(io::stderr().is_terminal(), columns)
}

/// Writes to standard output. If the reader has gone away (`unspool report | head`), the output
/// ends without an error.
pub(super) fn to_stdout(
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> anyhow::Result<()> {
    let mut out = io::BufWriter::with_capacity(64 << 10, io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            // Dropping the buffer would write its rest again, and fail again.
            let _ = out.into_parts();
            Err(anyhow::Error::new(error).context("cannot write to standard output"))
        }
        _ => {
            let _ = out.into_parts();
            Ok(())
        }
    }
}

/// The file that `-o` names; `None` for standard output, which `-` means.
pub(super) fn output_file(output: Option<&Path>) -> Option<&Path> {
    output.filter(|path| *path != Path::new("-"))
}

/// Writes to a file, or to standard output.
pub(super) fn to_output(
    output: Option<&Path>,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> anyhow::Result<()> {
    let Some(path) = output else {
        return to_stdout(write);
    };
    whole_file::write(path, write).with_context(|| format!("cannot write {}", path.display()))
}

/// Refuses to write an HTML page to a terminal. `advice` names other ways.
pub(super) fn ensure_page_is_wanted(advice: &str) -> anyhow::Result<()> {
    ensure!(
        !io::stdout().is_terminal(),
        "an HTML page is not for a terminal; {advice}"
    );
    Ok(())
}

/// Answers each line of standard input on `out`. Lines longer than `max_line` bytes come in parts.
///
/// A program that sends one line at a time, or follows a log, gets each answer at once.
pub(super) fn answer_lines(
    max_line: u64,
    out: &mut dyn Write,
    mut answer: impl FnMut(&[u8], &mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut input = io::BufReader::with_capacity(64 << 10, io::stdin().lock());
    let mut line = Vec::new();
    while (&mut input).take(max_line).read_until(b'\n', &mut line)? > 0 {
        answer(&line, out)?;
        line.clear();
        if input.buffer().is_empty() {
            out.flush()?;
        }
    }
    Ok(())
}

fn style(terminal: bool, size: Option<(Width, Height)>) -> Style {
    // https://no-color.org: a non-empty NO_COLOR switches colour off.
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    Style {
        color: terminal && !unwanted && !dumb,
        // Much longer lines are hard to read. A terminal may not report its width.
        width: size.map_or(100, |(Width(columns), _)| {
            usize::from(columns).clamp(40, 160)
        }),
        ..Style::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dash_is_standard_output() {
        let file = |name| output_file(Some(Path::new(name)));
        assert_eq!((file("-"), file("./-")), (None, Some(Path::new("./-"))));
        assert_eq!(output_file(None), None);
    }
}
