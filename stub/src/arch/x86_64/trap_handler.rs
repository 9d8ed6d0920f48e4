//! The handler for `SIGTRAP` that the stub puts into the program. It keeps the program running if
//! the stub dies.
//!
//! A tracer receives every `SIGTRAP` before the program does. The handler therefore runs only if
//! the tracer is gone, or if the stub delivers a `SIGTRAP` that belongs to the program. For the
//! stub's traps it makes no system call, because a program may restrict its system calls.
//!
//! ```text
//! SI_KERNEL (int3):
//!   in a collector:             continue after the int3, which leads to the displaced instructions
//!   after one of our traps:     continue at the copy of the instruction under the trap
//!   at one of our traps:        continue there, and trap again (the stub had moved the pc back)
//!   after another int3:         call the program's former handler, or let the program die
//!   elsewhere:                  continue (the stub had moved the pc to another place)
//! other codes above 0 (a step): call the former handler, or do nothing
//! others (a sent signal):       call the former handler, or let the program die
//! ```

use super::super::handler_layout::COPY_SIZE;
use super::instruction::{Place, When, decode};
use super::user_regs::word;

/// `rt_sigaction`
pub(crate) const SIGACTION: u64 = 13;

/// Offset in the handler of a `syscall` instruction that the stub may use.
pub(crate) const SYSTEM_CALL: u64 = 0x89;
/// Offset in the handler of the code that returns to the kernel.
const RESTORER: u64 = 0x125;
/// Flag of `struct sigaction`: it has a restorer (Linux `arch/x86/include/uapi/asm/signal.h`).
const SA_RESTORER: u64 = 0x0400_0000;

/// The code of the handler. It contains distances to the data after it in the same memory.
///
/// Registers: rsi the `siginfo_t` (`si_code` at 8), rdx the `ucontext_t` (rip at 168).
pub(crate) const HANDLER: &[u8] = &[
    0xf3, 0x0f, 0x1e, 0xfa, // endbr64
    0x8b, 0x46, 0x08, // mov eax, dword [rsi+0x8]
    0x48, 0x8b, 0x8a, 0xa8, 0x00, 0x00, 0x00, // mov rcx, [rdx+0xa8]
    0x3d, 0x80, 0x00, 0x00, 0x00, // cmp eax, 0x80
    0x0f, 0x85, 0x91, 0x00, 0x00, 0x00, // jne other
    0x4c, 0x8d, 0x15, 0xf0, 0x03, 0x00, 0x00, // lea r10, [RANGES]
    0x41, 0xbb, 0x10, 0x00, 0x00, 0x00, // mov r11d, 0x10
    0x49, 0x3b, 0x0a, // cmp rcx, [r10]
    0x72, 0x06, // jb 0x31
    0x49, 0x3b, 0x4a, 0x08, // cmp rcx, [r10+0x8]
    0x72, 0x62, // jb gone
    0x49, 0x83, 0xc2, 0x10, // add r10, 0x10
    0x41, 0xff, 0xcb, // dec r11d
    0x75, 0xec, // jne 0x26
    0x48, 0x8d, 0x41, 0xff, // lea rax, [rcx-0x1]
    0xe8, 0xa2, 0x00, 0x00, 0x00, // call find
    0x4d, 0x85, 0xc0, // test r8, r8
    0x75, 0x44, // jne found
    0x48, 0x89, 0xc8, // mov rax, rcx
    0xe8, 0x95, 0x00, 0x00, 0x00, // call find
    0x4d, 0x85, 0xc0, // test r8, r8
    0x75, 0x3e, // jne gone
    0x80, 0x79, 0xff, 0xcc, // cmp byte [rcx-0x1], 0xcc
    0x75, 0x4e, // jne done
    0x48, 0x8b, 0x05, 0xa6, 0x03, 0x00, 0x00, // mov rax, [OLD]
    0x48, 0x85, 0xc0, // test rax, rax
    0x74, 0x02, // je 0x69
    0xff, 0xe0, // jmp rax
    0x48, 0xff, 0x8a, 0xa8, 0x00, 0x00, 0x00, // dec [rdx+0xa8]
    // default:
    0xbf, 0x05, 0x00, 0x00, 0x00, // mov edi, 0x5
    0x48, 0x8d, 0x35, 0x94, 0x04, 0x00, 0x00, // lea rsi, [DFL]
    0x31, 0xd2, // xor edx, edx
    0x41, 0xba, 0x08, 0x00, 0x00, 0x00, // mov r10d, 0x8
    0xb8, 0x0d, 0x00, 0x00, 0x00, // mov eax, 0xd
    0x0f, 0x05, // syscall
    0xc3, // ret
    // found:
    0x4c, 0x89, 0x82, 0xa8, 0x00, 0x00, 0x00, // mov [rdx+0xa8], r8
    // gone:
    0x48, 0x8b, 0x05, 0x66, 0x03, 0x00, 0x00, // mov rax, [POOL]
    0x48, 0x85, 0xc0, // test rax, rax
    0x74, 0x0a, // je done
    0xc7, 0x80, 0x80, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, // mov dword [rax+0x80], 0x1
    // done:
    0xc3, // ret
    // other:
    0x4c, 0x8b, 0x0d, 0x57, 0x03, 0x00, 0x00, // mov r9, [OLD]
    0x4d, 0x85, 0xc9, // test r9, r9
    0x74, 0x03, // je b9 <0xb9>
    0x41, 0xff, 0xe1, // jmp r9
    0x85, 0xc0, // test eax, eax
    0x7f, 0xec, // jg done
    0xe8, 0xae, 0xff, 0xff, 0xff, // call default
    0xb8, 0x27, 0x00, 0x00, 0x00, // mov eax, 0x27
    0x0f, 0x05, // syscall
    0x41, 0x89, 0xc0, // mov r8d, eax
    0xb8, 0xba, 0x00, 0x00, 0x00, // mov eax, 0xba
    0x0f, 0x05, // syscall
    0x44, 0x89, 0xc7, // mov edi, r8d
    0x89, 0xc6, // mov esi, eax
    0xba, 0x05, 0x00, 0x00, 0x00, // mov edx, 0x5
    0xb8, 0xea, 0x00, 0x00, 0x00, // mov eax, 0xea
    0x0f, 0x05, // syscall
    0xc3, // ret
    // find:
    0x49, 0xb9, 0x15, 0x7c, 0x4a, 0x7f, 0xb9, 0x79, 0x37,
    0x9e, // movabs r9, 0x9e3779b97f4a7c15
    0x4c, 0x0f, 0xaf, 0xc8, // imul r9, rax
    0x49, 0xc1, 0xe9, 0x34, // shr r9, 0x34
    0x4c, 0x8d, 0x15, 0x02, 0x0f, 0x00, 0x00, // lea r10, [TABLE]
    0x4d, 0x89, 0xcb, // mov r11, r9
    0x49, 0xc1, 0xe3, 0x04, // shl r11, 0x4
    0x4f, 0x8b, 0x04, 0x1a, // mov r8, [r10+r11*1]
    0x4d, 0x85, 0xc0, // test r8, r8
    0x74, 0x16, // je 124 <0x124>
    0x49, 0x39, 0xc0, // cmp r8, rax
    0x74, 0x0c, // je 11f <0x11f>
    0x41, 0xff, 0xc1, // inc r9d
    0x41, 0x81, 0xe1, 0xff, 0x0f, 0x00, 0x00, // and r9d, 0xfff
    0xeb, 0xdf, // jmp fe <0xfe>
    0x4f, 0x8b, 0x44, 0x1a, 0x08, // mov r8, [r10+r11*1+0x8]
    0xc3, // ret
    // restorer:
    0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, // mov rax, 0xf
    0x0f, 0x05, // syscall
];

/// Size of a `struct kernel_sigaction`, in bytes: handler, flags, restorer, mask.
pub(crate) const ACTION_SIZE: usize = 32;

/// The action that installs the handler at `start` instead of `former`.
pub(crate) fn action(start: u64, former: &[u8]) -> Vec<u8> {
    let needed = libc::SA_SIGINFO as u64 | SA_RESTORER;
    let (flags, mask) = match handler_of(former) {
        // Runs instead of the former handler, with the flags and mask of the former action.
        handler if handler > IGNORED => {
            let flags = word(former, 1) & !(libc::SA_RESETHAND as u64);
            (flags | needed, word(former, 3))
        }
        // Block all signals: another handler would run with SIGTRAP blocked, and could hit a trap.
        _ => {
            let flags = (libc::SA_ONSTACK | libc::SA_RESTART) as u64;
            (flags | needed, u64::MAX)
        }
    };
    let words = [start, flags, start + RESTORER, mask];
    words.into_iter().flat_map(u64::to_le_bytes).collect()
}

/// The handler that a `struct kernel_sigaction` names; 0 if it is the default, 1 if the signal is
/// ignored.
pub(crate) fn handler_of(action: &[u8]) -> u64 {
    word(action, 0)
}

/// `SIG_IGN`
const IGNORED: u64 = 1;

/// Code for address `to` with the effect of the first instruction of `code` at `at`; it then
/// continues after the original. `None` if there is no such code.
///
/// System calls can be copied, because the kernel does not check their address.
pub(crate) fn copy(code: &[u8], at: u64, to: u64, _kind: usize) -> Option<Vec<u8>> {
    let instruction = decode(code)?;
    let next = at.wrapping_add(instruction.length as u64);
    let mut copy = code[..instruction.length].to_vec();
    match instruction.place {
        Place::Free => go_to(&mut copy, next),
        Place::Fixed if code.starts_with(&[0x0f, 0x05]) => go_to(&mut copy, next),
        Place::Operand { displacement } => {
            let field = copy.get_mut(displacement..displacement + 4)?;
            let stated = i32::from_le_bytes(<[u8; 4]>::try_from(&*field).ok()?);
            let moved = i64::from(stated).checked_add(at.wrapping_sub(to).cast_signed())?;
            field.copy_from_slice(&i32::try_from(moved).ok()?.to_le_bytes());
            go_to(&mut copy, next);
        }
        Place::Jump { when, offset } => {
            copy.clear();
            match when {
                When::Always => {}
                // 0f 1000tttn over the first jump (SDM vol. 2, B.1.4.7)
                When::Flags(condition) => {
                    copy.extend([0x0f, 0x80 | condition, WAY as u8, 0, 0, 0]);
                    go_to(&mut copy, next);
                }
                _ => return None,
            }
            go_to(&mut copy, next.wrapping_add_signed(offset.into()));
        }
        Place::Call { offset } => {
            copy.clear();
            // push qword [rip + WAY]: the return address is stored after the jump.
            copy.extend([0xff, 0x35, WAY as u8, 0, 0, 0]);
            go_to(&mut copy, next.wrapping_add_signed(offset.into()));
            copy.extend(next.to_le_bytes());
        }
        _ => return None,
    }
    (copy.len() <= COPY_SIZE).then_some(copy)
}

/// Length of the code that [`go_to`] adds, in bytes.
const WAY: usize = 14;

/// Adds `jmp [rip + 0]` and the target.
fn go_to(copy: &mut Vec<u8>, target: u64) {
    copy.extend([0xff, 0x25, 0, 0, 0, 0]);
    copy.extend(target.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use crate::arch::fast::GONE;
    use crate::arch::handler_layout::{DEFAULT, FORMER, POOL, RANGES, TABLE};

    use super::*;

    /// The distances in the handler's code agree with the layout.
    #[test]
    fn handler_distances_match_the_layout() {
        let distance = |behind: usize| {
            let field = HANDLER[behind - 4..behind].first_chunk().copied();
            behind as u64 + u64::from(u32::from_le_bytes(field.unwrap()))
        };
        assert_eq!(distance(0x20), RANGES);
        assert_eq!(distance(0x62), FORMER);
        assert_eq!(distance(0x7c), DEFAULT);
        assert_eq!(distance(0x9a), POOL);
        assert_eq!(distance(0xb1), FORMER);
        assert_eq!(distance(0xfe), TABLE);
        assert_eq!(HANDLER[0xa1..0xa5], (GONE as u32).to_le_bytes());
        assert_eq!(HANDLER[SYSTEM_CALL as usize..][..2], [0x0f, 0x05]);
        assert_eq!(HANDLER[RESTORER as usize..][..3], [0x48, 0xc7, 0xc0]);
    }

    #[test]
    fn copies() {
        let (at, to) = (0x1000_u64, 0x8000);
        let way = |target: u64| {
            let mut code = Vec::new();
            go_to(&mut code, target);
            code
        };
        let push = copy(&[0x55], at, to, 1).unwrap();
        assert_eq!(push, [&[0x55][..], &way(0x1001)].concat());
        let call = copy(&[0xe8, 0x10, 0, 0, 0], at, to, 1).unwrap();
        let pushed = 0x1005_u64.to_le_bytes();
        let start = [0xff, 0x35, 14, 0, 0, 0];
        assert_eq!(call, [&start[..], &way(0x1015), &pushed].concat());
        let je = copy(&[0x74, 0x10], at, to, 1).unwrap();
        let start = [0x0f, 0x84, 14, 0, 0, 0];
        assert_eq!(je, [&start[..], &way(0x1002), &way(0x1012)].concat());
        let syscall = copy(&[0x0f, 0x05], at, to, 1).unwrap();
        assert_eq!(syscall, [&[0x0f, 0x05][..], &way(0x1002)].concat());
        // int3
        assert_eq!(copy(&[0xcc], at, to, 1), None);
    }
}
