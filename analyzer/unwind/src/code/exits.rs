//! Finds where functions return and where they call the kernel, for a recorder's probes.
//!
//! The engine that computes unwind rules follows the function. So each place is an instruction that
//! control reaches, never bytes that only look like one, and the stack depth there is known. Tail
//! calls are followed to the returns of their targets. Parts of a function that only jumps lead to
//! are followed, too.

use std::collections::{BTreeMap, BTreeSet};

use unspool_image::{Arch, Image};

use super::effect::{Effect, Flow, Target};
use super::flow::{Engine, Function, Memory, Show, Shown};
use super::state::{State, Value};
use super::text::Text;
use super::{machine, pointers, starts};
use movable::Lines;

mod approach;
mod movable;

/// Maximum number of functions and parts that one function may jump through.
const MAX_PARTS: usize = 64;

/// glibc's `__libc_do_syscall`, with which its T32 code calls the kernel; the number is in `ip`.
/// `push {r7, lr}; mov r7, ip; svc 0; pop {r7, pc}`. The relevant places are the calls of this
/// function.
const ARM_SYSCALL_FUNCTION: [u8; 8] = [0x80, 0xb5, 0x67, 0x46, 0x00, 0xdf, 0x80, 0xbd];
const ARM_IP: u8 = 12;

/// Finds the returns and system calls of an image's functions.
pub struct ExitFinder<'i> {
    text: Text<'i>,
    /// Function starts, and whether they are T32 code.
    starts: BTreeMap<u64, bool>,
    /// The end of functions whose size is known. `u64::MAX` for functions that only call frame
    /// information describes.
    ends: BTreeMap<u64, u64>,
    memory: Memory,
}

/// The returns and system calls of one function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Exits {
    /// Its returns, sorted. They include the returns of functions that it jumps to.
    pub returns: Vec<Return>,
    /// Its system calls, sorted. They include calls of a library function that only calls the
    /// kernel.
    pub system_calls: Vec<SystemCall>,
    /// Number of bytes at its start that may be moved; see [`ExitFinder::entered`].
    pub movable: u8,
    /// True if the list of returns is complete. False if the function also jumps to unknown
    /// addresses, or could not be followed completely.
    pub whole: bool,
}

impl Exits {
    /// Clears the movable lengths of a function whose incoming jumps are not all known.
    fn forbid_moving(&mut self) {
        let calls = self.system_calls.iter_mut();
        for before in calls.filter_map(|call| call.before.as_mut()) {
            before.movable = 0;
        }
    }
}

/// An instruction that returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Return {
    /// Address of the instruction.
    pub svma: u64,
    /// ARM: whether it is T32 code.
    pub thumb: bool,
    /// A32: the condition of the instruction; 14: always. T32 has conditions in the processor's IT
    /// state.
    pub condition: u8,
    /// How far the stack pointer is below its value at the function's entry, before the
    /// instruction.
    pub below: i32,
    /// An earlier place for a probe, at which as much is known as before the instruction.
    pub early: Option<Early>,
}

/// A straight run of instructions that ends in a return. Control enters it only at its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Early {
    /// Address of the first instruction.
    pub svma: u64,
    /// See [`Return::below`].
    pub below: i32,
    /// The value that the function always returns here. `None` if it is the value of the result
    /// register.
    pub result: Option<u32>,
    /// Number of bytes here that may be moved; see [`ExitFinder::entered`].
    pub movable: u8,
}

/// An instruction that calls the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SystemCall {
    /// Address of the instruction.
    pub svma: u64,
    /// Address of the next instruction.
    pub next: u64,
    /// ARM: whether it is T32 code.
    pub thumb: bool,
    /// The system call's number, if it is constant.
    pub number: Option<u32>,
    /// The second argument, if it is constant.
    pub second: Option<u32>,
    /// The run of instructions before it, if control reaches the system call only through them.
    pub before: Option<Before>,
    /// Number of bytes after the system call that may be moved; see [`ExitFinder::entered`].
    pub movable: u8,
}

/// A run of instructions that leads straight to a system call. A probe at its first instruction
/// sees the same as one at the system call, and need not execute an instruction that may block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Before {
    /// Address of the first instruction.
    pub svma: u64,
    /// The values of the first four arguments; `None` if the run does not set the argument.
    pub sets: [Option<Given>; 4],
    /// Number of bytes here that may be moved; see [`ExitFinder::entered`].
    pub movable: u8,
}

/// The value of an argument, by the registers before the run (DWARF numbers).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Given {
    /// A constant.
    Constant(u32),
    /// The value of a register plus an offset.
    Register(u8, i32),
    /// `((from << shift) & mask) ^ flipped`, of 32 bits.
    Bits {
        /// The register.
        from: u8,
        /// Left shift in bits.
        shift: u8,
        /// Mask of the bits that stay.
        mask: u32,
        /// Bits that are toggled last.
        flipped: u32,
    },
}

impl Given {
    /// Computes the argument from the registers before the run.
    pub fn value(self, register: impl Fn(u8) -> Option<u64>) -> Option<u64> {
        match self {
            Given::Constant(value) => Some(value.into()),
            Given::Register(from, by) => Some(register(from)?.wrapping_add_signed(by.into())),
            Given::Bits {
                from,
                shift,
                mask,
                flipped,
            } => {
                let value = register(from)? as u32;
                Some((value << shift & mask ^ flipped).into())
            }
        }
    }

    /// The bits of the argument that are constant, as a mask, and their values.
    pub fn known_bits(self) -> (u32, u32) {
        match self {
            Given::Constant(value) => (u32::MAX, value),
            Given::Register(..) => (0, 0),
            Given::Bits {
                shift,
                mask,
                flipped,
                ..
            } => {
                let known = !(u32::MAX << shift & mask);
                (known, flipped & known)
            }
        }
    }
}

impl<'i> ExitFinder<'i> {
    /// Collects the function starts of an image. `None` if the architecture's code cannot be
    /// analysed.
    pub fn new(image: &'i Image) -> Option<ExitFinder<'i>> {
        let machine = machine::machine(image.arch())?;
        let mut text = Text::new(machine, image, true);
        for symbol in image.symbols().functions() {
            if starts::never_returns(symbol.name) {
                text.noreturn.add(symbol.svma);
            }
        }
        text.relocations = pointers::relocations(image).into();
        let mut starts = starts::known(image, &text, true);
        let sized = image.symbols().functions();
        let sized = sized.filter(|symbol| !symbol.size_inferred);
        let mut ends: BTreeMap<u64, u64> = sized
            .map(|symbol| (symbol.svma, symbol.svma.saturating_add(symbol.size)))
            .collect();
        // The unwind entry for `mov $15, %rax; syscall` begins one byte early, so that an unwinder
        // finds it from the return address.
        let restorer = [0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05];
        for svma in starts::described(image) {
            let early = text.bytes(svma + 1).starts_with(&restorer);
            if text.is_text(svma) && !early {
                starts.entry(svma).or_insert(false);
                ends.entry(svma).or_insert(u64::MAX);
            }
        }
        Some(ExitFinder {
            memory: Memory::new(machine),
            text,
            starts,
            ends,
        })
    }

    /// The start of the function that contains `svma`, and whether it is T32. Only as far as starts
    /// are known.
    pub fn function_at(&self, svma: u64) -> Option<(u64, bool)> {
        let (start, thumb) = self.starts.range(..=svma).next_back()?;
        self.text.is_text(svma).then_some((*start, *thumb))
    }

    /// Whether a known function certainly extends to `svma`.
    fn is_inside(&self, svma: u64) -> bool {
        let start = self.starts.range(..=svma).next_back();
        let end = start.and_then(|(start, _)| self.ends.get(start));
        end.is_some_and(|end| svma < *end)
    }

    /// Adds functions that only calls reveal. A stripped musl library names only its exports, and
    /// has no unwind information.
    fn add_called(&mut self) {
        let mut called = starts::called(&self.text, 1).targets;
        called.retain(|svma| !self.is_inside(*svma));
        self.starts.extend(called.iter().map(|svma| (*svma, false)));
        // Adds targets of tail calls, and on ARM also of calls. ARM data between functions looks
        // like calls, so only calls on followed paths count there.
        let all = self.starts.iter();
        let mut open: Vec<Target> = all.map(|(&svma, &thumb)| Target { svma, thumb }).collect();
        while let Some(target) = open.pop() {
            let (function, observed) = self.follow_one(target, &State::entry(self.text.machine));
            let exits = function.exits.into_iter();
            let left = exits.filter(|(_, state)| !state.has_frame());
            for target in left.map(|(target, _)| target).chain(observed.called) {
                let known = self.starts.contains_key(&target.svma);
                if !known && !self.is_inside(target.svma) && self.text.is_text(target.svma) {
                    self.starts.insert(target.svma, target.thumb);
                    open.push(target);
                }
            }
        }
    }

    /// Addresses of possible system call instructions. Only those that [`ExitFinder::follow`] also
    /// finds are real.
    ///
    /// If no known function extends to one of them, this adds the functions that only calls reveal.
    pub fn likely_system_calls(&mut self) -> Vec<u64> {
        let found = self.likely();
        if !found.iter().all(|svma| self.is_inside(*svma)) {
            self.add_called();
        }
        found
    }

    fn likely(&self) -> Vec<u64> {
        let mut found = Vec::new();
        for range in self.text.ranges() {
            let bytes = self.text.bytes(range.start);
            let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
            let bytes = &bytes[..bytes.len().min(len)];
            let step = match self.text.machine.arch {
                Arch::X86_64 => 1,
                Arch::Aarch64 => 4,
                _ => 2,
            };
            let calls = |at: &usize| match self.text.machine.arch {
                // syscall
                Arch::X86_64 => bytes[*at..].starts_with(&[0x0f, 0x05]),
                // svc #0
                Arch::Aarch64 => bytes[*at..].starts_with(&[0x01, 0x00, 0x00, 0xd4]),
                // T32 svc #0, and the upper half of A32's
                _ => {
                    bytes[*at..].starts_with(&[0x00, 0xdf])
                        || bytes[*at..].starts_with(&[0x00, 0x00, 0x00, 0xef])
                }
            };
            let all = (0..bytes.len()).step_by(step).filter(calls);
            found.extend(all.map(|at| range.start + at as u64));
            if self.text.machine.arch == Arch::Arm
                && found
                    .iter()
                    .any(|at| self.is_syscall_function(at.wrapping_sub(4)))
            {
                let all = (0..bytes.len())
                    .step_by(2)
                    .map(|at| range.start + at as u64);
                let calls = |at: &u64| {
                    // 11110xxx xxxxxxxx 11x1xxxx xxxxxxxx: bl (ARM DDI 0406, A6.3.4)
                    self.text.half(*at).is_some_and(|half| half >> 11 == 0b11110)
                        && self.text.decode(*at, true).is_some_and(|found| {
                            matches!(found.flow, Flow::Call(Some(target)) if self.is_syscall_function(target.svma))
                        })
                };
                found.extend(all.filter(calls));
            }
        }
        found
    }

    fn is_syscall_function(&self, svma: u64) -> bool {
        self.text.machine.arch == Arch::Arm
            && self.text.bytes(svma).starts_with(&ARM_SYSCALL_FUNCTION)
    }

    /// Finds the exits of the function that starts at `svma`.
    pub fn follow(&mut self, svma: u64, thumb: bool) -> Exits {
        let mut ways = Exits {
            whole: true,
            ..Exits::default()
        };
        let mut seen = BTreeSet::new();
        let entry = State::entry(self.text.machine);
        let mut open = vec![(Target { svma, thumb }, entry, true)];
        while let Some((start, entry, own)) = open.pop() {
            if !seen.insert(start.svma) {
                continue;
            }
            if seen.len() > MAX_PARTS || !self.text.is_text(start.svma) {
                ways.whole = false;
                continue;
            }
            let (function, observed) = self.follow_one(start, &entry);
            let Seen {
                lines, mut found, ..
            } = observed;
            let end = self.end_of(start.svma);
            for call in &mut found.system_calls {
                let run = approach::before(&self.text, &lines, end, call);
                // The instruction that calls a function is not yet the system call.
                let is_needed = call.before.is_none() || run.is_some_and(|run| run.movable > 0);
                if is_needed {
                    call.before = run;
                }
            }
            if sound(&function) {
                lines.set_movable(&self.text, end, &mut found);
                if start.svma == svma {
                    ways.movable = lines.movable(&self.text, end, svma);
                }
            } else {
                found.forbid_moving();
            }
            ways.returns.extend(found.returns);
            if own {
                ways.system_calls.extend(found.system_calls);
            }
            ways.whole &= sound(&function);
            for (target, state) in &function.exits {
                let part = state.has_frame();
                let state = if part {
                    state.state()
                } else {
                    State::entry(self.text.machine)
                };
                open.push((*target, state, own && part));
            }
        }
        ways.returns.sort_unstable();
        ways.returns.dedup();
        ways.system_calls.sort_unstable();
        ways.system_calls.dedup();
        ways
    }

    fn follow_one(&mut self, start: Target, entry: &State) -> (Function, Seen) {
        let mut observed = ExitObserver {
            text: &self.text,
            thumb: start.thumb,
            seen: Seen::default(),
        };
        let end = self.end_of(start.svma);
        let mut engine = Engine::new(&self.text, &mut self.memory, false);
        let function = engine.follow(start, end, entry, true, &mut observed);
        (function, observed.seen)
    }

    fn end_of(&self, start: u64) -> u64 {
        let next = self.starts.range(start + 1..).next();
        let text = self.text.range(start).map_or(start, |range| range.end);
        next.map_or(text, |(next, _)| text.min(*next))
    }
}

/// Whether all reachable code was followed and every jump's target is known.
fn sound(function: &Function) -> bool {
    function.instructions > 0
        && !function.open
        && !function.doubtful
        && function.unresolved.is_empty()
}

/// Records relevant instructions while the engine follows a function.
struct ExitObserver<'t, 'i> {
    text: &'t Text<'i>,
    thumb: bool,
    seen: Seen,
}

#[derive(Default)]
struct Seen {
    lines: Lines,
    found: Exits,
    /// ARM: targets of calls.
    called: Vec<Target>,
}

impl Show for ExitObserver<'_, '_> {
    fn merges(&self) -> bool {
        false
    }

    fn show(
        &mut self,
        svma: u64,
        len: u8,
        state: &mut State,
        last: Option<&mut Shown>,
    ) -> Option<Shown> {
        let (machine, thumb) = (self.text.machine, self.thumb);
        let instruction = self.text.decode(svma, thumb)?;
        let before = match &last {
            Some(Shown::Run(start, end, _)) if *end == svma => Some(*start),
            _ => None,
        };
        self.seen
            .lines
            .add(self.text, svma, &instruction, before, state);
        if let Flow::Call(Some(target)) = instruction.flow
            && machine.arch == Arch::Arm
        {
            self.seen.called.push(target);
        }
        let returns = match instruction.flow {
            Flow::Return => true,
            Flow::Indirect(Some(register)) => {
                machine.link && state.register(register) == Value::Entry(machine.ra)
            }
            _ => false,
        };
        if returns {
            // The bytes that the instruction itself pops, used if the depth is unknown.
            let taken = instruction
                .effects()
                .iter()
                .find_map(|effect| match effect {
                    Effect::Add { to, from, by } if *to == machine.sp && from == to => Some(*by),
                    _ => None,
                });
            let below = match state.depth() {
                Some(depth) => depth - machine.entry_depth,
                None if machine.link => taken.unwrap_or(0),
                None => 0,
            };
            self.seen.found.returns.push(Return {
                svma,
                thumb,
                condition: instruction.condition,
                below,
                early: None,
            });
        }
        let by_function = matches!(instruction.flow, Flow::Call(Some(target))
            if machine.arch == Arch::Arm && self.text.bytes(target.svma).starts_with(&ARM_SYSCALL_FUNCTION));
        if by_function || instruction.effects().contains(&Effect::SystemCall) {
            let constant = |register: u8| match state.register(register) {
                Value::Constant(value) => Some(value),
                _ => None,
            };
            let before = by_function.then_some(Before {
                svma,
                sets: [None; 4],
                movable: 0,
            });
            self.seen.found.system_calls.push(SystemCall {
                svma,
                next: svma + u64::from(len),
                thumb,
                number: constant(if by_function {
                    ARM_IP
                } else {
                    machine.call_number
                }),
                second: constant(approach::argument_registers(machine.arch)[1]),
                before,
                movable: 0,
            });
        }
        // Tells the next instruction which one precedes it in its block.
        Some(Shown::Run(svma, svma + u64::from(len), 0))
    }
}

#[cfg(test)]
mod tests;
