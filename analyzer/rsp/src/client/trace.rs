//! Tracepoints: what the server notes by itself and sends while the target runs (RSP, "Tracepoint Packets", and our stub's
//! `UnspoolTrace` notification, docs/protocol.md).

use crate::client::Client;
use crate::error::Error;
use crate::hex;
use crate::notice::Notice;
use crate::trace::TraceAction;

impl Client {
    /// Begins a trace whose frames the server sends as they come. Tracepoints defined from now on count at once.
    /// `Ok(false)`: it cannot; only our own stub can. Afterwards [`Client::take_notices`] has the frames.
    pub fn trace(&mut self, variables: &[&str]) -> Result<bool, Error> {
        if !self.features.has("QUnspoolTrace") || !self.features.has("InstallInTrace") {
            return Ok(false);
        }
        self.request("QTinit")?.ok()?;
        for (index, name) in variables.iter().enumerate() {
            let number = FIRST_VARIABLE + index;
            let name = hex::encode(name.as_bytes());
            self.request(format!("QTDV:{number:x}:0:0:{name}"))?.ok()?;
        }
        self.request("QUnspoolTrace:1")?.ok()?;
        self.request("QTStart")?.ok()?;
        Ok(true)
    }

    /// The number of a variable of [`Client::trace`], by its place there.
    pub fn trace_variable(index: usize) -> u32 {
        u32::try_from(FIRST_VARIABLE + index).unwrap_or(u32::MAX)
    }

    /// Defines a tracepoint. On ARM an odd address means Thumb.
    pub fn insert_tracepoint(
        &mut self,
        number: u32,
        address: u64,
        actions: &[TraceAction],
    ) -> Result<(), Error> {
        // Enabled once it is complete: it would be hit in between.
        self.request(format!("QTDP:{number:x}:{address:x}:D:0:0-"))?
            .ok()?;
        for (index, action) in actions.iter().enumerate() {
            let more = if index + 1 < actions.len() { "-" } else { "" };
            let packet = format!("QTDP:-{number:x}:{address:x}:{action}{more}");
            self.request(packet)?.ok()?;
        }
        self.request(format!("QTEnable:{number:x}:{address:x}"))?
            .ok()
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

/// gdb numbers its variables from 1; 1 is gdbserver's own.
const FIRST_VARIABLE: usize = 2;
