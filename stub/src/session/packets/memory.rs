//! Memory packets: `m`, `x`, `qSearch:memory` and `qCRC`.

use nix::errno::Errno;

use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::session::framing::{PACKET_SIZE, escape, hex, number, unescape};

use super::{Answer, range, trace};

/// `m`: memory as hexadecimal digits, up to the first address that cannot be read.
///
/// gdbstub does not limit the length of an `m`. While a trace frame is selected, the reply is the
/// memory of that frame.
pub(super) fn as_hex(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    read(session, debuggee, rest, |bytes| {
        let mut reply = Vec::with_capacity(2 * bytes.len());
        hex(bytes, &mut reply);
        reply
    })
}

/// `x` (since GDB 16): memory as binary, after a `b`.
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
    let Some(tracee) = debuggee.live() else {
        return Answer::error(Errno::ESRCH);
    };
    let mut bytes = vec![0; length.min(PACKET_SIZE / 2 - 8)];
    let noted = trace::frame::memory(session, tracee, address, &mut bytes);
    match noted.unwrap_or_else(|| tracee.read_memory(address, &mut bytes)) {
        Ok(done) => Answer::Reply(encode(&bytes[..done])),
        Err(errno) => Answer::error(errno),
    }
}

/// Number of bytes that are read together.
const CHUNK: u64 = 64 * 1024;

/// `qSearch:memory`: finds bytes in memory. The stub searches, so that it need not send the memory.
///
/// `ADDRESS;LENGTH;PATTERN`. The pattern is binary.
pub(super) fn search(_: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let mut parts = rest.splitn(3, |byte| *byte == b';');
    let mut next = || parts.next().and_then(number);
    let (Some(start), Some(length)) = (next(), next()) else {
        return Answer::error(Errno::EINVAL);
    };
    let pattern = unescape(parts.next().unwrap_or_default());
    if pattern.is_empty() {
        return Answer::error(Errno::EINVAL);
    }
    let Some(tracee) = debuggee.live() else {
        return Answer::error(Errno::ESRCH);
    };
    let end = start.saturating_add(length);
    let mut window: Vec<u8> = Vec::new();
    let mut at = start;
    while at < end {
        let mut chunk = vec![0; (end - at).min(CHUNK) as usize];
        match tracee.read_memory(at, &mut chunk) {
            Ok(known) if known > 0 => chunk.truncate(known),
            // Like gdbserver, give up at memory that cannot be read.
            _ => return Answer::error(Errno::EFAULT),
        }
        let first = at - window.len() as u64;
        at += chunk.len() as u64;
        window.append(&mut chunk);
        if let Some(index) = find(&window, &pattern) {
            return Answer::Reply(format!("1,{:x}", first + index as u64).into_bytes());
        }
        // Keep the end, because a match may begin here and end in the next chunk.
        let kept = window.len().min(pattern.len() - 1);
        window.drain(..window.len() - kept);
    }
    Answer::Reply(b"0".to_vec())
}

/// Position of the first match. Most bytes differ from the pattern's first byte, so they need one
/// comparison each.
fn find(bytes: &[u8], pattern: &[u8]) -> Option<usize> {
    let (first, rest) = pattern.split_first()?;
    let mut at = 0;
    loop {
        at += bytes.get(at..)?.iter().position(|byte| byte == first)?;
        if bytes[at + 1..].starts_with(rest) {
            return Some(at);
        }
        at += 1;
    }
}

/// `qCRC`: the checksum of memory, for `compare-sections` (GDB manual: polynomial 0x04c11db7, most
/// significant bit first, starting from all ones).
pub(super) fn checksum(_: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let Some((mut at, mut left)) = range(rest) else {
        return Answer::error(Errno::EINVAL);
    };
    let Some(tracee) = debuggee.live() else {
        return Answer::error(Errno::ESRCH);
    };
    let mut crc = u32::MAX;
    while left > 0 {
        let mut chunk = vec![0; left.min(CHUNK as usize)];
        match tracee.read_memory(at, &mut chunk) {
            Ok(known) if known == chunk.len() => {}
            _ => return Answer::error(Errno::EFAULT),
        }
        crc = chunk
            .iter()
            .fold(crc, |crc, byte| add_to_checksum(crc, *byte));
        at = at.wrapping_add(chunk.len() as u64);
        left -= chunk.len();
    }
    Answer::Reply(format!("C{crc:x}").into_bytes())
}

fn add_to_checksum(crc: u32, byte: u8) -> u32 {
    (0..8).fold(crc ^ (u32::from(byte) << 24), |crc, _| {
        let carry = crc >> 31;
        (crc << 1) ^ (carry * 0x04c1_1db7)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_match_of_a_pattern_is_found() {
        let found = |bytes: &str, pattern: &str| find(bytes.as_bytes(), pattern.as_bytes());
        assert_eq!(found("aaab", "aab"), Some(1));
        assert_eq!(found("abcabd", "abd"), Some(3));
        assert_eq!(found("abc", "c"), Some(2));
        assert_eq!(found("abc", "cd"), None);
        assert_eq!(found("", "a"), None);
        assert_eq!(found("abc", ""), None);
    }

    #[test]
    fn checksum_has_the_catalogued_check_value() {
        // The catalogue of CRCs gives 0x0376e6e7 for "123456789" (CRC-32/MPEG-2).
        let crc = b"123456789"
            .iter()
            .fold(u32::MAX, |crc, b| add_to_checksum(crc, *b));
        assert_eq!(crc, 0x0376_e6e7);
    }
}
