//! Scripts: hand-written sessions that send packets and check replies.
//!
//! docs/reference/rsp-scripts.md describes the language. Every transcript is also a script.

mod pattern;
mod run;
#[cfg(test)]
mod tests;

pub use run::Summary;

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use crate::script::pattern::{Pattern, Template};
use crate::transcript::line;

/// First line of a script; optional. A transcript's header is also accepted.
pub const HEADER: &str = "unspool-rsp script 1";

/// A parsed script.
#[derive(Debug, Clone)]
pub struct Script {
    name: String,
    statements: Vec<Statement>,
}

#[derive(Debug, Clone)]
struct Statement {
    line: usize,
    verb: Verb,
}

#[derive(Debug, Clone)]
enum Verb {
    Send(Template),
    Expect(Pattern),
    Notified(Pattern),
    Interrupt,
    Closed,
    Timeout(Duration),
    Sleep(Duration),
    Let(String, Template),
    Raw(Template),
}

impl Script {
    /// Parses a script. Errors refer to it as `name`, usually its path.
    pub fn parse(name: &str, text: &str) -> Result<Script, ScriptError> {
        let mut statements = Vec::new();
        let mut bound = BTreeSet::new();
        for (index, text) in text.lines().enumerate() {
            let Some(line) = line::split(text) else {
                continue;
            };
            let is_header = [HEADER, crate::transcript::HEADER].contains(&text.trim());
            if statements.is_empty() && is_header {
                continue;
            }
            let at = index + 1;
            let verb =
                parse_verb(line.verb, line.text, &mut bound).map_err(|problem| ScriptError {
                    file: name.to_owned(),
                    line: at,
                    problem: Problem::Syntax(problem),
                })?;
            statements.push(Statement { line: at, verb });
        }
        Ok(Script {
            name: name.to_owned(),
            statements,
        })
    }

    fn error(&self, line: usize, problem: Problem) -> ScriptError {
        ScriptError {
            file: self.name.clone(),
            line,
            problem,
        }
    }
}

fn parse_verb(verb: &str, text: &str, bound: &mut BTreeSet<String>) -> Result<Verb, String> {
    let nothing = |verb: Verb| match text {
        "" => Ok(verb),
        text => Err(format!("expected nothing after it, got `{text}`")),
    };
    match verb {
        "->" => Template::parse(text, bound).map(Verb::Send),
        "<-" => Pattern::parse(text, bound).map(Verb::Expect),
        "<~" => Pattern::parse(text, bound).map(Verb::Notified),
        "raw" => Template::parse(text, bound).map(Verb::Raw),
        "interrupt" => nothing(Verb::Interrupt),
        "closed" => nothing(Verb::Closed),
        "timeout" => duration(text).map(Verb::Timeout),
        "sleep" => duration(text).map(Verb::Sleep),
        "let" => {
            let (name, value) = text.split_once('=').ok_or("expected `let NAME = TEXT`")?;
            let name = pattern::name(name.trim())?;
            let value = Template::parse(value.trim(), bound)?;
            bound.insert(name.clone());
            Ok(Verb::Let(name, value))
        }
        verb => Err(format!(
            "expected one of `-> <- <~ interrupt closed timeout sleep let raw`, got `{verb}`"
        )),
    }
}

/// Parses `5s` or `250ms`, at most an hour.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("expected a time such as `5s` or `250ms`, got `{text}`");
    let (digits, unit) = match text.strip_suffix("ms") {
        Some(digits) => (digits, 1),
        None => (text.strip_suffix('s').ok_or_else(wrong)?, 1000),
    };
    let number: u64 = digits.trim().parse().map_err(|_| wrong())?;
    match number.checked_mul(unit) {
        Some(ms @ 0..=3_600_000) => Ok(Duration::from_millis(ms)),
        _ => Err(wrong()),
    }
}

/// An error in a script, or a difference between the script and the session.
#[derive(Debug)]
pub struct ScriptError {
    /// The script's name.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The problem at that line.
    pub problem: Problem,
}

/// A problem at a line of a script.
#[derive(Debug)]
#[non_exhaustive]
pub enum Problem {
    /// The line has a syntax error.
    Syntax(String),
    /// The server sent something else.
    Differs {
        /// The expected packet, with variables filled in.
        expected: String,
        /// The received packet.
        got: String,
        /// Number of characters of `got` that match.
        agree: usize,
    },
    /// The server sent nothing in time.
    Nothing {
        /// The expected packet.
        expected: String,
        /// The time limit.
        timeout: Duration,
    },
    /// The session failed.
    Session {
        /// The operation of the line.
        during: String,
        /// The error.
        error: Box<crate::error::Error>,
    },
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, line) = (&self.file, self.line);
        match &self.problem {
            Problem::Syntax(problem) => {
                write!(
                    f,
                    "{file}:{line}: {problem}; see docs/reference/rsp-scripts.md"
                )
            }
            Problem::Differs {
                expected,
                got,
                agree,
            } => {
                let mark = " ".repeat(*agree);
                write!(
                    f,
                    "{file}:{line}: the server's packet differs from the script\n\
                     - expected: {expected}\n+ got:      {got}\n            {mark}^ from here"
                )
            }
            Problem::Nothing { expected, timeout } => write!(
                f,
                "{file}:{line}: the server sent nothing within {timeout:?}; \
                 raise it with `timeout`, or look at the server\n\
                 - expected: {expected}\n+ got:      (nothing)"
            ),
            Problem::Session { during, error } => {
                write!(f, "{file}:{line}: {error}\n- expected: {during}")
            }
        }
    }
}

impl std::error::Error for ScriptError {}
