//! `m` and `x`: memory, as digits or as bytes. Both may return less than was asked for, up to the
//! first address that cannot be read; gdbstub has no `x`, and no end to a long `m`.
//! While a trace frame is selected, it is that one's memory.

use nix::errno::Errno;

use super::{Answer, range, trace};
use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::session::framing::{PACKET_SIZE, escape, hex};

pub(super) fn as_hex(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    read(session, debuggee, rest, |bytes| {
        let mut reply = Vec::with_capacity(2 * bytes.len());
        hex(bytes, &mut reply);
        reply
    })
}

/// GDB 16's `x`: the reply's data follows a `b`.
pub(super) fn as_binary(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    read(session, debuggee, rest, |bytes| {
        let mut reply = Vec::with_capacity(bytes.len() + bytes.len() / 16 + 1);
        reply.push(b'b');
        escape(bytes, &mut reply);
        reply
    })
}

fn read(
    session: &Session,
    debuggee: &mut Debuggee,
    rest: &[u8],
    encode: impl Fn(&[u8]) -> Vec<u8>,
) -> Answer {
    let Some((address, length)) = range(rest) else {
        return Answer::error(Errno::EINVAL);
    };
    let Some(process) = debuggee.live() else {
        return Answer::error(Errno::ESRCH);
    };
    let mut bytes = vec![0; length.min(PACKET_SIZE / 2 - 8)];
    let noted = trace::frame::memory(session, process, address, &mut bytes);
    match noted.unwrap_or_else(|| process.read_memory(address, &mut bytes)) {
        Ok(done) => Answer::Reply(encode(&bytes[..done])),
        Err(errno) => Answer::error(errno),
    }
}
