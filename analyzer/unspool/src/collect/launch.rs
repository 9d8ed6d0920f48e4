//! Starts `unspool-stub` as a child process, after checks that find impossible requests.
//!
//! The recorder checks because it knows what the user wants and can say what to do. The stub knows
//! only the kernel's error.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::unistd::{AccessFlags, access, getegid, geteuid};

use super::error::Error;
use crate::platform::architecture::machine_name;

/// First and longest interval between two checks whether the stub has ended. It usually ends within
/// a millisecond, and the report waits for it.
const MIN_WAIT_INTERVAL: Duration = Duration::from_micros(50);
const MAX_WAIT_INTERVAL: Duration = Duration::from_millis(2);

/// A stub that serves one session over a socket pair.
#[derive(Debug)]
pub(super) struct Stub {
    child: Child,
}

/// Starts a stub that starts `program` and holds it at its first instruction.
pub(super) fn program(
    program: &OsStr,
    args: &[OsString],
    budget: Option<&str>,
) -> Result<(Stub, UnixStream), Error> {
    let path = find(program)?;
    check_executable(&path)?;
    // The program sees the word that the user wrote. The stub searches PATH, too.
    let mut words = match std::env::var_os("PATH") {
        Some(_) => vec![program.to_owned()],
        None => vec![path.into_os_string()],
    };
    words.extend_from_slice(args);
    // Run as without a recorder: do not disable address randomization as gdbserver does.
    start(
        &["--once", "--leave-asleep", "--no-disable-randomization"],
        budget,
        &words,
        |_| (),
    )
}

/// Starts a stub that attaches to process `pid`. It can `leave_asleep` threads in system calls that
/// a stop would end early.
pub(super) fn process(
    pid: u32,
    budget: Option<&str>,
    leave_asleep: bool,
) -> Result<(Stub, UnixStream), Error> {
    check_traceable(pid)?;
    let options: &[&str] = match leave_asleep {
        true => &["--once", "--leave-asleep", "--attach"],
        false => &["--once", "--attach"],
    };
    start(
        options,
        budget,
        &[pid.to_string().into()],
        // If the stub cannot stop the process, it keeps trying and outlives the recorder. It must
        // not hold the recorder's streams open, because their readers would wait for it.
        |stub| {
            stub.stdin(Stdio::null());
            stub.stdout(Stdio::null()).stderr(Stdio::piped());
        },
    )
}

impl Stub {
    /// Waits for the stub to end and returns its error message. Empty if the stub has already
    /// printed the message for the user.
    pub(super) fn reason(mut self) -> String {
        self.wait();
        let mut text = String::new();
        // Reading from a stub that still runs would block until its end.
        if let (Ok(Some(_)), Some(mut stderr)) = (self.child.try_wait(), self.child.stderr.take()) {
            let _ = stderr.read_to_string(&mut text);
        }
        let line = text
            .lines()
            .map(str::trim)
            .rfind(|line| !line.is_empty())
            .unwrap_or_default();
        let line = line.strip_prefix("unspool-stub: ").unwrap_or(line);
        line.strip_prefix("error: ").unwrap_or(line).to_owned()
    }

    /// Lets the stub end by itself. The kernel may need 50 ms to close the stub's perf events, and
    /// the recorder does not wait for that.
    pub(super) fn leave(self) {
        std::thread::spawn(move || drop(self));
    }

    /// Waits up to 2 s for the stub to end by itself, as it does when its client disconnects.
    fn wait(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(2);
        let mut interval = MIN_WAIT_INTERVAL;
        while let Ok(None) = self.child.try_wait() {
            if Instant::now() >= deadline {
                return;
            }
            std::thread::sleep(interval);
            interval = (2 * interval).min(MAX_WAIT_INTERVAL);
        }
    }
}

impl Drop for Stub {
    /// The stub ends with its connection, so it only has to be reaped.
    fn drop(&mut self) {
        self.wait();
    }
}

fn start(
    options: &[&str],
    budget: Option<&str>,
    words: &[OsString],
    streams: fn(&mut Command),
) -> Result<(Stub, UnixStream), Error> {
    let failed = |error: nix::Error| Error::StartStub(error.into());
    let (ours, theirs) = socketpair(
        AddressFamily::Unix,
        SockType::Stream,
        None,
        SockFlag::SOCK_CLOEXEC,
    )
    .map_err(failed)?;
    let inherited = fcntl(&theirs, FcntlArg::F_SETFD(FdFlag::empty()));
    inherited.map_err(failed)?;
    let itself = std::env::current_exe().map_err(Error::StartStub)?;
    let mut stub = Command::new(itself);
    stub.arg0("unspool")
        .arg("stub")
        .args(options)
        .args(budget.iter().flat_map(|budget| ["--budget", budget]))
        .arg(format!("fd:{}", theirs.as_raw_fd()))
        .args(words);
    streams(&mut stub);
    let child = stub.spawn().map_err(Error::StartStub)?;
    drop::<OwnedFd>(theirs);
    Ok((Stub { child }, ours.into()))
}

/// Finds `program` as a shell would.
pub(super) fn find(program: &OsStr) -> Result<PathBuf, Error> {
    let missing = || Error::NoProgram(program.to_owned());
    if program.as_bytes().contains(&b'/') {
        let path = PathBuf::from(program);
        return if path.exists() {
            Ok(path)
        } else {
            Err(missing())
        };
    }
    let dirs = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    std::env::split_paths(&dirs)
        .map(|dir| {
            if dir.as_os_str().is_empty() {
                PathBuf::from(".")
            } else {
                dir
            }
        })
        .map(|dir| dir.join(program))
        .find(|path| path.is_file() && access(path, AccessFlags::X_OK).is_ok())
        .ok_or_else(missing)
}

/// Says that a process has a tracer, whose name is as the kernel reports it.
fn already_traced(tracer: &str, name: &str) -> String {
    match name {
        _ if name.starts_with("unspool") => format!(
            "unspool records or inspects it already (process {tracer}), and Linux allows one tracer \
             only; wait until that ends, or end that recording with Ctrl-C"
        ),
        "" => format!("process {tracer} traces it already; end that process, or make it detach"),
        name => format!("{name} (process {tracer}) traces it already; make {name} detach first"),
    }
}

fn check_executable(path: &Path) -> Result<(), Error> {
    let refuse = |reason| {
        Err(Error::NotExecutable {
            path: path.to_owned(),
            reason,
        })
    };
    let Ok(metadata) = fs::metadata(path) else {
        return refuse("its attributes cannot be read");
    };
    if metadata.is_dir() {
        return refuse("it is a directory; name a program");
    }
    // Root has access even to files without execute permission, so check the mode, too.
    if access(path, AccessFlags::X_OK).is_err() || metadata.permissions().mode() & 0o111 == 0 {
        return refuse("it is not executable; make it so (chmod +x) or name another file");
    }
    // The kernel decides about files that may be executed but not read.
    let Some(head) = head_of(path).filter(|head| !head.starts_with(b"#!")) else {
        return Ok(());
    };
    let Some(program) = machine(&head) else {
        return refuse("it is neither an ELF program nor a script with a #! line");
    };
    check_machine(path, program)
}

/// Fails if a program is not for this machine's kind of processor.
fn check_machine(path: &Path, program: u16) -> Result<(), Error> {
    match head_of(Path::new("/proc/self/exe")).and_then(|head| machine(&head)) {
        Some(machine) if machine != program => Err(Error::OtherMachine {
            path: path.to_owned(),
            program: machine_name(program),
            machine: machine_name(machine),
        }),
        _ => Ok(()),
    }
}

/// The beginning of a file. `None` if it cannot be read.
fn head_of(file: &Path) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    let file = File::open(file).ok()?;
    file.take(20).read_to_end(&mut head).ok()?;
    Some(head)
}

/// `e_machine` of an ELF header (gABI, "ELF Header"), in the file's own byte order.
fn machine(head: &[u8]) -> Option<u16> {
    let bytes = [*head.get(18)?, *head.get(19)?];
    let big = *head.get(5)? == 2;
    head.starts_with(b"\x7fELF").then(|| {
        if big {
            u16::from_be_bytes(bytes)
        } else {
            u16::from_le_bytes(bytes)
        }
    })
}

/// The privilege of an executable that the kernel ignores because of an unprivileged tracer
/// (execve(2)).
pub(super) fn lost_privilege(executable: &Path) -> Option<&'static str> {
    const SET_USER_ID: u32 = 0o4000;
    const SET_GROUP_ID: u32 = 0o2000;
    if geteuid().is_root() {
        return None;
    }
    let metadata = fs::metadata(executable).ok()?;
    let mode = metadata.mode();
    if mode & SET_USER_ID != 0 && metadata.uid() != geteuid().as_raw() {
        return Some("set-user-ID bit");
    }
    if mode & SET_GROUP_ID != 0 && metadata.gid() != getegid().as_raw() {
        return Some("set-group-ID bit");
    }
    None
}

/// Replaces an error with [`Error::HasEnded`] if the process to attach to has ended. Such errors
/// follow because the kernel hides its program, its user and finally its whole directory. Another
/// error of the stub may follow from a state that has begun since the first check, such as another
/// tracer.
pub(super) fn unless_ended(attached: Option<u32>, error: Error) -> Error {
    let may_follow = matches!(
        error,
        Error::Stub(_)
            | Error::UnknownProgram
            | Error::NoTarget
            | Error::NotPermitted { .. }
            | Error::Rsp(_)
            | Error::Refused(_)
    );
    match attached {
        Some(pid) if may_follow && has_ended(pid) => Error::HasEnded(pid),
        Some(pid) if matches!(error, Error::Stub(_)) => check_traceable(pid).err().unwrap_or(error),
        _ => error,
    }
}

/// True if a process has no thread left that could run (proc(5), `State`: Z or X).
pub(super) fn has_ended(pid: u32) -> bool {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return true;
    };
    let ended = |status: String| status.contains("\nState:\tZ") || status.contains("\nState:\tX");
    tasks.flatten().all(|task| {
        let status = fs::read_to_string(task.path().join("status"));
        status.map_or(true, ended) || is_exiting(&task.path())
    })
}

/// True if a task has released its memory. A kernel thread never had any.
fn is_exiting(task: &Path) -> bool {
    let exe = fs::read_link(task.join("exe"));
    matches!(exe, Err(error) if error.kind() == io::ErrorKind::NotFound) && !is_kernel_thread(task)
}

/// True if the kernel's flags of a task (proc(5), `stat`) include `PF_KTHREAD`.
pub(super) fn is_kernel_thread(task: &Path) -> bool {
    const PF_KTHREAD: u64 = 0x0020_0000;
    let stat = fs::read_to_string(task.join("stat")).unwrap_or_default();
    let fields = stat.rsplit_once(") ").map(|(_, fields)| fields);
    let flags = fields.and_then(|fields| fields.split(' ').nth(6)?.parse::<u64>().ok());
    flags.is_some_and(|flags| flags & PF_KTHREAD != 0)
}

/// Fails if this user, or no user, can attach to the process now.
pub(super) fn check_traceable(pid: u32) -> Result<(), Error> {
    let directory = PathBuf::from(format!("/proc/{pid}"));
    let Ok(metadata) = fs::metadata(&directory) else {
        return Err(Error::NoProcess(pid));
    };
    let refuse = |reason: &str| {
        Err(Error::NotPermitted {
            pid,
            reason: reason.to_owned(),
        })
    };
    if pid == std::process::id() {
        return refuse("it is this command itself; name another process");
    }
    let status = fs::read_to_string(directory.join("status")).unwrap_or_default();
    let field = |name: &str| {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(str::trim).unwrap_or_default().to_owned()
    };
    let group = field("Tgid");
    if !group.is_empty() && group != pid.to_string() {
        return refuse(&format!(
            "it is a thread of process {group}; use --attach {group}"
        ));
    }
    if field("State").starts_with('Z') {
        let others = field("Threads").parse().unwrap_or(1) - 1;
        if others > 0 {
            return refuse(&format!(
                "its first thread has ended and others still run ({others}); Unspool cannot \
                 attach to such a process. Start it with unspool record, or inspect it \
                 before its first thread ends"
            ));
        }
        return Err(Error::HasEnded(pid));
    }
    let tracer = field("TracerPid");
    if !tracer.is_empty() && tracer != "0" {
        let name = fs::read_to_string(format!("/proc/{tracer}/comm")).unwrap_or_default();
        return refuse(&already_traced(&tracer, name.trim()));
    }
    if is_exiting(&directory) {
        return Err(Error::HasEnded(pid));
    }
    if metadata.uid() != geteuid().as_raw() && !geteuid().is_root() {
        return refuse("it belongs to another user; run unspool as that user or as root");
    }
    if is_kernel_thread(&directory) {
        return refuse("it is a kernel thread and has no program");
    }
    let program = directory.join("exe");
    if let Some(machine) = head_of(&program).and_then(|head| machine(&head)) {
        check_machine(&fs::read_link(&program).unwrap_or(program), machine)?;
    }
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    if matches!(scope.trim(), "1" | "2") && !geteuid().is_root() {
        return refuse(
            "this kernel lets only root attach to running processes; run unspool as root, or allow \
             it with `sysctl kernel.yama.ptrace_scope=0`",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tracer_of_a_process_is_named() {
        let text = already_traced("7", "unspool-tracer");
        assert!(text.starts_with("unspool records or inspects it"), "{text}");
        assert!(already_traced("7", "gdb").starts_with("gdb (process 7) traces it"));
        assert!(already_traced("7", "").starts_with("process 7 traces it"));
    }
}
