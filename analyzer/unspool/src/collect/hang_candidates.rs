//! Which of the started processes may hang, as `/proc` shows it. An inspection stops a process for
//! some milliseconds, and a program may have hundreds of idle workers.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::Instant;

use unspool_image::Arch;

use super::kernel_state::blocking_call;
use super::local_process::{LocalProcess, MAX_RESUME, SLEEP_CHECK};
use super::pipes::{PipeUsers, pipe_users};
use crate::platform::syscall::{AwaitedChildren, Call, writes};

/// Those of the processes that may hang. In such a process a thread waits at a futex without a time
/// limit, or all threads wait for processes that may hang, too. Leaves out processes that are
/// traced.
pub(super) fn that_may_hang(processes: Vec<LocalProcess>, arch: Arch) -> Vec<LocalProcess> {
    let endless = |call: &Call| call.futex(arch).is_some_and(|futex| !futex.timed);
    let at_futex = |process: &LocalProcess| calls(process).any(|(_, call)| endless(&call));
    let untraced = processes.into_iter().filter(LocalProcess::is_untraced);
    let (mut found, others): (Vec<_>, Vec<_>) = untraced.partition(at_futex);
    let mut waiting = LocalProcess::that_wait(others, arch);
    let awaited = awaited_by(&waiting, arch);
    let mut may_hang: BTreeSet<u64> = ids(&found).chain(ids(&waiting)).collect();
    let further = awaited.values().flatten().flatten();
    let further: BTreeSet<u64> = further
        .copied()
        .filter(|id| !may_hang.contains(id))
        .collect();
    may_hang.extend(that_wait_now(further, arch));
    loop {
        let before = waiting.len();
        waiting.retain(|process| {
            let mut threads = awaited.get(&process.pid()).into_iter().flatten();
            let stays = threads.all(|awaited| awaited.is_subset(&may_hang));
            if !stays {
                may_hang.remove(&u64::from(process.pid()));
            }
            stays
        });
        if waiting.len() == before {
            break;
        }
    }
    found.extend(waiting);
    found
}

fn ids(processes: &[LocalProcess]) -> impl Iterator<Item = u64> {
    processes.iter().map(|process| process.pid().into())
}

/// The system calls in which the threads of a process are blocked.
fn calls(process: &LocalProcess) -> impl Iterator<Item = (u64, Call)> {
    let pid = process.pid();
    let tids = process.threads();
    tids.filter_map(move |tid| Some((tid, blocking_call(pid, tid)?)))
}

/// For each process, and each of its threads that waits for processes: those that can end the wait.
fn awaited_by(waiting: &[LocalProcess], arch: Arch) -> BTreeMap<u32, Vec<BTreeSet<u64>>> {
    let pipe = |process: &LocalProcess, call: &Call| {
        let file = process.file(call.descriptor(arch)?)?;
        file.starts_with("pipe:").then_some(file)
    };
    let blocked = waiting.iter().map(|process| {
        let calls = calls(process).map(|(tid, call)| (tid, call, pipe(process, &call)));
        (process, calls.collect())
    });
    let blocked: Vec<(&LocalProcess, Vec<(u64, Call, Option<String>)>)> = blocked.collect();
    let all = blocked.iter().flat_map(|(_, calls)| calls);
    let users = pipe_users(&all.filter_map(|(_, _, pipe)| pipe.clone()).collect());
    let awaited = blocked.into_iter().map(|(process, calls)| {
        let threads = calls.into_iter().map(|(tid, call, pipe)| match pipe {
            Some(pipe) => at_other_end(&users, &pipe, call.name(arch).is_some_and(writes)),
            None => children_or_holders(process, tid, &call, arch),
        });
        (process.pid(), threads.collect())
    });
    awaited.collect()
}

fn at_other_end(users: &PipeUsers, pipe: &str, writes: bool) -> BTreeSet<u64> {
    let users = users.by_pipe.get(pipe).into_iter().flatten();
    let users = users.filter(|user| if writes { user.reads } else { user.writes });
    users.map(|user| user.pid).collect()
}

fn children_or_holders(process: &LocalProcess, tid: u64, call: &Call, arch: Arch) -> BTreeSet<u64> {
    if let Some(descriptor) = call.file_lock(arch) {
        return process.file_lock_holders(tid, descriptor);
    }
    match call.children(arch) {
        Some(AwaitedChildren::Any) => process.children().into_values().collect(),
        Some(AwaitedChildren::One(id)) => process.children().remove(&id).into_iter().collect(),
        Some(AwaitedChildren::Newest) => process.child_in_memory(tid).into_iter().collect(),
        None => BTreeSet::new(),
    }
}

/// Those of the processes whose threads all wait for processes. A thread that was just stopped is
/// given time to return to its wait.
fn that_wait_now(pids: BTreeSet<u64>, arch: Arch) -> Vec<u64> {
    let until = Instant::now() + MAX_RESUME;
    let waits = |pid: &u64| {
        let Ok(process) = u32::try_from(*pid).map(LocalProcess::new) else {
            return false;
        };
        loop {
            if process.waits_for_processes(arch) {
                return true;
            }
            let is_blocked = calls(&process).count() == process.threads().count();
            if is_blocked || Instant::now() >= until {
                return false;
            }
            thread::sleep(SLEEP_CHECK);
        }
    };
    pids.into_iter().filter(waits).collect()
}
