//! Builds a frame from a thread's state at a hit, or after a step that follows a hit.

use std::time::Instant;

use super::Asked;
use crate::arch;
use crate::bytecode::{self, World};
use crate::tracepoint::definition::{self, Action, Tracepoint};
use crate::tracepoint::frame_buffer::Frame;
use crate::tracepoint::stack_key::KnownStacks;
use crate::tracepoint::variable::{Computed, Variables};

/// Longest recorded string, in bytes.
const MAX_STRING: u64 = 64 * 1024;
/// Longest recorded memory block, in bytes.
const MAX_MEMORY: u64 = 16 << 20;

/// The state of a thread at its hit.
pub(crate) trait HitContext {
    /// Time of the hit.
    fn time(&self) -> Instant {
        Instant::now()
    }
    /// The registers of these sets in the layout of the `g` packet, with zeros for others. The
    /// first value has the sets that could be read.
    fn registers(&mut self, sets: u8) -> (u8, &[u8]);
    /// A register's value, by its number.
    fn register(&mut self, number: usize) -> Option<u64>;
    /// Reads as many bytes as are readable from `address` on. Returns their number.
    fn read(&mut self, address: u64, into: &mut [u8]) -> usize;
    /// The key of the stack, of which `length` bytes from `address` on are collected. `None` if
    /// these bytes are not the stack, or if that is unknown.
    fn stack_key(&mut self, _address: u64, _length: u64) -> Option<u64> {
        None
    }
    /// The value of a variable that is not stored.
    fn compute(&mut self, computed: Computed) -> i64;
}

/// A frame that is being built.
pub(super) struct FrameBuilder<'a> {
    pub(super) frame: Frame,
    variables: &'a mut Variables,
    context: &'a mut dyn HitContext,
    pub(super) asked: Asked,
    /// The frame has only the registers that are collected.
    register_parts: bool,
    /// The stacks that the client has, if it is to get each once.
    known: Option<&'a KnownStacks>,
    /// The variable that a stack's key is kept in, if an expression asks for that.
    key_variable: Option<u32>,
    /// The key of a stack that the client does not have.
    pub(super) new_key: Option<u64>,
}

impl<'a> FrameBuilder<'a> {
    /// Starts a frame of a tracepoint for a thread at `pc`.
    pub(super) fn new(
        tracepoint: &Tracepoint,
        pc: u64,
        variables: &'a mut Variables,
        context: &'a mut dyn HitContext,
        register_parts: bool,
        known: Option<&'a KnownStacks>,
    ) -> FrameBuilder<'a> {
        let size = tracepoint.frame_size;
        let frame = Frame::with_room(tracepoint.number, pc, context.time(), size);
        FrameBuilder {
            frame,
            variables,
            context,
            asked: Asked::default(),
            register_parts,
            known,
            key_variable: None,
            new_key: None,
        }
    }

    /// Runs the actions in order, up to the first that fails.
    pub(super) fn note(&mut self, actions: &[Action]) -> Option<bytecode::Fault> {
        let sets = definition::sets(actions) | 1;
        for action in actions {
            match action {
                Action::Registers(_) => {
                    let (sets, registers) = self.context.registers(sets);
                    if self.register_parts {
                        let runs = arch::layout().runs(sets);
                        let parts = runs.map(|run| run.bytes.clone());
                        self.frame.add_register_parts(sets, registers, parts);
                    } else {
                        self.frame.add_registers(sets, registers);
                    }
                }
                Action::Memory {
                    register,
                    offset,
                    length,
                } => {
                    let base = register.map_or(Some(0), |number| self.context.register(number));
                    if let Some(base) = base {
                        self.collect(base.wrapping_add(*offset), *length);
                    }
                }
                Action::Expression(code) => {
                    if let Err(fault) = bytecode::evaluate(code, self) {
                        return Some(fault);
                    }
                }
            }
        }
        None
    }
}

impl World for FrameBuilder<'_> {
    fn register(&mut self, number: usize) -> Option<u64> {
        self.context.register(number)
    }

    fn read(&mut self, address: u64, into: &mut [u8]) -> bool {
        self.context.read(address, into) == into.len()
    }

    fn collect(&mut self, address: u64, length: u64) {
        if let (Some(number), Some(known)) = (self.key_variable, self.known)
            && let Some(key) = self.context.stack_key(address, length)
        {
            self.frame.add_variable(number, key.cast_signed());
            if known.contains(key, self.frame.time) {
                return;
            }
            self.new_key = Some(key);
        }
        let mut bytes = vec![0; length.min(MAX_MEMORY) as usize];
        let known = self.context.read(address, &mut bytes);
        self.frame.add_memory(address, &bytes[..known]);
    }

    fn collect_string(&mut self, address: u64, limit: u64) {
        let limit = match limit {
            0 => MAX_STRING,
            limit => limit.min(MAX_STRING),
        };
        let mut bytes = vec![0; limit as usize];
        let known = self.context.read(address, &mut bytes);
        let end = bytes[..known].iter().position(|byte| *byte == 0);
        let length = end.map_or(known, |end| end + 1);
        self.frame.add_memory(address, &bytes[..length]);
    }

    fn variable(&mut self, number: u32) -> i64 {
        match self.variables.computed(number) {
            Some(computed) => self.context.compute(computed),
            None => self.variables.value(number).unwrap_or(0),
        }
    }

    fn set_variable(&mut self, number: u32, value: i64) {
        match self.variables.computed(number) {
            Some(Computed::Stop) => self.asked.stop = value != 0,
            Some(Computed::Needed) => self.asked.needed = value != 0,
            Some(Computed::StackKey) => self.key_variable = (value != 0).then_some(number),
            _ => {}
        }
        self.variables.set(number, value);
    }

    fn collect_variable(&mut self, number: u32) {
        let value = self.variable(number);
        self.frame.add_variable(number, value);
    }
}
