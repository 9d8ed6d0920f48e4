//! Analysis of machine code: unwind rules where nobody left any.
//!
//! The method of the project's ancestors (start at the function's first instruction, sum what
//! moves the stack pointer, note where the return address is stored), carried along every path, so
//! that the frame is known at every instruction, epilogues included. A decoder per instruction set
//! produces [`effect`]s; one engine ([`flow`]) follows control and meets the [`state`]s of joining paths.
//! What the paths disagree on is unknown, and an address with an unknown frame gets no row.
//!
//! Function starts come from symbols, else from the exception index, call targets and the shapes of
//! prologues. A32 and T32 for now.

pub mod effect;
pub mod state;

mod a32;
mod flow;
mod starts;
mod t32;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use unspool_image::{Arch, CodeKind, Image};

use crate::rows::{Builder, Draft, Rows};
use crate::rule::Source;
use effect::{Instruction, Target};
use flow::Text;
use state::State;

pub use flow::Function;

/// What the code of one image says.
#[derive(Debug)]
pub struct Analysis {
    rows: Rows,
    starts: Vec<u64>,
}

impl Analysis {
    pub(crate) fn rows(&self) -> &Rows {
        &self.rows
    }

    /// Start of the function that contains `svma`.
    pub fn function_start(&self, svma: u64) -> Option<u64> {
        let after = self.starts.partition_point(|&start| start <= svma);
        self.starts.get(after.checked_sub(1)?).copied()
    }

    /// Start of the first function behind `svma`.
    pub(crate) fn next_start(&self, svma: u64) -> Option<u64> {
        let after = self.starts.partition_point(|&start| start <= svma);
        self.starts.get(after).copied()
    }

    /// How many functions were analysed.
    pub fn functions(&self) -> usize {
        self.starts.len()
    }
}

/// Analyse all code of `image`, using its symbols or not.
pub fn analyze(image: &Image, symbols: bool) -> Analysis {
    let mut rows = Builder::new(Source::Code, image.arch());
    let mut starts = Vec::new();
    let mut saved = Vec::new();
    survey(image, symbols, &mut |function| {
        starts.push(function.start);
        for (svma, len, state) in &function.instructions {
            if let Some((cfa, ra)) = state.rule(&mut saved) {
                rows.push(
                    *svma,
                    svma + u64::from(*len),
                    &Draft {
                        cfa,
                        ra,
                        saved: &saved,
                        signal_frame: false,
                        signed: false,
                    },
                );
            }
        }
    });
    starts.sort_unstable();
    starts.dedup();
    Analysis {
        rows: rows.finish(),
        starts,
    }
}

/// Analyse all code of `image` and show every function, with its states, to `visit`. Where two cover an
/// address, the one shown first is to be believed.
pub fn survey(image: &Image, symbols: bool, visit: &mut dyn FnMut(&Function)) {
    if image.arch() != Arch::Arm {
        return;
    }
    let code = Code::new(image, symbols);
    let mut survey = Survey {
        starts: starts::known(&code),
        done: BTreeMap::new(),
        fragments: Vec::new(),
        code,
    };
    survey.functions();
    survey.infer_silent();
    survey.follow_fragments();
    survey.fill_gaps();
    for function in survey.done.values().chain(&survey.fragments) {
        visit(function);
    }
}

/// Length of the instruction at `svma`.
pub(crate) fn instruction_len(image: &Image, svma: u64, thumb: bool) -> Option<u8> {
    let code = Code {
        image,
        symbols: false,
        silent: HashSet::new(),
    };
    code.decode(svma, thumb).map(|instruction| instruction.len)
}

/// Whether only space is filled at `svma`.
pub(crate) fn is_padding(image: &Image, svma: u64, thumb: bool) -> bool {
    let code = Code {
        image,
        symbols: false,
        silent: HashSet::new(),
    };
    starts::is_padding(&code, svma, thumb)
}

/// The code of an image, as the engine reads it.
struct Code<'i> {
    image: &'i Image,
    symbols: bool,
    /// Functions that do not return.
    silent: HashSet<u64>,
}

impl<'i> Code<'i> {
    fn new(image: &'i Image, symbols: bool) -> Self {
        let mut silent = HashSet::new();
        if symbols {
            for symbol in image.symbols().functions() {
                if starts::never_returns(symbol.name) {
                    silent.insert(symbol.svma);
                }
            }
        }
        Code {
            image,
            symbols,
            silent,
        }
    }

    fn half(&self, svma: u64) -> Option<u16> {
        let bytes = self.image.bytes_at(svma, 2)?;
        Some(u16::from_le_bytes([bytes[0], bytes[1]]))
    }
}

impl Text for Code<'_> {
    fn decode(&self, svma: u64, thumb: bool) -> Option<Instruction> {
        if !thumb {
            return Some(a32::decode(self.word(svma)?, svma));
        }
        let first = self.half(svma)?;
        if t32::is_wide(first) {
            Some(t32::decode_wide(first, self.half(svma + 2)?, svma))
        } else {
            Some(t32::decode_narrow(first, svma))
        }
    }

    fn word(&self, svma: u64) -> Option<u32> {
        let bytes = self.image.bytes_at(svma, 4)?;
        Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn is_data(&self, svma: u64) -> bool {
        self.symbols && self.image.symbols().code_kind(svma) == Some(CodeKind::Data)
    }

    fn never_returns(&self, target: Target) -> bool {
        self.silent.contains(&target.svma)
    }
}

struct Survey<'i> {
    code: Code<'i>,
    /// Function starts: T32 or not.
    starts: BTreeMap<u64, bool>,
    done: BTreeMap<u64, Function>,
    fragments: Vec<Function>,
}

impl Survey<'_> {
    /// Analyse all known functions, and those that they call, until no new one appears.
    fn functions(&mut self) {
        let mut open: VecDeque<u64> = self.starts.keys().copied().collect();
        let entry = self.code.image.entry() & !1;
        while let Some(start) = open.pop_front() {
            let Some(&thumb) = self.starts.get(&start) else {
                continue;
            };
            let end = self.end_of(start);
            if self.done.get(&start).is_some_and(|done| done.end == end) {
                continue;
            }
            let function = flow::follow(
                &self.code,
                Target { svma: start, thumb },
                end,
                State::entry(),
                true,
            );
            // Start code calls what runs the program and exits.
            if start == entry
                && let Some(first) = function.calls.first()
                && self.code.silent.insert(first.svma)
            {
                open.push_front(start);
                continue;
            }
            for &call in &function.calls {
                if self.starts.contains_key(&call.svma) || !self.is_text(call.svma) {
                    continue;
                }
                self.starts.insert(call.svma, call.thumb);
                open.push_back(call.svma);
                // The function it was taken from is shorter than it was thought to be.
                if let Some((&before, _)) = self.starts.range(..call.svma).next_back() {
                    open.push_back(before);
                }
            }
            self.done.insert(start, function);
        }
    }

    fn end_of(&self, start: u64) -> u64 {
        let next = self
            .starts
            .range(start + 1..)
            .next()
            .map_or(u64::MAX, |next| *next.0);
        let text = self
            .code
            .image
            .text_ranges()
            .into_iter()
            .find(|range| range.contains(&start))
            .map_or(start, |range| range.end);
        next.min(text)
    }

    fn is_text(&self, svma: u64) -> bool {
        self.code
            .image
            .text_ranges()
            .iter()
            .any(|range| range.contains(&svma))
    }

    /// Functions of which no path returns make their callers' code end there: look again at those.
    fn infer_silent(&mut self) {
        let found: HashSet<u64> = self
            .done
            .values()
            .filter(|function| function.endless && !function.doubtful)
            .filter(|function| function.instructions.len() > 1)
            .map(|function| function.start)
            .filter(|start| !self.code.silent.contains(start))
            .collect();
        if found.is_empty() {
            return;
        }
        self.code.silent.extend(&found);
        let again: Vec<u64> = self
            .done
            .values()
            .filter(|function| function.calls.iter().any(|call| found.contains(&call.svma)))
            .map(|function| function.start)
            .collect();
        for start in again {
            let thumb = self.done[&start].thumb;
            let end = self.end_of(start);
            let function = flow::follow(
                &self.code,
                Target { svma: start, thumb },
                end,
                State::entry(),
                true,
            );
            self.done.insert(start, function);
        }
    }

    /// Code that is only reached by jumps from another function (`.cold` parts, shared tails), with the state
    /// that the jump brings along.
    fn follow_fragments(&mut self) {
        let called: HashSet<u64> = self
            .done
            .values()
            .flat_map(|function| &function.calls)
            .map(|call| call.svma)
            .collect();
        let mut reached = self.reached();
        for _ in 0..4 {
            let mut wanted: HashMap<u64, (Target, State)> = HashMap::new();
            for (target, state) in self
                .done
                .values()
                .chain(&self.fragments)
                .flat_map(|function| &function.exits)
            {
                let start = self.done.get(&target.svma);
                let part =
                    start.is_some() && !called.contains(&target.svma) && state.depth() != Some(0);
                if !self.is_text(target.svma) || reached.contains(&target.svma) && !part {
                    continue;
                }
                wanted
                    .entry(target.svma)
                    .and_modify(|(_, known)| {
                        known.meet(state);
                    })
                    .or_insert((*target, state.clone()));
            }
            if wanted.is_empty() {
                return;
            }
            for (svma, (target, mut state)) in wanted {
                state.after = None;
                let function = flow::follow(&self.code, target, self.end_of(svma), state, false);
                reached.extend(function.instructions.iter().map(|entry| entry.0));
                // Believed before what was found by taking it for a whole function.
                self.done.remove(&svma);
                self.fragments.push(function);
            }
        }
    }

    fn reached(&self) -> HashSet<u64> {
        self.done
            .values()
            .chain(&self.fragments)
            .flat_map(|function| function.instructions.iter().map(|entry| entry.0))
            .collect()
    }

    /// Look for functions in text that nothing has led to: those called through pointers only.
    fn fill_gaps(&mut self) {
        let mut spans: Vec<(u64, u64)> = self
            .done
            .values()
            .chain(&self.fragments)
            .flat_map(|function| {
                let code = function
                    .instructions
                    .iter()
                    .map(|(svma, len, _)| (*svma, svma + u64::from(*len)));
                code.chain(function.literals.iter().map(|&svma| (svma, svma + 4)))
            })
            .collect();
        spans.sort_unstable();
        let reached = self.reached();
        for range in self.code.image.text_ranges() {
            let mut at = range.start;
            let mut gaps = Vec::new();
            for &(start, end) in &spans {
                if start >= range.end || end <= at {
                    continue;
                }
                if start > at {
                    gaps.push((at, start));
                }
                at = end;
            }
            if at < range.end {
                gaps.push((at, range.end));
            }
            for (start, end) in gaps {
                self.fill(start, end, &reached);
            }
        }
    }

    fn fill(&mut self, start: u64, end: u64, reached: &HashSet<u64>) {
        let mut covered: HashSet<u64> = HashSet::new();
        // Behind a function's end the next one starts, even without a prologue; it must then look like one in all
        // other ways.
        let mut fresh = true;
        let mut after_a32 = self
            .done
            .range(..start)
            .next_back()
            .is_some_and(|(_, function)| !function.thumb);
        let mut at = start.next_multiple_of(2);
        while at + 2 <= end {
            let thumb = starts::mode(&self.code, at, (at + 32).min(end), after_a32);
            let width = if thumb { 2 } else { 4 };
            if covered.contains(&at)
                || starts::is_padding(&self.code, at, thumb)
                || self.code.is_data(at)
            {
                at += 2;
                continue;
            }
            let target = Target { svma: at, thumb };
            let prologue = starts::is_prologue(&self.code, target);
            if !prologue && !fresh || !thumb && at & 3 != 0 {
                at += 2;
                continue;
            }
            let function = flow::follow(&self.code, target, end, State::entry(), false);
            fresh = false;
            // A jump without a frame to where another function has one is no tail call.
            let inside = |target: &Target| {
                reached.contains(&target.svma) && !self.done.contains_key(&target.svma)
            };
            let joins = function.exits.iter().any(|(target, _)| inside(target));
            if !prologue && (!function.clean || function.doubtful || joins) {
                at += 2;
                continue;
            }
            let mut next = at + width;
            for (svma, len, _) in &function.instructions {
                for part in (0..u64::from(*len)).step_by(2) {
                    covered.insert(svma + part);
                }
                if *svma <= next {
                    next = next.max(svma + u64::from(*len));
                }
            }
            for &literal in &function.literals {
                covered.extend([literal, literal + 2]);
            }
            self.fragments.push(function);
            after_a32 = !thumb;
            at = next;
            fresh = true;
        }
    }
}

#[cfg(test)]
mod tests;
