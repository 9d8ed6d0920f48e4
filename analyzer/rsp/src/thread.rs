//! Thread ids in the protocol's form, and the entries of a thread list.

use std::fmt;
use std::str::FromStr;

/// A thread of the target. With the `multiprocess` feature, ids include the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadId {
    /// The process, if the server names it.
    pub pid: Option<u64>,
    /// The thread.
    pub tid: u64,
}

impl ThreadId {
    /// A thread of a known process.
    pub fn new(pid: u64, tid: u64) -> ThreadId {
        ThreadId {
            pid: Some(pid),
            tid,
        }
    }

    /// Decodes `p1f.2a` or `2a` (RSP, "Packets", thread-id syntax). Returns `None` for the
    /// wildcards `0` ("any thread") and `-1` ("all threads"), which name no thread, and for invalid
    /// text.
    pub(crate) fn decode(text: &str) -> Option<ThreadId> {
        let (pid, tid) = match text.strip_prefix('p') {
            Some(rest) => {
                let (pid, tid) = rest.split_once('.')?;
                (Some(number(pid)?), tid)
            }
            None => (None, text),
        };
        Some(ThreadId {
            pid,
            tid: number(tid)?,
        })
    }
}

/// Decodes a positive hexadecimal number without sign; 0 is a wildcard and gives `None`.
fn number(text: &str) -> Option<u64> {
    crate::hex::number(text).filter(|n| *n != 0)
}

impl fmt::Display for ThreadId {
    /// The protocol's form: `p1f.2a`, or `2a` if the process is unknown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(pid) = self.pid {
            write!(f, "p{pid:x}.")?;
        }
        write!(f, "{:x}", self.tid)
    }
}

impl FromStr for ThreadId {
    type Err = String;

    fn from_str(text: &str) -> Result<ThreadId, String> {
        ThreadId::decode(text).ok_or_else(|| {
            format!("expected a thread id such as p1f.2a or 2a (hexadecimal), got {text:?}")
        })
    }
}

/// One line of the server's thread list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadEntry {
    /// The thread.
    pub id: ThreadId,
    /// Its name, if the list contains names (`qXfer:threads:read`).
    pub name: Option<String>,
    /// The processor it last ran on, if the list contains it.
    pub core: Option<u32>,
}
