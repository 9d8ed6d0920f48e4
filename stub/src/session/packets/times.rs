//! `qUnspoolTimes`: how long threads have been on a processor and waited for one, by the kernel's account (docs/reference/protocol.md).

use std::fmt::Write;
use std::fs;

use nix::errno::Errno;

use super::Answer;
use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::session::framing::{PACKET_SIZE, number};
use crate::sys::monotonic_ns;

/// `AFTER`: of the threads with greater ids, as many as there is room for. The reply: `m` if there are more, else `l`, the time, then
/// `;TID,ON-CPU,RUNNABLE` for each. A kernel without this account is an error.
pub(super) fn answer(_: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let Some(after) = number(rest).and_then(|after| i32::try_from(after).ok()) else {
        return Answer::error(Errno::EINVAL);
    };
    let Some(process) = debuggee.live() else {
        return Answer::error(Errno::ESRCH);
    };
    let tasks = format!("/proc/{}/task", process.pid().0);
    let Ok(entries) = fs::read_dir(&tasks) else {
        return Answer::error(Errno::ESRCH);
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut tids: Vec<i32> = names.filter_map(|name| name.parse().ok()).collect();
    tids.retain(|tid| *tid > after);
    tids.sort_unstable();

    let mut reply = format!("l{:x}", monotonic_ns());
    for (at, tid) in tids.iter().enumerate() {
        let text = match fs::read_to_string(format!("{tasks}/{tid}/schedstat")) {
            Ok(text) => text,
            // It has ended; or the kernel has none of these files.
            Err(_) if fs::exists(format!("{tasks}/{tid}")).unwrap_or(false) => {
                return Answer::error(Errno::ENOSYS);
            }
            Err(_) => continue,
        };
        let mut numbers = text.split_whitespace().map(str::parse::<u64>);
        let (Some(Ok(on_cpu)), Some(Ok(runnable))) = (numbers.next(), numbers.next()) else {
            return Answer::error(Errno::ENOSYS);
        };
        let _ = write!(reply, ";{tid:x},{on_cpu:x},{runnable:x}");
        if reply.len() > PACKET_SIZE - 64 && at + 1 < tids.len() {
            reply.replace_range(..1, "m");
            break;
        }
    }
    Answer::Reply(reply.into_bytes())
}
