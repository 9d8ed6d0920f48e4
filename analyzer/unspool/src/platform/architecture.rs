//! An architecture as a table: its registers by their roles, its calling conventions, its numbers.
//!
//! One static table per architecture, in a file of its own beside this one; every field stands in
//! each of them.

use unspool_image::Arch;

/// What the rest of the analyzer asks of an architecture. Registers have gdb's names.
#[derive(Debug)]
pub struct Architecture {
    /// The architecture in the terms of the other crates.
    pub arch: Arch,
    /// A register of no other architecture, for descriptions that do not name their architecture.
    pub(crate) own_register: &'static str,
    /// The program counter.
    pub(crate) pc: &'static str,
    /// The stack pointer.
    pub(crate) sp: &'static str,
    /// The thread pointer, which not every server has.
    pub(crate) thread_pointer: &'static str,
    /// A function's first integer arguments, in order.
    pub(crate) args: [&'static str; 4],
    /// A function's integer result.
    pub(crate) result: &'static str,
    /// The flags that any instruction may depend on, if there are such.
    pub(crate) condition_flags: Option<&'static str>,
    /// DWARF number of the register with the return address at a function's entry; `None` where
    /// that is on the stack.
    pub(crate) return_register: Option<u8>,
    /// DWARF number of the frame pointer.
    pub(crate) frame_register: u8,
    /// Registers that a wait in the kernel keeps, even if it is interrupted and goes on.
    pub(crate) kept_by_waits: &'static [&'static str],
    /// Largest distance between what glibc calls a thread's address and its thread pointer, bytes;
    /// 0 if they are equal.
    pub(crate) thread_descriptor_size: u64,
    /// True if bit 0 of a code pointer selects an instruction set and is not part of the address.
    pub(crate) has_code_bit: bool,
    /// True if the kernel can single-step a thread.
    pub(crate) kernel_steps: bool,
    /// Size of the smallest instruction in bytes, without and with the code bit.
    pub(crate) smallest_instruction: [usize; 2],
    /// System calls.
    pub(crate) system_call: SystemCalls,
    /// The target of the call instruction at the end of these bytes, with the code bit's
    /// instruction set or without; `None` if no direct call returns to `return_address`.
    pub(crate) call_target: fn(before: &[u8], return_address: u64, bit: bool) -> Option<u64>,
}

/// Finds the number of a system call in the code before it.
pub(crate) type NumberInCode = fn(before: &[u8]) -> Option<u64>;

/// How a thread asks the kernel, and the numbers of the calls that matter here (syscall(2)).
#[derive(Debug)]
pub(crate) struct SystemCalls {
    /// The register with the number of a call that is about to be made.
    pub(crate) number: &'static str,
    /// The register with the number while the thread is in the call.
    pub(crate) number_inside: &'static str,
    /// The arguments, in order.
    pub(crate) args: [&'static str; 6],
    /// The kernel's name for a number.
    pub(crate) name: fn(usize) -> Option<&'static str>,
    /// `restart_syscall`.
    pub(crate) restart: u64,
    /// `futex`; 32-bit architectures have one more for 64-bit time.
    pub(crate) futexes: &'static [u64],
    /// `nanosleep` and its variants.
    pub(crate) sleeps: &'static [u64],
    /// The system call instruction, without and with the code bit.
    pub(crate) instruction: [&'static [u8]; 2],
    /// The number of the call that follows this code, where no register keeps it.
    pub(crate) number_in_code: Option<NumberInCode>,
    /// How a stop inside a call looks.
    pub(crate) stop: Stop,
}

/// How a stop inside a system call looks in the registers (Linux, arch/*/kernel/signal.c).
#[derive(Debug)]
pub(crate) enum Stop {
    /// This register has the result "restart me".
    Result(&'static str),
    /// The program counter is at the instruction that asks, or behind it under QEMU's user mode.
    Instruction,
}

impl Architecture {
    /// Addresses wrap at their size.
    pub fn address_mask(&self) -> u64 {
        match self.arch.address_size() {
            4 => u64::from(u32::MAX),
            _ => u64::MAX,
        }
    }

    /// True if a thread with these registers executes the instruction set that the code bit
    /// selects.
    pub(crate) fn executes_by_bit(&self, register: &dyn Fn(&str) -> Option<u64>) -> Option<bool> {
        match self.condition_flags.filter(|_| self.has_code_bit) {
            // T, bit 5 of the CPSR (ARM DDI 0406, B1.3.3)
            Some(flags) => Some(register(flags)? >> 5 & 1 == 1),
            None => Some(false),
        }
    }

    /// The address of a code pointer, and whether its bit selects the other instruction set.
    pub(crate) fn split_code_pointer(&self, pointer: u64) -> (u64, bool) {
        let bit = self.has_code_bit && pointer & 1 == 1;
        (pointer - u64::from(bit), bit)
    }
}

/// The name of an ELF machine for messages, also of those without a table.
pub fn machine_name(machine: u16) -> String {
    match machine {
        3 => "32-bit x86".to_owned(),
        40 => "32-bit ARM".to_owned(),
        62 => "x86-64".to_owned(),
        183 => "AArch64".to_owned(),
        243 => "RISC-V".to_owned(),
        other => format!("ELF machine {other}"),
    }
}
