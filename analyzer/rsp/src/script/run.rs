//! Runs a script on a connection.

use std::time::{Duration, Instant};

use crate::connection::{Connection, Received, is_console};
use crate::error::Error;
use crate::script::pattern::{Pattern, Variables};
use crate::script::{Problem, Script, ScriptError, Statement, Verb};
use crate::transcript::line;

/// The result of running a script.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Packets sent.
    pub sent: usize,
    /// Packets received that matched.
    pub received: usize,
    /// Console output that no line expected.
    pub console: Vec<u8>,
    /// The variables' last values.
    pub variables: Variables,
}

impl Script {
    /// Runs the script to its end, or to the first line that fails. The connection handles
    /// acknowledgements. They end when a line `-> QStartNoAckMode` is answered with `OK`.
    pub fn run(&self, connection: &mut Connection) -> Result<Summary, ScriptError> {
        let mut run = Run {
            connection,
            summary: Summary::default(),
            last: Vec::new(),
        };
        for statement in &self.statements {
            run.statement(statement)
                .map_err(|problem| self.error(statement.line, problem))?;
        }
        Ok(run.summary)
    }
}

struct Run<'a> {
    connection: &'a mut Connection,
    summary: Summary,
    /// The last packet sent.
    last: Vec<u8>,
}

impl Run<'_> {
    fn statement(&mut self, statement: &Statement) -> Result<(), Problem> {
        let variables = &self.summary.variables;
        match &statement.verb {
            Verb::Send(template) => {
                self.last = template.fill(variables);
                let result = self.connection.send(&self.last);
                self.summary.sent += 1;
                let during = format!("-> {}", line::encode(&self.last));
                result.map_err(|error| failed(during, error))
            }
            Verb::Raw(template) => {
                let bytes = template.fill(variables);
                self.session(|connection| connection.send_raw(&bytes), "raw bytes")
            }
            Verb::Interrupt => self.session(Connection::interrupt, "interrupt"),
            Verb::Expect(pattern) => self.expect(pattern, false),
            Verb::Notified(pattern) => self.expect(pattern, true),
            Verb::Closed => self.closed(),
            Verb::Timeout(timeout) => {
                self.connection.set_timeout(*timeout);
                Ok(())
            }
            Verb::Sleep(time) => {
                std::thread::sleep(*time);
                Ok(())
            }
            Verb::Let(name, template) => {
                let value = template.fill(variables);
                self.summary.variables.insert(name.clone(), value);
                Ok(())
            }
        }
    }

    fn session(
        &mut self,
        act: impl FnOnce(&mut Connection) -> Result<(), Error>,
        during: &str,
    ) -> Result<(), Problem> {
        act(self.connection).map_err(|error| failed(during.to_owned(), error))
    }

    /// Receives a packet or a notification and matches it. Skips packets before a notification, and
    /// console output that the pattern does not expect.
    fn expect(&mut self, pattern: &Pattern, notification: bool) -> Result<(), Problem> {
        if notification && self.came_early(pattern) {
            return Ok(());
        }
        let expected = || pattern.describe(&self.summary.variables);
        let timeout = self.connection.timeout();
        let deadline = Instant::now() + timeout;
        let payload = loop {
            match receive(self.connection, deadline) {
                Ok(Some(Received::Notification(payload))) if notification => break payload,
                Ok(Some(Received::Packet(payload))) if !notification => {
                    if !is_console(&payload) || pattern.is_console() {
                        break payload;
                    }
                    let output = crate::hex::decode(payload.get(1..).unwrap_or_default());
                    self.summary.console.extend(output.unwrap_or_default());
                }
                Ok(Some(Received::Notification(payload))) => self.connection.keep(payload),
                Ok(Some(Received::Packet(_))) => {}
                Ok(None) => {
                    let expected = expected();
                    return Err(Problem::Nothing { expected, timeout });
                }
                Err(error) => return Err(failed(expected(), error)),
            }
        };
        match pattern.matches(&payload, &self.summary.variables) {
            Ok(captures) => {
                self.summary.variables.extend(captures);
                self.summary.received += 1;
                if self.last == b"QStartNoAckMode" && payload == b"OK" {
                    self.connection.end_acks();
                }
                Ok(())
            }
            Err(agree) => Err(Problem::Differs {
                expected: expected(),
                got: line::encode(&payload),
                agree: line::encode(payload.get(..agree).unwrap_or_default()).len(),
            }),
        }
    }

    /// True if a notification that matches has come already, before a packet or an acknowledgement.
    /// Drops the ones before it.
    fn came_early(&mut self, pattern: &Pattern) -> bool {
        let mut early = self.connection.take_notifications().into_iter();
        let variables = &self.summary.variables;
        let Some(captures) = early.find_map(|(_, one)| pattern.matches(&one, variables).ok())
        else {
            return false;
        };
        early.for_each(|(_, later)| self.connection.keep(later));
        self.summary.variables.extend(captures);
        self.summary.received += 1;
        true
    }

    /// Waits for the server to close the connection.
    fn closed(&mut self) -> Result<(), Problem> {
        let expected = "closed".to_owned();
        let timeout = self.connection.timeout();
        match receive(self.connection, Instant::now() + timeout) {
            Err(Error::Closed { .. }) => Ok(()),
            Err(error) => Err(failed(expected, error)),
            Ok(None) => Err(Problem::Nothing { expected, timeout }),
            Ok(Some(Received::Packet(payload) | Received::Notification(payload))) => {
                Err(Problem::Differs {
                    expected,
                    got: line::encode(&payload),
                    agree: 0,
                })
            }
        }
    }
}

fn failed(during: String, error: Error) -> Problem {
    Problem::Session {
        during,
        error: Box::new(error),
    }
}

fn receive(connection: &mut Connection, deadline: Instant) -> Result<Option<Received>, Error> {
    let left = deadline.saturating_duration_since(Instant::now());
    connection.receive(Some(left.max(Duration::from_millis(1))))
}
