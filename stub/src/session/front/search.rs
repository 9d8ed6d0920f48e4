//! `qSearch:memory`: where bytes occur, found here so that the memory need not be sent.

use nix::errno::Errno;

use super::Answer;
use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::session::framing::{number, unescape};

/// How much is read at once.
const CHUNK: u64 = 64 * 1024;

/// `ADDRESS;LENGTH;PATTERN`, the pattern binary.
pub(super) fn answer(_: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let mut parts = rest.splitn(3, |byte| *byte == b';');
    let mut next = || parts.next().and_then(number);
    let (Some(start), Some(length)) = (next(), next()) else {
        return Answer::error(Errno::EINVAL);
    };
    let pattern = unescape(parts.next().unwrap_or_default());
    if pattern.is_empty() {
        return Answer::error(Errno::EINVAL);
    }
    let Some(process) = debuggee.live() else {
        return Answer::error(Errno::ESRCH);
    };
    let end = start.saturating_add(length);
    let mut window: Vec<u8> = Vec::new();
    let mut at = start;
    while at < end {
        let mut chunk = vec![0; (end - at).min(CHUNK) as usize];
        match process.read_memory(at, &mut chunk) {
            Ok(known) if known > 0 => chunk.truncate(known),
            // gdbserver, too, gives up where memory cannot be read.
            _ => return Answer::error(Errno::EFAULT),
        }
        let first = at - window.len() as u64;
        at += chunk.len() as u64;
        window.append(&mut chunk);
        let found = window.windows(pattern.len()).position(|w| w == pattern);
        if let Some(index) = found {
            return Answer::Reply(format!("1,{:x}", first + index as u64).into_bytes());
        }
        // What may begin here and end in the next chunk.
        let kept = window.len().min(pattern.len() - 1);
        window.drain(..window.len() - kept);
    }
    Answer::Reply(b"0".to_vec())
}
