//! What an instruction does, as far as unwinding cares. Decoders, one per instruction set, produce
//! these; one engine carries them out. Nothing here knows an encoding. Registers have DWARF's numbers.

/// What happens to registers and stack, in order, before control goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Every register of the mask gets a value that is not tracked.
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
        /// Of the right operand.
        shift: u8,
        /// Of less than a register, the right operand is extended with its sign.
        signed: bool,
    },
    /// `to = value`
    Constant {
        /// Destination.
        to: u8,
        /// The value; of a 64-bit register the low half, the rest being zeros or copies of its top bit.
        value: u32,
    },
    /// The upper half of `to` is set to `value`.
    High {
        /// Destination.
        to: u8,
        /// The upper half.
        value: u16,
    },
    /// `to` = the lower half of `from`; its own upper half becomes zero.
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
    /// Nothing that is tracked; but the bytes at `svma` are data.
    Data {
        /// Address, on a 32-bit machine.
        svma: u32,
        /// In bytes.
        size: u8,
    },
    /// `to = from & -power`: a stack pointer is aligned, by an amount not known.
    Align {
        /// Destination.
        to: u8,
        /// Source.
        from: u8,
    },
    /// `to = *(base + index * entry)`: an entry of a table.
    Indexed {
        /// Destination.
        to: u8,
        /// Register that holds the table's address.
        base: u8,
        /// What is loaded.
        entry: Entry,
    },
    /// The registers of the mask are stored, lowest first, from `base + offset` upward.
    Store {
        /// Base register.
        base: u8,
        /// In bytes.
        offset: i32,
        /// Bit n: register n.
        mask: u32,
    },
    /// The registers of the mask are loaded, lowest first, from `base + offset` upward.
    Load {
        /// Base register.
        base: u8,
        /// In bytes.
        offset: i32,
        /// Bit n: register n.
        mask: u32,
    },
    /// The word at `from + offset` is stored at `to + at`.
    Copy {
        /// Base register of what is read.
        from: u8,
        /// In bytes.
        offset: i32,
        /// Base register of what is written.
        to: u8,
        /// In bytes.
        at: i32,
    },
    /// Two registers get each other's value.
    Exchange {
        /// A register.
        one: u8,
        /// Another.
        other: u8,
    },
    /// The return address in its register is signed, or no longer.
    Sign(bool),
    /// A system call.
    SystemCall,
}

impl Effect {
    /// Registers that it sets.
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

/// How an entry of a table of offsets or addresses is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// In bytes: 1, 2, 4 or 8.
    pub size: u8,
    /// Negative values occur.
    pub signed: bool,
}

/// Where control goes after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// To the next instruction.
    Next,
    /// To a fixed address.
    Jump(Target),
    /// To a fixed address or on.
    Branch(Target),
    /// To a fixed address if this register is zero (or is not, if `nonzero`), else on.
    IfZero {
        /// Where.
        target: Target,
        /// Branches if not zero.
        nonzero: bool,
    },
    /// Away and back. `None`: through a register.
    Call(Option<Target>),
    /// To the caller.
    Return,
    /// Through a register, or memory: a tail call or a jump table.
    Indirect(Option<u8>),
    /// Through a jump table.
    Table(Table),
    /// Nowhere: an undefined or permanently trapping instruction.
    Trap,
}

/// A place to go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Address.
    pub svma: u64,
    /// ARM: T32 code.
    pub thumb: bool,
}

/// A jump table that one instruction uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// Address of the first entry; `None`: in register `base`.
    pub svma: Option<u64>,
    /// Register that holds the table's address, where `svma` is `None`.
    pub base: u8,
    /// Meaning of an entry.
    pub form: TableForm,
}

/// What an entry of a jump table is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableForm {
    /// T32 `tbb`: halfwords forward, one byte each.
    Bytes,
    /// T32 `tbh`: halfwords forward, two bytes each.
    Halfwords,
    /// Absolute addresses, one pointer each (`ldr pc, [..]`, `jmp *table(,%rax,8)`).
    Addresses,
    /// One absolute address: a slot of the global offset table, which first holds where the lazy half of a PLT stub
    /// starts.
    Slot,
    /// The instructions behind the next one, `1 << n` bytes each (`add pc, pc, index, lsl #n`).
    Instructions(u8),
}

/// Unsigned comparison of a register with a constant, as in a jump table's range check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Compared with this.
    Compare(u32),
    /// Masked to this.
    Mask(u32),
    /// Loaded from a table itself: what it was compared with before says nothing.
    Loaded,
}

/// The most effects one instruction has.
const MAX_EFFECTS: usize = 3;

/// One decoded instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// In bytes.
    pub len: u8,
    /// ARM condition code; 14: always.
    pub condition: u8,
    /// T32 `it`: the instruction's low byte, which says what the next instructions' conditions are.
    pub it: u8,
    /// Registers that address memory.
    pub bases: u32,
    /// Limits a value that may be an index.
    pub limit: Option<Limit>,
    /// A call behind which another function starts.
    pub last: bool,
    /// Where control goes.
    pub flow: Flow,
    effects: [Effect; MAX_EFFECTS],
    count: u8,
}

impl Instruction {
    /// An instruction without effect.
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

    /// Add an effect. Effects beyond the most are dropped: no decoder produces them.
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

    /// In order.
    #[inline]
    pub fn effects(&self) -> &[Effect] {
        &self.effects[..usize::from(self.count)]
    }
}

/// An instruction that a decoder is making, in place: what is written byte by byte and then copied as a whole waits for each of
/// the bytes.
pub(super) struct Made<'m>(pub(super) &'m mut Instruction);

impl Made<'_> {
    /// With one more effect.
    #[inline]
    pub(super) fn effect(self, effect: Effect) -> Self {
        self.0.push(effect);
        self
    }

    /// With every register of `mask` clobbered.
    #[inline]
    pub(super) fn clobber(self, mask: u32) -> Self {
        if mask != 0 {
            self.0.push(Effect::Clobber(mask));
        }
        self
    }

    /// With this flow.
    #[inline]
    pub(super) fn flow(self, flow: Flow) -> Self {
        self.0.flow = flow;
        self
    }

    /// With this register addressing memory.
    #[inline]
    pub(super) fn base(self, register: u8) -> Self {
        if register < 32 {
            self.0.bases |= 1 << register;
        }
        self
    }

    /// With this limit.
    #[inline]
    pub(super) fn limit(self, limit: Limit) -> Self {
        self.0.limit = Some(limit);
        self
    }
}
