//! The gate of a collector: its first instructions, which leave if it is off.

use super::super::fast::Standing;
use super::assembler::{Assembler, JMP, Label};
use super::collector::{HEAD, RED_ZONE};
use super::user_regs::{RCX, RSP, set_word, word};

/// An instruction of the gate. It changes no flags, because restoring them takes longer than all of
/// the gate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Gate {
    pub(super) offset: usize,
    /// Distance from the stack pointer to that of the program, in bytes.
    depth: u64,
    /// True if rcx is on top of the stack.
    has_pushed: bool,
    /// True if the collector is off.
    is_off: bool,
}

impl Gate {
    /// Changes the registers of a thread at this instruction into those that it would have without
    /// the collector. `None` if its stack cannot be read.
    pub(super) fn back(
        &self,
        general: &mut [u8],
        read: &dyn Fn(u64, &mut [u8]) -> bool,
    ) -> Option<Standing> {
        let sp = word(general, RSP);
        if self.has_pushed {
            let mut pushed = [0; 8];
            if !read(sp, &mut pushed) {
                return None;
            }
            set_word(general, RCX, u64::from_le_bytes(pushed));
        }
        set_word(general, RSP, sp.wrapping_add(self.depth));
        Some(match self.is_off {
            true => Standing::Dealt,
            false => Standing::Before,
        })
    }
}

/// Writes the gate. After it, the collector continues.
pub(super) fn put(a: &mut Assembler) -> Vec<Gate> {
    let mut gate = Vec::new();
    let mut put = |a: &mut Assembler, depth, has_pushed, is_off, code: &[u8]| {
        gate.push(Gate {
            offset: a.code.len(),
            depth,
            has_pushed,
            is_off,
        });
        a.put(code);
    };
    // lea rsp, [rsp - 128]; push rcx; mov ecx, [start - 16]
    put(a, 0, false, false, &[0x48, 0x8d, 0x64, 0x24, 0x80]);
    put(a, RED_ZONE, false, false, &[0x51]);
    put(a, RED_ZONE + 8, true, false, &[0x8b, 0x0d]);
    let on = -(HEAD as i32) - (a.code.len() as i32 + 4);
    a.put(&on.to_le_bytes());
    // jrcxz off; jmp on
    put(a, RED_ZONE + 8, true, false, &[0xe3, 2]);
    put(a, RED_ZONE + 8, true, false, &[0xeb, 14]);
    // off: pop rcx; lea rsp, [rsp + 128]; jmp copy
    put(a, RED_ZONE + 8, true, true, &[0x59]);
    put(
        a,
        RED_ZONE,
        false,
        true,
        &[0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0],
    );
    put(a, 0, false, true, &[]);
    a.jump(JMP, Label::Copy);
    // on: pop rcx
    put(a, RED_ZONE + 8, true, false, &[0x59]);
    gate
}
