//! ptrace(2) requests, one function each.
//!
//! nix wraps some of them, but not `PTRACE_LISTEN` or register sets as plain bytes. Its signal type
//! cannot hold real-time signals, which the stub must pass on unchanged.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;

use super::Tid;

/// Options for [`seize`]: stops at every clone, fork, vfork and exec.
pub(crate) const OPTIONS: i32 = libc::PTRACE_O_TRACESYSGOOD
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACEVFORKDONE
    | libc::PTRACE_O_TRACEEXEC;

/// [`OPTIONS`] for a thread that is also to stop when it ends.
pub(crate) const WITH_END: i32 = OPTIONS | libc::PTRACE_O_TRACEEXIT;

/// Additional option for programs that the stub starts, until they are resumed: the kernel kills
/// them if the stub dies.
pub(crate) const KILL_WITH_US: i32 = libc::PTRACE_O_EXITKILL;

/// Options for a process that is only to stop when it ends.
pub(crate) const UNTIL_EXIT: i32 = libc::PTRACE_O_TRACEEXIT;

/// `si_code` of an interrupted thread: `SIGTRAP | PTRACE_EVENT_STOP << 8`.
pub(crate) const INTERRUPTED: i32 = 0x8005;

/// Size of a `siginfo_t`, in bytes.
pub(crate) const SIGINFO_SIZE: usize = size_of::<libc::siginfo_t>();

/// A `siginfo_t` as the kernel returned it. Boxed: it has 128 bytes, and few threads have one.
#[derive(Clone)]
pub(crate) struct SignalInfo(Box<libc::siginfo_t>);

impl SignalInfo {
    /// `si_signo`.
    pub(crate) fn signal(&self) -> i32 {
        self.0.si_signo
    }

    /// `si_code`: the origin of the signal.
    pub(crate) fn code(&self) -> i32 {
        self.0.si_code
    }

    /// `si_addr`: the address of a fault, or of a debug register's hit.
    pub(crate) fn address(&self) -> u64 {
        // SAFETY: an address is read out of plain data; for signals without one it means nothing.
        unsafe { self.0.si_addr() as usize as u64 }
    }

    /// True for signals that the kernel raised because of what the thread itself executed.
    pub(crate) fn is_fault(&self) -> bool {
        matches!(
            self.signal(),
            libc::SIGSEGV | libc::SIGBUS | libc::SIGILL | libc::SIGFPE | libc::SIGTRAP
        ) && self.code() > 0
    }

    /// Whether it is a `SIGTRAP` that the kernel raised, rather than one that a process sent.
    pub(crate) fn is_raised_trap(&self) -> bool {
        is_raised_trap(&self.0)
    }

    /// The structure's bytes, in the target's own layout.
    pub(crate) fn bytes(&self) -> [u8; SIGINFO_SIZE] {
        // SAFETY: siginfo_t is plain data of exactly this size, zeroed before the kernel filled it.
        unsafe { std::mem::transmute::<libc::siginfo_t, [u8; SIGINFO_SIZE]>(*self.0) }
    }

    /// The inverse of [`bytes`](Self::bytes).
    pub(crate) fn from_bytes(bytes: [u8; SIGINFO_SIZE]) -> Self {
        // SAFETY: siginfo_t is plain data: every bit pattern is a value.
        let info = unsafe { std::mem::transmute::<[u8; SIGINFO_SIZE], libc::siginfo_t>(bytes) };
        SignalInfo(Box::new(info))
    }
}

fn request(what: libc::c_uint, tid: Tid, address: usize, data: usize) -> Result<(), Errno> {
    // SAFETY: callers pass either integers or pointers to live buffers of the request's type.
    let answer = unsafe {
        libc::ptrace(
            what as _,
            tid.0,
            address as *mut c_void,
            data as *mut c_void,
        )
    };
    Errno::result(answer).map(drop)
}

/// Starts tracing a thread without stopping it.
pub(crate) fn seize(tid: Tid, options: i32) -> Result<(), Errno> {
    request(libc::PTRACE_SEIZE, tid, 0, options as usize)
}

/// Changes the options of a stopped thread.
pub(crate) fn set_options(tid: Tid, options: i32) -> Result<(), Errno> {
    request(libc::PTRACE_SETOPTIONS, tid, 0, options as usize)
}

/// Asks a running thread to stop; it answers with an event stop.
pub(crate) fn interrupt(tid: Tid) -> Result<(), Errno> {
    request(libc::PTRACE_INTERRUPT, tid, 0, 0)
}

/// Resumes a stopped thread, and delivers `signal` unless it is zero.
pub(crate) fn cont(tid: Tid, signal: i32) -> Result<(), Errno> {
    request(libc::PTRACE_CONT, tid, 0, signal as usize)
}

/// Makes a stopped thread execute one instruction.
pub(crate) fn step(tid: Tid, signal: i32) -> Result<(), Errno> {
    request(libc::PTRACE_SINGLESTEP, tid, 0, signal as usize)
}

/// Resumes a stopped thread until its next system call.
pub(crate) fn cont_to_syscall(tid: Tid, signal: i32) -> Result<(), Errno> {
    request(libc::PTRACE_SYSCALL, tid, 0, signal as usize)
}

/// Leaves a thread in its group-stop; `SIGCONT` or [`interrupt`] wakes it.
pub(crate) fn listen(tid: Tid) -> Result<(), Errno> {
    request(libc::PTRACE_LISTEN, tid, 0, 0)
}

/// Detaches from a stopped thread, which continues, and delivers `signal` unless it is zero.
pub(crate) fn detach(tid: Tid, signal: i32) -> Result<(), Errno> {
    request(libc::PTRACE_DETACH, tid, 0, signal as usize)
}

/// The message of an event stop: the new thread, the former id, or the exit status.
pub(crate) fn event_message(tid: Tid) -> Result<usize, Errno> {
    let mut message: libc::c_ulong = 0;
    request(libc::PTRACE_GETEVENTMSG, tid, 0, &raw mut message as usize)?;
    Ok(message as usize)
}

/// The signal at which a thread is stopped.
pub(crate) fn signal_info(tid: Tid) -> Result<SignalInfo, Errno> {
    // SAFETY: siginfo_t is plain data: all zeroes is a value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    request(libc::PTRACE_GETSIGINFO, tid, 0, &raw mut info as usize)?;
    Ok(SignalInfo(Box::new(info)))
}

/// Whether the kernel raised this `SIGTRAP`. After a step through a system call, AArch64 raises one
/// with the code `SI_USER` and no sender.
fn is_raised_trap(info: &libc::siginfo_t) -> bool {
    // SAFETY: a number is read out of plain data; it is the sender's where the code is `SI_USER`.
    let no_sender = || unsafe { info.si_pid() } == 0;
    let raised = info.si_code > 0 || (info.si_code == libc::SI_USER && no_sender());
    info.si_signo == libc::SIGTRAP && raised
}

/// Whether a stopped thread has executed a trap that it has not reported yet.
///
/// The kernel handles an [`interrupt`] before signals, even those of the thread's last instruction.
/// The thread is then after a trap, and only its signal queue shows it.
pub(crate) fn trap_is_pending(tid: Tid) -> bool {
    const PTRACE_PEEKSIGINFO: libc::c_uint = 0x4209;
    const BATCH: usize = 8;
    #[repr(C)]
    struct Peek {
        offset: u64,
        flags: u32,
        count: i32,
    }
    let mut peek = Peek {
        offset: 0,
        flags: 0,
        count: BATCH as i32,
    };
    loop {
        // SAFETY: siginfo_t is plain data: all zeroes is a value.
        let mut infos: [libc::siginfo_t; BATCH] = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel reads one `Peek` and writes at most `BATCH` siginfo_t.
        let got = unsafe {
            libc::ptrace(
                PTRACE_PEEKSIGINFO as _,
                tid.0,
                &raw const peek,
                infos.as_mut_ptr(),
            )
        };
        let got = usize::try_from(got).unwrap_or(0);
        if infos[..got].iter().any(is_raised_trap) {
            return true;
        }
        if got < BATCH {
            return false;
        }
        peek.offset += BATCH as u64;
    }
}

/// The signals that a stopped thread has blocked: the kernel's `sigset_t`.
pub(crate) fn blocked(tid: Tid) -> Result<u64, Errno> {
    const PTRACE_GETSIGMASK: libc::c_uint = 0x420a;
    let mut mask = 0_u64;
    request(
        PTRACE_GETSIGMASK,
        tid,
        size_of_val(&mask),
        &raw mut mask as usize,
    )?;
    Ok(mask)
}

/// Replaces the signal at which a thread is stopped.
pub(crate) fn set_signal_info(tid: Tid, info: &SignalInfo) -> Result<(), Errno> {
    request(libc::PTRACE_SETSIGINFO, tid, 0, &raw const *info.0 as usize)
}

/// Pseudo note type of an armv7 thread's pointer to its own data. The kernel has a separate request
/// to read it, and none to write it.
pub(crate) const THREAD_AREA: u32 = u32::MAX;

/// `PTRACE_GET_THREAD_AREA` on ARM.
fn thread_area(tid: Tid) -> Result<Vec<u8>, Errno> {
    const PTRACE_GET_THREAD_AREA: libc::c_uint = 22;
    let mut pointer: libc::c_ulong = 0;
    request(PTRACE_GET_THREAD_AREA, tid, 0, &raw mut pointer as usize)?;
    Ok(pointer.to_ne_bytes().to_vec())
}

/// Reads the register set with ELF note type `note`. The result has the kernel's length.
pub(crate) fn register_set(tid: Tid, note: u32, capacity: usize) -> Result<Vec<u8>, Errno> {
    if note == THREAD_AREA {
        return thread_area(tid);
    }
    let mut bytes = vec![0; capacity];
    let mut part = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: capacity,
    };
    request(
        libc::PTRACE_GETREGSET as _,
        tid,
        note as usize,
        &raw mut part as usize,
    )?;
    bytes.truncate(part.iov_len);
    Ok(bytes)
}

/// Writes the register set with ELF note type `note`.
pub(crate) fn set_register_set(tid: Tid, note: u32, bytes: &[u8]) -> Result<(), Errno> {
    if note == THREAD_AREA {
        return Err(Errno::EOPNOTSUPP);
    }
    let part = libc::iovec {
        // The kernel only reads through this pointer.
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    request(
        libc::PTRACE_SETREGSET as _,
        tid,
        note as usize,
        &raw const part as usize,
    )
}

/// Whether a thread at a system call stop is before the call (true) or after it (false). Fails
/// before Linux 5.3.
pub(crate) fn at_call_entry(tid: Tid) -> Result<bool, Errno> {
    const PTRACE_GET_SYSCALL_INFO: libc::c_uint = 0x420e;
    const ENTRY: u8 = 1;
    const EXIT: u8 = 2;
    // `struct ptrace_syscall_info`, of which only the first byte matters here.
    let mut info = [0u8; 88];
    let into = info.as_mut_ptr() as usize;
    request(PTRACE_GET_SYSCALL_INFO, tid, info.len(), into)?;
    match info[0] {
        ENTRY => Ok(true),
        EXIT => Ok(false),
        _ => Err(Errno::EINVAL),
    }
}

/// Reads the word at `offset` of the thread's `struct user`.
pub(crate) fn peek_user(tid: Tid, offset: usize) -> Result<usize, Errno> {
    let mut word: libc::c_ulong = 0;
    // The bare system call, unlike the C library, stores the word at the last argument's address.
    // SAFETY: the kernel writes one long.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_ptrace,
            libc::PTRACE_PEEKUSER,
            tid.0,
            offset,
            &raw mut word,
        )
    };
    Errno::result(answer).map(|_| word as usize)
}

/// Writes the word at `offset` of the thread's `struct user`.
pub(crate) fn poke_user(tid: Tid, offset: usize, word: usize) -> Result<(), Errno> {
    request(libc::PTRACE_POKEUSER, tid, offset, word)
}

/// Address at which the kernel stores the number of the thread's processor, if the thread has
/// registered for it (rseq(2), which C libraries do; `cpu_id` of `struct rseq` is its second word).
pub(crate) fn processor_word(tid: Tid) -> Option<u64> {
    const PTRACE_GET_RSEQ_CONFIGURATION: libc::c_uint = 0x420f;
    const CPU_ID: u64 = 4;
    #[repr(C)]
    #[derive(Default)]
    struct Configuration {
        pointer: u64,
        size: u32,
        signature: u32,
        flags: u32,
        pad: u32,
    }
    let mut configuration = Configuration::default();
    // SAFETY: the kernel writes at most one `Configuration`.
    let answer = unsafe {
        libc::ptrace(
            PTRACE_GET_RSEQ_CONFIGURATION as _,
            tid.0,
            size_of::<Configuration>(),
            &raw mut configuration,
        )
    };
    (answer > 0 && configuration.pointer != 0).then(|| configuration.pointer + CPU_ID)
}

/// Reads a word of an armv7 thread's debug registers.
pub(crate) fn debug_word(tid: Tid, index: isize) -> Result<u32, Errno> {
    const PTRACE_GETHBPREGS: libc::c_uint = 29;
    let mut word: u32 = 0;
    let into = &raw mut word as usize;
    request(PTRACE_GETHBPREGS, tid, index as usize, into)?;
    Ok(word)
}

/// Writes a word of an armv7 thread's debug registers.
pub(crate) fn set_debug_word(tid: Tid, index: isize, word: u32) -> Result<(), Errno> {
    const PTRACE_SETHBPREGS: libc::c_uint = 30;
    let from = &raw const word as usize;
    request(PTRACE_SETHBPREGS, tid, index as usize, from)
}

/// Queues `info` for one thread, as its sender did.
pub(crate) fn queue_signal(process: Tid, tid: Tid, info: &SignalInfo) -> Result<(), Errno> {
    // SAFETY: the kernel reads one siginfo_t.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_rt_tgsigqueueinfo,
            process.0,
            tid.0,
            info.signal(),
            &raw const *info.0,
        )
    };
    match Errno::result(answer) {
        // Only a process itself may queue a signal that claims to come from the kernel.
        Err(Errno::EPERM) => send_signal(process, tid, info.signal()),
        other => other.map(drop),
    }
}

/// tgkill(2).
pub(crate) fn send_signal(process: Tid, tid: Tid, signal: i32) -> Result<(), Errno> {
    // SAFETY: integers only.
    Errno::result(unsafe { libc::syscall(libc::SYS_tgkill, process.0, tid.0, signal) }).map(drop)
}

/// Whether this is a thread of that process, including threads that have ended and have not been
/// waited for.
pub(crate) fn is_thread_of(process: Tid, tid: Tid) -> bool {
    // The kernel does not send signal 0, but checks the receiver and the permission.
    send_signal(process, tid, 0) != Err(Errno::ESRCH)
}

/// kill(2) with `SIGKILL`.
pub(crate) fn kill(process: Tid) -> Result<(), Errno> {
    // SAFETY: integers only.
    Errno::result(unsafe { libc::kill(process.0, libc::SIGKILL) }).map(drop)
}

/// Whether two processes share their memory (kcmp(2)). `None` if the kernel does not support it.
pub(crate) fn same_memory(one: Tid, other: Tid) -> Option<bool> {
    const KCMP_VM: libc::c_int = 1;
    // SAFETY: integers only.
    let answer = unsafe { libc::syscall(libc::SYS_kcmp, one.0, other.0, KCMP_VM, 0, 0) };
    (answer >= 0).then_some(answer == 0)
}

/// Marks an inherited descriptor close-on-exec, so that programs started later do not get it.
pub(crate) fn close_on_exec(descriptor: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: the descriptor is open for as long as it is borrowed.
    let answer = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
    Errno::result(answer).map(drop)
}
