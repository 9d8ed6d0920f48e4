//! Recognizes signal trampolines by their code: a few instructions that make the `rt_sigreturn`
//! system call.
//!
//! There the kernel has put all registers of the interrupted frame on the stack, in a layout that
//! is part of its ABI. Separate from CFI because most C libraries have no CFI for ARM's
//! trampolines, and because the kernel's own mappings (vdso, sigpage) are in no file.

use unspool_image::Arch;

use super::{Frame, State};
use crate::memory::{StackMemory, read_pointer};
use crate::modules::ModuleMap;
use crate::registers::RegisterFile;

/// The registers of the interrupted frame, if `frame` is a trampoline.
pub(super) fn step(
    modules: &ModuleMap,
    here: &State,
    frame: &Frame,
    memory: &mut dyn StackMemory,
) -> Option<RegisterFile> {
    let arch = modules.arch();
    // The handler "returns" to the trampoline's first instruction, so pc is exact here. A thread
    // may also be stopped at the second one, the system call.
    let first: &[u64] = match arch {
        Arch::X86_64 => &[0, 7],
        Arch::Aarch64 => &[0, 4],
        _ => &[0, 2, 4],
    };
    let tries = if here.exact { first } else { &first[..1] };
    tries
        .iter()
        .find_map(|&back| interrupted(modules, here, frame, frame.pc.checked_sub(back)?, memory))
}

/// The registers of the interrupted frame, if a trampoline starts at `pc`.
fn interrupted(
    modules: &ModuleMap,
    here: &State,
    frame: &Frame,
    pc: u64,
    memory: &mut dyn StackMemory,
) -> Option<RegisterFile> {
    let arch = modules.arch();
    let mut code = [0u8; 12];
    let len = if arch == Arch::X86_64 { 9 } else { 8 };
    match modules.bytes(pc, len) {
        Some(bytes) => code[..len].copy_from_slice(bytes),
        // No file: the code may be in the kernel's own page, if the snapshot has it. A module's
        // text is never read from the snapshot's memory.
        None if modules.find(pc).is_none() => {
            memory.read(pc, &mut code[..len]).ok()?;
        }
        None => return None,
    }
    let mut registers = here.registers.clone();
    match arch {
        Arch::X86_64 => {
            if code[..9] != X86_64 {
                return None;
            }
            // sp -> struct ucontext: flags, link, stack (40 bytes), then sigcontext
            const ORDER: [u8; 17] = [8, 9, 10, 11, 12, 13, 14, 15, 5, 4, 6, 3, 1, 0, 2, 7, 16];
            for (index, number) in ORDER.into_iter().enumerate() {
                let at = frame.sp.wrapping_add(40 + 8 * index as u64);
                registers.set(number, read_pointer(memory, at, 8).ok()?);
            }
        }
        Arch::Aarch64 => {
            if code[..8] != AARCH64 {
                return None;
            }
            // sp -> siginfo (128), ucontext up to its sigcontext (176), fault address (8),
            // x0..=x30, sp, pc
            for number in 0..=32u8 {
                let at = frame.sp.wrapping_add(312 + 8 * u64::from(number));
                registers.set(number, read_pointer(memory, at, 8).ok()?);
            }
        }
        _ => {
            // sp -> [siginfo (128), if it is the rt frame], ucontext up to its sigcontext (20),
            // trap, error code, old mask (12), r0..=r10, fp, ip, sp, lr, pc, cpsr
            let skip = match arm_sigreturn(&code)? {
                SigReturn::Plain => 32,
                SigReturn::Rt => 160,
            };
            for number in 0..16u8 {
                let at = frame.sp.wrapping_add(skip + 4 * u64::from(number));
                registers.set(number, read_pointer(memory, at, 4).ok()?);
            }
            let at = frame.sp.wrapping_add(skip + 64);
            registers.set_thumb(read_pointer(memory, at, 4).ok()? >> 5 & 1 == 1);
        }
    }
    let pc = registers.pc()?;
    (modules.is_text(pc) || modules.find(pc).is_none()).then_some(registers)
}

/// Whether a return address leads to a trampoline, in a file or outside all files.
///
/// Code outside all files can only be read from memory, which [`step`] does. Here it is enough that
/// no module contains the address, and that it is page-aligned plus a small offset. The kernel's
/// page on ARM is, and qemu user mode's on AArch64.
pub(super) fn is_at(modules: &ModuleMap, pc: u64) -> bool {
    modules.arch() != Arch::X86_64
        && modules.find(pc).is_none()
        && pc & 0xfff < 0x200
        && pc > 0x1000
        || starts(modules, pc)
}

/// Whether a module has a trampoline at `pc`. If `exact`, pc may also be at its system call.
pub(crate) fn is_trampoline(modules: &ModuleMap, pc: u64, exact: bool) -> bool {
    let second = [2, 4, 7].into_iter().filter(|_| exact);
    core::iter::once(0)
        .chain(second)
        .any(|back| starts(modules, pc.wrapping_sub(back)))
}

fn starts(modules: &ModuleMap, pc: u64) -> bool {
    match modules.arch() {
        Arch::X86_64 => modules.bytes(pc, 9).is_some_and(|code| code == X86_64),
        Arch::Aarch64 => modules.bytes(pc, 8).is_some_and(|code| code == AARCH64),
        _ => modules
            .bytes(pc, 8)
            .and_then(|bytes| {
                let mut code = [0u8; 12];
                code[..8].copy_from_slice(bytes);
                arm_sigreturn(&code)
            })
            .is_some(),
    }
}

/// `mov $15, %rax; syscall`
const X86_64: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
/// `mov x8, #139; svc #0`
const AARCH64: [u8; 8] = [0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4];

enum SigReturn {
    Plain,
    Rt,
}

/// `mov r7, #119` (sigreturn) or `#173` (rt_sigreturn), then `svc`, in A32, T32 and T16.
fn arm_sigreturn(code: &[u8; 12]) -> Option<SigReturn> {
    let word = |at: usize| u32::from_le_bytes([code[at], code[at + 1], code[at + 2], code[at + 3]]);
    let half = |at: usize| u16::from_le_bytes([code[at], code[at + 1]]);
    let number = if word(0) & 0xffff_ff00 == 0xe3a0_7000 && word(4) & 0xff00_0000 == 0xef00_0000 {
        word(0) & 0xff
    } else if half(0) & 0xff00 == 0x2700 && half(2) & 0xff00 == 0xdf00 {
        u32::from(half(0) & 0xff)
    } else if half(0) == 0xf04f && half(2) & 0xff00 == 0x0700 && half(4) & 0xff00 == 0xdf00 {
        u32::from(half(2) & 0xff)
    } else {
        return None;
    };
    match number {
        119 => Some(SigReturn::Plain),
        173 => Some(SigReturn::Rt),
        _ => None,
    }
}
