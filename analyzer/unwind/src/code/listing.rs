//! The instructions of one function, decoded once, and the places where paths join.
//!
//! Separate from [`super::flow`], which executes them and may follow a path many times.

use super::effect::{Effect, Flow, Instruction, Target};
use super::flow::Jumps;
use super::state::Context;

/// The condition "always".
pub(super) const ALWAYS: u8 = 14;
const NONE: u32 = u32::MAX;
/// Maximum size of an analysed function in bytes.
pub(super) const MAX_FUNCTION_SIZE: u64 = 4 << 20;

/// An instruction in the listing.
#[derive(Debug)]
pub(super) struct Line {
    /// Offset from the function's start.
    at: u32,
    pub(super) instruction: Instruction,
    /// Reached in this round.
    reached: bool,
    /// The number of the state in which paths join here.
    state: u32,
}

impl Line {
    /// Whether paths join here.
    pub(super) fn joins(&self) -> bool {
        self.state != NONE
    }
}

/// Reads lines, usually in order of address.
pub(super) struct Lines<'l> {
    listing: &'l Listing,
    next: usize,
}

impl<'l> Lines<'l> {
    /// The line at a position, if a path reaches it.
    #[inline]
    pub(super) fn at(&mut self, at: u32) -> Option<&'l Line> {
        let listing = self.listing;
        let line = match listing.lines.get(self.next) {
            Some(line) if line.at == at => line,
            _ => {
                self.next = listing.number(at)?;
                listing.lines.get(self.next)?
            }
        };
        self.next += 1;
        line.reached.then_some(line)
    }
}

/// The instructions of one function. The memory is reused from function to function.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) thumb: bool,
    shift: u32,
    /// By position: the index of the line.
    index: Vec<u32>,
    lines: Vec<Line>,
    /// One past the highest position that was reached or jumped to.
    pub(super) reach: u32,
    /// Positions where paths join, by state number.
    pub(super) leaders: Vec<u32>,
    /// The positions of the previous round.
    pub(super) before: Vec<u32>,
    /// The same positions, and those that paths from unreached code would add.
    joins: Vec<u32>,
    /// Addresses of words loaded as data.
    pub(super) literals: Vec<u64>,
    /// The same words as a bit set, relative to the start.
    words: Vec<u64>,
}

impl Listing {
    /// Starts a new function, which starts at `start` and ends before `end`.
    pub(super) fn begin(&mut self, start: Target, end: u64, shift: u32) {
        for line in &self.lines {
            self.index[(line.at >> self.shift) as usize] = NONE;
        }
        self.lines.clear();
        self.leaders.clear();
        self.reach = 0;
        for &literal in &self.literals {
            if let Some((word, _)) = place_of(self.start, literal)
                && let Some(word) = self.words.get_mut(word)
            {
                *word = 0;
            }
        }
        self.literals.clear();
        self.start = start.svma;
        self.end = end.min(start.svma.saturating_add(MAX_FUNCTION_SIZE));
        self.thumb = start.thumb;
        self.shift = shift;
    }

    pub(super) fn svma(&self, at: u32) -> u64 {
        self.start + u64::from(at)
    }

    /// The position of an address in this function.
    pub(super) fn position(&self, target: Target) -> Option<u32> {
        let inside = (self.start..self.end).contains(&target.svma) && target.thumb == self.thumb;
        let at = (target.svma.wrapping_sub(self.start)) as u32;
        (inside && at & ((1 << self.shift) - 1) == 0).then_some(at)
    }

    /// The position of the landing pad for exceptions that pass the call at `at`.
    pub(super) fn pad(&self, context: &Context<'_>, at: u32) -> Option<u32> {
        let svma = context.text.pad(self.svma(at))?;
        self.position(Target {
            svma,
            thumb: self.thumb,
        })
    }

    fn number(&self, at: u32) -> Option<usize> {
        let number = *self.index.get((at >> self.shift) as usize)?;
        (number != NONE).then_some(number as usize)
    }

    fn line(&self, at: u32) -> Option<&Line> {
        self.lines.get(self.number(at)?)
    }

    /// Reads lines from a position on.
    pub(super) fn from(&self, at: u32) -> Lines<'_> {
        Lines {
            listing: self,
            next: self.number(at).unwrap_or(0),
        }
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

    /// The instruction at a position, if a path reaches it.
    #[inline]
    pub(super) fn at(&self, at: u32) -> Option<&Instruction> {
        let line = self.line(at)?;
        line.reached.then_some(&line.instruction)
    }

    /// The state number at a position, if paths join there.
    pub(super) fn state(&self, at: u32) -> Option<usize> {
        let line = self.line(at)?;
        (line.state != NONE && line.reached).then_some(line.state as usize)
    }

    /// Number of decoded instructions.
    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }

    /// Every reached position and its instruction, in order of address.
    pub(super) fn reached(&self) -> impl DoubleEndedIterator<Item = (u32, &Instruction)> {
        let mut lines: Vec<&Line> = self.lines.iter().filter(|line| line.reached).collect();
        lines.sort_unstable_by_key(|line| line.at);
        lines.into_iter().map(|line| (line.at, &line.instruction))
    }

    /// Whether the word at `svma` is loaded as data.
    pub(super) fn is_literal(&self, svma: u64) -> bool {
        place_of(self.start, svma & !3)
            .is_some_and(|(word, bit)| self.words.get(word).is_some_and(|word| word & bit != 0))
    }

    /// Finds all code that paths reach.
    pub(super) fn discover(&mut self, context: &Context<'_>, jumps: &Jumps) {
        for line in &mut self.lines {
            line.reached = false;
            line.state = NONE;
        }
        self.joins.clear();
        let mut open = vec![0u32];
        open.extend(&jumps.orphans);
        self.explore(context, jumps, open);
    }

    /// Finds the code that becomes reachable from the jumps at `resolved` and from more orphans.
    pub(super) fn discover_more(&mut self, context: &Context<'_>, jumps: &Jumps, resolved: &[u32]) {
        let targets = resolved.iter().flat_map(|at| jumps.targets(*at));
        let open = targets.chain(&jumps.orphans).copied().collect();
        self.explore(context, jumps, open);
    }

    /// Follows paths from the joins at the positions `open`.
    fn explore(&mut self, context: &Context<'_>, jumps: &Jumps, mut open: Vec<u32>) {
        let mut joins = std::mem::take(&mut self.joins);
        joins.extend(&open);
        let bytes = context.text.bytes(self.start);
        let mut targets = Vec::new();
        while let Some(mut at) = open.pop() {
            // Conditions of the instructions in the current IT block.
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
                                || jumps.is_noreturn(at)
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
                let furthest = targets.iter().map(|target| target + 1).max();
                self.reach = self.reach.max(next).max(furthest.unwrap_or(0));
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
        std::mem::swap(&mut self.leaders, &mut self.before);
        self.leaders.clear();
        for &at in &joins {
            let number = self.index.get((at >> self.shift) as usize);
            if let Some(line) = number.and_then(|&number| self.lines.get_mut(number as usize))
                && line.reached
            {
                line.state = self.leaders.len() as u32;
                self.leaders.push(at);
            }
        }
        self.joins = joins;
    }

    fn literal(&mut self, svma: u64) {
        self.literals.push(svma);
        if let Some((word, bit)) = place_of(self.start, svma) {
            if self.words.len() <= word {
                self.words.resize((word + 1).next_power_of_two(), 0);
            }
            self.words[word] |= bit;
        }
    }

    /// Decodes the instruction at a position for the first time.
    fn decode(
        &mut self,
        context: &Context<'_>,
        bytes: &[u8],
        at: u32,
        condition: Option<u8>,
        link_set: bool,
    ) -> Option<usize> {
        let svma = self.svma(at);
        if svma >= self.end || self.is_literal(svma) {
            return None;
        }
        // An assembler that emits a trap as a number (musl's a_crash: `.short 0xdeff`) marks it as
        // data.
        let traps = |found: Instruction| found.flow == Flow::Trap;
        let text = context.text;
        if text.is_data(svma) && !text.decode(svma, self.thumb).is_some_and(traps) {
            return None;
        }
        let number = self.lines.len();
        self.lines.push(Line {
            at,
            instruction: Instruction::new(0),
            reached: false,
            state: NONE,
        });
        let thumb = self.thumb;
        let line = self.lines.last_mut()?;
        let instruction = &mut line.instruction;
        let decoded = bytes.get(at as usize..).and_then(|rest| {
            super::text::decode_to(context.machine, rest, svma, thumb, instruction)
        });
        let next = svma + u64::from(instruction.len);
        if decoded.is_none() || next > self.end {
            self.lines.pop();
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
            instruction.last = super::starts::follows(context.text, next);
        }
        for index in 0..instruction.effects().len() {
            match self.lines[number].instruction.effects()[index] {
                Effect::Literal { svma, .. } => self.literal(u64::from(svma & !3)),
                Effect::Data { svma, size } => {
                    let end = u64::from(svma) + u64::from(size);
                    for svma in (u64::from(svma & !3)..end).step_by(4) {
                        self.literal(svma);
                    }
                }
                _ => {}
            }
        }
        let place = (at >> self.shift) as usize;
        if self.index.len() <= place {
            self.index.resize((place + 1).next_power_of_two(), NONE);
        }
        self.index[place] = number as u32;
        Some(number)
    }
}

/// Index of the word and mask of the bit for the literal at `svma`, in a function that starts at
/// `start`.
fn place_of(start: u64, svma: u64) -> Option<(usize, u64)> {
    let number = svma.checked_sub(start & !3)? / 4;
    (number < MAX_FUNCTION_SIZE / 4).then_some(((number / 64) as usize, 1 << (number % 64)))
}

/// Whether this is A32 `mov lr, pc`.
fn sets_link(instruction: &Instruction, svma: u64) -> bool {
    matches!(instruction.effects().first(), Some(Effect::Constant { to: 14, value }) if u64::from(*value) == svma + 8)
        && instruction.len == 4
}

/// The remaining conditions of an IT block.
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
