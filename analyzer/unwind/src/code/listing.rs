//! The instructions of one function: each decoded once, however often paths are followed again, and where paths
//! join. Apart from [`super::flow`], which carries them out.

use super::effect::{Effect, Flow, Instruction, Target};
use super::flow::Jumps;
use super::state::Context;

/// The condition "always".
pub(super) const ALWAYS: u8 = 14;
const NONE: u32 = u32::MAX;
/// No function of more bytes is analysed.
pub(super) const LARGEST: u64 = 4 << 20;

/// An instruction of a function.
#[derive(Debug)]
struct Line {
    /// In bytes from the function's start.
    at: u32,
    instruction: Instruction,
    /// Found in this round.
    reached: bool,
    /// Paths join here: number of the state that they meet in.
    state: u32,
}

/// The instructions of one function. Kept from function to function, so that its memory is.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) thumb: bool,
    shift: u32,
    /// By position: number of the line.
    index: Vec<u32>,
    lines: Vec<Line>,
    /// Positions where paths join, by number of the state.
    pub(super) leaders: Vec<u32>,
    /// Words that are loaded as data.
    pub(super) literals: Vec<u64>,
}

impl Listing {
    /// Forget the function before; this one starts at `start` and ends before `end`.
    pub(super) fn begin(&mut self, start: Target, end: u64, shift: u32) {
        for line in &self.lines {
            self.index[(line.at >> self.shift) as usize] = NONE;
        }
        self.lines.clear();
        self.leaders.clear();
        self.literals.clear();
        self.start = start.svma;
        self.end = end.min(start.svma.saturating_add(LARGEST));
        self.thumb = start.thumb;
        self.shift = shift;
    }

    pub(super) fn svma(&self, at: u32) -> u64 {
        self.start + u64::from(at)
    }

    /// Position of an address of this function.
    pub(super) fn position(&self, target: Target) -> Option<u32> {
        let inside = (self.start..self.end).contains(&target.svma) && target.thumb == self.thumb;
        let at = (target.svma.wrapping_sub(self.start)) as u32;
        (inside && at & ((1 << self.shift) - 1) == 0).then_some(at)
    }

    /// Position where an exception that passes the call at `at` is caught.
    pub(super) fn pad(&self, context: &Context<'_>, at: u32) -> Option<u32> {
        let svma = context.text.pad(self.svma(at))?;
        self.position(Target {
            svma,
            thumb: self.thumb,
        })
    }

    fn line(&self, at: u32) -> Option<&Line> {
        let number = *self.index.get((at >> self.shift) as usize)?;
        self.lines.get(number as usize)
    }

    /// Whether a position is inside a known instruction.
    pub(super) fn is_inside(&self, at: u32) -> bool {
        (1..15u32)
            .filter(|back| back & ((1 << self.shift) - 1) == 0)
            .any(|back| {
                at.checked_sub(back)
                    .and_then(|before| self.line(before))
                    .is_some_and(|line| u32::from(line.instruction.len) > back)
            })
    }

    /// The instruction at a position that some path reaches.
    #[inline]
    pub(super) fn at(&self, at: u32) -> Option<&Instruction> {
        let line = self.line(at)?;
        line.reached.then_some(&line.instruction)
    }

    /// The instruction at a position and the number of the state where paths join there.
    #[inline]
    pub(super) fn joined(&self, at: u32) -> Option<(&Instruction, Option<u32>)> {
        let line = self.line(at)?;
        let state = (line.state != NONE).then_some(line.state);
        line.reached.then_some((&line.instruction, state))
    }

    /// Number of the state at a position, if paths join there.
    pub(super) fn state(&self, at: u32) -> Option<usize> {
        let line = self.line(at)?;
        (line.state != NONE && line.reached).then_some(line.state as usize)
    }

    /// Instructions found.
    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }

    /// Every reached position and its instruction, in order of address.
    pub(super) fn reached(&self) -> impl DoubleEndedIterator<Item = (u32, &Instruction)> {
        let mut lines: Vec<&Line> = self.lines.iter().filter(|line| line.reached).collect();
        lines.sort_unstable_by_key(|line| line.at);
        lines.into_iter().map(|line| (line.at, &line.instruction))
    }

    /// Whether the words at `svma` are loaded as data.
    pub(super) fn is_literal(&self, svma: u64) -> bool {
        self.literals.contains(&(svma & !3))
    }

    /// Find everything that paths reach.
    pub(super) fn discover(&mut self, context: &Context<'_>, jumps: &Jumps) {
        for line in &mut self.lines {
            line.reached = false;
            line.state = NONE;
        }
        self.leaders.clear();
        let mut open = vec![0u32];
        open.extend(&jumps.orphans);
        let mut joins = open.clone();
        let bytes = context.text.bytes(self.start);
        let mut targets = Vec::new();
        while let Some(mut at) = open.pop() {
            // Conditions of the instructions that an IT instruction governs.
            let mut governed = Governed::default();
            let mut link_set = false;
            loop {
                let condition = governed.next();
                let number = match self.index.get((at >> self.shift) as usize) {
                    Some(&number) if number != NONE => number as usize,
                    _ => {
                        let Some(line) = self.decode(context, bytes, at, condition, link_set)
                        else {
                            break;
                        };
                        line
                    }
                };
                let line = &mut self.lines[number];
                if line.reached {
                    break;
                }
                line.reached = true;
                let instruction = &line.instruction;
                if condition.is_none() && instruction.it != 0 {
                    governed = Governed::new(instruction.it);
                }
                link_set = sets_link(instruction, self.start + u64::from(at));
                let next = at + u32::from(instruction.len);
                let conditional = instruction.condition != ALWAYS;
                let flow = instruction.flow;
                let last = instruction.last;
                targets.clear();
                let onward = match flow {
                    Flow::Next => true,
                    Flow::Jump(target) => {
                        targets.extend(self.position(target));
                        conditional
                    }
                    Flow::Branch(target) | Flow::IfZero { target, .. } => {
                        targets.extend(self.position(target));
                        true
                    }
                    Flow::Call(target) => {
                        targets.extend(self.pad(context, at));
                        conditional
                            || !(last
                                || jumps.silent.contains(&at)
                                || target.is_some_and(|target| context.text.never_returns(target)))
                    }
                    Flow::Table(_) | Flow::Indirect(_) => {
                        targets.extend(jumps.targets(at));
                        conditional
                    }
                    Flow::Return => {
                        if jumps.is_resolved(at) {
                            targets.extend(jumps.targets(at));
                        }
                        conditional
                    }
                    Flow::Trap => conditional,
                };
                let splits = conditional && !matches!(flow, Flow::Next | Flow::Call(_))
                    || matches!(flow, Flow::Branch(_) | Flow::IfZero { .. });
                joins.extend(&targets);
                open.extend(&targets);
                if splits && governed.is_empty() {
                    joins.push(next);
                }
                if !onward {
                    break;
                }
                at = next;
            }
        }
        joins.sort_unstable();
        joins.dedup();
        for at in joins {
            let number = self.index.get((at >> self.shift) as usize);
            if let Some(line) = number.and_then(|&number| self.lines.get_mut(number as usize))
                && line.reached
            {
                line.state = self.leaders.len() as u32;
                self.leaders.push(at);
            }
        }
    }

    /// Decode the instruction at a position for the first time.
    fn decode(
        &mut self,
        context: &Context<'_>,
        bytes: &[u8],
        at: u32,
        condition: Option<u8>,
        link_set: bool,
    ) -> Option<usize> {
        let svma = self.svma(at);
        if svma >= self.end || context.text.is_data(svma) || self.is_literal(svma) {
            return None;
        }
        let rest = bytes.get(at as usize..)?;
        let mut instruction = super::text::decode(context.machine, rest, svma, self.thumb)?;
        if svma + u64::from(instruction.len) > self.end {
            return None;
        }
        if let Some(condition) = condition {
            instruction.condition = condition;
        }
        if link_set && matches!(instruction.flow, Flow::Indirect(_)) {
            // mov lr, pc; bx register
            instruction.flow = Flow::Call(None);
        }
        if matches!(instruction.flow, Flow::Call(_)) && !context.text.prologues.is_empty() {
            let next = svma + u64::from(instruction.len);
            instruction.last = super::starts::follows(context.text, next);
        }
        for effect in instruction.effects() {
            match *effect {
                Effect::Literal { svma, .. } => self.literals.push(svma & !3),
                Effect::Data { svma, size } => {
                    let words = (svma & !3..svma.saturating_add(size.into())).step_by(4);
                    self.literals.extend(words);
                }
                _ => {}
            }
        }
        let number = self.lines.len();
        let place = (at >> self.shift) as usize;
        if self.index.len() <= place {
            self.index.resize((place + 1).next_power_of_two(), NONE);
        }
        self.index[place] = number as u32;
        self.lines.push(Line {
            at,
            instruction,
            reached: false,
            state: NONE,
        });
        Some(number)
    }
}

/// A32 `mov lr, pc`.
fn sets_link(instruction: &Instruction, svma: u64) -> bool {
    matches!(instruction.effects().first(), Some(Effect::Constant { to: 14, value }) if u64::from(*value) == svma + 8)
        && instruction.len == 4
}

/// Conditions of the instructions of an IT block that are still to come.
#[derive(Default)]
struct Governed {
    conditions: [u8; 4],
    count: u8,
    passed: u8,
}

impl Governed {
    /// `it` is the low byte of the instruction: `cccc mmmm`, firstcond and mask (ARM ARM, A7.7.38).
    fn new(it: u8) -> Self {
        let (first, mask) = (it >> 4, it & 0xf);
        let count = 4 - mask.trailing_zeros().min(3) as u8;
        let mut conditions = [first; 4];
        for index in 1..count {
            conditions[usize::from(index)] = first & 0xe | mask >> (4 - index) & 1;
        }
        Governed {
            conditions,
            count,
            passed: 0,
        }
    }

    fn is_empty(&self) -> bool {
        self.passed >= self.count
    }

    fn next(&mut self) -> Option<u8> {
        let condition = (!self.is_empty()).then(|| self.conditions[usize::from(self.passed)]);
        self.passed = self.passed.saturating_add(1).min(4);
        condition
    }
}
