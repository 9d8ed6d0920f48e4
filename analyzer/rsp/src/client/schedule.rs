//! Requests the schedule of the target's threads from `unspool-stub` (docs/reference/protocol.md).
//! `crate::schedule` decodes the notifications.

use crate::client::Client;
use crate::error::{Error, RemoteError};
use crate::hex;

/// Whether the server records the schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Schedule {
    /// The server records it.
    Recorded {
        /// Whether the records include wakers.
        wakers: bool,
        /// Whether the records include where threads block.
        places: bool,
        /// The server's thread, which wakes threads when it stops and resumes them.
        server_tid: Option<u64>,
        /// Whether the server also records the processes that the target creates.
        processes: bool,
        /// Whether the server also sends the stacks at which the target creates threads.
        own_creations: bool,
        /// The size of the kernel's buffers in bytes.
        buffer_size: u64,
    },
    /// The server cannot record it. Its message says what to change.
    Refused(String),
    /// The server does not support it.
    Unknown,
}

impl Client {
    /// Makes the server send the schedule of the target's threads, which [`Client::take_notices`]
    /// returns. With `processes`, also that of the processes that the target creates, and with
    /// `own_creations` the stacks at which the target creates threads, if the server can.
    pub fn begin_schedule(
        &mut self,
        processes: bool,
        own_creations: bool,
    ) -> Result<Schedule, Error> {
        if !self.features.has("QUnspoolSchedule") {
            return Ok(Schedule::Unknown);
        }
        let has = |feature: &str| processes && self.features.has(feature);
        // Each needs those before it.
        let parts = [
            ("UnspoolProcesses", ";processes"),
            ("UnspoolProcesses:mappings", ";mappings"),
            ("UnspoolProcesses:build-ids", ";build-ids"),
            ("UnspoolProcesses:creations", ";creations"),
        ];
        let known = parts.iter().take_while(|(feature, _)| has(feature));
        let processes: String = known.map(|(_, part)| *part).collect();
        let own = own_creations && self.features.has("QUnspoolSchedule:own-creations");
        let own = if own { ";own-creations" } else { "" };
        let request = |words: &str| format!("QUnspoolSchedule:1;places{words}{processes}{own}");
        let words = match self.features.has("QUnspoolSchedule:callers") {
            true => ";callers",
            false => ";words",
        };
        let mut reply = self.request(request(words))?;
        if let Err(Error::Remote {
            error: RemoteError::Code(_),
            ..
        }) = reply.text()
        {
            // An older server, which does not know `words`.
            reply = self.request(request(""))?;
        }
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
        let mut words = text.split(';');
        let (kind, size) = words.next().zip(words.next()).ok_or_else(malformed)?;
        let parts: Vec<&str> = words.collect();
        let mut own = parts.iter();
        let own = own.find_map(|word| word.strip_prefix("stub="));
        Ok(Schedule::Recorded {
            wakers: kind == "wakers",
            server_tid: own.and_then(hex::number),
            buffer_size: hex::number(size).ok_or_else(malformed)?,
            places: parts.contains(&"places"),
            processes: parts.contains(&"processes"),
            own_creations: parts.contains(&"own-creations"),
        })
    }

    /// Makes the server send the rest of the schedule and stop.
    pub fn end_schedule(&mut self) -> Result<(), Error> {
        self.request("QUnspoolSchedule:0")?.ok()
    }
}
