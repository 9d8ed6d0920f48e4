//! Requests CPU samples of the target's threads from `unspool-stub` (docs/reference/protocol.md).
//! `crate::samples` decodes the notifications.

use crate::client::Client;
use crate::error::{Error, RemoteError};
use crate::hex;

/// Whether the server samples the target's threads.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sampling {
    /// The server samples them.
    Begun {
        /// Whether it also samples threads that run in the kernel.
        kernel: bool,
        /// The size of the kernel's buffers in bytes.
        buffer_size: u64,
    },
    /// The server cannot sample them. Its message says what to change.
    Refused(String),
    /// The server does not support it.
    Unknown,
}

/// Whether the server samples the target's threads by a timer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimerSampling {
    /// The server samples them.
    Begun,
    /// The server does not support it.
    Unknown,
}

/// Whether the server also samples threads that block.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum OffCpuSampling {
    /// The server samples them.
    Begun {
        /// The size of the kernel's buffers in bytes.
        buffer_size: u64,
    },
    /// The server cannot sample them. Its message says what to change.
    Refused(String),
    /// The server does not support it.
    Unknown,
}

impl Client {
    /// Makes the server send samples of the threads that run, `hz` for each second of a thread's
    /// processor time, with at most `stack` bytes of its stack. [`Client::take_notices`] returns
    /// them.
    pub fn begin_samples(&mut self, hz: u32, stack: u32) -> Result<Sampling, Error> {
        if !self.features.has("QUnspoolSamples") {
            return Ok(Sampling::Unknown);
        }
        let reply = self.request(format!("QUnspoolSamples:{hz:x},{stack:x}"))?;
        let text = match reply.text() {
            Ok(text) => text,
            Err(Error::Remote { error, .. }) => return Ok(Sampling::Refused(reason(error))),
            Err(error) => return Err(error),
        };
        let malformed = || reply.malformed("`kernel` or `user`, and a size");
        let (modes, size) = text.split_once(';').ok_or_else(malformed)?;
        Ok(Sampling::Begun {
            kernel: modes == "kernel",
            buffer_size: hex::number(size).ok_or_else(malformed)?,
        })
    }

    /// Like [`Client::begin_samples`], but the server stops each thread to sample it. This needs no
    /// perf events.
    pub fn begin_timer_samples(&mut self, hz: u32, stack: u32) -> Result<TimerSampling, Error> {
        if !self.features.has("QUnspoolSamples:timer") {
            return Ok(TimerSampling::Unknown);
        }
        self.request(format!("QUnspoolSamples:timer;{hz:x},{stack:x}"))?
            .ok()?;
        Ok(TimerSampling::Begun)
    }

    /// Makes a server that sends samples also sample the threads that block, at most about
    /// `rate` times per second, with at most `stack` bytes of the stack.
    pub fn begin_off_cpu_samples(
        &mut self,
        stack: u32,
        rate: u32,
    ) -> Result<OffCpuSampling, Error> {
        if !self.features.has("QUnspoolSamples:off-cpu") {
            return Ok(OffCpuSampling::Unknown);
        }
        let reply = self.request(format!("QUnspoolSamples:off-cpu;{stack:x},{rate:x}"))?;
        match reply.text() {
            Ok(size) => Ok(OffCpuSampling::Begun {
                buffer_size: hex::number(&size).ok_or_else(|| reply.malformed("a size"))?,
            }),
            Err(Error::Remote { error, .. }) => Ok(OffCpuSampling::Refused(reason(error))),
            Err(error) => Err(error),
        }
    }

    /// Makes the server send the remaining samples and stop.
    pub fn end_samples(&mut self) -> Result<(), Error> {
        self.request("QUnspoolSamples:0")?.ok()
    }
}

fn reason(error: RemoteError) -> String {
    match error {
        RemoteError::Message(words) => words,
        code => code.to_string(),
    }
}
