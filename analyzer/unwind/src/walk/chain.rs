//! Follows frame-pointer chains, in the shapes that compilers make.
//!
//! A step is accepted only if the return address follows a call. The next frame pointer must be
//! above this one and not too far away (gperftools checks the same). A register with another use
//! rarely passes.
//!
//! Code without a file, such as that of a JIT compiler, has no bytes to check, so any address in it
//! may be a return address. Its caller in a file must have made an indirect call: a direct one
//! leads to code of the file. This rejects most chains in which the code keeps no frame pointer,
//! and that would skip frames. Where the chain has already led through such code, a direct call may
//! have jumped on, as in V8.

use unspool_image::Arch;

use super::scan::{follows_call, follows_indirect_call};
use super::step::{Fail, Step};
use super::{Provenance, State};
use crate::memory::{StackMemory, read_pointer};
use crate::modules::ModuleMap;

/// Maximum size of a frame, in bytes. A larger one is damage.
const MAX_FRAME_SIZE: u64 = 8 << 20;

/// The layout of a frame, as offsets from the frame pointer.
struct Shape {
    fp: u8,
    saved_fp: i64,
    ra: i64,
    /// `cfa = fp + this`
    cfa: i64,
}

/// x86-64 `push rbp; mov rbp, rsp`; AArch64 `stp x29, x30, [sp, #-n]!; mov x29, sp`. AArch64's CFA
/// is unknown; any address above the record serves.
const PAIR: [Shape; 2] = [
    Shape {
        fp: 6,
        saved_fp: 0,
        ra: 8,
        cfa: 16,
    },
    Shape {
        fp: 29,
        saved_fp: 0,
        ra: 8,
        cfa: 16,
    },
];

const ARM: [Shape; 3] = [
    // APCS: mov ip, sp; push {fp, ip, lr, pc}; sub fp, ip, #4
    Shape {
        fp: 11,
        saved_fp: -12,
        ra: -4,
        cfa: 4,
    },
    // GCC, A32: push {fp, lr}; add fp, sp, #4
    Shape {
        fp: 11,
        saved_fp: -4,
        ra: 0,
        cfa: 4,
    },
    // Clang, T32: push {r7, lr}; mov r7, sp. Clang's A32 code uses r11 in the same way.
    Shape {
        fp: 7,
        saved_fp: 0,
        ra: 4,
        cfa: 8,
    },
];

const ARM_CLANG: Shape = Shape {
    fp: 11,
    saved_fp: 0,
    ra: 4,
    cfa: 8,
};

pub(super) fn step(
    modules: &ModuleMap,
    here: &State,
    memory: &mut dyn StackMemory,
) -> Result<Step, Fail> {
    let mut failure = Fail::NoRule;
    let shapes: &[Shape] = match modules.arch() {
        Arch::X86_64 => &PAIR[..1],
        Arch::Aarch64 => &PAIR[1..],
        _ => &ARM,
    };
    let clang = (modules.arch() == Arch::Arm).then_some(&ARM_CLANG);
    for shape in shapes.iter().chain(clang) {
        match follow(modules, here, shape, memory) {
            Ok(step) => return Ok(step),
            Err(Fail::NoRule) => {}
            Err(fail) => failure = fail,
        }
    }
    Err(failure)
}

fn follow(
    modules: &ModuleMap,
    here: &State,
    shape: &Shape,
    memory: &mut dyn StackMemory,
) -> Result<Step, Fail> {
    let size = if modules.arch() == Arch::Arm { 4 } else { 8 };
    let fp = here.registers.get(shape.fp).ok_or(Fail::NoRule)?;
    let sp = here.registers.sp().ok_or(Fail::NoRule)?;
    if fp < sp || fp - sp > MAX_FRAME_SIZE || !fp.is_multiple_of(size) {
        return Err(Fail::NoRule);
    }
    let mut load = |offset: i64| {
        read_pointer(memory, fp.wrapping_add_signed(offset), size as usize)
            .map_err(|_| Fail::NoRule)
    };
    let ra = load(shape.ra)?;
    let next = load(shape.saved_fp)?;
    if next == 0 && ra == 0 {
        return Err(Fail::NullReturn);
    }
    let mut step = Step::new(here, fp.wrapping_add_signed(shape.cfa), ra);
    step.registers.set(shape.fp, next);
    // The chain ends with 0. The frame that holds the 0 still has a return address.
    let continues = next == 0 || next > fp && next - fp <= MAX_FRAME_SIZE;
    let caller = step.registers.pc().unwrap_or(0);
    let pc = here.registers.pc().unwrap_or(0);
    let is_accepted = if modules.is_generated_code(caller.wrapping_sub(1)) {
        continues
    } else if modules.is_generated_code(pc.wrapping_sub(u64::from(!here.exact))) {
        // The caller may use the register for other values, since its file has rules.
        let keeps_frame_pointers = here.provenance == Provenance::FramePointer;
        follows_indirect_call(modules, &step.registers)
            || keeps_frame_pointers && continues && follows_call(modules, &step.registers)
    } else {
        continues && follows_call(modules, &step.registers)
    };
    is_accepted.then_some(step).ok_or(Fail::NoRule)
}
