//! Finds the system call of a stopped thread from its registers.
//!
//! This module stands beside `collect` and `model` because both need it. The collector immediately
//! reads the memory at which a thread waits, and the model says what each thread does. The
//! registers of a stop inside a system call differ by kernel. x86-64 has a restart code as the
//! result and keeps the number in `orig_rax`. ARM and AArch64 have already moved the program
//! counter back to the `svc` (Linux, arch/*/kernel/signal.c). In QEMU's user mode the program
//! counter is behind the `svc`.

use unspool_image::Arch;

use super::architecture::{Architecture, Stop, SystemCalls};

/// A system call in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its number on the thread's architecture.
    pub number: u64,
    /// Its arguments. `restart_syscall` has those of the call that it restarts.
    pub args: [u64; 6],
}

/// The children for which a system call waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AwaitedChildren {
    /// The one with this id in the caller's PID namespace.
    One(u64),
    /// Any of several.
    Any,
    /// The one that the thread has just started, until it executes a program or ends (vfork(2)).
    Newest,
}

/// A wait at a futex word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Futex {
    /// Address of the word.
    pub address: u64,
    /// The word's value for which the thread waits; `None` for a priority-inheritance lock.
    pub expected: Option<u32>,
    /// Only wakes with certain bits end the wait (`FUTEX_WAIT_BITSET`).
    pub has_bits: bool,
    /// Threads of other processes may wait and wake here.
    pub shared: bool,
    /// The wait has a time limit.
    pub timed: bool,
    /// The kernel hands over a lock whose owner's id is in the word (`FUTEX_LOCK_PI`).
    pub inherits: bool,
}

/// Number of bytes to read before a futex word. They cover every object that contains one.
pub const BEFORE: u64 = 48;
/// Number of bytes to read from the word on.
pub const AFTER: u64 = 64;

/// `-EINTR` and the kernel's own results that restart a system call (include/linux/errno.h).
const INTERRUPTED: [i64; 5] = [-4, -512, -513, -514, -516];

/// Calls that may wait for the file given by their first argument.
const ON_FILES: [&str; 36] = [
    "read",
    "readv",
    "pread64",
    "preadv",
    "preadv2",
    "write",
    "writev",
    "pwrite64",
    "pwritev",
    "pwritev2",
    "recv",
    "recvfrom",
    "recvmsg",
    "recvmmsg",
    "recvmmsg_time64",
    "send",
    "sendto",
    "sendmsg",
    "sendmmsg",
    "sendfile",
    "sendfile64",
    "connect",
    "accept",
    "accept4",
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "fsync",
    "fdatasync",
    "flock",
    "fcntl",
    "fcntl64",
    "ioctl",
    "getdents64",
    "ftruncate",
    "fallocate",
];

/// True if a call that works on a file writes to it.
pub fn writes(name: &str) -> bool {
    ["write", "pwrite", "send"]
        .iter()
        .any(|verb| name.starts_with(verb))
}

/// Numbers of system calls are smaller, apart from those of old interfaces.
const MAX_NUMBER: usize = 1 << 9;

fn convention(arch: Arch) -> Option<&'static SystemCalls> {
    Some(&Architecture::of(arch)?.system_call)
}

/// The system call of a thread with these registers; `None` if the thread executes the program.
/// `code` returns the bytes of the program at an address.
pub fn of(
    arch: Arch,
    register: &dyn Fn(&str) -> Option<u64>,
    code: &mut dyn FnMut(u64, usize) -> Option<Vec<u8>>,
) -> Option<Call> {
    let call = unchecked(arch, register)?;
    let platform = Architecture::of(arch)?;
    match &platform.system_call.stop {
        // There is no result while the call of a thread that cannot be stopped goes on.
        Stop::Result(result) => register(result)
            .is_none_or(|result| INTERRUPTED.contains(&(result as i64)))
            .then_some(call),
        Stop::Instruction => {
            let instruction =
                platform.system_call.instruction[usize::from(platform.executes_by_bit(register)?)];
            let (pc, _) = platform.split_code_pointer(register(platform.pc)?);
            let mut at = |address| code(address, instruction.len()).as_deref() == Some(instruction);
            (at(pc) || at(pc.wrapping_sub(instruction.len() as u64))).then_some(call)
        }
    }
}

/// The system call in a thread's registers, valid only if the thread is in one.
fn unchecked(arch: Arch, register: &dyn Fn(&str) -> Option<u64>) -> Option<Call> {
    let convention = convention(arch)?;
    let number = register(convention.number_inside)?;
    if number > 0xffff {
        // -1: the thread was not in a system call when it was stopped.
        return None;
    }
    let mut args = [0; 6];
    for (arg, name) in args.iter_mut().zip(convention.args) {
        *arg = register(name)?;
    }
    Some(Call { number, args })
}

/// The address at which a thread with these registers may wait. Does not need the program's code.
pub fn likely_futex(arch: Arch, register: &dyn Fn(&str) -> Option<u64>) -> Option<u64> {
    let call = match convention(arch)?.stop {
        Stop::Result(_) => of(arch, register, &mut |_, _| None),
        Stop::Instruction => unchecked(arch, register),
    };
    Some(call?.futex(arch)?.address)
}

/// Number of bytes before a program counter that [`number_before`] needs at most.
pub const CODE_BEFORE: usize = 48;

/// The number of a thread's system call, if the code before its program counter ends in a system
/// call instruction. `register` is the value of the number's register. The inner value is `None` if
/// the number is unknown.
pub fn number_before(arch: Arch, register: Option<u64>, before: &[u8]) -> Option<Option<u64>> {
    let convention = convention(arch)?;
    let instructions = convention.instruction.iter();
    let mut asks = instructions.filter_map(|instruction| before.strip_suffix(*instruction));
    let before = asks.next()?;
    let in_code = || convention.number_in_code.and_then(|find| find(before));
    Some(register.or_else(in_code))
}

/// The number of a system call.
pub fn number_of(arch: Arch, name: &str) -> Option<u64> {
    let convention = convention(arch)?;
    let mut numbers = 0..=MAX_NUMBER;
    let number = numbers.find(|number| (convention.name)(*number) == Some(name));
    number.map(|number| number as u64)
}

impl Call {
    /// A call whose first arguments are known. Further ones are 0.
    pub fn with_first(number: u64, known: &[u64]) -> Call {
        let mut args = [0; 6];
        for (arg, value) in args.iter_mut().zip(known) {
            *arg = *value;
        }
        Call { number, args }
    }

    /// Its name in the kernel's tables.
    pub fn name(&self, arch: Arch) -> Option<&'static str> {
        let number = usize::try_from(self.number).ok()?;
        (convention(arch)?.name)(number)
    }

    /// The descriptor in its first argument, if the call works on a file.
    pub fn descriptor(&self, arch: Arch) -> Option<i32> {
        let on_file = ON_FILES.contains(&self.name(arch)?);
        on_file.then_some(self.args[0] as i32)
    }

    /// The descriptor of the file whose lock it takes, and waits for if another one has it.
    pub fn file_lock(&self, arch: Arch) -> Option<i32> {
        // include/uapi/asm-generic/fcntl.h: F_SETLKW, F_SETLKW64, F_OFD_SETLKW
        let waits = match self.name(arch)? {
            "flock" => true,
            "fcntl" | "fcntl64" => matches!(self.args[1], 7 | 14 | 38),
            _ => false,
        };
        waits.then_some(self.args[0] as i32)
    }

    /// The address of the path of the file that it opens.
    pub fn path(&self, arch: Arch) -> Option<u64> {
        match self.name(arch)? {
            "open" | "creat" => Some(self.args[0]),
            "openat" | "openat2" => Some(self.args[1]),
            _ => None,
        }
    }

    /// The children that it waits for: one, or any of several.
    pub fn children(&self, arch: Arch) -> Option<AwaitedChildren> {
        // The first argument of `waitid` (waitid(2)).
        const P_ALL: u64 = 0;
        const P_PID: u64 = 1;
        const P_PGID: u64 = 2;
        const CLONE_VFORK: u64 = 0x4000;
        let child = match (self.name(arch)?, self.args) {
            ("wait4" | "waitpid", [child, ..]) => child as i32,
            ("waitid", [P_PID, child, ..]) => child as i32,
            ("waitid", [P_ALL | P_PGID, ..]) => return Some(AwaitedChildren::Any),
            // Nothing else blocks a thread in these calls. The flags of `clone3` are in memory.
            ("vfork" | "clone3", _) => return Some(AwaitedChildren::Newest),
            ("clone", [flags, ..]) if flags & CLONE_VFORK != 0 => {
                return Some(AwaitedChildren::Newest);
            }
            _ => return None,
        };
        // 0 and negative numbers mean a process group, or all children.
        let child = u64::try_from(child).ok().filter(|child| *child > 0);
        Some(child.map_or(AwaitedChildren::Any, AwaitedChildren::One))
    }

    /// True if it only waits for time to pass, such as `nanosleep`.
    pub fn sleeps(&self, arch: Arch) -> bool {
        convention(arch).is_some_and(|convention| convention.sleeps.contains(&self.number))
    }

    /// True if it continues an interrupted call. Only the code shows which one.
    pub fn restarts(&self, arch: Arch) -> bool {
        convention(arch).is_some_and(|convention| convention.restart == self.number)
    }

    /// The interrupted call if this one continues it. `code` returns the [`CODE_BEFORE`] bytes
    /// before the program counter.
    pub fn continued(self, arch: Arch, code: impl FnOnce() -> Option<Vec<u8>>) -> Call {
        if !self.restarts(arch) {
            return self;
        }
        let number = code().and_then(|code| number_before(arch, None, &code)?);
        Call {
            number: number.unwrap_or(self.number),
            ..self
        }
    }

    /// The wait at a futex, if the call is one. A restarted call counts as a wait with a time limit
    /// if its arguments look like it.
    pub fn futex(&self, arch: Arch) -> Option<Futex> {
        let convention = convention(arch)?;
        if !convention.futexes.contains(&self.number) && !self.restarts(arch) {
            return None;
        }
        let [address, operation, expected, time, ..] = self.args;
        let operation = u32::try_from(operation & 0xffff_ffff).ok()?;
        // include/uapi/linux/futex.h: FUTEX_PRIVATE_FLAG 128, FUTEX_CLOCK_REALTIME 256.
        let command = operation & !(128 | 256);
        let inherits = match command {
            // FUTEX_WAIT, FUTEX_WAIT_BITSET, FUTEX_WAIT_REQUEUE_PI
            0 | 9 | 11 => false,
            // FUTEX_LOCK_PI, FUTEX_LOCK_PI2
            6 | 13 => true,
            _ => return None,
        };
        // An argument register that holds a result already (-EINTR) is not an address.
        let top = match arch.address_size() {
            4 => 0xffff_f000,
            _ => 0xffff_0000_0000_0000,
        };
        if !(4096..top).contains(&address)
            || address % 4 != 0
            || (self.restarts(arch) && time < 4096)
        {
            return None;
        }
        Some(Futex {
            address,
            expected: (!inherits).then_some(expected as u32),
            has_bits: command == 9,
            shared: operation & 128 == 0,
            timed: time != 0,
            inherits,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn x86(values: &[(&'static str, u64)]) -> Option<Call> {
        let register = |name: &str| {
            let found = values.iter().find(|(known, _)| *known == name);
            Some(found.map_or(0, |(_, value)| *value))
        };
        of(Arch::X86_64, &register, &mut |_, _| None)
    }

    #[test]
    fn numbers_before_the_program_counter() {
        let x86 = |code: &[u8]| number_before(Arch::X86_64, None, code);
        // mov eax, 7; xor r10d, r10d; syscall
        let poll = [0xb8, 7, 0, 0, 0, 0x45, 0x31, 0xd2, 0x0f, 0x05];
        assert_eq!(x86(&poll), Some(Some(7)));
        // xor eax, eax; syscall, after another mov
        assert_eq!(
            x86(&[0xb8, 7, 0, 0, 0, 0x31, 0xc0, 0x0f, 0x05]),
            Some(Some(0))
        );
        // mov eax, 202; xor r8d, r8d; syscall
        let futex = [0xb8, 202, 0, 0, 0, 0x45, 0x31, 0xc0, 0x0f, 0x05];
        assert_eq!(x86(&futex), Some(Some(202)));
        // mov rax, rdi; syscall
        assert_eq!(x86(&[0x48, 0x89, 0xf8, 0x0f, 0x05]), Some(None));
        assert_eq!(x86(&[0x90]), None);
        let arm = |code: &[u8]| number_before(Arch::Arm, Some(3), code);
        assert_eq!(arm(&[0, 0, 0, 0xef]), Some(Some(3)));
        assert_eq!(arm(&[0, 0xbf, 0, 0xdf]), Some(Some(3)));
        assert_eq!(arm(&[0, 0xbf, 0, 0xbf]), None);
    }

    #[test]
    fn waits_at_futexes() {
        let restart = -512i64 as u64;
        let call = x86(&[
            ("orig_rax", 202),
            ("rax", restart),
            ("rdi", 0x5000),
            ("rsi", 128),
            ("rdx", 2),
        ])
        .unwrap();
        assert_eq!(call.name(Arch::X86_64), Some("futex"));
        let futex = call.futex(Arch::X86_64).unwrap();
        assert_eq!((futex.address, futex.expected), (0x5000, Some(2)));
        assert!(!futex.shared && !futex.timed && !futex.inherits);
        // A wake is not a wait.
        let call = x86(&[
            ("orig_rax", 202),
            ("rax", restart),
            ("rdi", 0x5000),
            ("rsi", 129),
        ])
        .unwrap();
        assert_eq!(call.futex(Arch::X86_64), None);
        // pthread_cond_timedwait, after it was stopped before.
        let call = x86(&[
            ("orig_rax", 219),
            ("rax", restart - 4),
            ("rdi", 0x5000),
            ("rsi", 137),
            ("r10", 0x7fff_0000),
        ])
        .unwrap();
        assert!(call.futex(Arch::X86_64).unwrap().timed);
    }

    #[test]
    fn the_code_names_a_continued_call() {
        let interrupted = |number| Call {
            number,
            args: [0; 6],
        };
        let name = |number, code: &[u8]| {
            let call = interrupted(number).continued(Arch::X86_64, || Some(code.to_vec()));
            call.name(Arch::X86_64)
        };
        // mov eax, 230; syscall
        let sleep = [0xb8, 230, 0, 0, 0, 0x0f, 0x05];
        assert_eq!(name(219, &sleep), Some("clock_nanosleep"));
        assert_eq!(name(7, &sleep), Some("poll"));
        assert_eq!(name(219, &[0x0f, 0x05]), Some("restart_syscall"));
    }

    #[test]
    fn a_thread_that_runs_is_in_no_call() {
        assert_eq!(x86(&[("orig_rax", u64::MAX), ("rax", 5)]), None);
        // It has just returned.
        assert_eq!(x86(&[("orig_rax", 0), ("rax", 17)]), None);
    }

    #[test]
    fn arms_are_at_the_instruction_or_behind_it() {
        let mut at = 0x1_0000;
        for (pc, inside) in [(0x1_0000, true), (0x1_0002, true), (0x1_0004, false)] {
            let register = |name: &str| match name {
                "r7" => Some(240),
                "cpsr" => Some(1 << 5),
                "pc" => Some(pc),
                "r0" => Some(0x2_0000),
                _ => Some(0),
            };
            let mut code =
                |address: u64, len: usize| (address == at).then(|| vec![0, 0xdf][..len].to_vec());
            let call = of(Arch::Arm, &register, &mut code);
            assert_eq!(call.is_some(), inside, "{pc:#x}");
            assert_eq!(
                call.and_then(|call| call.futex(Arch::Arm)).is_some(),
                inside
            );
        }
        at += 8;
        assert_ne!(at, 0);
    }
}
