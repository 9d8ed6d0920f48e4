//! Asking our own stub for the schedule of the target's threads (docs/reference/protocol.md). What it
//! then sends is read by `crate::schedule`.

use crate::client::Client;
use crate::error::{Error, RemoteError};
use crate::hex;

/// Whether the server records the schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Schedule {
    /// It does.
    Recorded {
        /// Records say who woke whom.
        wakers: bool,
        /// The size of the kernel's buffers in bytes.
        buffer_size: u64,
    },
    /// It cannot: its words, which say what to set.
    Refused(String),
    /// It is no server that could.
    Unknown,
}

impl Client {
    /// Has the server send when the target's threads run. [`Client::take_notices`] has it then.
    pub fn begin_schedule(&mut self) -> Result<Schedule, Error> {
        if !self.features.has("QUnspoolSchedule") {
            return Ok(Schedule::Unknown);
        }
        let reply = self.request("QUnspoolSchedule:1")?;
        let text = match reply.text() {
            Ok(text) => text,
            Err(Error::Remote { error, .. }) => {
                return Ok(Schedule::Refused(match error {
                    RemoteError::Message(words) => words,
                    code => code.to_string(),
                }));
            }
            Err(error) => return Err(error),
        };
        let malformed = || reply.malformed("`wakers` or `switches`, and a size");
        let (kind, size) = text.split_once(';').ok_or_else(malformed)?;
        Ok(Schedule::Recorded {
            wakers: kind == "wakers",
            buffer_size: hex::number(size).ok_or_else(malformed)?,
        })
    }

    /// Has the server send what it still has of the schedule, and end.
    pub fn end_schedule(&mut self) -> Result<(), Error> {
        self.request("QUnspoolSchedule:0")?.ok()
    }
}
