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
        /// Whether it samples threads that stop running, too.
        off_cpu: OffCpuSampling,
    },
    /// The server cannot sample them. Its message says what to change.
    Refused(String),
    /// The server does not support it.
    Unknown,
}

/// Whether the server samples threads that stop running.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum OffCpuSampling {
    /// It does.
    Begun,
    /// It cannot. Its message says what to change.
    Refused(String),
    /// It does not support it.
    Unknown,
}

/// The contents and the rates of samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleRates {
    /// Samples per second of a thread's processor time.
    pub hz: u32,
    /// Maximum number of bytes of each stack.
    pub stack: u32,
    /// Maximum number of bytes of the stack of a thread that stops running.
    pub off_cpu_stack: u32,
    /// Maximum number of samples per second of threads that stop running.
    pub off_cpu_rate: u32,
}

impl Client {
    /// Makes the server send samples of threads that run, and of threads that stop running if it
    /// can. [`Client::take_notices`] returns them.
    pub fn begin_samples(&mut self, rates: SampleRates) -> Result<Sampling, Error> {
        if !self.features.has("QUnspoolSamples") {
            return Ok(Sampling::Unknown);
        }
        let (hz, stack) = (rates.hz, rates.stack);
        let mut request = format!("QUnspoolSamples:{hz:x},{stack:x}");
        if self.features.has("QUnspoolSamples:off-cpu") {
            let (stack, rate) = (rates.off_cpu_stack, rates.off_cpu_rate);
            request.push_str(&format!(";{stack:x},{rate:x}"));
        }
        let reply = self.request(request)?;
        let text = match reply.text() {
            Ok(text) => text,
            Err(Error::Remote { error, .. }) => {
                return Ok(Sampling::Refused(match error {
                    RemoteError::Message(words) => words,
                    code => code.to_string(),
                }));
            }
            Err(error) => return Err(error),
        };
        let malformed = || reply.malformed("`kernel` or `user`, and a size");
        let mut parts = text.splitn(3, ';');
        let (modes, size) = parts.next().zip(parts.next()).ok_or_else(malformed)?;
        Ok(Sampling::Begun {
            kernel: modes == "kernel",
            buffer_size: hex::number(size).ok_or_else(malformed)?,
            off_cpu: match parts.next() {
                Some("off-cpu") => OffCpuSampling::Begun,
                Some(refused) => {
                    let reason = refused.strip_prefix("E.").unwrap_or(refused);
                    OffCpuSampling::Refused(reason.to_owned())
                }
                None => OffCpuSampling::Unknown,
            },
        })
    }

    /// Makes the server send the remaining samples and stop.
    pub fn end_samples(&mut self) -> Result<(), Error> {
        self.request("QUnspoolSamples:0")?.ok()
    }
}
