//! Finds threads that wait for each other through pipes and for the ends of child processes.
//!
//! A lock has one holder, but any thread of each process that has the other end of a pipe can end a
//! wait at the pipe. So these threads form no plain circle: a group of threads is stuck if every
//! thread that could end one of their waits is in the group.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use crate::model::circles::components;
use crate::model::finding::{
    Doubt, Evidence, Facts, Finding, FindingKind, Hang, HangReason, Shows,
};
use crate::model::inspection::{CallSubject, Inspection, State};
use crate::model::{Model, ThreadIndex};
use crate::platform::syscall::{AwaitedChildren, writes};

/// A wait, and all nodes that can end it.
#[derive(Default)]
struct Blocked {
    enders: Vec<usize>,
    /// What may end it after all.
    doubt: Option<Doubt>,
    /// True if it is a system call that waits for processes.
    is_call: bool,
}

/// The stuck groups in which a thread waits for a process. All threads but the `moved` ones waited
/// together as they were inspected.
pub(super) fn find(model: &Model, inspection: &Inspection, moved: &HashSet<u64>) -> Vec<Finding> {
    let count = model.any_threads().count();
    // After the threads, each process is a node, which is stuck if all its threads are, unless a
    // timer's handler may act for it.
    let mut processes: BTreeMap<u64, usize> = BTreeMap::new();
    let mut blocked: BTreeMap<usize, Blocked> = BTreeMap::new();
    for index in 0..count {
        if *inspection.state(ThreadIndex(index)) != State::Absent {
            let pid = model.pid_of(ThreadIndex(index));
            let next = count + processes.len();
            let node = *processes.entry(pid).or_insert(next);
            if !inspection.timers.contains(&pid) {
                blocked.entry(node).or_default().enders.push(index);
            }
        }
    }
    for (index, thread) in model.any_threads().enumerate() {
        if thread.tid.is_some_and(|tid| !moved.contains(&tid))
            && let Some(one) = wait_of(model, inspection, &processes, index)
            && !one.enders.is_empty()
        {
            blocked.insert(index, one);
        }
    }
    loop {
        let can_end = |one: &Blocked| one.enders.iter().any(|ender| !blocked.contains_key(ender));
        let ended = blocked.iter().filter(|(_, one)| can_end(one));
        let ended: Vec<usize> = ended.map(|(index, _)| *index).collect();
        if ended.is_empty() {
            break;
        }
        blocked.retain(|index, _| ended.binary_search(index).is_err());
    }
    let targets = (blocked.iter()).map(|(index, one)| (*index, one.enders.clone()));
    let groups = components(&targets.collect()).into_iter();
    let groups = groups.map(|group| group.into_iter().collect::<BTreeSet<usize>>());
    let mut found = Vec::new();
    for group in groups {
        let mut enders = group.iter().flat_map(|index| &blocked[index].enders);
        // Threads that wait for a group are not part of it.
        let is_closed = enders.all(|ender| group.contains(ender));
        if is_closed && group.iter().any(|index| blocked[index].is_call) {
            let threads: Vec<usize> = group.range(..count).copied().collect();
            found.push(finding(model, &threads, &blocked));
        }
    }
    found
}

/// A thread's wait. `None` if it may end by itself, or through a process that was not inspected.
fn wait_of(
    model: &Model,
    inspection: &Inspection,
    processes: &BTreeMap<u64, usize>,
    index: usize,
) -> Option<Blocked> {
    let state = inspection.state(ThreadIndex(index));
    let own = model.pid_of(ThreadIndex(index));
    let node_of = |pid: u64| processes.get(&pid).copied();
    if let Some(wait) = state.wait() {
        if wait.timed || wait.moving {
            return None;
        }
        let holders = wait.holders.iter().map(|holder| Some(holder.thread?.0));
        let holders: Vec<usize> = holders.collect::<Option<_>>()?;
        let (enders, doubt) = match (holders.is_empty(), wait.shared) {
            (false, _) => (holders, (!wait.proved).then_some(Doubt::ReadApart)),
            (true, false) => (vec![node_of(own)?], Some(Doubt::SignalsUnknown)),
            (true, true) => return None,
        };
        return Some(Blocked {
            enders,
            doubt,
            is_call: false,
        });
    }
    let on = state.subject()?;
    let mut pids: Vec<u64> = on.processes().iter().map(|process| process.pid).collect();
    if let CallSubject::Children { awaited, .. } = on {
        match awaited {
            // Another thread may start a child.
            AwaitedChildren::Any => pids.push(own),
            AwaitedChildren::Newest if pids.is_empty() => return None,
            AwaitedChildren::Newest | AwaitedChildren::One(_) => {}
        }
    }
    // A handler may write to a pipe of its own process, as programs with event loops do.
    if matches!(on, CallSubject::File { .. })
        && !state.call_name().is_some_and(writes)
        && pids.contains(&own)
        && inspection.handlers.contains(&own)
    {
        return None;
    }
    let enders = pids.into_iter().map(node_of).collect::<Option<_>>()?;
    Some(Blocked {
        enders,
        // A pending alarm is not in `/proc`, nor are descriptors that a socket carries.
        doubt: Some(Doubt::CallsMayEnd),
        is_call: true,
    })
}

fn finding(model: &Model, group: &[usize], blocked: &BTreeMap<usize, Blocked>) -> Finding {
    let threads: Vec<ThreadIndex> = group.iter().copied().map(ThreadIndex).collect();
    let mut doubts: Vec<Doubt> = group
        .iter()
        .filter_map(|index| blocked[index].doubt)
        .collect();
    doubts.sort_unstable();
    doubts.dedup();
    let evidence = threads.iter().map(|thread| Evidence {
        thread: *thread,
        shows: Shows::Activity,
        stack: (model.any_thread(*thread)).and_then(|thread| thread.stack.clone()),
    });
    Finding {
        kind: match threads.len() {
            1 => FindingKind::SelfDeadlock,
            _ => FindingKind::Deadlock,
        },
        proved: doubts.is_empty(),
        circle: false,
        objects: Vec::new(),
        evidence: evidence.collect(),
        facts: Facts::Hang(Hang {
            reason: HangReason::Processes,
            waits: Vec::new(),
            doubts,
        }),
        threads,
    }
}
