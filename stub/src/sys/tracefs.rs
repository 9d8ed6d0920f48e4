//! Tracefs, the kernel's file system that describes its tracepoints.

use std::ffi::CStr;
use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::ptr;

use nix::errno::Errno;

/// The kernel's directory of tracepoints, and the mount that provides it.
pub(crate) struct Tracepoints {
    path: PathBuf,
    _mount: Option<OwnedFd>,
}

impl Tracepoints {
    /// Finds the directory, or mounts one that is invisible to other processes.
    pub(crate) fn find() -> Option<Tracepoints> {
        for root in ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"] {
            let path = PathBuf::from(root).join("events");
            if fs::exists(path.join("sched")).unwrap_or(false) {
                return Some(Tracepoints { path, _mount: None });
            }
        }
        let mount = mount_detached(c"tracefs").ok()?;
        let path = format!("/proc/self/fd/{}/events", mount.as_raw_fd()).into();
        Some(Tracepoints {
            path,
            _mount: Some(mount),
        })
    }

    /// The number of a tracepoint, e.g. of `sched/sched_waking`, in its events.
    pub(crate) fn id(&self, tracepoint: &str) -> Option<u64> {
        self.read(&format!("{tracepoint}/id"))?.trim().parse().ok()
    }

    /// The position of a field in the data of a tracepoint, if it has a word at least.
    pub(crate) fn offset(&self, tracepoint: &str, field: &str) -> Option<usize> {
        offset(&self.read(&format!("{tracepoint}/format"))?, field)
    }

    fn read(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.path.join(file)).ok()
    }
}

/// Searches the text of a `format` file for a field.
fn offset(format: &str, field: &str) -> Option<usize> {
    const WORD: usize = 4;
    let lines = format.lines();
    let lines = lines.filter_map(|line| line.trim_start().strip_prefix("field:"));
    let declared = lines.filter_map(|line| line.split_once(';'));
    let (_, rest) =
        { declared }.find(|(declared, _)| declared.split(' ').next_back() == Some(field))?;
    let number = |name: &str| -> Option<usize> {
        let value = rest.split_once(name)?.1;
        value.split(';').next()?.trim().parse().ok()
    };
    (number("size:")? >= WORD).then(|| number("offset:"))?
}

/// Mounts a file system without a mount point, for the descriptor only (Linux 5.2).
fn mount_detached(kind: &CStr) -> Result<OwnedFd, Errno> {
    // These numbers are the same on all architectures.
    const FSOPEN: libc::c_long = 430;
    const FSCONFIG: libc::c_long = 431;
    const FSMOUNT: libc::c_long = 432;
    const FSCONFIG_CMD_CREATE: libc::c_long = 6;
    const CLOEXEC: libc::c_long = 1;
    let none = ptr::null::<u8>();
    // SAFETY: the kernel reads a NUL-terminated string.
    let context = Errno::result(unsafe { libc::syscall(FSOPEN, kind.as_ptr(), CLOEXEC) })?;
    // SAFETY: the system call has just created the descriptor.
    let context = unsafe { OwnedFd::from_raw_fd(context as i32) };
    let number = context.as_raw_fd();
    // SAFETY: this command has no key and no value.
    let created = unsafe {
        libc::syscall(
            FSCONFIG,
            number,
            FSCONFIG_CMD_CREATE,
            none,
            none,
            0 as libc::c_int,
        )
    };
    Errno::result(created)?;
    // SAFETY: the arguments are numbers.
    let mount =
        Errno::result(unsafe { libc::syscall(FSMOUNT, number, CLOEXEC, 0 as libc::c_long) })?;
    // SAFETY: the system call has just created the descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(mount as i32) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offset_of_a_field() {
        let format = "name: sched_waking\nID: 375\nformat:\n\
            \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
            \tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
            \tfield:pid_t pid;\toffset:24;\tsize:4;\tsigned:1;\n";
        assert_eq!(offset(format, "pid"), Some(24));
        assert_eq!(offset(format, "common_pid"), Some(4));
        assert_eq!(offset(&format.replace("size:4", "size:2"), "pid"), None);
        assert_eq!(offset(format, "tid"), None);
        assert_eq!(offset("field:pid_t pid;", "pid"), None);
        assert_eq!(offset("", "pid"), None);
    }
}
