//! Which of the started processes may hang, as `/proc` shows it. An inspection stops a process for
//! some milliseconds, and a program may have hundreds of idle workers.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::Instant;

use unspool_image::Arch;

use super::kernel_state::blocking_call;
use super::local_process::{LocalProcess, MAX_RESUME, SLEEP_CHECK};
use super::pipes::PipeUsers;
use crate::platform::syscall::{Call, writes};

/// Those of the processes that may hang: first those for which the program waits, directly or
/// through further ones. In such a process a thread waits at a futex without a time limit, or all
/// threads wait for processes that may hang, too. Leaves out processes that are traced.
pub(super) fn that_may_hang(
    program: &LocalProcess,
    processes: Vec<LocalProcess>,
    arch: Arch,
) -> Vec<u32> {
    let endless = |call: &Call| call.futex(arch).is_some_and(|futex| !futex.timed);
    let at_futex = |process: &LocalProcess| calls(process).any(|(_, call)| endless(&call));
    let untraced = processes.into_iter().filter(LocalProcess::is_untraced);
    let (at_futex, others): (Vec<_>, Vec<_>) = untraced.partition(at_futex);
    let waiting = LocalProcess::that_wait(others, arch);
    let awaited = awaited_by(waiting.iter().chain([program]), arch);
    let mut may_hang: BTreeSet<u64> = ids(&at_futex).chain(ids(&waiting)).collect();
    let further = awaited.values().flatten().flatten();
    let further: BTreeSet<u64> = further
        .copied()
        .filter(|id| !may_hang.contains(id))
        .collect();
    may_hang.extend(that_wait_now(further, arch));
    let mut stuck: BTreeSet<u64> = ids(&waiting).collect();
    loop {
        let (stay, go): (BTreeSet<u64>, BTreeSet<u64>) = stuck.iter().partition(|id| {
            let mut threads = awaited.get(id).into_iter().flatten();
            threads.all(|awaited| awaited.is_subset(&may_hang))
        });
        may_hang.retain(|id| !go.contains(id));
        stuck = stay;
        if go.is_empty() {
            break;
        }
    }
    let mut found: Vec<u64> = ids(&at_futex).collect();
    let mut next = vec![u64::from(program.pid())];
    while let Some(id) = next.pop() {
        for awaited in awaited.get(&id).into_iter().flatten().flatten() {
            if stuck.remove(awaited) {
                found.push(*awaited);
                next.push(*awaited);
            }
        }
    }
    let found = found.into_iter().chain(stuck);
    found.filter_map(|id| u32::try_from(id).ok()).collect()
}

fn ids(processes: &[LocalProcess]) -> impl Iterator<Item = u64> {
    processes.iter().map(|process| process.pid().into())
}

/// The system calls in which the threads of a process are blocked.
fn calls(process: &LocalProcess) -> impl Iterator<Item = (u64, Call)> {
    let pid = process.pid();
    let tids = process.tids();
    tids.filter_map(move |tid| Some((tid, blocking_call(pid, tid)?)))
}

/// For each process, and each of its threads that waits for processes: those that can end the wait.
fn awaited_by<'p>(
    waiting: impl Iterator<Item = &'p LocalProcess>,
    arch: Arch,
) -> BTreeMap<u64, Vec<BTreeSet<u64>>> {
    let users = PipeUsers::default();
    let awaited = waiting.map(|process| {
        let children = OnceCell::new();
        let children = || children.get_or_init(|| process.children());
        let threads = calls(process).map(|(tid, call)| {
            if let Some(pipe) = process.pipe_of(&call, arch) {
                let writes = call.name(arch).is_some_and(writes);
                return users.at_other_end(&pipe, writes).collect();
            }
            if let Some(descriptor) = call.file_lock(arch) {
                return process.file_lock_holders(tid, descriptor);
            }
            let awaited = call.children(arch).into_iter();
            awaited
                .flat_map(|awaited| process.awaited_children(tid, awaited, children))
                .collect()
        });
        (process.pid().into(), threads.collect())
    });
    awaited.collect()
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
