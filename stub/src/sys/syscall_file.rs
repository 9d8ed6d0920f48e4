//! `/proc/PID/task/TID/syscall`: the system call in which a thread is blocked.

use super::{Tid, proc_file};

/// The contents of such a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SyscallFile {
    /// -1 outside a call, e.g. in a page fault. `None` if the kernel does not show the call.
    pub(crate) number: Option<i64>,
    /// Zero outside a call.
    pub(crate) arguments: [u64; 6],
    pub(crate) sp: u64,
    pub(crate) pc: u64,
}

impl SyscallFile {
    /// The call of a thread, the default one if the kernel does not show it. `None` if the thread
    /// runs.
    pub(crate) fn read(process: Tid, tid: Tid) -> Option<SyscallFile> {
        let call = proc_file::read(format!("/proc/{process}/task/{tid}/syscall"));
        match call.is_empty() {
            true => Some(SyscallFile::default()),
            false => SyscallFile::parse(&String::from_utf8_lossy(&call)),
        }
    }

    /// Parses the number, the arguments, the stack pointer and the program counter: `202 0x7f30 0x0
    /// 0x2 0x0 0x0 0x0 0x7ffd 0x7f31`. Outside a system call, e.g. in a page fault, the number is
    /// -1 and the arguments are missing.
    fn parse(text: &str) -> Option<SyscallFile> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let [number, ref arguments @ .., sp, pc] = words[..] else {
            return None;
        };
        let hexadecimal = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
        let arguments: Option<Vec<u64>> = arguments.iter().map(|text| hexadecimal(text)).collect();
        Some(SyscallFile {
            number: Some(number.parse().ok()?),
            arguments: arguments?.try_into().unwrap_or_default(),
            sp: hexadecimal(sp)?,
            pc: hexadecimal(pc)?,
        })
    }

    /// The call's number, if the thread is in a call.
    pub(crate) fn number(&self) -> Option<u64> {
        self.number.and_then(|number| u64::try_from(number).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::SyscallFile;

    #[test]
    fn a_call_and_a_page_fault() {
        let call = SyscallFile::parse("58 0x1 0x2 0x3 0x4 0x5 0x6 0x7ffd10 0x7f31\n").unwrap();
        assert_eq!(
            (call.number, call.sp, call.pc),
            (Some(58), 0x7ffd10, 0x7f31)
        );
        assert_eq!(call.arguments, [1, 2, 3, 4, 5, 6]);
        let fault = SyscallFile::parse("-1 0x7ffd10 0x7f31\n").unwrap();
        assert_eq!((fault.number, fault.sp), (Some(-1), 0x7ffd10));
        assert_eq!(SyscallFile::parse("running\n"), None);
    }
}
