//! What an instruction does, as far as unwinding cares. Decoders, one per instruction set, produce
//! these; one engine carries them out. Nothing here knows an encoding.

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
    /// `to = from ± by`
    AddRegister {
        /// Destination.
        to: u8,
        /// Left operand.
        from: u8,
        /// Right operand.
        by: u8,
        /// Minus.
        subtract: bool,
    },
    /// `to = value`
    Constant {
        /// Destination.
        to: u8,
        /// The value.
        value: u32,
    },
    /// The upper half of `to` is set to `value`.
    High {
        /// Destination.
        to: u8,
        /// The upper half.
        value: u16,
    },
    /// `to = *(word at svma)`
    Literal {
        /// Destination.
        to: u8,
        /// Address of the literal.
        svma: u64,
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
    /// A system call.
    SystemCall,
}

/// Where control goes after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// To the next instruction.
    Next,
    /// To a fixed address.
    Jump(Target),
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
    /// Through a register or memory: a tail call or a jump table of unknown form.
    Indirect,
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

/// A jump table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// Address of the first entry; `None`: in register `base`.
    pub svma: Option<u64>,
    /// Register that holds the table's address, where `svma` is `None`.
    pub base: u8,
    /// Register that holds the index.
    pub index: u8,
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
    /// Absolute addresses, one word each (`ldr pc, [..]`).
    Words,
    /// Instructions (`add pc, pc, index, lsl #2`).
    Branches,
    /// Words added to the table's address (`ldr r, [table, index, lsl #2]; add r, table; bx r`).
    Offsets,
}

/// The most effects one instruction has.
const MOST: usize = 4;

/// One decoded instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// In bytes.
    pub len: u8,
    /// ARM condition code; 14: always.
    pub condition: u8,
    /// Number of further instructions of the IT block that this instruction opens, and their conditions.
    pub it: u8,
    /// Loads a word indexed: destination, base, index.
    pub indexed: Option<(u8, u8, u8)>,
    /// Compares this register to this constant.
    pub compares: Option<(u8, u32)>,
    /// Where control goes.
    pub flow: Flow,
    effects: [Effect; MOST],
    count: u8,
}

impl Instruction {
    /// An instruction without effect.
    pub fn new(len: u8) -> Self {
        Instruction {
            len,
            condition: 14,
            it: 0,
            compares: None,
            indexed: None,
            flow: Flow::Next,
            effects: [Effect::Clobber(0); MOST],
            count: 0,
        }
    }

    /// With one more effect. Effects beyond the most are dropped: no decoder produces them.
    #[must_use]
    pub fn effect(mut self, effect: Effect) -> Self {
        if let Some(place) = self.effects.get_mut(usize::from(self.count)) {
            *place = effect;
            self.count += 1;
        }
        self
    }

    /// With every register of `mask` clobbered.
    #[must_use]
    pub fn clobber(self, mask: u32) -> Self {
        self.effect(Effect::Clobber(mask))
    }

    /// With this flow.
    #[must_use]
    pub fn flow(mut self, flow: Flow) -> Self {
        self.flow = flow;
        self
    }

    /// In order.
    pub fn effects(&self) -> &[Effect] {
        &self.effects[..usize::from(self.count)]
    }
}
