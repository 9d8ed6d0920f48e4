//! Starts a program under trace, and seizes the threads of a running process.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::signal::SigSet;

use crate::sys::launch::{Failure, Launch, launch};
use crate::sys::memory::Memory;
use crate::sys::ptrace;
use crate::sys::{Tid, status_field};

use super::action::Action;
use super::environment::Environment;
use super::process::Process;
use super::thread::{At, Thread};
use super::wait_queue::WaitQueue;

/// The reason why there is no program to trace. Each message says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    /// The file does not exist.
    #[error("cannot start '{0}': no such program; check the path, or PATH for a bare name")]
    NoSuchProgram(String),
    /// The file is not executable.
    #[error(
        "cannot start '{0}': it is not executable; run 'chmod +x' on it, or check its directory's permissions"
    )]
    NotExecutable(String),
    /// The kernel does not know the file's format.
    #[error("cannot start '{0}': wrong architecture or not a program (expected an ELF file for {arch}, or a script with a '#!' line)", arch = crate::arch::NAME)]
    WrongFormat(String),
    /// The file's interpreter is missing.
    #[error(
        "cannot start '{0}': its interpreter is missing; install the dynamic linker, or the \
         interpreter that the script names"
    )]
    NoInterpreter(String),
    /// The working directory cannot be entered.
    #[error("cannot enter the working directory '{0}': {1}; choose another one")]
    Directory(String, &'static str),
    /// The program ended before its first instruction.
    #[error(
        "'{0}' ended while it was being started; if a wrapper is given, it must execute the program"
    )]
    Ended(String),
    /// Any other error while starting.
    #[error("cannot start '{0}': {1}")]
    System(String, &'static str),
    /// There is no such process.
    #[error("cannot attach to process {0}: no such process; check the number with 'ps'")]
    NoSuchProcess(i32),
    /// The kernel forbids it.
    #[error(
        "cannot attach to process {0}: not permitted; run as its user or as root, and check that \
         /proc/sys/kernel/yama/ptrace_scope allows it (0, or 1 with CAP_SYS_PTRACE)"
    )]
    NotPermitted(i32),
    /// The command line forbids it.
    #[error(
        "attaching to process {0} is not allowed; name it with --may-attach when the server is started"
    )]
    NotAllowed(i32),
    /// Another process traces it.
    #[error(
        "cannot attach to process {0}: process {1} is tracing it already; end that process, or make it detach"
    )]
    AlreadyTraced(i32, i32),
    /// The number belongs to a thread.
    #[error("cannot attach to {0}: it is a thread of process {1}; attach to process {1}")]
    IsThread(i32, i32),
    /// The process is a zombie.
    #[error("cannot attach to process {0}: it has ended and is a zombie")]
    IsZombie(i32),
    /// Any other error while attaching.
    #[error("cannot attach to process {0}: {1}")]
    Attach(i32, &'static str),
}

impl Error {
    /// The error number for a reply packet.
    pub(crate) fn errno(&self) -> Errno {
        match self {
            Error::NoSuchProgram(_) | Error::NoInterpreter(_) | Error::Directory(..) => {
                Errno::ENOENT
            }
            Error::NotExecutable(_) => Errno::EACCES,
            Error::WrongFormat(_) => Errno::ENOEXEC,
            Error::NoSuchProcess(_) | Error::IsZombie(_) => Errno::ESRCH,
            Error::NotPermitted(_) | Error::NotAllowed(_) | Error::AlreadyTraced(..) => {
                Errno::EPERM
            }
            _ => Errno::EIO,
        }
    }
}

/// A program to start, and its start options.
#[derive(Clone)]
pub(crate) struct Program {
    /// The file or name, then its arguments.
    pub(crate) words: Vec<OsString>,
    /// A program with arguments that executes the program to debug.
    pub(crate) wrapper: Vec<OsString>,
    /// The program's environment, instead of ours.
    pub(crate) environment: Environment,
    /// The working directory, unless the stub's own.
    pub(crate) directory: Option<PathBuf>,
    /// Load it at the same addresses every time.
    pub(crate) fixed_addresses: bool,
    /// The stub's standard input and output are the connection, so the program must not use them.
    pub(crate) detached_stdio: bool,
    /// A terminal's interrupt keys end the program, even if our parent ignores their signals.
    pub(crate) default_keys: bool,
    /// The program's initial signal mask.
    pub(crate) mask: SigSet,
}

impl Process {
    /// Starts a program and leaves it halted before its first instruction.
    pub(crate) fn start(program: &Program, reports: WaitQueue) -> Result<Process, Error> {
        let words: Vec<&OsString> = program.wrapper.iter().chain(&program.words).collect();
        let name = words.first().map(|w| w.to_string_lossy().into_owned());
        let name = name.unwrap_or_default();
        let file = search(
            words.first().copied().map_or(OsStr::new(""), |w| w),
            program,
        )
        .ok_or_else(|| Error::NoSuchProgram(name.clone()))?;
        let string = |bytes: &OsStr| {
            CString::new(bytes.as_bytes())
                .map_err(|_| Error::System(name.clone(), "an argument contains a NUL byte"))
        };
        let environment = program.environment.strings().iter();
        let environment = environment.map(|entry| string(entry));
        let launched = launch(&Launch {
            file: string(file.as_os_str())?,
            arguments: words
                .iter()
                .map(|word| string(word))
                .collect::<Result<_, _>>()?,
            environment: environment.collect::<Result<_, _>>()?,
            directory: program
                .directory
                .as_ref()
                .map(|d| string(d.as_os_str()))
                .transpose()?,
            fixed_addresses: program.fixed_addresses,
            detached_stdio: program.detached_stdio,
            default_keys: program.default_keys,
            extra_execs: u32::from(!program.wrapper.is_empty()),
            mask: program.mask,
        });
        let (pid, signal) = launched.map_err(|failure| match failure {
            Failure::Exec(Errno::ENOENT) if file.exists() => Error::NoInterpreter(name.clone()),
            Failure::Exec(Errno::ENOENT | Errno::ENOTDIR) => Error::NoSuchProgram(name.clone()),
            Failure::Exec(Errno::EACCES | Errno::EPERM) => Error::NotExecutable(name.clone()),
            Failure::Exec(Errno::ENOEXEC) => Error::WrongFormat(name.clone()),
            Failure::Directory(errno) => {
                let directory = program.directory.clone().unwrap_or_default();
                Error::Directory(directory.display().to_string(), errno.desc())
            }
            Failure::Ended => Error::Ended(name.clone()),
            Failure::Exec(errno) | Failure::System(errno) => {
                Error::System(name.clone(), errno.desc())
            }
        })?;
        let memory = Memory::open(pid).map_err(|_| {
            let _ = ptrace::kill(pid);
            Error::System(
                name.clone(),
                "its memory cannot be opened; is /proc mounted?",
            )
        })?;
        let mut process = Process::new(pid, false, memory, reports);
        process.threads.insert(pid, Thread::first(pid));
        process.mark_stopped(pid, At::held(signal));
        process.mark_shown(pid);
        Ok(process)
    }

    /// Seizes the first thread of a running process. [`seize_new_threads`](Self::seize_new_threads)
    /// seizes the others.
    pub(crate) fn seize(pid: i32, reports: WaitQueue) -> Result<Process, Error> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))
            .map_err(|_| Error::NoSuchProcess(pid))?;
        if let Some(leader) = status_field(&status, "Tgid")
            && leader != pid
        {
            return Err(Error::IsThread(pid, leader));
        }
        let state: Option<String> = status_field(&status, "State");
        let tid = Tid(pid);
        let seized = match reports.keep(tid) {
            true => Ok(()),
            false => ptrace::seize(tid, ptrace::WITH_END),
        };
        seized.map_err(|errno| match errno {
            Errno::ESRCH => Error::NoSuchProcess(pid),
            Errno::EPERM => match status_field(&status, "TracerPid") {
                Some(tracer) if tracer != 0 => Error::AlreadyTraced(pid, tracer),
                _ if state.is_some_and(|state| state.starts_with('Z')) => Error::IsZombie(pid),
                _ => Error::NotPermitted(pid),
            },
            errno => Error::Attach(pid, errno.desc()),
        })?;
        let memory = Memory::open(tid).map_err(|_| {
            Error::Attach(
                pid,
                "its memory cannot be opened; run as its user or as root",
            )
        })?;
        let mut process = Process::new(tid, true, memory, reports);
        process.threads.insert(tid, Thread::first(tid));
        Ok(process)
    }

    /// True if the kernel counts no more threads than are known. Needed because reading the
    /// directory of threads can miss some while others end.
    pub(crate) fn has_all_threads(&self) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()));
        let count = status
            .ok()
            .and_then(|status| status_field(&status, "Threads"));
        count.is_none_or(|count: usize| count <= self.threads.len())
    }

    /// Seizes the threads that are not known yet.
    pub(crate) fn seize_new_threads(&mut self) -> Found {
        let mut found = Found::None;
        let Ok(tasks) = std::fs::read_dir(format!("/proc/{}/task", self.pid())) else {
            return found;
        };
        for task in tasks.flatten() {
            let Some(tid) = task.file_name().to_str().and_then(|n| n.parse().ok()) else {
                continue;
            };
            let tid = Tid(tid);
            if self.threads.contains_key(&tid) {
                continue;
            }
            if self.reports.keep(tid) || ptrace::seize(tid, ptrace::OPTIONS).is_ok() {
                self.threads.insert(tid, Thread::new(tid, Action::Hold));
                found = Found::Some;
            } else if let Some(tracer) = foreign_tracer(self.pid(), tid) {
                return Found::Foreign(tracer);
            }
            // Otherwise the thread is dead, or already traced because its creator is.
        }
        found
    }
}

/// The outcome of a search for new threads.
pub(crate) enum Found {
    /// There was no new thread.
    None,
    /// There were new threads, and they are traced now.
    Some,
    /// Another process traces one of the threads.
    Foreign(i32),
}

/// The process that traces a thread, if it is not this one.
fn foreign_tracer(process: Tid, tid: Tid) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{process}/task/{tid}/status")).ok()?;
    let tracer: i32 = status_field(&status, "TracerPid")?;
    (tracer != 0 && tracer.cast_unsigned() != std::process::id()).then_some(tracer)
}

/// Finds a program's file. A name with a slash is a path; otherwise searches `PATH` and then the
/// working directory, as gdbserver does.
fn search(name: &OsStr, program: &Program) -> Option<PathBuf> {
    if name.is_empty() {
        return None;
    }
    let path = Path::new(name);
    if name.as_bytes().contains(&b'/') {
        return Some(path.to_owned());
    }
    let executable = |file: &PathBuf| {
        let metadata = file.metadata();
        metadata.is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    let path_variable = program.environment.get(OsStr::new("PATH"));
    let directories = path_variable.map(|p| std::env::split_paths(p).collect::<Vec<_>>());
    directories
        .unwrap_or_default()
        .into_iter()
        .map(|directory| directory.join(path))
        .find(executable)
        .or_else(|| Some(Path::new(".").join(path)).filter(|file| file.exists()))
}
