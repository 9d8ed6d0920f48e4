//! The effects of an instruction that matter to unwinding.
//!
//! One decoder per instruction set produces them, and one engine applies them. Nothing here depends
//! on an encoding. Registers have DWARF numbers.

/// A change of registers or stack. An instruction's effects apply in order, before control
/// continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Each register in the mask gets an unknown value.
    Clobber(u32),
    /// `to = from + by`
    Add {
        /// Destination.
        to: u8,
        /// Source.
        from: u8,
        /// In bytes.
        by: i32,
    },
    /// `to = from ± by << shift`
    AddRegister {
        /// Destination.
        to: u8,
        /// Left operand.
        from: u8,
        /// Right operand.
        by: u8,
        /// Minus.
        subtract: bool,
        /// Left shift of the right operand.
        shift: u8,
        /// The right operand is narrower than a register and is sign-extended.
        signed: bool,
    },
    /// `to = value`
    Constant {
        /// Destination.
        to: u8,
        /// The value. For a 64-bit register, its low half; the high half is zeros or copies of the
        /// top bit.
        value: u32,
    },
    /// The upper half of `to` is set to `value`.
    High {
        /// Destination.
        to: u8,
        /// The upper half.
        value: u16,
    },
    /// `to` gets the lower half of `from`, and zeros in its upper half.
    Half {
        /// Destination.
        to: u8,
        /// Source.
        from: u8,
    },
    /// The lowest byte of `to` is set to `value`.
    Low {
        /// Destination.
        to: u8,
        /// The lowest byte.
        value: u8,
    },
    /// `to = *(word at svma)`
    Literal {
        /// Destination.
        to: u8,
        /// Address of the literal, on a 32-bit machine.
        svma: u32,
    },
    /// The bytes at `svma` are data. Nothing else that is tracked changes.
    Data {
        /// Address, on a 32-bit machine.
        svma: u32,
        /// In bytes.
        size: u8,
    },
    /// `to = from & -power`: aligns a stack pointer to an unknown power of two.
    Align {
        /// Destination.
        to: u8,
        /// Source.
        from: u8,
    },
    /// `to = *(base + index * entry)`: loads a table entry.
    Indexed {
        /// Destination.
        to: u8,
        /// Register that holds the table's address.
        base: u8,
        /// The format of the entry.
        entry: Entry,
    },
    /// Stores the registers in the mask, lowest first, from `base + offset` upward.
    Store {
        /// Base register.
        base: u8,
        /// In bytes.
        offset: i32,
        /// Bit n: register n.
        mask: u32,
    },
    /// Loads the registers in the mask, lowest first, from `base + offset` upward.
    Load {
        /// Base register.
        base: u8,
        /// In bytes.
        offset: i32,
        /// Bit n: register n.
        mask: u32,
    },
    /// Copies the word at `from + offset` to `to + at`.
    Copy {
        /// Base register of the source.
        from: u8,
        /// In bytes.
        offset: i32,
        /// Base register of the destination.
        to: u8,
        /// In bytes.
        at: i32,
    },
    /// Two registers exchange their values.
    Exchange {
        /// A register.
        one: u8,
        /// Another.
        other: u8,
    },
    /// The return address in its register becomes signed (true) or unsigned (false).
    Sign(bool),
    /// A system call.
    SystemCall,
}

impl Effect {
    /// The registers that this effect writes.
    pub fn writes(self) -> u32 {
        match self {
            Effect::Clobber(mask) | Effect::Load { mask, .. } => mask,
            Effect::Add { to, .. }
            | Effect::AddRegister { to, .. }
            | Effect::Constant { to, .. }
            | Effect::High { to, .. }
            | Effect::Half { to, .. }
            | Effect::Low { to, .. }
            | Effect::Literal { to, .. }
            | Effect::Align { to, .. }
            | Effect::Indexed { to, .. } => 1u32.checked_shl(to.into()).unwrap_or(0),
            Effect::Exchange { one, other } => {
                1u32.checked_shl(one.into()).unwrap_or(0)
                    | 1u32.checked_shl(other.into()).unwrap_or(0)
            }
            Effect::Data { .. } | Effect::Store { .. } | Effect::Copy { .. } | Effect::Sign(_) => 0,
            Effect::SystemCall => 1,
        }
    }
}

/// The format of an entry in a table of offsets or addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// In bytes: 1, 2, 4 or 8.
    pub size: u8,
    /// The entry is signed.
    pub signed: bool,
}

/// How control continues after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// To the next instruction.
    Next,
    /// To a fixed address.
    Jump(Target),
    /// To a fixed address or the next instruction.
    Branch(Target),
    /// To a fixed address if this register is zero (or not zero, if `nonzero`), else to the next
    /// instruction.
    IfZero {
        /// The branch target.
        target: Target,
        /// True if it branches on a value other than zero.
        nonzero: bool,
    },
    /// A call. `None` if the target is in a register.
    Call(Option<Target>),
    /// To the caller.
    Return,
    /// To an address in a register or in memory: a tail call or a jump table.
    Indirect(Option<u8>),
    /// Through a jump table.
    Table(Table),
    /// Not at all: an undefined or permanently trapping instruction.
    Trap,
}

/// The target of a jump or call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Address.
    pub svma: u64,
    /// ARM: T32 code.
    pub thumb: bool,
}

/// The jump table of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// Address of the first entry. `None` if it is in register `base`.
    pub svma: Option<u64>,
    /// Register with the table's address, if `svma` is `None`.
    pub base: u8,
    /// The format of an entry.
    pub form: TableForm,
}

/// The format of an entry in a jump table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableForm {
    /// T32 `tbb`: forward offset in halfwords, one byte each.
    Bytes,
    /// T32 `tbh`: forward offset in halfwords, two bytes each.
    Halfwords,
    /// Absolute addresses, one pointer each (`ldr pc, [..]`, `jmp *table(,%rax,8)`).
    Addresses,
    /// One absolute address: a slot of the global offset table. It first holds the address of the
    /// lazy half of a PLT stub.
    Slot,
    /// The code after the next instruction, `1 << n` bytes for each entry (`add pc, pc, index, lsl
    /// #n`).
    Instructions(u8),
}

/// An upper limit of a register, as in the range check before a jump table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The register is compared with this, unsigned.
    Compare(u32),
    /// The register is masked with this.
    Mask(u32),
    /// The register is loaded from a table, so earlier comparisons say nothing about it.
    Loaded,
}

/// Maximum number of effects of an instruction.
const MAX_EFFECTS: usize = 3;

/// One decoded instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// In bytes.
    pub len: u8,
    /// ARM condition code; 14: always.
    pub condition: u8,
    /// T32 `it`: the low byte, which holds the conditions of the next instructions.
    pub it: u8,
    /// Registers used to address memory.
    pub bases: u32,
    /// A limit of a value that may be an index.
    pub limit: Option<Limit>,
    /// A call that another function follows.
    pub last: bool,
    /// How control continues.
    pub flow: Flow,
    effects: [Effect; MAX_EFFECTS],
    count: u8,
}

impl Instruction {
    /// An instruction of `len` bytes without effects.
    #[inline]
    pub fn new(len: u8) -> Self {
        Instruction {
            len,
            condition: 14,
            it: 0,
            bases: 0,
            limit: None,
            last: false,
            flow: Flow::Next,
            effects: [Effect::Clobber(0); MAX_EFFECTS],
            count: 0,
        }
    }

    /// Adds an effect. Drops effects beyond [`MAX_EFFECTS`]; no decoder produces them.
    #[inline]
    pub fn push(&mut self, effect: Effect) {
        debug_assert!(
            usize::from(self.count) < MAX_EFFECTS,
            "{effect:?} is one too many"
        );
        if let Some(place) = self.effects.get_mut(usize::from(self.count)) {
            *place = effect;
            self.count += 1;
        }
    }

    /// The effects, in order.
    #[inline]
    pub fn effects(&self) -> &[Effect] {
        &self.effects[..usize::from(self.count)]
    }
}

/// An instruction under construction. It is filled in place, because copying a value that was just
/// written byte by byte would stall on each byte.
pub(super) struct InstructionBuilder<'m>(pub(super) &'m mut Instruction);

impl InstructionBuilder<'_> {
    /// Adds an effect.
    #[inline]
    pub(super) fn effect(self, effect: Effect) -> Self {
        self.0.push(effect);
        self
    }

    /// Clobbers every register in `mask`.
    #[inline]
    pub(super) fn clobber(self, mask: u32) -> Self {
        if mask != 0 {
            self.0.push(Effect::Clobber(mask));
        }
        self
    }

    /// Sets how control continues.
    #[inline]
    pub(super) fn flow(self, flow: Flow) -> Self {
        self.0.flow = flow;
        self
    }

    /// Adds a register used to address memory.
    #[inline]
    pub(super) fn base(self, register: u8) -> Self {
        if register < 32 {
            self.0.bases |= 1 << register;
        }
        self
    }

    /// Sets the limit.
    #[inline]
    pub(super) fn limit(self, limit: Limit) -> Self {
        self.0.limit = Some(limit);
        self
    }
}
