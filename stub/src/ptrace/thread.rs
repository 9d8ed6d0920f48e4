//! One thread. Registers exist only on [`Stopped`]: there is no way to ask a running thread for
//! them, and a thread that is resumed gives its `Stopped` up.

use std::collections::VecDeque;

use nix::errno::Errno;

use crate::arch::watch::Watch;
use crate::arch::{self, Register};
use crate::sys::Tid;
use crate::sys::ptrace::{self, SignalInfo};

use super::action::Action;
use super::rewind::is_rewound;
use super::stop::Cause;

/// The index of the general registers' set, which has the program counter.
const GENERAL: usize = 0;

/// A thread that runs, or will report on its own that it does not any more.
pub(crate) struct Running {
    tid: Tid,
}

/// A thread in a ptrace-stop, with the registers read so far.
pub(crate) struct Stopped {
    tid: Tid,
    at: At,
    sets: Vec<Option<Vec<u8>>>,
    /// The kernel has the program counter at the trap instruction that it has executed; it is shown
    /// behind that.
    rewound: bool,
}

/// In which kind of ptrace-stop a thread is: it decides how a signal can be delivered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum At {
    /// About to take a signal: resuming can replace or suppress it.
    Signal,
    /// At an event or a system call: resuming cannot deliver a signal.
    Event,
    /// The same, in the midst of a system call.
    InCall,
    /// Member of a group-stop: resuming it would break the stop.
    GroupStop,
}

impl At {
    /// Where a thread is that is held ([`Status::Held`](crate::sys::wait::Status::Held)) with this
    /// signal.
    pub(crate) fn held(signal: i32) -> At {
        if signal == libc::SIGTRAP {
            At::Event
        } else {
            At::GroupStop
        }
    }
}

/// How a stopped thread goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Motion {
    /// Freely.
    Continue,
    /// For one instruction.
    Step,
    /// To its next system call.
    ToSystemCall,
    /// Not at all, until its group-stop ends.
    Listen,
}

impl Running {
    /// A thread that the kernel says exists.
    pub(crate) fn new(tid: Tid) -> Running {
        Running { tid }
    }

    /// Asks it to stop. That it is gone already is no error: its end will be reported.
    pub(crate) fn interrupt(&self) {
        let _ = ptrace::interrupt(self.tid);
    }

    /// The kernel reported a stop.
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
    /// In which kind of stop it is.
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

    /// It turns out to be in the midst of a system call.
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

    /// Writes one register.
    pub(crate) fn set_register(&mut self, register: &Register, value: &[u8]) -> Result<(), Errno> {
        self.change(register, value)?;
        self.store(register.place.set)
    }

    /// Writes all registers, given as in the `g` packet; one system call a register set.
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
        // The kernel may have taken less than we wrote: read it again when asked.
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

    /// The value of the register with this number.
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

    /// Executes the instruction with these bytes, if it is one that needs no processor for it.
    pub(crate) fn emulate(&mut self, code: &[u8], memory: &dyn arch::Memory) -> bool {
        let Ok(set) = self.set(0) else { return false };
        arch::emulate(code, set, memory) && self.store(0).is_ok()
    }

    /// Where the thread's own data is (TLS ABI: `fs_base`, `TPIDR_EL0`); `ENODEV` if the kernel's
    /// register sets do not show it.
    pub(crate) fn thread_pointer(&mut self) -> Result<u64, Errno> {
        self.address(arch::THREAD_POINTER)
    }

    /// Moves the program counter.
    pub(crate) fn set_pc(&mut self, pc: u64) -> Result<(), Errno> {
        let register = arch::layout().register(arch::PC).ok_or(Errno::ENODEV)?;
        self.set_register(register, &pc.to_le_bytes()[..register.size])
    }

    /// Has the kernel's program counter be the one that is shown.
    pub(crate) fn write_shown_pc(&mut self) {
        if self.rewound && self.set(GENERAL).is_ok() {
            let _ = self.store(GENERAL);
        }
    }

    /// Lets it go. If it was killed meanwhile, its end will be reported, as a running thread's
    /// would.
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

/// The full x87 tag word from the abridged one (Intel SDM vol. 1, 10.5.1.1): two bits a physical
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

/// Whether a thread can be looked at.
pub(crate) enum State {
    /// It runs, or its next report is on its way.
    Running(Running),
    /// It is stopped.
    Stopped(Stopped),
    /// It is past its last instruction. The first thread of a process can stay so for long: it is
    /// gone when all others are.
    Exiting,
}

/// Something that happened to a thread and that the client has not been told yet.
pub(crate) enum Pending {
    /// It executed the trap planted at this address.
    Breakpoint(u64),
    /// It is at a tracepoint at this address, which is to stop it.
    Tracepoint(u64),
    /// It is at the beginning of a system call, or (`false`) at its end.
    Call(u64, bool),
    /// It touched what is watched.
    Watch(Watch),
    /// The client wanted it.
    Wanted(Cause),
    /// It made the step it was asked to make.
    Step,
    /// A signal is to be delivered, if the client agrees.
    Signal(SignalInfo),
    /// It has been created.
    Created,
    /// It is another program now.
    Exec(String),
    /// It made a process, or waits no longer for one it made.
    Family(Cause),
}

/// A stop that ends a step without a trap.
pub(crate) enum Awaited {
    /// The first instruction of a signal handler; these were the registers before.
    Handler(Vec<u8>),
    /// Any: the instruction leads to itself.
    Anything,
}

/// A thread of the traced process.
pub(crate) struct Thread {
    pub(crate) state: State,
    /// What the last resume asked of it.
    pub(crate) action: Action,
    /// The address of the tracepoint after whose hit it executes instructions one by one, to have
    /// them recorded.
    pub(crate) records_steps_from: Option<u64>,
    /// Where the client saw it stop last: a trap there has been answered for and is stepped over.
    pub(crate) shown_at: Option<u64>,
    /// The system call under a trap that it was taken into last, and its registers before.
    pub(crate) entered: Option<(u64, Vec<u8>)>,
    pub(crate) pending: VecDeque<Pending>,
    /// Signals that go to the program without the client being asked.
    pub(crate) deliver: VecDeque<SignalInfo>,
    /// Signals queued by us that will come back as stops: not to be reported again.
    pub(crate) returning: Vec<i32>,
    /// The signal the client was told about at the last stop.
    pub(crate) shown_signal: Option<SignalInfo>,
    /// It went by a step last.
    pub(crate) kernel_steps: bool,
    /// That has been forgotten: it stands as if it had been interrupted.
    pub(crate) step_reset: bool,
    /// Where traps end the step it makes.
    pub(crate) step_traps: Vec<u64>,
    /// A stop that ends the step it makes.
    pub(crate) awaited: Option<Awaited>,
    /// The slot in which it executes its next instruction when it goes.
    pub(crate) through: Option<u64>,
    /// Hits that have been dealt with although the instruction was not executed: where, and the
    /// stack pointer then.
    pub(crate) dealt_with: Vec<(u64, u64)>,
    /// It is at the kernel's door, and will leave the system call in one of these places.
    pub(crate) after_call: Option<Vec<(u64, usize)>>,
    /// It is in a system call whose beginning was seen.
    pub(crate) in_call: bool,
    /// The client wants it to stop, and is to be told this.
    pub(crate) wanted: Option<Cause>,
    /// Not yet seen to stop for the first time.
    pub(crate) newborn: bool,
    /// It stops once more when it ends (see `tracee::thread_exit`).
    pub(crate) stops_at_end: bool,
    /// The child for which it waits in vfork(2): until that one is gone, it cannot stop.
    pub(crate) vfork_child: Option<Tid>,
    /// That child is debugged, too: its reports are not this process's to wait for.
    pub(crate) lends_memory: bool,
}

impl Thread {
    /// A thread that runs and does `action`.
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
            vfork_child: None,
            lends_memory: false,
        }
    }

    /// The first thread of a process that has just been got hold of.
    pub(crate) fn first(tid: Tid) -> Thread {
        Thread {
            stops_at_end: true,
            ..Thread::new(tid, Action::Hold)
        }
    }

    /// What the kernel is to report of it.
    pub(crate) fn options(&self) -> i32 {
        if self.stops_at_end {
            ptrace::WITH_END
        } else {
            ptrace::OPTIONS
        }
    }

    /// Whether it executes one instruction at a time.
    pub(crate) fn steps(&self) -> bool {
        self.action.is_step() || self.records_steps()
    }

    /// Whether it does so only to have them recorded.
    pub(crate) fn records_steps(&self) -> bool {
        matches!(self.action, Action::Continue(_)) && self.records_steps_from.is_some()
    }

    /// Whether it can stop when it runs: not while it waits in vfork(2) for its child.
    pub(crate) fn can_stop(&self) -> bool {
        self.vfork_child.is_none() && !self.lends_memory
    }

    /// The thread's stopped half, if it is stopped.
    pub(crate) fn stopped(&mut self) -> Option<&mut Stopped> {
        match &mut self.state {
            State::Stopped(stopped) => Some(stopped),
            _ => None,
        }
    }

    /// Takes the first thing that happened to it.
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

    /// The kernel reported that it stopped.
    pub(crate) fn now_stopped(&mut self, tid: Tid, at: At) {
        self.state = State::Stopped(Running::new(tid).stopped(at));
        self.after_call = None;
    }

    /// Lets it go, if it is stopped.
    pub(crate) fn go(&mut self, motion: Motion, signal: i32) {
        (self.kernel_steps, self.step_reset) = (motion == Motion::Step, false);
        self.state = match std::mem::replace(&mut self.state, State::Exiting) {
            State::Stopped(stopped) => State::Running(stopped.resume(motion, signal)),
            other => other,
        };
    }
}
