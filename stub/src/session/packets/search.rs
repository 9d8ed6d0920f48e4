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
        if let Some(index) = find(&window, &pattern) {
            return Answer::Reply(format!("1,{:x}", first + index as u64).into_bytes());
        }
        // What may begin here and end in the next chunk.
        let kept = window.len().min(pattern.len() - 1);
        window.drain(..window.len() - kept);
    }
    Answer::Reply(b"0".to_vec())
}

/// Where a pattern begins. Most bytes are not its first, which is all that is looked at of them.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_found_where_they_begin_first() {
        let found = |bytes: &str, pattern: &str| find(bytes.as_bytes(), pattern.as_bytes());
        assert_eq!(found("aaab", "aab"), Some(1));
        assert_eq!(found("abcabd", "abd"), Some(3));
        assert_eq!(found("abc", "c"), Some(2));
        assert_eq!(found("abc", "cd"), None);
        assert_eq!(found("", "a"), None);
        assert_eq!(found("abc", ""), None);
    }
}
