//! What the commands print with: style from the terminal, pipes that close, error messages.

use std::io::{self, IsTerminal, Write};

use terminal_size::{Height, Width};

use crate::views::Style;

/// Prints `error` and its causes as one sentence. A cause that its parent already quotes is
/// left out, and a missing standard error is nobody's problem.
pub(super) fn print_error(error: &anyhow::Error) {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    say(&format!("error: {text}"));
}

/// One line on standard error, marked as ours.
pub(super) fn say(text: &str) {
    let _ = writeln!(io::stderr(), "unspool: {text}");
}

/// How views should write to standard output.
pub(super) fn style_for_stdout() -> Style {
    let columns = terminal_size::terminal_size_of(io::stdout());
    style(io::stdout().is_terminal(), columns)
}

/// How views should write to standard error.
pub(super) fn style_for_stderr() -> Style {
    let columns = terminal_size::terminal_size_of(io::stderr());
    style(io::stderr().is_terminal(), columns)
}

/// Writes to standard output; a reader that went away (`unspool report | head`) ends the
/// writing and is no error.
pub(super) fn to_stdout(
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> anyhow::Result<()> {
    let mut out = io::BufWriter::with_capacity(64 << 10, io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            // What is left in the buffer would fail again when it is dropped.
            let _ = out.into_parts();
            Err(anyhow::Error::new(error).context("cannot write to standard output"))
        }
        _ => {
            let _ = out.into_parts();
            Ok(())
        }
    }
}

fn style(terminal: bool, size: Option<(Width, Height)>) -> Style {
    // https://no-color.org: present and not empty switches colour off.
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    Style {
        color: terminal && !unwanted && !dumb,
        // Lines are hard to read when they are much longer, and a terminal may not tell.
        width: size.map_or(100, |(Width(columns), _)| {
            usize::from(columns).clamp(40, 160)
        }),
    }
}
