//! Starts a program under ptrace.
//!
//! The child waits on a pipe until the stub has seized it. It then executes the program, which
//! stops it. If exec fails, the child sends its errno through a second pipe, so that the reported
//! cause is exact. The child stays in the stub's process group and session, so that the terminal's
//! keys and job control reach it as they would without the stub.

use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::SigSet;
use nix::unistd::pipe2;

use super::wait::{Status, wait};
use super::{Tid, ptrace};

/// Parameters of a program to start.
pub(crate) struct Launch {
    /// The file to execute.
    pub(crate) file: CString,
    /// Its arguments, including its name as the first.
    pub(crate) arguments: Vec<CString>,
    /// `NAME=value` strings.
    pub(crate) environment: Vec<CString>,
    /// Its working directory, if not the stub's.
    pub(crate) directory: Option<CString>,
    /// Whether to disable address space randomization.
    pub(crate) fixed_addresses: bool,
    /// Whether the stub's standard input and output are the connection, so that the program must
    /// have others.
    pub(crate) detached_stdio: bool,
    /// Whether the terminal's keys end the program even if the stub's parent ignores them.
    pub(crate) default_keys: bool,
    /// Number of programs (a wrapper's) that the process executes before the requested program.
    pub(crate) extra_execs: u32,
    /// Its initial signal mask.
    pub(crate) mask: SigSet,
}

/// A failed start, by the step that failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The working directory cannot be entered.
    Directory(Errno),
    /// The program cannot be executed.
    Exec(Errno),
    /// The process ended before it executed the requested program.
    Ended,
    /// The system refused a process, a pipe, or tracing.
    System(Errno),
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Failure::System(errno)
    }
}

const AT_DIRECTORY: u8 = 1;
const AT_EXEC: u8 = 2;

/// Starts the program, and returns when it is stopped before its first instruction, with the signal
/// of that stop as in [`Status::Held`].
pub(crate) fn launch(launch: &Launch) -> Result<(Tid, i32), Failure> {
    let (hold_read, hold_write) = pipe2(OFlag::O_CLOEXEC)?;
    let (error_read, error_write) = pipe2(OFlag::O_CLOEXEC)?;
    let mut arguments: Vec<*const libc::c_char> =
        launch.arguments.iter().map(|a| a.as_ptr()).collect();
    arguments.push(std::ptr::null());
    let mut environment: Vec<*const libc::c_char> =
        launch.environment.iter().map(|e| e.as_ptr()).collect();
    environment.push(std::ptr::null());

    // SAFETY: between fork and exec the child calls async-signal-safe functions only, on
    // memory prepared above.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let failed = unsafe_child(
            launch,
            &arguments,
            &environment,
            hold_read.as_raw_fd(),
            hold_write.as_raw_fd(),
        );
        // SAFETY: as above; the child ends here.
        unsafe {
            libc::write(
                error_write.as_raw_fd(),
                failed.as_ptr().cast(),
                failed.len(),
            );
            libc::_exit(127)
        }
    }
    let tid = Tid(Errno::result(child)?);
    drop(hold_read);
    drop(error_write);
    if let Err(errno) = ptrace::seize(tid, ptrace::WITH_END | ptrace::KILL_WITH_US) {
        let _ = ptrace::kill(tid);
        let _ = wait(Some(tid), true);
        return Err(errno.into());
    }
    let _ = File::from(hold_write).write_all(&[1]);
    until_exec(tid, launch.extra_execs, error_read)
}

fn until_exec(tid: Tid, mut extra: u32, errors: OwnedFd) -> Result<(Tid, i32), Failure> {
    let mut executed = false;
    loop {
        match wait(Some(tid), true)? {
            // Continue to the end of the system call, so that its result is in the registers. (ARM
            // does not report the end of a call whose beginning it has not reported.)
            Some((_, Status::Exec)) if extra == 0 && !executed => {
                executed = true;
                ptrace::interrupt(tid)?;
                ptrace::cont(tid, 0)?;
            }
            Some((_, Status::Held(signal))) if executed => return Ok((tid, signal)),
            // A group-stop, as by a terminal key: it executes nothing until `SIGCONT`.
            Some((_, Status::Held(signal))) if signal != libc::SIGTRAP => ptrace::listen(tid)?,
            Some((_, Status::Exec)) => {
                extra = extra.saturating_sub(1);
                ptrace::cont(tid, 0)?;
            }
            Some((_, Status::Exited(_) | Status::Killed(_))) => {
                let mut word = [0; 5];
                return Err(match File::from(errors).read_exact(&mut word) {
                    Ok(()) => {
                        let [step, errno @ ..] = word;
                        let errno = Errno::from_raw(i32::from_ne_bytes(errno));
                        if step == AT_DIRECTORY {
                            Failure::Directory(errno)
                        } else {
                            Failure::Exec(errno)
                        }
                    }
                    Err(_) => Failure::Ended,
                });
            }
            Some((_, Status::Signal(signal))) => ptrace::cont(tid, signal)?,
            Some((_, Status::Fork | Status::VFork | Status::Clone)) => {
                // A wrapper's own child continues untraced.
                let child = Tid(ptrace::event_message(tid)? as i32);
                let _ = wait(Some(child), true);
                let _ = ptrace::detach(child, 0);
                ptrace::cont(tid, 0)?;
            }
            _ => ptrace::cont(tid, 0)?,
        }
    }
}

/// The code of the child. Returns only on failure, with the report to send.
fn unsafe_child(
    launch: &Launch,
    arguments: &[*const libc::c_char],
    environment: &[*const libc::c_char],
    hold_read: RawFd,
    hold_write: RawFd,
) -> [u8; 5] {
    let report = |step: u8| {
        let [a, b, c, d] = Errno::last_raw().to_ne_bytes();
        [step, a, b, c, d]
    };
    // SAFETY: async-signal-safe calls with valid arguments; strings are NUL-terminated and
    // arrays end in a null pointer.
    unsafe {
        let mut byte = 0u8;
        libc::close(hold_write);
        libc::read(hold_read, (&raw mut byte).cast(), 1);
        if launch.detached_stdio {
            let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY);
            libc::dup2(null, 0);
            libc::dup2(2, 1);
        }
        if launch.fixed_addresses {
            let persona = libc::personality(0xffff_ffff);
            libc::personality((persona | libc::ADDR_NO_RANDOMIZE) as libc::c_ulong);
        }
        if let Some(directory) = &launch.directory
            && libc::chdir(directory.as_ptr()) != 0
        {
            return report(AT_DIRECTORY);
        }
        // Rust's runtime ignores SIGPIPE; programs expect the default.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        if launch.default_keys {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            libc::signal(libc::SIGQUIT, libc::SIG_DFL);
        }
        libc::sigprocmask(
            libc::SIG_SETMASK,
            std::ptr::from_ref(launch.mask.as_ref()),
            std::ptr::null_mut(),
        );
        libc::execve(
            launch.file.as_ptr(),
            arguments.as_ptr(),
            environment.as_ptr(),
        );
        report(AT_EXEC)
    }
}
