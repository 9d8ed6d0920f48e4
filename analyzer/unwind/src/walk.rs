//! The walk: steps from one frame's registers to its caller's until the stack ends.
//!
//! Each frame has a list of ways to its caller, best first. The walk takes the first one whose
//! result passes the sanity checks. The caller's frame records which it was.

mod chain;
mod scan;
mod step;
mod thread_start;
mod trampoline;

use alloc::vec::Vec;
use core::fmt;

use unspool_image::Arch;

use crate::memory::StackMemory;
use crate::modules::{Module, ModuleMap};
use crate::registers::{RegisterFile, roles};
use crate::rule::Source;
use crate::table::RowsRef;
use step::{Fail, Step};
pub(crate) use trampoline::is_trampoline;

/// Options of a walk.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WalkOptions {
    /// Maximum number of frames in a stack.
    pub max_frames: usize,
    /// If no other way works, search the stack for a word that looks like a return address.
    pub scan: bool,
    /// Ways to try first, in this order. Only rules ([`Provenance::Cfi`], [`Provenance::Exidx`],
    /// [`Provenance::Code`]) and [`Provenance::FramePointer`] have an effect. The other ways follow
    /// as usual.
    pub prefer: Vec<Provenance>,
}

impl Default for WalkOptions {
    fn default() -> Self {
        WalkOptions {
            max_frames: 1024,
            scan: true,
            prefer: Vec::new(),
        }
    }
}

/// How a frame was found: the rule that was applied in the frame below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Provenance {
    /// Frame 0: the thread's registers.
    Registers,
    /// DWARF call frame information, or the kernel's signal frame, whose layout is fixed.
    Cfi,
    /// The ARM exception index.
    Exidx,
    /// Analysis of the machine code.
    Code,
    /// The chain of frame pointers.
    FramePointer,
    /// The link register, although no rule says that it still holds the return address.
    LinkRegister,
    /// A word on the stack that looks like a return address.
    Scan,
}

impl Provenance {
    /// `registers`, `cfi`, `exidx`, `code`, `fp`, `lr` or `scan`.
    pub fn as_str(self) -> &'static str {
        match self {
            Provenance::Registers => "registers",
            Provenance::Cfi => "cfi",
            Provenance::Exidx => "exidx",
            Provenance::Code => "code",
            Provenance::FramePointer => "fp",
            Provenance::LinkRegister => "lr",
            Provenance::Scan => "scan",
        }
    }
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<Source> for Provenance {
    fn from(source: Source) -> Self {
        match source {
            Source::Cfi => Provenance::Cfi,
            Source::Exidx => Provenance::Exidx,
            Source::Code => Provenance::Code,
        }
    }
}

/// One frame of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The address at which the frame executes or to which it will return (avma, without Thumb
    /// bit).
    pub pc: u64,
    /// `pc` itself if the frame was interrupted or is at a signal trampoline's first instruction.
    /// Else an address inside the call before it.
    pub address_for_lookup: u64,
    /// The frame's stack pointer.
    pub sp: u64,
    /// [`crate::Module::id`] of the module that contains `address_for_lookup`.
    pub module: Option<u32>,
    /// `address_for_lookup` as an svma of the module's file.
    pub svma: Option<u64>,
    /// How the frame was found.
    pub provenance: Provenance,
    /// ARM: the frame executes T32 code.
    pub thumb: bool,
    /// A signal interrupted the frame; the frame below it is the kernel's.
    pub signal_frame: bool,
    /// The frame register (ARM r11, AArch64 x29, x86-64 rbp), if known. An inlined frame shares the
    /// frame register of its function.
    pub fp: Option<u64>,
}

/// The reason why a stack has no further frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StackEnd {
    /// The outermost frame, marked as such by call frame information or by its code.
    Complete,
    /// The return address is 0, which marks the outermost frame in the absence of other marks.
    NullReturn,
    /// No source has a rule for `pc`.
    NoRule {
        /// The pc of the last frame.
        pc: u64,
    },
    /// The return address lies outside all known code.
    OutsideText {
        /// The return address.
        pc: u64,
    },
    /// Code without a file has no frame pointer that leads to its caller.
    GeneratedCode {
        /// The pc of the last frame.
        pc: u64,
    },
    /// The snapshot does not contain the stack at this address.
    MemoryMissing {
        /// The missing address.
        avma: u64,
    },
    /// A register that the rule needs is not known.
    RegisterMissing {
        /// Its name in gdb.
        register: &'static str,
    },
    /// The stack has reached the maximum number of frames.
    FrameLimit,
    /// The caller's frame would not be above its callee's: the stack is damaged or a rule is wrong.
    NotAdvancing,
    /// The snapshot has no program counter or stack pointer.
    NoRegisters,
}

impl StackEnd {
    /// Whether the stack is complete.
    pub fn is_complete(&self) -> bool {
        matches!(self, StackEnd::Complete | StackEnd::NullReturn)
    }
}

impl fmt::Display for StackEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            StackEnd::Complete => f.write_str("the stack is complete"),
            StackEnd::NullReturn => f.write_str("the stack ends with a return address of 0"),
            StackEnd::NoRule { pc } => {
                write!(f, "no unwind information or readable code at {pc:#x}")
            }
            StackEnd::OutsideText { pc } => {
                write!(f, "the return address {pc:#x} is outside all known code")
            }
            StackEnd::GeneratedCode { pc } => {
                write!(f, "the generated code at {pc:#x} has no frame pointer")
            }
            StackEnd::MemoryMissing { avma } => {
                write!(f, "the snapshot has no stack memory at {avma:#x}")
            }
            StackEnd::RegisterMissing { register } => {
                write!(f, "register {register} is needed and not known")
            }
            StackEnd::FrameLimit => f.write_str("the limit of frames was reached"),
            StackEnd::NotAdvancing => {
                f.write_str("the next frame would not be above this one on the stack")
            }
            StackEnd::NoRegisters => {
                f.write_str("the snapshot has no program counter or stack pointer")
            }
        }
    }
}

/// The frames of one thread, innermost first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Contains at least frame 0, unless the end is [`StackEnd::NoRegisters`].
    pub frames: Vec<Frame>,
    /// The reason why there are no more frames.
    pub end: StackEnd,
}

/// Unwinds one thread.
pub fn walk(
    modules: &ModuleMap,
    registers: &RegisterFile,
    memory: &mut dyn StackMemory,
    options: &WalkOptions,
) -> Stack {
    walk_watching(modules, registers, memory, options, &mut |_| {})
}

/// Unwinds one thread. Passes the registers of every frame to `watch`, innermost first: those that
/// the callees have saved, and the others as far as known.
pub fn walk_watching(
    modules: &ModuleMap,
    registers: &RegisterFile,
    memory: &mut dyn StackMemory,
    options: &WalkOptions,
    watch: &mut dyn FnMut(&RegisterFile),
) -> Stack {
    let mut here = State {
        registers: registers.clone(),
        exact: true,
        provenance: Provenance::Registers,
        interrupted: false,
    };
    let mut frames = Vec::new();
    let end = loop {
        if frames.len() >= options.max_frames {
            break StackEnd::FrameLimit;
        }
        let Some(frame) = here.frame(modules) else {
            break StackEnd::NoRegisters;
        };
        let innermost = frames.is_empty();
        watch(&here.registers);
        frames.push(frame);
        let frame = &frames[frames.len() - 1];
        match caller(modules, &here, frame, innermost, memory, options) {
            Ok(next) => here = next,
            Err(end) => break end,
        }
    };
    Stack { frames, end }
}

/// The current frame of a walk.
struct State {
    registers: RegisterFile,
    /// pc is the next instruction to execute, not a return address.
    exact: bool,
    provenance: Provenance,
    interrupted: bool,
}

impl State {
    fn frame(&self, modules: &ModuleMap) -> Option<Frame> {
        let pc = self.registers.pc()?;
        // The kernel makes the handler return to the trampoline, so no call precedes it.
        let exact = self.exact || trampoline::is_at(modules, pc);
        let address_for_lookup = pc.wrapping_sub(u64::from(!exact));
        let found = modules.find(address_for_lookup);
        Some(Frame {
            pc,
            address_for_lookup,
            sp: self.registers.sp()?,
            module: found.map(|(module, _)| module.id),
            svma: found.map(|(_, svma)| svma),
            provenance: self.provenance,
            thumb: self.registers.thumb(),
            signal_frame: self.interrupted,
            fp: self.registers.get(roles(self.registers.arch()).fp),
        })
    }
}

fn caller(
    modules: &ModuleMap,
    here: &State,
    frame: &Frame,
    innermost: bool,
    memory: &mut dyn StackMemory,
    options: &WalkOptions,
) -> Result<State, StackEnd> {
    // The failure of the best source, in case no way succeeds.
    let mut first_failure: Option<Fail> = None;
    let mut remember = |fail: Fail| {
        first_failure.get_or_insert(fail);
    };

    if let Some(registers) = trampoline::step(modules, here, frame, memory) {
        return Ok(State {
            registers,
            exact: true,
            provenance: Provenance::Cfi,
            interrupted: true,
        });
    }

    let found = modules.find(frame.address_for_lookup);
    for way in ways(found, here, options) {
        let (step, signal_frame) = match &way {
            Way::Rule(rows, svma, _) => match rows.lookup(*svma) {
                Some(row) => {
                    let step = step::apply(rows, &row.rule, here, memory);
                    (step, row.rule.signal_frame)
                }
                None => (Err(Fail::NoRule), false),
            },
            Way::FramePointer => (chain::step(modules, here, memory), false),
            Way::LinkRegister => (link_register(modules, here, frame.sp), false),
        };
        match step.and_then(|step| check(modules, here, frame, innermost, step)) {
            Ok(step) => {
                return Ok(State {
                    registers: step.registers,
                    exact: signal_frame,
                    provenance: way.provenance(),
                    interrupted: signal_frame,
                });
            }
            Err(fail @ (Fail::Outermost | Fail::NullReturn | Fail::Memory(_)))
                if matches!(way, Way::Rule(..)) =>
            {
                return Err(fail.into_end(frame.pc));
            }
            Err(Fail::NoRule) if !matches!(way, Way::Rule(..)) => {}
            Err(fail) => remember(fail),
        }
    }
    if !here.exact && thread_start::is_at(modules, frame) {
        return Err(StackEnd::Complete);
    }
    if modules.is_generated_code(frame.address_for_lookup) {
        // A return address of an outer frame would pass for the caller's: a word on the stack
        // proves nothing here.
        return Err(StackEnd::GeneratedCode { pc: frame.pc });
    }
    // A failed rule is better evidence than any word on the stack. The same holds for an end of the
    // frame-pointer chain.
    if options.scan
        && first_failure.is_none()
        && let Some(step) = scan::step(modules, here, frame.sp, memory)
    {
        return Ok(State {
            registers: step.registers,
            exact: false,
            provenance: Provenance::Scan,
            interrupted: false,
        });
    }
    let nowhere = found.is_none();
    Err(match first_failure {
        Some(fail) => fail.into_end(frame.pc),
        None if nowhere => StackEnd::OutsideText { pc: frame.pc },
        None => StackEnd::NoRule { pc: frame.pc },
    })
}

/// Steps by the link register. Valid only where pc is exact and the function has made no call yet.
fn link_register(modules: &ModuleMap, here: &State, sp: u64) -> Result<Step, Fail> {
    let lr = roles(modules.arch())
        .lr
        .filter(|_| here.exact)
        .ok_or(Fail::NoRule)?;
    let ra = here.registers.get(lr).ok_or(Fail::NoRule)?;
    let step = Step::new(here, sp, ra);
    // If lr points to the current pc, that call has already returned.
    let used = step.registers.pc() == here.registers.pc();
    if !used && scan::follows_call(modules, &step.registers) {
        Ok(step)
    } else {
        Err(Fail::NoRule)
    }
}

/// A way to a frame's caller.
enum Way<'m> {
    /// The row for this address, and its source.
    Rule(RowsRef<'m>, u64, Source),
    FramePointer,
    LinkRegister,
}

impl Way<'_> {
    fn provenance(&self) -> Provenance {
        match self {
            Way::Rule(_, _, source) => (*source).into(),
            Way::FramePointer => Provenance::FramePointer,
            Way::LinkRegister => Provenance::LinkRegister,
        }
    }
}

/// The ways to find the caller, best first. A way is looked up only after all earlier ways have
/// failed.
fn ways<'m>(
    found: Option<(&'m Module, u64)>,
    here: &State,
    options: &WalkOptions,
) -> impl Iterator<Item = Way<'m>> {
    let exact = here.exact;
    let rule = move |source: Source| {
        let (module, svma) = found?;
        let rows = module.table.rows_at(source, svma)?;
        let source = rows.source(svma)?;
        let own = source != Source::Exidx || !module.table.is_neighbours(svma);
        own.then_some(Way::Rule(rows, svma, source))
    };
    let preferred: Vec<Provenance> = options.prefer.clone();
    // The merged rows contain the best rule. EHABI promises exidx rows only at call sites;
    // elsewhere, the code analysis comes first.
    let best = found
        .filter(|_| preferred.is_empty())
        .and_then(|(module, svma)| {
            let rows = module.table.merged_at(svma)?;
            let source = rows.source(svma)?;
            let way = Way::Rule(RowsRef::Borrowed(rows), svma, source);
            (!exact || source != Source::Exidx).then_some(way)
        });
    let tried = best.as_ref().map(Way::provenance);
    let sources: Vec<Source> = match found {
        Some((module, _)) => {
            let mut order = module.table.order().to_vec();
            if exact {
                order.sort_by_key(|source| *source == Source::Exidx);
            }
            order
        }
        None => Vec::new(),
    };
    let unpreferred = preferred.clone();
    let first = preferred.into_iter().filter_map(move |way| match way {
        Provenance::Cfi => rule(Source::Cfi),
        Provenance::Exidx => rule(Source::Exidx),
        Provenance::Code => rule(Source::Code),
        Provenance::FramePointer => Some(Way::FramePointer),
        _ => None,
    });
    let rest = sources
        .into_iter()
        .filter(move |source| {
            let way = Provenance::from(*source);
            Some(way) != tried && !unpreferred.contains(&way)
        })
        .filter_map(rule);
    best.into_iter()
        .chain(first)
        .chain(rest)
        .chain([Way::FramePointer, Way::LinkRegister])
}

/// Checks that every caller must pass, however it was found.
fn check(
    modules: &ModuleMap,
    here: &State,
    frame: &Frame,
    innermost: bool,
    step: Step,
) -> Result<Step, Fail> {
    let (Some(pc), Some(sp)) = (step.registers.pc(), step.registers.sp()) else {
        return Err(Fail::NoRule);
    };
    if pc == 0 {
        return Err(Fail::NullReturn);
    }
    // A leaf function without a frame has its caller's sp. Only the innermost frame, or one that a
    // signal interrupted, is a leaf. x86-64's vfork also pops its return address. Signal handlers
    // may run on another stack at any address.
    let linked = modules.arch() != Arch::X86_64 || step.linked;
    let leaf = (innermost || here.exact) && linked;
    if !step.signal_frame && (sp < frame.sp || sp == frame.sp && !leaf) {
        return Err(Fail::NotAdvancing);
    }
    // The return address of a call that never returns may be one past the end of the text.
    let executes = if step.signal_frame { pc } else { pc - 1 };
    if !modules.is_text(executes)
        && !modules.is_generated_code(executes)
        && !modules.is_unreadable(executes)
        && !trampoline::is_at(modules, pc)
    {
        return Err(Fail::OutsideText(pc));
    }
    Ok(step)
}
