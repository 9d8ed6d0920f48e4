//! Tracepoints: the server records hits by itself and sends them while the target runs.
//!
//! See RSP, "Tracepoint Packets", and `unspool-stub`'s `UnspoolTrace` notification in
//! docs/reference/protocol.md.

use crate::client::Client;
use crate::error::Error;
use crate::hex;
use crate::notice::Notice;
use crate::reply::Reply;

impl Client {
    /// Starts a trace whose frames the server sends as they occur. Later tracepoints take effect at
    /// once. `Ok(false)` if the server lacks it; only `unspool-stub` has it.
    /// [`Client::take_notices`] then returns the frames.
    ///
    /// `buffer` limits the bytes of frames that wait to be sent; `None` leaves it to the server.
    /// Further frames are dropped and counted. With `lossless`, the program blocks instead.
    pub fn trace(
        &mut self,
        variables: &[&str],
        buffer: Option<u32>,
        lossless: bool,
    ) -> Result<bool, Error> {
        if !self.features.has("QUnspoolTrace") || !self.features.has("InstallInTrace") {
            return Ok(false);
        }
        let mut packets = vec!["QTinit".to_owned()];
        for (index, name) in variables.iter().enumerate() {
            let number = FIRST_VARIABLE + index;
            let name = hex::encode(name.as_bytes());
            packets.push(format!("QTDV:{number:x}:0:0:{name}"));
        }
        packets.extend(buffer.map(|bytes| format!("QTBuffer:size:{bytes:x}")));
        let parts = if self.features.has("QUnspoolTrace:parts") {
            ",parts"
        } else {
            ""
        };
        packets.push(format!("QUnspoolTrace:1{parts}"));
        let required = packets.len();
        if lossless {
            // Refused if the target must not wait for this client.
            packets.push(format!("QUnspoolTrace:2{parts}"));
        }
        packets.push("QTStart".to_owned());
        let packets: Vec<Vec<u8>> = packets.into_iter().map(String::into_bytes).collect();
        let mut replies = self.requests(&packets)?;
        if lossless {
            replies.remove(required);
        }
        replies.iter().try_for_each(Reply::ok)?;
        Ok(true)
    }

    /// The number of a variable, by its index in [`Client::trace`]'s list.
    pub fn trace_variable(index: usize) -> u32 {
        u32::try_from(FIRST_VARIABLE + index).unwrap_or(u32::MAX)
    }

    /// The number of tracepoints whose hits are recorded without a stop, and the numbers of all
    /// others. `None` if the server does not report them.
    pub fn trace_places(&mut self) -> Result<Option<(usize, Vec<u32>)>, Error> {
        if !self.features.has("FastTracepoints") || !self.features.has("QUnspoolTrace") {
            return Ok(None);
        }
        // The reply comes after all probes have been inserted.
        let reply = self.allow_insertion_time(|client| client.request("qUnspoolPlaces"));
        // A server with another reply simply lacks this information.
        let Ok(text) = reply?.text() else {
            return Ok(None);
        };
        let number = |text: &str| u32::from_str_radix(text, 16).ok();
        let told = text.split_once(';').and_then(|(jumps, traps)| {
            let traps = traps.split(',').filter(|text| !text.is_empty());
            let jumps = usize::try_from(number(jumps)?).ok()?;
            Some((jumps, traps.map(number).collect::<Option<_>>()?))
        });
        Ok(told)
    }

    /// Addresses and sizes of the memory that the server has mapped in the program for its own
    /// code. Empty if the server does not report it.
    pub fn server_code(&mut self) -> Result<Vec<(u64, u64)>, Error> {
        if !self.features.has("FastTracepoints") || !self.features.has("QUnspoolTrace") {
            return Ok(Vec::new());
        }
        let Ok(text) = self.request("qUnspoolCode")?.text() else {
            return Ok(Vec::new());
        };
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let ranges = text.split(';').filter_map(|range| {
            let (start, size) = range.split_once(',')?;
            Some((number(start)?, number(size)?))
        });
        Ok(ranges.collect())
    }

    /// Sends a request whose reply comes after probes have been inserted, of which there may be
    /// hundreds.
    pub(super) fn allow_insertion_time<T>(&mut self, ask: impl FnOnce(&mut Client) -> T) -> T {
        let patience = self.connection.timeout();
        self.connection
            .set_timeout(patience * INSERTION_TIMEOUT_FACTOR);
        let answer = ask(self);
        self.connection.set_timeout(patience);
        answer
    }

    /// Removes a tracepoint.
    pub fn remove_tracepoint(&mut self, number: u32, address: u64) -> Result<(), Error> {
        self.request(format!("QTDisable:{number:x}:{address:x}"))?
            .ok()
    }

    /// Ends the trace and removes all tracepoints.
    pub fn trace_stop(&mut self) -> Result<(), Error> {
        self.request("QTStop")?.ok()
    }

    /// The notices since the last call, in order. They include everything that happened before the
    /// last stop that [`Client::wait`] returned.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        let size = self.description.size();
        let mut notices = Vec::new();
        for (came, payload) in self.connection.take_notifications() {
            let since = came.elapsed();
            match payload.strip_prefix(b"UnspoolSamples:") {
                Some(body) => {
                    let decoded = self.samples.decode(body).into_iter();
                    notices.extend(decoded.map(|(sent_ns, samples)| Notice::Samples {
                        samples,
                        sent_ns,
                        since,
                    }));
                }
                None => Notice::decode(&payload, size, since, &mut notices),
            }
        }
        notices
    }
}

/// Factor of the time limit for replies that come after probes have been inserted.
const INSERTION_TIMEOUT_FACTOR: u32 = 12;
/// gdb numbers its variables from 1; gdbserver itself uses 1.
const FIRST_VARIABLE: usize = 2;
