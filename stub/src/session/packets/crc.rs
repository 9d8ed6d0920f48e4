//! `qCRC`: the checksum of memory (GDB manual: polynomial 0x04c11db7, most significant bit first, starting from
//! all ones), for `compare-sections`.

use nix::errno::Errno;

use super::{Answer, range};
use crate::session::Session;
use crate::session::debuggee::Debuggee;

const CHUNK: usize = 64 * 1024;

pub(super) fn answer(_: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let Some((mut at, mut left)) = range(rest) else {
        return Answer::error(Errno::EINVAL);
    };
    let Some(process) = debuggee.live() else {
        return Answer::error(Errno::ESRCH);
    };
    let mut crc = u32::MAX;
    while left > 0 {
        let mut chunk = vec![0; left.min(CHUNK)];
        match process.read_memory(at, &mut chunk) {
            Ok(known) if known == chunk.len() => {}
            _ => return Answer::error(Errno::EFAULT),
        }
        crc = chunk.iter().fold(crc, |crc, byte| add(crc, *byte));
        at = at.wrapping_add(chunk.len() as u64);
        left -= chunk.len();
    }
    Answer::Reply(format!("C{crc:x}").into_bytes())
}

fn add(crc: u32, byte: u8) -> u32 {
    (0..8).fold(crc ^ (u32::from(byte) << 24), |crc, _| {
        let carry = crc >> 31;
        (crc << 1) ^ (carry * 0x04c1_1db7)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_value() {
        // The catalogue of CRCs gives 0x0376e6e7 for "123456789" (CRC-32/MPEG-2).
        let crc = b"123456789".iter().fold(u32::MAX, |crc, b| add(crc, *b));
        assert_eq!(crc, 0x0376_e6e7);
    }
}
