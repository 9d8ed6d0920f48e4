//! Runs one complete session with a real program, without sockets.
//!
//! Exists only with the feature `fuzzing`, as the entry point for `stub/fuzz`.

use std::ffi::OsStr;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use crate::ptrace::attach::Program;
use crate::ptrace::environment::Environment;
use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::session::debuggee::limits::Limits;
use crate::session::disabled_packets::DisabledPackets;

/// Total time limit for waiting on a running program.
const RUN_TIMEOUT: Duration = Duration::from_millis(3);

/// Starts `program`, feeds `parts` to a session one after the other, kills the program, and returns
/// the session's output. After each part the session handles the program's stops. The session can
/// use files below `root` only, and cannot attach to any process.
pub fn converse<'a>(
    program: &Path,
    root: &Path,
    parts: impl IntoIterator<Item = &'a [u8]>,
) -> Vec<u8> {
    let mut environment = Environment::default();
    environment.set(OsStr::new("PATH"), OsStr::new("/nowhere"));
    let program = Program {
        words: vec![program.into()],
        wrapper: Vec::new(),
        environment,
        directory: Some(root.into()),
        fixed_addresses: true,
        detached_stdio: true,
        default_keys: true,
        mask: SigSet::empty(),
    };
    let mut limits = Limits::default();
    limits.files.root = Some(root.into());
    limits.attachable = Some(Vec::new());
    let mut debuggee = Debuggee::new(program, limits, false);
    debuggee.start().expect("the program starts");
    let first = debuggee.pid();
    let mut session = Session::new(
        DisabledPackets::default(),
        &debuggee,
        String::from("fuzzer"),
        1,
        false,
    );
    let mut written = Vec::new();
    let end = Instant::now() + RUN_TIMEOUT;
    for mut part in parts {
        while !part.is_empty() && !session.is_over() {
            let taken = session.feed(&mut debuggee, part);
            part = &part[taken..];
            session.take_output(&mut written);
        }
        loop {
            poll_program(&mut debuggee, &mut session);
            let going = debuggee
                .live()
                .is_some_and(|tracee| tracee.process.is_going());
            if !going || Instant::now() >= end {
                break;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        session.take_output(&mut written);
        if session.is_over() {
            break;
        }
    }
    session.leave(&mut debuggee);
    for mut tracee in debuggee.family.dissolve() {
        tracee.kill();
    }
    // A program that the client has detached from is still our child.
    if let Some(pid) = first {
        let pid = Pid::from_raw(pid.0);
        let _ = kill(pid, Signal::SIGKILL);
        let _ = waitpid(pid, Some(WaitPidFlag::__WALL));
    }
    written
}

/// Handles the program's stops as the server does.
fn poll_program(debuggee: &mut Debuggee, session: &mut Session) {
    if let Some(stop) = debuggee.family.poll() {
        if session.controls() && !debuggee.free {
            session.stopped(debuggee, stop);
        } else {
            debuggee.stopped_alone(stop);
        }
    }
    session.notify(debuggee, false);
    session.notify_stops(debuggee);
}
