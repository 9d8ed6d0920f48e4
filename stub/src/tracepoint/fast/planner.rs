//! Plans the memory that a hit must record, so that the stub can run the tracepoint's actions
//! later.
//!
//! The planner follows the condition and the expressions on every path, without running the
//! program. Registers and the size of the rest of the stack have no values yet; they stay symbols.
//! The result is a list of memory blocks at fixed distances from registers. There is no plan if an
//! address comes from memory, or if a length has no bound.

use crate::arch::collector;
use crate::arch::fast::{Base, Block, MAX_BLOCKS};
use crate::bytecode::{Binary, Op};

use crate::tracepoint::definition::{self, Action, Tracepoint};
use crate::tracepoint::variable::{Computed, Variables};

/// Maximum number of instructions to follow on all paths together.
const FUEL: u32 = 400;
/// Maximum number of bytes that a hit records.
const MAX_HIT_BYTES: u64 = 32 << 10;
/// Maximum number of bytes of the stack that a hit records if the tracepoint asks for the rest of
/// the stack. The stub handles hits with more.
const MAX_HIT_STACK: u64 = 16 << 10;

/// The memory to record, and the hits that a collector must leave to the stub.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Plan {
    pub(crate) blocks: Vec<Block>,
    /// Bytecode that is 0 for hits that need not be recorded.
    pub(crate) condition: Option<Vec<u8>>,
    /// The stub handles hits with more than this many bytes of stack left.
    pub(crate) stack_left: Option<u32>,
}

/// A value as far as it is known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Value {
    Constant(u64),
    /// A register plus a constant.
    Register(usize, u64),
    /// `trace_stack_left`.
    StackLeft,
    /// True if less of the stack than this is left.
    LessLeft(u64),
    /// True if more of the stack than this is left.
    MoreLeft(u64),
    Unknown,
}

impl Plan {
    /// Plans what this tracepoint needs besides the data that every hit records. Registers other
    /// than general ones are never recorded: a tracepoint that asks for them must be one that
    /// allows that.
    pub(crate) fn of(tracepoint: &Tracepoint, variables: &Variables) -> Option<Plan> {
        if tracepoint.fast.is_none()
            && definition::sets(&tracepoint.actions) & !collector::SETS != 0
        {
            return None;
        }
        let mut plan = Plan::default();
        if let Some(condition) = &tracepoint.condition {
            plan.follow(condition, variables)?;
            plan.condition = Some(condition.clone());
        }
        for action in &tracepoint.actions {
            match action {
                Action::Registers(_) => {}
                Action::Memory {
                    register,
                    offset,
                    length,
                } => {
                    let base = register.map_or(Value::Constant(*offset), |number| {
                        Value::Register(number, *offset)
                    });
                    plan.note(base, *length)?;
                }
                Action::Expression(code) => plan.follow(code, variables)?,
            }
        }
        plan.is_small().then_some(plan)
    }

    /// Merges two plans. Hits are recorded without a condition unless both have the same.
    pub(crate) fn and(mut self, other: &Plan) -> Option<Plan> {
        self.condition = self
            .condition
            .filter(|mine| other.condition.as_ref() == Some(mine));
        for block in &other.blocks {
            self.add(*block);
        }
        self.stack_left = match (self.stack_left, other.stack_left) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        self.is_small().then_some(self)
    }

    fn is_small(&self) -> bool {
        let bytes: u64 = self.blocks.iter().map(Block::room).sum();
        self.blocks.len() <= MAX_BLOCKS && bytes <= MAX_HIT_BYTES
    }

    fn note(&mut self, address: Value, length: u64) -> Option<()> {
        let (base, offset) = match address {
            Value::Constant(address) => (Base::Absolute, address),
            Value::Register(number, offset) if collector::is_base(number) => {
                (Base::Register(number), offset)
            }
            _ => return None,
        };
        let length = u32::try_from(length)
            .ok()
            .filter(|l| u64::from(*l) <= MAX_HIT_BYTES)?;
        self.add(Block {
            base,
            offset,
            length,
        });
        Some(())
    }

    /// Leaves hits with more than `limit` bytes of stack left to the stub.
    fn leave_longer(&mut self, limit: u32) {
        self.stack_left = Some(self.stack_left.map_or(limit, |known| known.min(limit)));
    }

    fn add(&mut self, block: Block) {
        let same = |known: &&mut Block| known.base == block.base && known.offset == block.offset;
        match self.blocks.iter_mut().find(same) {
            Some(known) => known.length = known.length.max(block.length),
            None => self.blocks.push(block),
        }
    }

    fn follow(&mut self, code: &[u8], variables: &Variables) -> Option<()> {
        let mut way = Way {
            plan: self,
            code,
            variables,
            fuel: FUEL,
        };
        way.go(0, Vec::new(), u64::MAX)
    }
}

struct Way<'a> {
    plan: &'a mut Plan,
    code: &'a [u8],
    variables: &'a Variables,
    fuel: u32,
}

impl Way<'_> {
    /// Follows the code from offset `at`. At most `most` bytes of the stack are left on this path.
    fn go(&mut self, mut at: usize, mut stack: Vec<Value>, mut most: u64) -> Option<()> {
        loop {
            self.fuel = self.fuel.checked_sub(1)?;
            let (op, next) = Op::decode(self.code, at).ok()?;
            at = next;
            match op {
                Op::Binary(binary) => {
                    let (second, first) = (stack.pop()?, stack.pop()?);
                    stack.push(result(binary, first, second));
                }
                Op::LogNot | Op::BitNot => *stack.last_mut()? = Value::Unknown,
                Op::Ext(bits) | Op::ZeroExt(bits) => {
                    // An extension to 64 bits changes nothing.
                    if bits != 64 {
                        *stack.last_mut()? = Value::Unknown;
                    }
                }
                Op::Trace => {
                    let (length, address) = (stack.pop()?, stack.pop()?);
                    self.collect(address, length, most)?;
                }
                Op::Tracenz => {
                    let (limit, address) = (stack.pop()?, stack.pop()?);
                    // 0 is no limit. The string may end before the limit.
                    if limit == Value::Constant(0) {
                        return None;
                    }
                    self.collect(address, limit, most)?;
                }
                Op::TraceQuick(length) => {
                    self.collect(*stack.last()?, Value::Constant(length), most)?;
                }
                Op::Ref(size) => {
                    let address = stack.pop()?;
                    self.plan.note(address, size as u64)?;
                    stack.push(Value::Unknown);
                }
                Op::IfGoto(to) => {
                    let (mut taken, mut not) = (most, most);
                    match stack.pop()? {
                        Value::LessLeft(limit) => taken = most.min(limit),
                        Value::MoreLeft(limit) => {
                            not = most.min(limit);
                            if self.stops(to) {
                                // Only the stub can stop the thread, so it handles such a hit.
                                self.plan.leave_longer(u32::try_from(limit).ok()?);
                                most = not;
                                continue;
                            }
                        }
                        _ => {}
                    }
                    self.go(to, stack.clone(), taken)?;
                    most = not;
                }
                Op::Goto(to) => at = to,
                Op::Const(value) => stack.push(Value::Constant(value)),
                Op::Reg(number) => stack.push(Value::Register(number, 0)),
                Op::End => return Some(()),
                Op::Dup => stack.push(*stack.last()?),
                Op::Pop => drop(stack.pop()?),
                Op::Swap => {
                    let (second, first) = (stack.pop()?, stack.pop()?);
                    stack.extend([second, first]);
                }
                Op::Getv(number) => stack.push(match self.variables.computed(number) {
                    Some(Computed::StackLeft) => Value::StackLeft,
                    _ => Value::Unknown,
                }),
                Op::Setv(number) => {
                    stack.last()?;
                    if self.variables.computed(number) == Some(Computed::Stop) {
                        return None;
                    }
                }
                Op::Tracev(_) => {}
                Op::Pick(_) | Op::Rot | Op::Printf { .. } => return None,
            }
        }
    }

    /// True if the code at this offset only stops the thread: `const8 1, setv N, end`.
    fn stops(&self, at: usize) -> bool {
        let mut at = at;
        let mut next = || {
            let (op, next) = Op::decode(self.code, at).ok()?;
            at = next;
            Some(op)
        };
        let ops = [next(), next(), next()];
        let [Some(Op::Const(1)), Some(Op::Setv(number)), Some(Op::End)] = ops else {
            return false;
        };
        self.variables.computed(number) == Some(Computed::Stop)
    }

    fn collect(&mut self, address: Value, length: Value, most: u64) -> Option<()> {
        let length = match length {
            Value::Constant(length) => length,
            Value::StackLeft => {
                if most > MAX_HIT_STACK {
                    self.plan.leave_longer(MAX_HIT_STACK as u32);
                }
                most.min(MAX_HIT_STACK)
            }
            _ => return None,
        };
        self.plan.note(address, length)
    }
}

/// The result of an operation on two values, as far as it is known.
fn result(operation: Binary, first: Value, second: Value) -> Value {
    match operation {
        Binary::Add | Binary::Sub => sum(first, second, operation == Binary::Sub),
        Binary::LessUnsigned => match (first, second) {
            (Value::StackLeft, Value::Constant(limit)) => Value::LessLeft(limit),
            (Value::Constant(limit), Value::StackLeft) => Value::MoreLeft(limit),
            _ => Value::Unknown,
        },
        _ => Value::Unknown,
    }
}

fn sum(first: Value, second: Value, minus: bool) -> Value {
    let add = |one: u64, other: u64| match minus {
        true => one.wrapping_sub(other),
        false => one.wrapping_add(other),
    };
    match (first, second) {
        (Value::Constant(one), Value::Constant(other)) => Value::Constant(add(one, other)),
        (Value::Register(number, offset), Value::Constant(other)) => {
            Value::Register(number, add(offset, other))
        }
        (Value::Constant(one), Value::Register(number, offset)) if !minus => {
            Value::Register(number, one.wrapping_add(offset))
        }
        _ => Value::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables() -> Variables {
        let mut variables = Variables::default();
        variables.define(5, b"trace_stack_left", 0);
        variables.define(6, b"trace_stop", 0);
        variables
    }

    fn plan(actions: Vec<Action>) -> Option<Plan> {
        let tracepoint = Tracepoint {
            actions,
            fast: Some(Vec::new()),
            ..Tracepoint::default()
        };
        Plan::of(&tracepoint, &variables())
    }

    fn block(number: usize, offset: u64, length: u32) -> Block {
        Block {
            base: Base::Register(number),
            offset,
            length,
        }
    }

    #[test]
    fn memory_at_registers() {
        let memory = |register, offset, length| Action::Memory {
            register,
            offset,
            length,
        };
        let known = plan(vec![
            Action::Registers(1),
            memory(Some(7), 8, 64),
            memory(Some(7), 8, 100),
            memory(None, 0x1000, 4),
            // reg 5, const8 4, add, ref32, pop; reg 5, const8 40, trace
            Action::Expression(vec![
                0x26, 0, 5, 0x22, 4, 0x02, 0x19, 0x29, 0x26, 0, 5, 0x22, 40, 0x0c, 0x27,
            ]),
            // reg 4, const8 16, tracenz
            Action::Expression(vec![0x26, 0, 4, 0x22, 16, 0x2f, 0x27]),
        ]);
        let absolute = Block {
            base: Base::Absolute,
            offset: 0x1000,
            length: 4,
        };
        let mut blocks = vec![block(7, 8, 100), absolute, block(5, 4, 4), block(5, 0, 40)];
        blocks.push(block(4, 0, 16));
        assert_eq!(known.map(|plan| plan.blocks), Some(blocks));
        // An address from memory; a length from memory; a string without a limit; more than the
        // largest block.
        for code in [
            vec![0x26, 0, 5, 0x22, 0, 0x2f, 0x27],
            vec![0x26, 0, 5, 0x1a, 0x0d, 8, 0x27],
            vec![0x26, 0, 5, 0x28, 0x19, 0x0c, 0x27],
            vec![0x26, 0, 5, 0x23, 0xff, 0xff, 0x0c, 0x27],
            vec![0x21, 0, 0],
            vec![0x22, 1, 0x2d, 0, 6, 0x27],
        ] {
            assert_eq!(plan(vec![Action::Expression(code)]), None);
        }
    }

    #[test]
    fn the_stack_up_to_its_end() {
        // As the recorder requests it: at most 4096 bytes of the stack.
        let up_to = vec![
            0x26, 0, 7, 0x2c, 0, 5, 0x23, 0x10, 0, 0x15, 0x20, 0, 0x15, 0x23, 0x10, 0, 0x0c, 0x21,
            0, 0x19, 0x27, 0x2c, 0, 5, 0x0c, 0x27,
        ];
        let known = plan(vec![Action::Expression(up_to)]).expect("a plan");
        assert_eq!(
            (known.blocks, known.stack_left),
            (vec![block(7, 0, 4096)], None)
        );
        // The whole stack, or a stop if it is larger.
        let or_stop = |limit: [u8; 4]| {
            let mut code = vec![0x24];
            code.extend(limit);
            code.extend([0x2c, 0, 5, 0x15, 0x20, 0, 0x14, 0x26, 0, 7]);
            code.extend([0x2c, 0, 5, 0x0c, 0x27, 0x22, 1, 0x2d, 0, 6, 0x27]);
            plan(vec![Action::Expression(code)]).expect("a plan")
        };
        let known = or_stop([0, 0, 0x20, 0]);
        assert_eq!(known.blocks, [block(7, 0, 0x2000)]);
        assert_eq!(known.stack_left, Some(0x2000));
        // A stack for which a hit has no room is left to the stub, not the whole tracepoint.
        let known = or_stop([0, 2, 0, 0]);
        assert_eq!(known.blocks, [block(7, 0, 0x4000)]);
        assert_eq!(known.stack_left, Some(0x4000));
    }
}
