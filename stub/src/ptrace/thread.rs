//! One thread. Registers exist only on [`Stopped`]: a running thread has no method to read them,
//! and resuming a thread consumes its `Stopped`.

use std::collections::VecDeque;

use nix::errno::Errno;

use crate::arch::watch::Watch;
use crate::arch::{self, Register};
use crate::sys::Tid;
use crate::sys::ptrace::{self, SignalInfo};

use super::action::Action;
use super::blocked_call::BlockedCall;
use super::rewind::is_rewound;
use super::stop::Cause;

/// Index of the general register set, which contains the program counter.
const GENERAL: usize = 0;

/// A thread that runs, or whose end the kernel will still report.
pub(crate) struct Running {
    tid: Tid,
}

/// A thread in a ptrace-stop, with a cache of its registers.
pub(crate) struct Stopped {
    tid: Tid,
    at: At,
    sets: Vec<Option<Vec<u8>>>,
    /// The kernel's program counter is at the trap instruction that the thread has executed. The
    /// stub shows it after that instruction.
    rewound: bool,
}

/// The kind of ptrace-stop, which decides how a signal can be delivered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum At {
    /// Before a signal is delivered: resuming can replace or suppress the signal.
    Signal,
    /// At an event or a system call: resuming cannot deliver a signal.
    Event,
    /// Like [`At::Event`], but in the middle of a system call.
    InCall,
    /// In a group-stop: resuming the thread would break the stop.
    GroupStop,
}

impl At {
    /// The kind of stop for [`Status::Held`](crate::sys::wait::Status::Held) with this signal.
    pub(crate) fn held(signal: i32) -> At {
        if signal == libc::SIGTRAP {
            At::Event
        } else {
            At::GroupStop
        }
    }
}

/// How to resume a stopped thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Motion {
    /// Run freely.
    Continue,
    /// Execute one instruction.
    Step,
    /// Run to the next system call.
    ToSystemCall,
    /// Stay stopped until the group-stop ends.
    Listen,
}

impl Running {
    /// A thread that exists according to the kernel.
    pub(crate) fn new(tid: Tid) -> Running {
        Running { tid }
    }

    /// Asks the thread to stop. Ignores errors: the kernel will report the end of a thread that is
    /// gone.
    pub(crate) fn interrupt(&self) {
        let _ = ptrace::interrupt(self.tid);
    }

    /// Records a stop that the kernel reported.
    pub(crate) fn stopped(self, at: At) -> Stopped {
        Stopped {
            tid: self.tid,
            at,
            sets: arch::SETS.iter().map(|_| None).collect(),
            rewound: at == At::Signal && is_rewound(self.tid),
        }
    }
}

impl Stopped {
    /// The kind of stop.
    pub(crate) fn at(&self) -> At {
        self.at
    }

    fn set(&mut self, index: usize) -> Result<&mut Vec<u8>, Errno> {
        let slot = &mut self.sets[index];
        if slot.is_none() {
            let set = &arch::SETS[index];
            let mut values = ptrace::register_set(self.tid, set.note, set.capacity)?;
            if index == GENERAL && self.rewound {
                arch::move_pc(&mut values, arch::TRAP_ADVANCE);
            }
            *slot = Some(values);
        }
        slot.as_mut().ok_or(Errno::EIO)
    }

    /// Records that the stop is in the middle of a system call.
    pub(crate) fn is_in_call(&mut self) {
        self.at = At::InCall;
    }

    /// The general registers, as the kernel holds them.
    pub(crate) fn general(&mut self) -> Result<&[u8], Errno> {
        self.set(0).map(|set| &set[..])
    }

    /// A register's value, in the target's byte order. `ENODEV` if this kernel does not show it.
    pub(crate) fn register(&mut self, register: &Register, into: &mut [u8]) -> Result<(), Errno> {
        let place = register.place;
        let set = self.set(place.set)?;
        let stored = set
            .get(place.offset..place.offset + place.size)
            .ok_or(Errno::ENODEV)?;
        into.fill(0);
        if place.abridged_tag {
            let tag = expand_tag(set).to_le_bytes();
            into[..2].copy_from_slice(&tag);
        } else {
            into[..place.size].copy_from_slice(stored);
        }
        Ok(())
    }

    /// The first eight bytes of a register, by its number in the layout.
    pub(crate) fn word(&mut self, number: usize) -> Option<u64> {
        let register = arch::layout().register(number)?;
        let mut value = [0; 16];
        let into = value.get_mut(..register.size)?;
        self.register(register, into).ok()?;
        value.first_chunk().map(|word| u64::from_le_bytes(*word))
    }

    /// Writes one register.
    pub(crate) fn set_register(&mut self, register: &Register, value: &[u8]) -> Result<(), Errno> {
        self.change(register, value)?;
        self.store(register.place.set)
    }

    /// Writes all registers, in the layout of the `g` packet. Makes one system call per register
    /// set.
    pub(crate) fn set_registers(&mut self, values: &[u8]) -> Result<(), Errno> {
        let mut changed = vec![false; arch::SETS.len()];
        for register in &arch::layout().registers {
            let value = values.get(register.offset..register.offset + register.size);
            let mut old = vec![0; register.size];
            if let Some(value) = value
                && self.register(register, &mut old).is_ok()
                && old != value
            {
                self.change(register, value)?;
                changed[register.place.set] = true;
            }
        }
        for (set, changed) in changed.into_iter().enumerate() {
            if changed {
                self.store(set)?;
            }
        }
        Ok(())
    }

    fn change(&mut self, register: &Register, value: &[u8]) -> Result<(), Errno> {
        let place = register.place;
        let set = self.set(place.set)?;
        let room = set
            .get_mut(place.offset..place.offset + place.size)
            .ok_or(Errno::ENODEV)?;
        if place.abridged_tag {
            room[0] = abridge_tag(value);
        } else {
            room.copy_from_slice(value.get(..place.size).ok_or(Errno::EINVAL)?);
        }
        arch::before_write(place.set, place.offset, set);
        Ok(())
    }

    fn store(&mut self, set: usize) -> Result<(), Errno> {
        let note = arch::SETS[set].note;
        let tid = self.tid;
        let stored = ptrace::set_register_set(tid, note, self.set(set)?);
        // The kernel may not have taken everything that we wrote, so read it again on demand.
        self.sets[set] = None;
        self.rewound &= set != GENERAL;
        stored
    }

    /// The program counter.
    pub(crate) fn pc(&mut self) -> Result<u64, Errno> {
        self.address(Some(arch::PC))
    }

    /// The stack pointer.
    pub(crate) fn sp(&mut self) -> Result<u64, Errno> {
        self.address(Some(arch::SP))
    }

    /// The value of the register with this number, as an address.
    fn address(&mut self, number: Option<usize>) -> Result<u64, Errno> {
        let register = number.and_then(|number| arch::layout().register(number));
        let register = register.ok_or(Errno::ENODEV)?;
        let mut value = [0; 8];
        self.register(register, &mut value[..register.size])?;
        Ok(u64::from_le_bytes(value))
    }

    /// Replaces all general registers.
    pub(crate) fn set_general(&mut self, values: &[u8]) -> Result<(), Errno> {
        *self.set(0)? = values.to_vec();
        self.store(0)
    }

    /// Emulates the instruction with these bytes, if the stub can do so.
    pub(crate) fn emulate(&mut self, code: &[u8], memory: &dyn arch::Memory) -> bool {
        let Ok(set) = self.set(0) else { return false };
        arch::emulate(code, set, memory) && self.store(0).is_ok()
    }

    /// The base of the thread's thread-local storage (TLS ABI: `fs_base`, `TPIDR_EL0`). `ENODEV` if
    /// the kernel's register sets do not show it.
    pub(crate) fn thread_pointer(&mut self) -> Result<u64, Errno> {
        self.address(arch::THREAD_POINTER)
    }

    /// Sets the program counter.
    pub(crate) fn set_pc(&mut self, pc: u64) -> Result<(), Errno> {
        let register = arch::layout().register(arch::PC).ok_or(Errno::ENODEV)?;
        self.set_register(register, &pc.to_le_bytes()[..register.size])
    }

    /// Writes the program counter that the stub shows to the kernel.
    pub(crate) fn write_shown_pc(&mut self) {
        if self.rewound && self.set(GENERAL).is_ok() {
            let _ = self.store(GENERAL);
        }
    }

    /// Resumes the thread. If it was killed meanwhile, the kernel will report its end, as for a
    /// running thread.
    pub(crate) fn resume(mut self, motion: Motion, signal: i32) -> Running {
        self.write_shown_pc();
        let _ = match motion {
            Motion::Continue => ptrace::cont(self.tid, signal),
            Motion::Step => ptrace::step(self.tid, signal),
            Motion::ToSystemCall => ptrace::cont_to_syscall(self.tid, signal),
            Motion::Listen => ptrace::listen(self.tid),
        };
        Running { tid: self.tid }
    }
}

/// Expands the abridged x87 tag word (Intel SDM vol. 1, 10.5.1.1) to two bits per physical
/// register: 0 valid, 1 zero, 2 special, 3 empty.
fn expand_tag(fxsave: &[u8]) -> u16 {
    let top = usize::from(fxsave[3] >> 3 & 7);
    let mut tag = 0;
    for physical in 0..8 {
        let kind = if fxsave[4] >> physical & 1 == 0 {
            3
        } else {
            let start = 32 + 16 * ((physical + 8 - top) % 8);
            let significand = &fxsave[start..start + 8];
            let exponent = u16::from_le_bytes([fxsave[start + 8], fxsave[start + 9]]) & 0x7fff;
            match exponent {
                0x7fff => 2,
                0 if significand.iter().all(|byte| *byte == 0) => 1,
                0 => 2,
                _ if significand[7] & 0x80 == 0 => 2,
                _ => 0,
            }
        };
        tag |= kind << (2 * physical);
    }
    tag
}

fn abridge_tag(value: &[u8]) -> u8 {
    let tag = u16::from_le_bytes([value[0], value[1]]);
    (0..8)
        .filter(|physical| tag >> (2 * physical) & 3 != 3)
        .map(|physical| 1 << physical)
        .sum()
}

/// Whether the stub can inspect a thread.
pub(crate) enum State {
    /// The thread runs, or its next report is on its way.
    Running(Running),
    /// The thread is stopped.
    Stopped(Stopped),
    /// The thread has executed its last instruction. The first thread of a process can stay in this
    /// state for long, because it goes away only after all others.
    Exiting,
}

/// An event of a thread that the stub has not reported to the client yet.
pub(crate) enum Pending {
    /// The thread executed the trap planted at this address.
    Breakpoint(u64),
    /// The thread is at a tracepoint at this address that must stop it.
    Tracepoint(u64),
    /// The thread is at the entry (`true`) or return (`false`) of this system call.
    Call(u64, bool),
    /// The thread triggered a watchpoint.
    Watch(Watch),
    /// The client requested this stop.
    Wanted(Cause),
    /// The thread has finished its step.
    Step,
    /// A signal arrived that the client decides about.
    Signal(SignalInfo),
    /// The thread has just been created.
    Created,
    /// The process executed this file.
    Exec(String),
    /// The thread created a process, or no longer waits for one.
    Family(Cause),
}

/// A stop without a trap that ends a step.
pub(crate) enum Awaited {
    /// The first instruction of a signal handler. Holds the registers before it.
    Handler(Vec<u8>),
    /// Any stop, because the instruction jumps to itself.
    Anything,
}

/// A thread of the traced process.
pub(crate) struct Thread {
    pub(crate) state: State,
    /// The action of the last resume.
    pub(crate) action: Action,
    /// Address of the tracepoint after whose hit the thread executes single instructions to be
    /// recorded.
    pub(crate) records_steps_from: Option<u64>,
    /// Address at which the client last saw the thread stop. The stub has reported a trap there, so
    /// it steps over it.
    pub(crate) shown_at: Option<u64>,
    /// Address of the trapped system call that the thread last entered, and the registers before
    /// the call.
    pub(crate) entered: Option<(u64, Vec<u8>)>,
    pub(crate) pending: VecDeque<Pending>,
    /// Signals to deliver to the program without asking the client.
    pub(crate) deliver: VecDeque<SignalInfo>,
    /// Signals that the stub queued and that will return as stops. The stub does not report them
    /// again.
    pub(crate) returning: Vec<i32>,
    /// The signal that the client saw at the last stop.
    pub(crate) shown_signal: Option<SignalInfo>,
    /// The thread's last resume was a kernel single-step.
    pub(crate) kernel_steps: bool,
    /// The kernel's single-step state was cleared: the thread is stopped as if it had been
    /// interrupted.
    pub(crate) step_reset: bool,
    /// Addresses of the traps that end the current step.
    pub(crate) step_traps: Vec<u64>,
    /// A stop that ends the current step.
    pub(crate) awaited: Option<Awaited>,
    /// Address of the code slot in which the thread executes its next instruction.
    pub(crate) through: Option<u64>,
    /// Hits that the stub has handled before the thread executed the instruction: the address and
    /// the stack pointer.
    pub(crate) dealt_with: Vec<(u64, u64)>,
    /// The thread is at the entry of a system call under a trap, and will continue at one of these
    /// addresses (with breakpoint kinds).
    pub(crate) after_call: Option<Vec<(u64, usize)>>,
    /// The thread is in a system call whose entry the stub saw.
    pub(crate) in_call: bool,
    /// The stop that the client has requested, to be reported with this cause.
    pub(crate) wanted: Option<Cause>,
    /// The thread has not stopped for the first time yet.
    pub(crate) newborn: bool,
    /// The thread stops once more before it ends (see `tracee::thread_exit`).
    pub(crate) stops_at_end: bool,
    /// The exit of another thread has ended it.
    pub(crate) killed_by_exit: bool,
    /// The child for which the thread waits in vfork(2). The thread cannot stop before the child
    /// leaves the memory.
    pub(crate) vfork_child: Option<Tid>,
    /// The vfork(2) child is debugged, too, so another process waits for its reports.
    pub(crate) lends_memory: bool,
    /// The wait in the kernel because of which the thread is not stopped. After an uninterruptible
    /// wait, it stops before its next instruction.
    pub(crate) unstoppable: Option<BlockedCall>,
    /// True if no stop was requested, because a stop would end the wait in `unstoppable` early.
    pub(crate) is_left: bool,
}

impl Thread {
    /// A running thread with this action.
    pub(crate) fn new(tid: Tid, action: Action) -> Thread {
        Thread {
            state: State::Running(Running::new(tid)),
            action,
            records_steps_from: None,
            shown_at: None,
            entered: None,
            pending: VecDeque::new(),
            deliver: VecDeque::new(),
            returning: Vec::new(),
            shown_signal: None,
            kernel_steps: false,
            step_reset: false,
            step_traps: Vec::new(),
            awaited: None,
            through: None,
            dealt_with: Vec::new(),
            after_call: None,
            in_call: false,
            wanted: None,
            newborn: false,
            stops_at_end: false,
            killed_by_exit: false,
            vfork_child: None,
            lends_memory: false,
            unstoppable: None,
            is_left: false,
        }
    }

    /// The first thread of a process that was just started or attached to.
    pub(crate) fn first(tid: Tid) -> Thread {
        Thread {
            stops_at_end: true,
            ..Thread::new(tid, Action::Hold)
        }
    }

    /// The ptrace options for this thread.
    pub(crate) fn options(&self) -> i32 {
        if self.stops_at_end {
            ptrace::WITH_END
        } else {
            ptrace::OPTIONS
        }
    }

    /// True if the thread executes one instruction at a time.
    pub(crate) fn steps(&self) -> bool {
        self.action.is_step() || self.records_steps()
    }

    /// True if the thread executes single instructions only so that they are recorded.
    pub(crate) fn records_steps(&self) -> bool {
        matches!(self.action, Action::Continue(_)) && self.records_steps_from.is_some()
    }

    /// True if the thread can stop when it runs. It cannot while it waits in vfork(2) for its
    /// child, or in another uninterruptible wait, and is not to while it is left asleep.
    pub(crate) fn can_stop(&self) -> bool {
        self.vfork_child.is_none() && !self.lends_memory && self.unstoppable.is_none()
    }

    /// Leaves the thread asleep if it runs and sleeps in a call that a stop would end early or with
    /// an error. Then it counts as stopped. Returns false if it is to be stopped.
    pub(crate) fn leave_asleep(&mut self, process: Tid, tid: Tid) -> bool {
        let was_requested = self.unstoppable.is_some() && !self.is_left;
        if !matches!(self.state, State::Running(_)) || was_requested {
            return false;
        }
        self.unstoppable = BlockedCall::ended_by_stops(process, tid);
        self.is_left = self.unstoppable.is_some();
        self.is_left
    }

    /// True if it runs, gets no signal from the stub, and makes no single-step.
    pub(crate) fn runs_untouched(&self) -> bool {
        matches!(self.state, State::Running(_))
            && self.pending.is_empty()
            && self.deliver.is_empty()
            && self.shown_signal.is_none()
            && !self.kernel_steps
    }

    /// The thread's registers, if it is stopped.
    pub(crate) fn stopped(&mut self) -> Option<&mut Stopped> {
        match &mut self.state {
            State::Stopped(stopped) => Some(stopped),
            _ => None,
        }
    }

    /// Lets the thread count as running if it was left asleep.
    pub(crate) fn leave_no_more(&mut self) {
        if std::mem::take(&mut self.is_left) {
            self.unstoppable = None;
        }
    }

    /// Takes the oldest pending event as the cause of a stop.
    pub(crate) fn take_cause(&mut self) -> Option<Cause> {
        Some(match self.pending.pop_front()? {
            Pending::Breakpoint(_) | Pending::Tracepoint(_) => Cause::Breakpoint,
            Pending::Call(number, true) => Cause::CallEntry(number),
            Pending::Call(number, false) => Cause::CallReturn(number),
            Pending::Watch(watch) => Cause::Watch(watch),
            Pending::Wanted(cause) | Pending::Family(cause) => cause,
            Pending::Step => Cause::Step,
            Pending::Created => Cause::Created,
            Pending::Exec(path) => Cause::Exec(path),
            Pending::Signal(info) => {
                let signal = info.signal();
                self.shown_signal = Some(info);
                Cause::Signal(signal)
            }
        })
    }

    /// Records a stop that the kernel reported.
    pub(crate) fn now_stopped(&mut self, tid: Tid, at: At) {
        self.state = State::Stopped(Running::new(tid).stopped(at));
        self.after_call = None;
        (self.unstoppable, self.is_left) = (None, false);
    }

    /// Resumes the thread, if it is stopped.
    pub(crate) fn go(&mut self, motion: Motion, signal: i32) {
        (self.kernel_steps, self.step_reset) = (motion == Motion::Step, false);
        self.state = match std::mem::replace(&mut self.state, State::Exiting) {
            State::Stopped(stopped) => State::Running(stopped.resume(motion, signal)),
            other => other,
        };
    }
}
