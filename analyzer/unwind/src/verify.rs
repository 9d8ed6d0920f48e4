//! Compares the code analysis with call frame information, at every instruction that both cover.
//!
//! Where compilers' CFI exists, it is the truth that the analysis is measured against. The same
//! comparison finds damaged CFI.

mod overwritten_link;
mod sampled;
mod symbolic;

use std::collections::{BTreeMap, HashMap};

use unspool_image::{CodeKind, Image};

use crate::code::effect::{Effect, Flow, Instruction};
use crate::code::machine::{Machine, machine};
use crate::code::starts::padding;
use crate::code::state::{State, Value};
use crate::code::text::Text;
use crate::code::{states, states_by_region};
use crate::rows::Rows;
use crate::rule::{Cfa, Expression, Place, Rule, Source};
use crate::table::Table;
use overwritten_link::OverwrittenLink;

pub use sampled::{Disagreement, Sampled, verify_samples};

/// The condition "always".
const ALWAYS: u8 = 14;

/// The result for one instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The CFA and the place of the return address are both right.
    Agree,
    /// The analysis has no result, or did not reach the instruction.
    Unknown,
    /// The analysis differs from the CFI.
    Wrong,
}

/// The result of a comparison.
#[derive(Clone, Debug, Default)]
pub struct Agreement {
    /// Instructions where CFA and return address agree.
    pub agree: u64,
    /// Instructions for which the analysis has no result.
    pub unknown: u64,
    /// Instructions where the analysis differs.
    pub wrong: u64,
    /// Instructions that do not agree and where the CFI contradicts itself, so that it is wrong in
    /// any case. See [`StaleRows`], [`OverwrittenLink`] and [`is_shared`].
    pub contradictory: u64,
    /// The part of `contradictory` that is counted as wrong.
    pub contradictory_wrong: u64,
    /// By function start: unknown and wrong instructions, and the first address of either.
    pub functions: BTreeMap<u64, (u64, u64, u64)>,
    /// Ranges of instructions that do not agree, in order: first address, one past the last, and
    /// result.
    pub disagreements: Vec<(u64, u64, Verdict)>,
}

impl Agreement {
    /// Instructions compared.
    pub fn total(&self) -> u64 {
        self.agree + self.unknown + self.wrong
    }

    /// Percentages of instructions that agree, are unknown, are wrong.
    pub fn percent(&self) -> (f64, f64, f64) {
        let of = |n: u64| 100.0 * n as f64 / self.total().max(1) as f64;
        (of(self.agree), of(self.unknown), of(self.wrong))
    }

    /// Counts an instruction where CFI contradicts itself.
    fn count_contradiction(&mut self, verdict: Verdict) {
        self.contradictory += u64::from(verdict != Verdict::Agree);
        self.contradictory_wrong += u64::from(verdict == Verdict::Wrong);
    }

    fn note(&mut self, start: u64, end: u64, verdict: Verdict) {
        match self.disagreements.last_mut() {
            Some(last) if last.1 == start && last.2 == verdict => last.1 = end,
            _ => self.disagreements.push((start, end, verdict)),
        }
    }
}

/// Compares the analysis of `analysed` with the CFI in `truth`. If `symbols` is true, the analysis
/// uses symbols. `image` is the same image with its debug file, if there is one. Its mapping
/// symbols tell instructions from data.
pub fn verify(analysed: &Image, image: &Image, truth: &Table, symbols: bool) -> Agreement {
    verify_states(&states, analysed, image, truth, symbols)
}

/// Like [`verify`], for the results that walks use, which come from an analysis by regions.
pub fn verify_by_region(
    analysed: &Image,
    image: &Image,
    truth: &Table,
    symbols: bool,
) -> Agreement {
    verify_states(&states_by_region, analysed, image, truth, symbols)
}

/// Shows all states of an analysis.
type Analyze = dyn Fn(&Image, bool, &mut dyn FnMut(u64, &State));

fn verify_states(
    analyze: &Analyze,
    analysed: &Image,
    image: &Image,
    truth: &Table,
    symbols: bool,
) -> Agreement {
    let mut agreement = Agreement::default();
    let Some(machine) = machine(image.arch()) else {
        return agreement;
    };
    let mut known: HashMap<u64, State> = HashMap::new();
    analyze(analysed, symbols, &mut |svma, state| {
        known.entry(svma).or_insert_with(|| state.clone());
    });
    let text = Text::new(machine, image, true);
    let Some(rows) = truth.rows(Source::Cfi) else {
        return agreement;
    };
    let mut lost = OverwrittenLink::new(machine);
    let mut others = Vec::new();
    for row in rows.iter() {
        let mut steady = StaleRows::default();
        let mut at = row.start;
        while at < row.end {
            let thumb = image.thumb_at(at).unwrap_or(false);
            if image.symbols().code_kind(at) == Some(CodeKind::Data) {
                at += if thumb { 2 } else { 4 };
                continue;
            }
            let Some(len) = text.decode(at, thumb).map(|found| found.len) else {
                break;
            };
            if !known.contains_key(&at) && padding(&text, at, thumb).is_some() {
                at += u64::from(len);
                continue;
            }
            let verdict = known.get(&at).map_or(Verdict::Unknown, |state| {
                judge(state, rows, at, row.rule.cfa, row.rule.ra)
            });
            if steady.is_moved(at, verdict) || is_shared(&row.rule, machine) {
                agreement.count_contradiction(verdict);
            } else if verdict != Verdict::Agree {
                others.push((at, verdict));
            }
            if let Some(instruction) = text.decode(at, thumb) {
                steady.step(at, &instruction, &row.rule, machine);
                lost.add(at, thumb, &instruction, &row.rule, verdict);
            }
            match verdict {
                Verdict::Agree => agreement.agree += 1,
                Verdict::Unknown => agreement.unknown += 1,
                Verdict::Wrong => agreement.wrong += 1,
            }
            if verdict != Verdict::Agree {
                agreement.note(at, at + u64::from(len), verdict);
                let start = image.symbols().containing(at).map_or(row.start, |s| s.svma);
                let entry = agreement.functions.entry(start).or_insert((0, 0, at));
                if verdict == Verdict::Wrong {
                    if entry.1 == 0 {
                        entry.2 = at;
                    }
                    entry.1 += 1;
                } else {
                    entry.0 += 1;
                }
            }
            at += u64::from(len);
        }
    }
    let lost = lost.addresses();
    for (_, verdict) in others.iter().filter(|(at, _)| lost.contains(at)) {
        agreement.count_contradiction(*verdict);
    }
    agreement
}

/// Detects rows that last too long.
///
/// A function's CFA and return address do not change while it runs. Take a row that states the CFA
/// as `register + offset`, or the return address in a register. If an instruction changes that
/// register and the row holds both before and after it, the row is wrong in one of the two places.
/// It is wrong after it if the analysis agrees before it. (Clang describes no epilogue of ARM code,
/// and GCC not all.)
#[derive(Debug, Default)]
struct StaleRows {
    /// The address of the next instruction, if control goes on to it.
    next: u64,
    /// Whether both agreed before the registers were set.
    agreed: bool,
    /// The change of the CFA's register since they agreed. `None` if a register holds something
    /// else.
    by: Option<i32>,
}

impl StaleRows {
    fn is_moved(&mut self, at: u64, verdict: Verdict) -> bool {
        if verdict == Verdict::Agree || at != self.next {
            self.agreed = verdict == Verdict::Agree;
            self.by = Some(0);
        }
        self.agreed && self.by != Some(0)
    }

    fn step(&mut self, at: u64, instruction: &Instruction, rule: &Rule, machine: &Machine) {
        self.next = match instruction.flow {
            Flow::Next | Flow::Call(_) | Flow::Branch(_) | Flow::IfZero { .. } => {
                at + u64::from(instruction.len)
            }
            Flow::Jump(_) if instruction.condition != ALWAYS => at + u64::from(instruction.len),
            _ => 0,
        };
        let cfa = match rule.cfa {
            Cfa::Register { register, .. } => register,
            _ => return,
        };
        let ra = match rule.ra {
            Place::Same if machine.link => 1u32 << machine.ra,
            Place::Register(register) => 1u32.checked_shl(register.into()).unwrap_or(0),
            _ => 0,
        };
        for &effect in instruction.effects() {
            let sets = effect.writes();
            if instruction.condition != ALWAYS && sets & (ra | 1 << cfa) != 0 {
                // Depends on a condition.
                self.next = 0;
            }
            self.by = match effect {
                Effect::Add { to, from, by } if to == cfa && from == to => {
                    self.by.and_then(|sum| sum.checked_add(by))
                }
                _ if sets & (ra | 1 << cfa) != 0 => None,
                _ => self.by,
            };
        }
    }
}

/// Whether a rule says that another register is saved in the place of the return address. (glibc's
/// rule for r7 in ARM's `_dl_runtime_profile` does, because r7 has overwritten it.)
fn is_shared(rule: &Rule, machine: &Machine) -> bool {
    let same = |&(register, place): &(u8, Place)| register != machine.ra && place == rule.ra;
    matches!(rule.ra, Place::AtCfa(_)) && rule.saved.iter().any(same)
}

/// Compares `state` with the CFI. A state may know several ways to the same place.
fn judge(state: &State, truth: &Rows, svma: u64, cfa: Cfa, ra: Place) -> Verdict {
    let own = state.rule(&mut Vec::new(), &mut |_| Expression(0));
    let Some((_, own)) = own else {
        return Verdict::Unknown;
    };
    if ra == Place::Undefined || own == Place::Undefined {
        // The start of a thread.
        return if ra == own {
            Verdict::Agree
        } else {
            Verdict::Unknown
        };
    }
    let claimed = match cfa {
        Cfa::Register { register, offset } => symbolic::add(state.register(register), offset),
        Cfa::Expression(expression) => {
            symbolic::evaluate(truth.expression(expression), state, svma)
        }
        Cfa::Unknown => Value::Unknown,
    };
    match claimed {
        Value::Cfa(0) => {}
        Value::Cfa(_) => return Verdict::Wrong,
        _ => return Verdict::Unknown,
    }
    if state.return_places().any(|place| place == ra) {
        Verdict::Agree
    } else {
        Verdict::Wrong
    }
}
