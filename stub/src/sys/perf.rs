//! Perf events of the kernel (perf_event_open(2)): opening them, and reading their ring buffers.
//!
//! This module is separate because a ring is memory that the kernel may write at any time. Only
//! this file reads it, and returns copies.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::unistd::{SysconfVar, sysconf};

use super::Tid;

/// Types of events: software events, and the kernel's tracepoints.
const TYPE_SOFTWARE: u32 = 1;
const TYPE_TRACEPOINT: u32 = 2;
/// A software event that counts nanoseconds while a thread runs.
const COUNT_SW_CPU_CLOCK: u64 = 0;
/// A software event that occurs when a thread stops running.
const COUNT_SW_CONTEXT_SWITCHES: u64 = 3;
/// A software event that never occurs.
const COUNT_SW_DUMMY: u64 = 9;
/// A software event that occurs when a program in the kernel writes a sample.
const COUNT_SW_BPF_OUTPUT: u64 = 10;

/// Fields of samples, `PERF_SAMPLE_*`.
const SAMPLE_TID: u64 = 1 << 1;
const SAMPLE_TIME: u64 = 1 << 2;
const SAMPLE_CPU: u64 = 1 << 7;
const SAMPLE_RAW: u64 = 1 << 10;
const SAMPLE_REGS_USER: u64 = 1 << 12;
const SAMPLE_STACK_USER: u64 = 1 << 13;

/// Bits of the flag word in `struct perf_event_attr`.
const INHERIT: u64 = 1 << 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const MMAP: u64 = 1 << 8;
const COMM: u64 = 1 << 9;
const TASK: u64 = 1 << 13;
const WATERMARK: u64 = 1 << 14;
const SAMPLE_ID_ALL: u64 = 1 << 18;
const MMAP2: u64 = 1 << 23;
const USE_CLOCKID: u64 = 1 << 25;
const CONTEXT_SWITCH: u64 = 1 << 26;
const BUILD_ID: u64 = 1 << 34;
const INHERIT_THREAD: u64 = 1 << 35;

/// Stands for all threads of the system.
const ALL_THREADS: i32 = -1;

/// First number for descriptors of events: the usual limit of descriptors.
const FIRST_EVENT_NUMBER: i32 = 1024;

const FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;
/// `PERF_EVENT_IOC_SET_OUTPUT`: `_IO('$', 5)`.
const SET_OUTPUT: libc::c_ulong = 0x2405;
/// `PERF_EVENT_IOC_SET_FILTER`: `_IOW('$', 6, char *)`.
const SET_FILTER: libc::c_ulong = 0x4000_2406 | (size_of::<*const u8>() as libc::c_ulong) << 16;
/// `PERF_EVENT_IOC_PAUSE_OUTPUT`: `_IOW('$', 9, __u32)`.
const PAUSE_OUTPUT: libc::c_ulong = 0x4004_2409;

/// Offsets of the kernel's and the reader's position in the control page.
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;

/// `struct perf_event_attr`, version 4 (Linux 4.1).
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_watermark: u32,
    breakpoint_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clockid: i32,
    sample_regs_intr: u64,
}

/// The records of files that are mapped as code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mappings {
    None,
    /// With inode numbers.
    Inodes,
    /// With build-ids, or inode numbers where a file has none (Linux 5.12).
    BuildIds,
}

/// Opens an event for a thread on one processor, and for all threads that it creates from now on.
///
/// Its records are context switches, creations, exits and names, with the monotonic clock, and with
/// `mappings` also the files that are mapped as code. The ring's descriptor becomes readable when
/// the ring holds `watermark` bytes. With `threads_only`, new processes do not inherit the event
/// (Linux 5.13).
pub(crate) fn open_schedule(
    thread: Tid,
    cpu: u32,
    threads_only: bool,
    watermark: u32,
    mappings: Mappings,
) -> Result<OwnedFd, Errno> {
    let mappings = match mappings {
        Mappings::None => 0,
        Mappings::Inodes => MMAP | MMAP2,
        Mappings::BuildIds => MMAP | MMAP2 | BUILD_ID,
    };
    let attributes = Attributes {
        kind: TYPE_SOFTWARE,
        config: COUNT_SW_DUMMY,
        flags: inherit(threads_only)
            | EXCLUDE_KERNEL
            | EXCLUDE_HYPERVISOR
            | COMM
            | TASK
            | mappings
            | CONTEXT_SWITCH,
        ..Attributes::default()
    };
    open(attributes, thread.0, cpu, watermark)
}

/// Opens an event for a thread on one processor. It samples user-mode registers whenever the thread
/// stops running, and `stack` bytes of its stack, a multiple of 8. Threads that the thread creates
/// later inherit the event. `registers` are bits of the kernel's mask. Needs the permission to see
/// the kernel's events.
pub(crate) fn open_blocked(
    thread: Tid,
    cpu: u32,
    threads_only: bool,
    watermark: u32,
    registers: &[u32],
    stack: u32,
) -> Result<OwnedFd, Errno> {
    let attributes = Attributes {
        kind: TYPE_SOFTWARE,
        config: COUNT_SW_CONTEXT_SWITCHES,
        sample_type: match stack {
            0 => SAMPLE_REGS_USER,
            _ => SAMPLE_REGS_USER | SAMPLE_STACK_USER,
        },
        sample_stack_user: stack,
        sample_regs_user: registers.iter().map(|bit| 1 << bit).sum(),
        flags: inherit(threads_only) | EXCLUDE_HYPERVISOR,
        ..Attributes::default()
    };
    open(attributes, thread.0, cpu, watermark)
}

/// Opens an event for a thread on one processor that samples the thread's registers and stack of
/// user mode at each hit of a tracepoint, and for all threads that it creates from now on. A kernel
/// that cannot filter the tracepoint samples all hits. Thread -1 stands for all threads of the
/// system. Needs the permission to see the kernel's events. Uses no period of `sampled`.
pub(crate) fn open_tracepoint_samples(
    thread: Tid,
    cpu: u32,
    threads_only: bool,
    watermark: u32,
    (id, filter): (u64, &CStr),
    sampled: SampledStack,
) -> Result<OwnedFd, Errno> {
    let attributes = Attributes {
        kind: TYPE_TRACEPOINT,
        config: id,
        flags: inherit(threads_only) | EXCLUDE_HYPERVISOR,
        ..sampled.attributes()
    };
    let event = open(attributes, thread.0, cpu, watermark)?;
    // SAFETY: the kernel reads a NUL-terminated string.
    unsafe { libc::ioctl(event.as_raw_fd(), SET_FILTER as _, filter.as_ptr()) };
    Ok(event)
}

/// Opens an event on one processor that samples registers and stacks of user mode when a program in
/// the kernel writes into it. Uses no period of `sampled`.
pub(crate) fn open_output(
    cpu: u32,
    watermark: u32,
    sampled: SampledStack,
) -> Result<OwnedFd, Errno> {
    let attributes = Attributes {
        kind: TYPE_SOFTWARE,
        config: COUNT_SW_BPF_OUTPUT,
        ..sampled.attributes()
    };
    open(attributes, ALL_THREADS, cpu, watermark)
}

/// Opens an event of a tracepoint that records nothing, for a program in the kernel to run there.
pub(crate) fn open_for_program(id: u64) -> Result<OwnedFd, Errno> {
    const OWN_THREAD: i32 = 0;
    const ANY_PROCESSOR: u32 = u32::MAX;
    let attributes = Attributes {
        kind: TYPE_TRACEPOINT,
        config: id,
        // Never reached.
        sample_period: u64::MAX >> 1,
        ..Attributes::default()
    };
    open(attributes, OWN_THREAD, ANY_PROCESSOR, 0)
}

/// The contents and the interval of CPU samples.
#[derive(Clone, Copy)]
pub(crate) struct SampledStack {
    /// Interval of the samples, in nanoseconds of a thread's processor time.
    pub(crate) period_ns: u64,
    /// The registers: their bits in the kernel's mask, ascending, and their numbers.
    pub(crate) registers: &'static [(u32, usize)],
    /// Maximum number of bytes of the stack, a multiple of 8.
    pub(crate) stack: u32,
    /// Samples also the time that the thread spends in the kernel.
    pub(crate) in_kernel: bool,
}

impl SampledStack {
    fn attributes(self) -> Attributes {
        let bits = self.registers.iter().map(|(bit, _)| 1 << bit);
        Attributes {
            sample_type: SAMPLE_REGS_USER | SAMPLE_STACK_USER,
            sample_regs_user: bits.sum(),
            sample_stack_user: self.stack,
            ..Attributes::default()
        }
    }
}

/// Opens an event for a thread on one processor that samples the thread's registers and stack of
/// user mode, and for all threads that it creates from now on.
pub(crate) fn open_samples(
    thread: Tid,
    cpu: u32,
    threads_only: bool,
    watermark: u32,
    sampled: SampledStack,
) -> Result<OwnedFd, Errno> {
    let mode = match sampled.in_kernel {
        true => EXCLUDE_HYPERVISOR,
        false => EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR,
    };
    let attributes = Attributes {
        kind: TYPE_SOFTWARE,
        config: COUNT_SW_CPU_CLOCK,
        sample_period: sampled.period_ns,
        flags: inherit(threads_only) | mode,
        ..sampled.attributes()
    };
    open(attributes, thread.0, cpu, watermark)
}

/// Opens an event for the hits of a tracepoint on one processor, in any process. Samples contain
/// the tracepoint's data.
pub(crate) fn open_tracepoint(id: u64, cpu: u32, watermark: u32) -> Result<OwnedFd, Errno> {
    let attributes = Attributes {
        kind: TYPE_TRACEPOINT,
        config: id,
        sample_type: SAMPLE_RAW,
        ..Attributes::default()
    };
    open(attributes, ALL_THREADS, cpu, watermark)
}

/// The flags of an event that new threads inherit, and new processes unless `threads_only`.
fn inherit(threads_only: bool) -> u64 {
    match threads_only {
        true => INHERIT | INHERIT_THREAD,
        false => INHERIT,
    }
}

fn open(attributes: Attributes, thread: i32, cpu: u32, watermark: u32) -> Result<OwnedFd, Errno> {
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        sample_period: attributes.sample_period.max(1),
        sample_type: attributes.sample_type | SAMPLE_TID | SAMPLE_TIME | SAMPLE_CPU,
        flags: attributes.flags | WATERMARK | SAMPLE_ID_ALL | USE_CLOCKID,
        wakeup_watermark: watermark,
        clockid: libc::CLOCK_MONOTONIC,
        ..attributes
    };
    // SAFETY: the kernel reads only the structure, which contains its own size.
    let descriptor = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            thread,
            cpu as libc::c_int,
            -1,
            FLAG_FD_CLOEXEC,
        )
    };
    let descriptor = Errno::result(descriptor)? as i32;
    // SAFETY: the system call has just created the descriptor.
    let event = unsafe { OwnedFd::from_raw_fd(descriptor) };
    // Thousands of events must not take the numbers that are left when the limit is lowered again.
    match fcntl(&event, FcntlArg::F_DUPFD_CLOEXEC(FIRST_EVENT_NUMBER)) {
        // SAFETY: the call has just created the descriptor.
        Ok(high) => Ok(unsafe { OwnedFd::from_raw_fd(high) }),
        // The limit cannot be raised so far.
        Err(_) => Ok(event),
    }
}

/// The memory into which the kernel writes the records of events on one processor.
pub(crate) struct Ring {
    event: OwnedFd,
    /// The control page, followed by the data.
    base: NonNull<u8>,
    page: usize,
    /// Size of the data in bytes, a power of two.
    size: usize,
}

impl Ring {
    /// Maps a ring of `size` bytes, a power of two and at least a page, for an event.
    pub(crate) fn map(event: OwnedFd, size: usize) -> Result<Ring, Errno> {
        let page = page_size();
        // SAFETY: the kernel chooses an unused address.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                page + size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(base.cast::<u8>()).filter(|_| base != libc::MAP_FAILED) {
            Some(base) => Ok(Ring {
                event,
                base,
                page,
                size,
            }),
            None => Err(Errno::last()),
        }
    }

    /// Redirects the output of another event on the same processor into this ring.
    pub(crate) fn take_output_of(&self, event: &OwnedFd) -> Result<(), Errno> {
        // SAFETY: the request takes a descriptor and touches none of our memory.
        let done = unsafe {
            libc::ioctl(
                event.as_raw_fd(),
                SET_OUTPUT as _,
                self.event.as_raw_fd() as libc::c_ulong,
            )
        };
        Errno::result(done).map(drop)
    }

    /// Pauses or resumes the output of all events into this ring (Linux 4.7). The kernel counts the
    /// records of a pause as lost.
    pub(crate) fn pause(&self, is_paused: bool) -> Result<(), Errno> {
        // SAFETY: the request takes a number and touches none of our memory.
        let done = unsafe {
            libc::ioctl(
                self.event.as_raw_fd(),
                PAUSE_OUTPUT as _,
                libc::c_ulong::from(is_paused),
            )
        };
        Errno::result(done).map(drop)
    }

    /// Size of the data in bytes.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// The position after the last byte that the kernel has written.
    pub(crate) fn head(&self) -> u64 {
        // Pairs with the kernel's store: all bytes before the position can be read.
        self.position(DATA_HEAD).load(Ordering::Acquire)
    }

    /// The position of the first unread byte.
    pub(crate) fn tail(&self) -> u64 {
        self.position(DATA_TAIL).load(Ordering::Relaxed)
    }

    /// Returns the space before a position to the kernel.
    pub(crate) fn release(&self, tail: u64) {
        self.position(DATA_TAIL).store(tail, Ordering::Release);
    }

    fn position(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the control page is mapped as long as `self` lives, and both words are aligned.
        // The kernel accesses them atomically.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    /// The event whose ring it is.
    pub(crate) fn event(&self) -> &OwnedFd {
        &self.event
    }

    /// Copies bytes out of the ring, at most as many as the ring has.
    pub(crate) fn copy(&self, position: u64, bytes: &mut [u8]) {
        let length = bytes.len().min(self.size);
        let start = (position % self.size as u64) as usize;
        let first = length.min(self.size - start);
        // SAFETY: both parts are inside the mapping, and `bytes` is ours. The kernel does not write
        // between the reader's position and its own. A caller that asks for more gets stale bytes.
        unsafe {
            let data = self.base.as_ptr().add(self.page);
            ptr::copy_nonoverlapping(data.add(start), bytes.as_mut_ptr(), first);
            ptr::copy_nonoverlapping(data, bytes.as_mut_ptr().add(first), length - first);
        }
    }
}

// SAFETY: the ring is the only owner of its mapping, and has no reference to the thread that made
// it.
unsafe impl Send for Ring {}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: `map` mapped it with this length, and no reference into it is left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.page + self.size) };
    }
}

/// One descriptor that is readable when one of the watched rings has reached its watermark.
pub(crate) struct Watermarks(OwnedFd);

impl Watermarks {
    pub(crate) fn new() -> Result<Watermarks, Errno> {
        // SAFETY: the call only creates a descriptor.
        let descriptor = Errno::result(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the system call has just created the descriptor.
        Ok(Watermarks(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }

    /// Watches a ring. Edge-triggered, because an event is readable forever after its threads end.
    pub(crate) fn watch(&self, ring: &Ring) -> Result<(), Errno> {
        let mut event = libc::epoll_event {
            events: (libc::EPOLLIN | libc::EPOLLET) as u32,
            u64: 0,
        };
        // SAFETY: the kernel reads the structure.
        let done = unsafe {
            libc::epoll_ctl(
                self.0.as_raw_fd(),
                libc::EPOLL_CTL_ADD,
                ring.event.as_raw_fd(),
                &raw mut event,
            )
        };
        Errno::result(done).map(drop)
    }

    /// Makes the descriptor unreadable until a ring reaches its watermark again. Returns whether a
    /// ring had reached it.
    pub(crate) fn clear(&self) -> bool {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
        let mut any = false;
        loop {
            // SAFETY: the kernel writes as many structures as there are.
            let count = unsafe {
                libc::epoll_wait(
                    self.0.as_raw_fd(),
                    events.as_mut_ptr(),
                    events.len() as libc::c_int,
                    0,
                )
            };
            any |= count > 0;
            if count < events.len() as libc::c_int {
                return any;
            }
        }
    }
}

impl AsFd for Watermarks {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Size of a page, in bytes.
pub(crate) fn page_size() -> usize {
    let size = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
    size.map_or(4096, |size| size as usize)
}

/// Number of processors that the system can have, including offline ones.
pub(crate) fn processors() -> u32 {
    // SAFETY: sysconf only returns a number.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    u32::try_from(count).unwrap_or(1).max(1)
}

/// The system's memory in bytes.
pub(crate) fn memory_size() -> u64 {
    // SAFETY: sysconf only returns a number.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    u64::try_from(pages).unwrap_or(0) * page_size() as u64
}

/// Raises this process's limit of descriptors to the maximum, as long as this value lives.
pub(crate) struct MoreDescriptors(Option<libc::rlimit>);

impl MoreDescriptors {
    pub(crate) fn allow() -> MoreDescriptors {
        let mut former = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: the kernel writes one structure, and reads the other.
        let raised = unsafe {
            libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut former) == 0 && {
                let all = libc::rlimit {
                    rlim_cur: former.rlim_max,
                    ..former
                };
                libc::setrlimit(libc::RLIMIT_NOFILE, &raw const all) == 0
            }
        };
        MoreDescriptors(raised.then_some(former))
    }
}

impl Drop for MoreDescriptors {
    fn drop(&mut self) {
        if let Some(former) = &self.0 {
            // SAFETY: the kernel reads one structure. Descriptors above the limit stay open.
            unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, former) };
        }
    }
}
