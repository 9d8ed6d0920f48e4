//! Recognizes the code with which a C library starts a thread: an `exit` system call follows the
//! call of the thread's function.
//!
//! Separate from the sources of rules because none has a rule there. This code is assembly that
//! runs on a fresh stack, and it does not mark itself as the outermost frame.

use unspool_image::Arch;

use super::Frame;
use crate::modules::ModuleMap;

/// `mov %eax,%edi; xor %eax,%eax; mov $60,%al; syscall`
const X86_64: &[u8] = b"\x89\xc7\x31\xc0\xb0\x3c\x0f\x05";
/// `mov x8, #93; svc #0`
const AARCH64: &[u8] = b"\xa8\x0b\x80\xd2\x01\x00\x00\xd4";
/// `mov r7, #1; svc 0`
const A32: &[u8] = b"\x01\x70\xa0\xe3\x00\x00\x00\xef";

/// Whether `frame`, which has no known caller, has called a thread's function.
pub(super) fn is_at(modules: &ModuleMap, frame: &Frame) -> bool {
    let exit = match modules.arch() {
        Arch::X86_64 => X86_64,
        Arch::Aarch64 => AARCH64,
        _ => A32,
    };
    modules.bytes(frame.pc, exit.len()) == Some(exit)
}
