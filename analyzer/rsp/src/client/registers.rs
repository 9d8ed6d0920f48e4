//! Registers of one thread, and the server's current thread.

use crate::client::Client;
use crate::description::Register;
use crate::error::Error;
use crate::registers::Registers;
use crate::reply::Reply;
use crate::thread::ThreadId;

impl Client {
    /// All registers of a thread (`Hg`, `g`). Registers missing in the reply are unknown.
    pub fn registers(&mut self, thread: ThreadId) -> Result<Registers, Error> {
        let mut packets = self.select(thread);
        packets.push(b"g".to_vec());
        let replies = self.requests(&packets)?;
        self.decode_registers(thread, &replies)
    }

    /// One register of a thread (`Hg`, `p`; else `g`), in target byte order; `None` if it is
    /// unavailable. qemu-user omits vector registers from `g` and returns them only here.
    pub fn register(&mut self, thread: ThreadId, number: u32) -> Result<Option<Vec<u8>>, Error> {
        if self.lacking.contains("p") {
            return self.register_of_all(thread, number);
        }
        let mut packets = self.select(thread);
        packets.push(format!("p{number:x}").into_bytes());
        let replies = self.requests(&packets)?;
        let reply = self.selected(thread, &replies)?;
        match reply.payload() {
            Err(error) if error.is_unsupported() => {
                self.lacking.insert("p");
                self.register_of_all(thread, number)
            }
            Err(error) => Err(error),
            Ok(digits) if digits.iter().all(|d| *d == b'x') => Ok(None),
            Ok(_) => reply.hex().map(Some),
        }
    }

    fn register_of_all(&mut self, thread: ThreadId, number: u32) -> Result<Option<Vec<u8>>, Error> {
        let registers = self.registers(thread)?;
        let register = self.description.register_numbered(number);
        Ok(register.and_then(|r| registers.get(r)).map(<[u8]>::to_vec))
    }

    /// Writes one register (`P`, else `G`). `bytes` are in target byte order.
    pub fn write_register(
        &mut self,
        thread: ThreadId,
        number: u32,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let register = self.register_for(number, bytes)?;
        if !self.lacking.contains("P") {
            let mut packets = self.select(thread);
            packets.push(format!("P{number:x}={}", crate::hex::encode(bytes)).into_bytes());
            let replies = self.requests(&packets)?;
            let result = self.selected(thread, &replies)?.ok();
            if !self.lacks("P", result)? {
                return Ok(());
            }
        }
        let mut registers = self.registers(thread)?;
        registers.set(&register, bytes);
        self.request(format!("G{}", registers.encode()))?.ok()
    }

    fn register_for(&self, number: u32, bytes: &[u8]) -> Result<Register, Error> {
        let wrong = |expected: String| Error::Register {
            number,
            got: bytes.len(),
            expected,
        };
        let register = self
            .description
            .register_numbered(number)
            .ok_or_else(|| wrong("the target description has no such number".into()))?;
        match register.size() {
            size if size == bytes.len() => Ok(register.clone()),
            size => Err(wrong(format!("{} has {size}", register.name))),
        }
    }

    /// The packets that make `thread` the current one: `Hg`, or none if it already is.
    pub(super) fn select(&self, thread: ThreadId) -> Vec<Vec<u8>> {
        match self.selected == Some(thread) {
            true => Vec::new(),
            false => vec![format!("Hg{thread}").into_bytes()],
        }
    }

    /// Checks the replies to [`Client::select`] and one more packet, and returns that packet's
    /// reply. After a refused `Hg` that reply is invalid, because it refers to another thread.
    pub(super) fn selected<'a>(
        &mut self,
        thread: ThreadId,
        replies: &'a [Reply],
    ) -> Result<&'a Reply, Error> {
        let (reply, selects) = replies.split_last().ok_or(Error::Ticket)?;
        for select in selects {
            match select.ok() {
                Ok(()) => self.selected = Some(thread),
                // A server with only one thread may not support `H`.
                Err(error) if error.is_unsupported() => {}
                Err(error) => {
                    self.selected = None;
                    return Err(error);
                }
            }
        }
        Ok(reply)
    }

    pub(super) fn decode_registers(
        &mut self,
        thread: ThreadId,
        replies: &[Reply],
    ) -> Result<Registers, Error> {
        let reply = self.selected(thread, replies)?;
        Registers::decode(reply.payload()?)
            .ok_or_else(|| reply.malformed("two hexadecimal digits or xx a byte"))
    }
}
