//! Keeps the stub's own death harmless to the program, with two processes.
//!
//! The first process only waits, forwards signals and passes on the exit code. Its child, called
//! `unspool-tracer` in process lists, is the server and the tracer.
//!
//! - **The first process is killed.** The kernel sends the child `SIGTERM`, and the child detaches
//!   from the program as usual.
//! - **The tracer is killed.** The first process traces *it* for one event: the kernel stops the
//!   dying tracer at the beginning of its exit, while the tracer still controls the program's
//!   threads. From now on, a thread that hits a trap waits. The first process removes all traps
//!   (listed in `breakpoint::journal`) and then resumes the tracer, whose death releases all
//!   threads.
//!
//! The first process cannot prevent two things (see docs/decisions/0004). A thread may have hit a
//! trap whose report the tracer had not yet read when it died. Then the tracer's death delivers the
//! `SIGTRAP`, which kills the program; the kernel lets no other process take it. And only the
//! tracer could end the single-stepping of a thread that has just made a step
//! (`tracee::step_reset`). Slots keep their instructions, because threads may be inside; slots lie
//! in bytes that nothing else uses.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use nix::errno::Errno;

use crate::breakpoint::journal;
use crate::breakpoint::patch::is_executable;
use crate::sys::fork::{self, Side};
use crate::sys::memory::Memory;
use crate::sys::wait::{Status, wait};
use crate::sys::{Tid, maps, ptrace};

/// Maximum time to wait for the end of a tracer that exits.
const REAP_TIMEOUT: Duration = Duration::from_millis(20);
/// Interval at which the first process checks whether the tracer has ended.
const REAP_INTERVAL: Duration = Duration::from_micros(100);

/// Forks. Returns `None` in the tracer. The first process returns the exit code when the tracer has
/// ended.
pub(crate) fn split() -> Result<Option<ExitCode>, Errno> {
    journal::open()?;
    // If this is forbidden, the first process cannot stop the tracer at its exit. It then removes
    // the traps afterwards, which may be too late for some threads.
    let hold = |tracer| {
        let _ = ptrace::seize(tracer, ptrace::UNTIL_EXIT);
    };
    match fork::fork(c"unspool-tracer", hold)? {
        Side::Child => Ok(None),
        Side::Parent(tracer) => Ok(Some(guard(tracer))),
    }
}

/// Forwards signals to the tracer until the tracer ends.
fn guard(tracer: Tid) -> ExitCode {
    loop {
        while let Ok(Some((_, status))) = wait(Some(tracer), false) {
            match status {
                Status::Exited(code) => return ExitCode::from(code as u8),
                Status::Killed(signal) => {
                    remove_traps(tracer);
                    fork::die_by(signal);
                }
                Status::Exiting => {
                    let clean = remove_traps(tracer);
                    let code = exit_code(tracer).filter(|_| clean);
                    let _ = ptrace::cont(tracer, 0);
                    if let Some(code) = code {
                        reap(tracer);
                        return code;
                    }
                }
                Status::Signal(signal) => drop(ptrace::cont(tracer, signal)),
                Status::Held(signal) if signal != libc::SIGTRAP => drop(ptrace::listen(tracer)),
                _ => drop(ptrace::cont(tracer, 0)),
            }
        }
        match fork::next_signal() {
            Ok((libc::SIGCHLD, _)) => {}
            // The terminal sends these to both processes.
            Ok((libc::SIGINT | libc::SIGQUIT, false)) => {}
            Ok((signal, _)) => drop(ptrace::send_signal(tracer, tracer, signal)),
            Err(_) => return ExitCode::FAILURE,
        }
    }
}

/// Waits for the end of the tracer, because pid 1 of a container may never do so. Not for long: the
/// kernel may take 50 ms to close the tracer's perf events.
fn reap(tracer: Tid) {
    let deadline = Instant::now() + REAP_TIMEOUT;
    let has_ended = || {
        let report = wait(Some(tracer), false);
        matches!(
            report,
            Err(_) | Ok(Some((_, Status::Exited(_) | Status::Killed(_))))
        )
    };
    while !has_ended() && Instant::now() < deadline {
        std::thread::sleep(REAP_INTERVAL);
    }
}

/// The exit code of the tracer, which is about to exit. `None` if a signal ends it.
fn exit_code(tracer: Tid) -> Option<ExitCode> {
    let status = ptrace::event_message(tracer).ok()? as i32;
    libc::WIFEXITED(status).then(|| ExitCode::from(libc::WEXITSTATUS(status) as u8))
}

/// Removes the traps that the tracer has left in the program and in processes that it forked.
/// Returns true if there were none.
fn remove_traps(tracer: Tid) -> bool {
    let traps = journal::read();
    if traps.is_empty() {
        return true;
    }
    let mut processes: Vec<(Tid, Tid)> = traps.iter().map(|t| (t.process, t.process)).collect();
    processes.extend(traced_by(tracer));
    processes.sort_unstable();
    processes.dedup();
    for (process, thread) in processes {
        let Ok(memory) = Memory::open(thread) else {
            continue;
        };
        // A child that was just forked has its parent's traps.
        let known = traps.iter().any(|trap| trap.process == process);
        let maps = maps::read(thread);
        for trap in &traps {
            if trap.process == process || !known {
                let executable = || is_executable(&maps, trap.at);
                trap.patch.lift_from(&memory, trap.at, executable);
            }
        }
    }
    false
}

/// The processes that the tracer traces, each with a thread whose memory still exists. The first
/// thread may be gone.
fn traced_by(tracer: Tid) -> Vec<(Tid, Tid)> {
    let line = format!("TracerPid:\t{tracer}");
    let numbers = |directory: &str| -> Vec<i32> {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name());
        names
            .filter_map(|name| name.to_str()?.parse().ok())
            .collect()
    };
    let traced = |path: String| {
        let status = std::fs::read_to_string(path).unwrap_or_default();
        status.lines().any(|other| other == line)
    };
    let processes = numbers("/proc").into_iter();
    processes
        .filter_map(|pid| {
            let task = |tid: &i32| traced(format!("/proc/{pid}/task/{tid}/status"));
            let alive =
                |tid: &i32| std::fs::read_link(format!("/proc/{pid}/task/{tid}/exe")).is_ok();
            if traced(format!("/proc/{pid}/status")) {
                let tasks = numbers(&format!("/proc/{pid}/task"));
                let thread = tasks.into_iter().find(|tid| task(tid) && alive(tid))?;
                return Some((Tid(pid), Tid(thread)));
            }
            None
        })
        .collect()
}
