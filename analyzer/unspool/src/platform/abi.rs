//! The facts about a target's calling convention that a recorder needs, as data.
//!
//! Apart so that no other part of the collector depends on the architecture.

use std::collections::HashMap;

use unspool_image::Arch;
use unspool_rsp::{Breakpoint, Register, Registers, TargetDescription};
use unspool_unwind::RegisterFile;

use super::Architecture;

/// The registers with a role, looked up in the target's own description.
#[derive(Debug, Clone)]
pub(crate) struct Abi {
    pub(crate) platform: &'static Architecture,
    pub(crate) arch: Arch,
    pub(crate) pointer: usize,
    pc: Register,
    sp: Register,
    args: Vec<Register>,
    /// Registers of a system call that is about to be made: its number, then its first arguments.
    asking: Vec<Register>,
    result: Register,
    flags: Option<Register>,
    thread_pointer: Option<Register>,
    /// The register with the number of a system call in progress, if not an argument register.
    call: Option<Register>,
    /// The registers needed to unwind and to read arguments, ordered by number.
    wanted: Vec<Register>,
    /// All registers by name. Every event looks some of them up.
    named: HashMap<String, Register>,
    description: TargetDescription,
}

impl Abi {
    /// `None` if the architecture is unknown, or a register with a role is missing.
    pub(crate) fn new(description: &TargetDescription) -> Option<Self> {
        let platform = match description.architecture.as_deref() {
            Some(name) => Architecture::by_gdb_name(name),
            // A description may leave the architecture out.
            None => Architecture::by_register(|name| description.register(name).is_some()),
        }?;
        let arch = platform.arch;
        let find = |name: &str| description.register(name).cloned();
        let (pc, sp) = (find(platform.pc)?, find(platform.sp)?);
        let args: Vec<Register> = platform.args.into_iter().map(find).collect::<Option<_>>()?;
        let call = &platform.system_call;
        let asking = [call.number].into_iter().chain(call.args).take(5);
        let asking: Vec<Register> = asking.map(find).collect::<Option<_>>()?;
        let inside = Some(call.number_inside).filter(|name| *name != call.number);
        let names = (0..40).filter_map(|number| RegisterFile::name(arch, number));
        let unwinders = names.filter_map(|name| description.register(name));
        let own = [&pc, &sp].into_iter().chain(&args).chain(&asking);
        let all = unwinders.chain(own);
        let all = all.chain(description.register(platform.thread_pointer));
        let mut wanted: Vec<Register> = all.cloned().collect();
        wanted.sort_unstable_by_key(|register| register.number);
        wanted.dedup_by_key(|register| register.number);
        // If a name occurs twice, the first register counts.
        let named = description.registers.iter().rev();
        Some(Self {
            platform,
            arch,
            pointer: arch.address_size(),
            pc,
            sp,
            args,
            asking,
            wanted,
            named: named
                .map(|register| (register.name.clone(), register.clone()))
                .collect(),
            result: find(platform.result)?,
            flags: platform.condition_flags.and_then(find),
            thread_pointer: find(platform.thread_pointer),
            call: inside.and_then(find),
            description: description.clone(),
        })
    }

    pub(crate) fn pc(&self, registers: &Registers) -> Option<u64> {
        registers.value(&self.pc)
    }

    /// Registers with only the program counter and the stack pointer set; all others are unknown.
    pub(crate) fn registers_at(&self, pc: u64, sp: u64) -> Registers {
        let mut registers = Registers::unknown();
        for (register, value) in [(&self.pc, pc), (&self.sp, sp)] {
            registers.set(register, &value.to_le_bytes()[..register.size().min(8)]);
        }
        registers
    }

    /// Sets the register that has the return address at a function's entry, if there is one.
    pub(crate) fn set_link(&self, registers: &mut Registers, address: u64) {
        let number = self.platform.return_register;
        let name = number.and_then(|number| RegisterFile::name(self.arch, number));
        if let Some(register) = name.and_then(|name| self.named.get(name)) {
            registers.set(register, &address.to_le_bytes()[..register.size().min(8)]);
        }
    }

    pub(crate) fn set_pc(&self, registers: &mut Registers, pc: u64) {
        registers.set(&self.pc, &pc.to_le_bytes());
    }

    pub(crate) fn sp(&self, registers: &Registers) -> Option<u64> {
        registers.value(&self.sp)
    }

    /// The first `count` arguments, before the first instruction of a function.
    pub(crate) fn args(&self, registers: &Registers, count: usize) -> Option<Vec<u64>> {
        self.args
            .iter()
            .take(count)
            .map(|register| registers.value(register))
            .collect()
    }

    /// The result, before the last instruction of a function.
    pub(crate) fn result(&self, registers: &Registers) -> Option<u64> {
        registers.value(&self.result)
    }

    /// The flags register, on architectures where any instruction may depend on it.
    pub(crate) fn flags(&self, registers: &Registers) -> Option<u64> {
        registers.value(self.flags.as_ref()?)
    }

    /// The number of the system call that is next.
    pub(crate) fn call_number(&self, registers: &Registers) -> Option<u64> {
        registers.value(self.asking.first()?)
    }

    /// The first `count` arguments of the system call that is next.
    pub(crate) fn call_arguments(&self, registers: &Registers, count: usize) -> Option<Vec<u64>> {
        let arguments = self.asking.iter().skip(1).take(count);
        arguments
            .map(|register| registers.value(register))
            .collect()
    }

    pub(crate) fn result_number(&self) -> u16 {
        wire(Some(&self.result))
    }

    /// Converts a DWARF register number to the target's number.
    pub(crate) fn dwarf_number(&self, number: u8) -> Option<u16> {
        let name = RegisterFile::name(self.arch, number)?;
        self.description
            .register(name)
            .map(|register| wire(Some(register)))
    }

    pub(crate) fn flags_number(&self) -> Option<u16> {
        self.flags.as_ref().map(|flags| wire(Some(flags)))
    }

    pub(crate) fn call_number_number(&self) -> u16 {
        wire(self.asking.first())
    }

    pub(crate) fn call_argument_number(&self, index: usize) -> u16 {
        wire(self.asking.get(index + 1))
    }

    /// Truncates an address to the target's address size.
    pub(crate) fn wrap(&self, address: u64) -> u64 {
        if self.pointer == 4 {
            address & 0xffff_ffff
        } else {
            address
        }
    }

    pub(crate) fn thread_pointer(&self, registers: &Registers) -> Option<u64> {
        registers.value(self.thread_pointer.as_ref()?)
    }

    /// The numbers of the registers that a tracepoint collects, to unwind and to read arguments.
    pub(crate) fn trace_registers(&self) -> Vec<u32> {
        self.wanted.iter().map(|register| register.number).collect()
    }

    /// The stack pointer's number.
    pub(crate) fn sp_number(&self) -> u16 {
        wire(Some(&self.sp))
    }

    /// The number of an argument's register.
    pub(crate) fn argument_number(&self, index: usize) -> u16 {
        wire(self.args.get(index))
    }

    /// The registers that a tracepoint collected, from a whole `g` packet.
    pub(crate) fn traced(&self, all: &[u8]) -> Registers {
        Registers::among(&self.wanted, all)
    }

    /// The registers of a snapshot, from a whole `g` packet: the registers that a tracepoint
    /// collects, and the number of the thread's system call.
    pub(crate) fn looked(&self, all: &[u8]) -> Registers {
        let mut registers = self.traced(all);
        if let Some(register) = &self.call
            && let Some(bytes) = all.get(register.range())
        {
            registers.set(register, bytes);
        }
        registers
    }

    /// The address of the futex word at which a thread with these registers may wait.
    pub(crate) fn waits_at(&self, registers: &Registers) -> Option<u64> {
        let value = |name: &str| registers.value(self.named.get(name)?);
        super::syscall::likely_futex(self.arch, &value)
    }

    /// True if the first argument is the calling thread's own handle.
    pub(crate) fn is_own_handle(&self, registers: &Registers) -> bool {
        let Some(handle) = self.args(registers, 1).map(|args| args[0]) else {
            return false;
        };
        match (self.thread_pointer(registers), self.sp(registers)) {
            (Some(pointer), _) => pointer == handle,
            // Without a thread pointer: the handle is a descriptor above the thread's stack.
            (None, Some(sp)) => handle.checked_sub(sp).is_some_and(|above| above < 64 << 20),
            _ => false,
        }
    }

    /// The registers that a stop reply contained.
    pub(crate) fn expedited(&self, pairs: &[(u32, Vec<u8>)]) -> Registers {
        let mut registers = Registers::unknown();
        for (number, bytes) in pairs {
            if let Some(register) = self.description.register_numbered(*number) {
                registers.set(register, bytes);
            }
        }
        registers
    }

    /// True if `registers` has all registers needed to unwind and to read arguments.
    pub(crate) fn suffices(&self, registers: &Registers) -> bool {
        let file = self.register_file(registers);
        let all = (0..40).filter(|n| RegisterFile::name(self.arch, *n).is_some());
        let tp = self.thread_pointer.as_ref();
        all.into_iter().all(|number| file.get(number).is_some())
            && tp.is_none_or(|register| registers.value(register).is_some())
    }

    pub(crate) fn register_file(&self, registers: &Registers) -> RegisterFile {
        RegisterFile::new(self.arch, |name| registers.value(self.named.get(name)?))
    }

    /// A code pointer without the bit that selects an instruction set.
    pub(crate) fn code_address(&self, pointer: u64) -> u64 {
        self.platform.split_code_pointer(pointer).0
    }

    /// The breakpoint for the instruction at `address`; `thumb` is the first halfword of a Thumb
    /// instruction, `None` for code of a fixed size (RSP, "ARM Breakpoint Kinds").
    pub(crate) fn breakpoint(&self, address: u64, thumb: Option<u16>) -> Breakpoint {
        let size = match (self.arch, thumb) {
            (Arch::X86_64, _) => 1,
            // 11101, 11110 and 11111 in the top five bits begin a 32-bit instruction (ARM DDI 0406,
            // A6.1).
            (Arch::Arm, Some(halfword)) if halfword >> 11 >= 0b11101 => 3,
            (Arch::Arm, Some(_)) => 2,
            _ => 4,
        };
        Breakpoint::software(address, size)
    }

    /// Decodes the pointer at `index` in target memory. All supported targets are little-endian.
    pub(crate) fn pointer_at(&self, bytes: &[u8], index: usize) -> Option<u64> {
        let at = index.checked_mul(self.pointer)?;
        let mut value = [0; 8];
        value
            .get_mut(..self.pointer)?
            .copy_from_slice(bytes.get(at..at + self.pointer)?);
        Some(u64::from_le_bytes(value))
    }
}

/// The number of a register in agent expressions; `u16::MAX` if there is no register.
fn wire(register: Option<&Register>) -> u16 {
    register
        .and_then(|register| u16::try_from(register.number).ok())
        .unwrap_or(u16::MAX)
}
