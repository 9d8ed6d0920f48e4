//! Tracepoints: what the server notes by itself and sends while the target runs (RSP, "Tracepoint Packets", and our stub's
//! `UnspoolTrace` notification, docs/reference/protocol.md).

use crate::client::Client;
use crate::error::Error;
use crate::hex;
use crate::notice::Notice;
use crate::reply::Reply;

impl Client {
    /// Begins a trace whose frames the server sends as they come. Tracepoints defined from now on count at once.
    /// `Ok(false)`: it cannot; only our own stub can. Afterwards [`Client::take_notices`] has the frames.
    ///
    /// So many bytes of frames may wait to be sent; more are dropped, and counted. `None`: as the server likes it. If nothing may be
    /// lost (`lossless`), the program waits while there are too many.
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
        packets.push("QUnspoolTrace:1".to_owned());
        let required = packets.len();
        if lossless {
            // Refused where the target must not wait for this client.
            packets.push("QUnspoolTrace:2".to_owned());
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

    /// The number of a variable of [`Client::trace`], by its place there.
    pub fn trace_variable(index: usize) -> u32 {
        u32::try_from(FIRST_VARIABLE + index).unwrap_or(u32::MAX)
    }

    /// How many tracepoints hits are noted of without a stop, and the numbers of the others. `None`: the server does not tell.
    pub fn trace_places(&mut self) -> Result<Option<(usize, Vec<u32>)>, Error> {
        if !self.features.has("FastTracepoints") || !self.features.has("QUnspoolTrace") {
            return Ok(None);
        }
        // It is answered when everything has been planted.
        let reply = self.planting(|client| client.request("qUnspoolPlaces"));
        // One that has other things to say of it is no worse for that.
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

    /// Asks for what is answered when places have been planted, of which there may be hundreds.
    pub(super) fn planting<T>(&mut self, ask: impl FnOnce(&mut Client) -> T) -> T {
        let patience = self.connection.timeout();
        self.connection.set_timeout(patience * PLANTING);
        let answer = ask(self);
        self.connection.set_timeout(patience);
        answer
    }

    /// Takes a tracepoint out.
    pub fn remove_tracepoint(&mut self, number: u32, address: u64) -> Result<(), Error> {
        self.request(format!("QTDisable:{number:x}:{address:x}"))?
            .ok()
    }

    /// Ends the trace; nothing is planted any more.
    pub fn trace_stop(&mut self) -> Result<(), Error> {
        self.request("QTStop")?.ok()
    }

    /// What the server told since this was last asked: everything that happened before the
    /// last stop that [`Client::wait`] returned, in its order.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        let size = self.description.size();
        let mut notices = Vec::new();
        for (came, payload) in self.connection.take_notifications() {
            Notice::decode(&payload, size, came.elapsed(), &mut notices);
        }
        notices
    }
}

/// So many times as long as for another answer it is waited for one that comes when places have been planted.
const PLANTING: u32 = 12;
/// gdb numbers its variables from 1; 1 is gdbserver's own.
const FIRST_VARIABLE: usize = 2;
