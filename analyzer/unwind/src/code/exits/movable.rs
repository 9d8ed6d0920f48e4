//! Finds code that a stub may move to make room for a jump.
//!
//! The code consists of whole instructions, is long enough for a jump, and no jump leads into its
//! middle. Apart because it needs to know all jumps in the image, not only the exits of one
//! function.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use unspool_image::Arch;

use super::{Early, ExitFinder, Exits, Return};
use crate::code::effect::{Flow, Instruction};
use crate::code::state::{State, Value};
use crate::code::text::Text;

/// Length of a near jump: x86-64 `e9` and four bytes; A64 and A32 `b`, T32 `b.w`.
pub(super) fn jump(arch: Arch) -> u8 {
    match arch {
        Arch::X86_64 => 5,
        _ => 4,
    }
}

/// The reachable instructions of one function.
#[derive(Default)]
pub(super) struct Lines {
    lines: BTreeMap<u64, Line>,
    /// Targets of its jumps.
    targets: BTreeSet<u64>,
    /// It also jumps through registers or tables.
    has_indirect_jumps: bool,
}

struct Line {
    length: u8,
    /// The only instruction that control comes from.
    before: Option<u64>,
    /// Control always continues with the next instruction.
    plain: bool,
    /// A conditional jump that may be moved: it may continue with the next instruction.
    branches: bool,
    /// The stack depth, and the function's result so far.
    depth: Option<i32>,
    result: Option<u32>,
    /// The instruction sets the result register.
    gives: bool,
}

impl Lines {
    pub(super) fn add(
        &mut self,
        text: &Text<'_>,
        svma: u64,
        instruction: &Instruction,
        before: Option<u64>,
        state: &State,
    ) {
        let machine = text.machine;
        let effects = instruction.effects().iter();
        let writes = effects.fold(0, |mask, effect| mask | effect.writes());
        let line = Line {
            length: instruction.len,
            before,
            plain: instruction.flow == Flow::Next
                && instruction.condition == 14
                && instruction.it == 0,
            branches: machine.arch == Arch::X86_64 && matches!(instruction.flow, Flow::Branch(_)),
            depth: state.depth(),
            result: match state.register(machine.result) {
                // Larger values may be addresses, which differ where the image is mapped.
                Value::Constant(value) if value < 4096 => Some(value),
                _ => None,
            },
            gives: writes >> machine.result & 1 == 1,
        };
        self.lines.insert(svma, line);
        match instruction.flow {
            Flow::Jump(target) | Flow::Branch(target) | Flow::IfZero { target, .. } => {
                self.targets.insert(target.svma);
            }
            Flow::Indirect(_) | Flow::Table(_) => self.has_indirect_jumps = true,
            _ => {}
        }
    }

    /// Number of bytes from `svma` on that may be moved; 0 if they are too few. The function ends
    /// at `end`.
    pub(super) fn movable(&self, text: &Text<'_>, end: u64, svma: u64) -> u8 {
        let enough = jump(text.machine.arch);
        let mut at = svma;
        let mut length = 0;
        while let Some(line) = self.lines.get(&at) {
            length += line.length;
            let next = at + u64::from(line.length);
            if length >= enough {
                return length;
            }
            if line.branches && self.is_entered_from_above_only(next) {
                at = next;
                continue;
            }
            if !line.plain {
                // Padding after a return is never executed.
                let returns = text.decode(at, false).map(|i| i.flow) == Some(Flow::Return);
                let more = match returns {
                    true => self.filled(text, next..end, enough - length),
                    false => None,
                };
                return more.map_or(0, |more| length + more);
            }
            match self.lines.get(&next) {
                Some(following) if following.before == Some(at) => at = next,
                _ => return 0,
            }
        }
        0
    }

    /// Whether control comes to `svma` only from the instruction in front of it.
    fn is_entered_from_above_only(&self, svma: u64) -> bool {
        !self.has_indirect_jumps && !self.targets.contains(&svma)
    }

    /// Length of the padding in `range`, if it has at least `enough` bytes. Compilers pad between
    /// functions and before jump targets.
    fn filled(&self, text: &Text<'_>, range: Range<u64>, enough: u8) -> Option<u8> {
        let mut length = 0;
        while length < enough {
            let at = range.start + u64::from(length);
            let len = text.decode(at, false)?.len;
            let within =
                at + u64::from(len) <= range.end && self.lines.range(at..at + 1).count() == 0;
            let bytes = text.bytes(at);
            let prefixes = bytes.iter().take_while(|b| [0x66, 0x2e].contains(*b));
            let nop = matches!(&bytes[prefixes.count()..], [0x90, ..] | [0x0f, 0x1f, ..]);
            if !within || !nop || text.machine.arch != Arch::X86_64 {
                return None;
            }
            length += len;
        }
        Some(length)
    }

    /// The only instruction from which control can reach the instruction at `svma`.
    pub(super) fn only_predecessor(&self, svma: u64) -> Option<u64> {
        self.lines.get(&svma)?.before
    }

    /// Sets the movable lengths of everything found in the function.
    pub(super) fn set_movable(&self, text: &Text<'_>, end: u64, found: &mut Exits) {
        for back in &mut found.returns {
            back.early = self.early(text, end, back);
        }
        for call in &mut found.system_calls {
            call.movable = self.movable(text, end, call.next);
        }
    }

    fn early(&self, text: &Text<'_>, end: u64, back: &Return) -> Option<Early> {
        let entry = text.machine.entry_depth;
        let result = self.lines.get(&back.svma)?.result;
        let mut at = back.svma;
        let mut given = false;
        let mut early = Early {
            svma: at,
            below: back.below,
            result: None,
            movable: 0,
        };
        loop {
            early.movable = self.movable(text, end, at);
            if early.movable > 0 {
                return Some(early);
            }
            at = self.lines.get(&at)?.before?;
            let line = self.lines.get(&at).filter(|line| line.plain)?;
            given |= line.gives;
            early.svma = at;
            early.below = line.depth? - entry;
            early.result = match given {
                true => Some(result?),
                false => None,
            };
        }
    }
}

impl ExitFinder<'_> {
    /// The starts of those `ranges` (sorted) into which a jump or call of any function may lead.
    /// Bytes that look like a jump count as one.
    pub fn entered(&self, ranges: &[Range<u64>]) -> BTreeSet<u64> {
        let mut entered = BTreeSet::new();
        let (Some(first), Some(longest)) =
            (ranges.first(), ranges.iter().map(|r| r.end - r.start).max())
        else {
            return entered;
        };
        let last = ranges.iter().map(|range| range.end).max().unwrap_or(0);
        let whole = first.start..last;
        let mut enter = |target: u64| {
            if target <= whole.start || target >= whole.end {
                return;
            }
            // Ranges may overlap.
            let from = ranges.partition_point(|range| range.start + longest < target);
            for range in &ranges[from..] {
                if range.start >= target {
                    break;
                }
                if target < range.end {
                    entered.insert(range.start);
                }
            }
        };
        match self.text.machine.arch {
            Arch::X86_64 => {
                self.far_targets(&mut enter);
                for range in ranges {
                    self.near_targets(range, &mut enter);
                }
            }
            // A 4-byte instruction is long enough alone and cannot be entered in the middle.
            Arch::Arm => self.half_targets(&mut enter),
            _ => {}
        }
        entered
    }

    /// Checks every byte that may start a jump or call with a 4-byte distance: `e8`, `e9`, `0f 80`
    /// to `0f 8f`, `c7 f8` (Intel SDM vol. 2, appendix A).
    fn far_targets(&self, enter: &mut dyn FnMut(u64)) {
        for text in self.text.ranges() {
            let bytes = self.text.bytes(text.start);
            let len = usize::try_from(text.end - text.start).unwrap_or(usize::MAX);
            let mut former = 0;
            for (index, bytes) in bytes[..bytes.len().min(len)].windows(5).enumerate() {
                let [opcode, a, b, c, d] = *bytes else {
                    continue;
                };
                let before = std::mem::replace(&mut former, opcode);
                let jumps = match opcode {
                    0xe8 | 0xe9 => true,
                    0x80..=0x8f => before == 0x0f,
                    0xf8 => before == 0xc7,
                    _ => false,
                };
                if jumps {
                    let behind = text.start + index as u64 + 5;
                    let distance = i32::from_le_bytes([a, b, c, d]);
                    enter(behind.wrapping_add_signed(distance.into()));
                }
            }
        }
    }

    /// Checks jumps with a 1-byte distance near `range`. Decodes instruction by instruction from
    /// the nearest function start.
    fn near_targets(&self, range: &Range<u64>, enter: &mut dyn FnMut(u64)) {
        let reach = 0x82;
        let until = range.end + reach;
        let far = range.start.saturating_sub(reach);
        let mut at = match self.starts.range(..=far).next_back() {
            Some((start, _)) => *start,
            None => far,
        };
        while at < until {
            let Some(instruction) = self.text.decode(at, false) else {
                // Here the instruction boundaries are unknown, so every byte may start a jump.
                let next = self.starts.range(at + 1..).next();
                let next = next.map_or(until, |(next, _)| (*next).min(until));
                for byte in at..next {
                    if let [0xeb | 0x70..=0x7f | 0xe0..=0xe3, by, ..] = *self.text.bytes(byte) {
                        enter((byte + 2).wrapping_add_signed((by as i8).into()));
                    }
                }
                at = next;
                continue;
            };
            if let Flow::Jump(target) | Flow::Branch(target) | Flow::IfZero { target, .. } =
                instruction.flow
            {
                enter(target.svma);
            }
            at += u64::from(instruction.len.max(1));
        }
    }

    /// Checks every 2 or 4 bytes that may be a T32 branch.
    fn half_targets(&self, enter: &mut dyn FnMut(u64)) {
        for text in self.text.ranges() {
            for at in (text.start..text.end).step_by(2) {
                if let Some(instruction) = self.text.decode(at, true)
                    && let Flow::Jump(target)
                    | Flow::Branch(target)
                    | Flow::IfZero { target, .. }
                    | Flow::Call(Some(target)) = instruction.flow
                {
                    enter(target.svma);
                }
            }
        }
    }
}
