//! The analysis of code compared with call frame information, at every instruction that both cover.
//!
//! Compilers' CFI is the truth that the analysis is measured by where it exists; the same comparison
//! finds damaged CFI.

use std::collections::{BTreeMap, HashMap};

use unspool_image::{CodeKind, Image};

use crate::code::state::{State, Value};
use crate::code::{instruction_len, is_padding, survey};
use crate::rule::{Cfa, Place, Source};
use crate::table::Table;

/// How one instruction fared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// CFA and place of the return address are both right.
    Agree,
    /// The analysis does not know, or did not reach the instruction.
    Unknown,
    /// It states something else than CFI does.
    Wrong,
}

/// The comparison's result.
#[derive(Clone, Debug, Default)]
pub struct Agreement {
    /// Instructions of which CFA and return address agree.
    pub agree: u64,
    /// Instructions the analysis knows nothing of.
    pub unknown: u64,
    /// Instructions of which it states something else.
    pub wrong: u64,
    /// By function start: unknown and wrong instructions, and the first address of either.
    pub functions: BTreeMap<u64, (u64, u64, u64)>,
}

impl Agreement {
    /// Instructions compared.
    pub fn total(&self) -> u64 {
        self.agree + self.unknown + self.wrong
    }

    /// Percentages that agree, are unknown, are wrong.
    pub fn percent(&self) -> (f64, f64, f64) {
        let of = |n: u64| 100.0 * n as f64 / self.total().max(1) as f64;
        (of(self.agree), of(self.unknown), of(self.wrong))
    }
}

/// Compare the analysis of `analysed` with the CFI in `truth`; `symbols`: let the analysis use symbols. `image` is the
/// same image, with its debug file if there is one: its mapping symbols tell instructions from data.
pub fn verify(analysed: &Image, image: &Image, truth: &Table, symbols: bool) -> Agreement {
    let mut states: HashMap<u64, State> = HashMap::new();
    survey(analysed, symbols, &mut |function| {
        for (svma, _, state) in &function.instructions {
            states.entry(*svma).or_insert_with(|| state.clone());
        }
    });
    let mut agreement = Agreement::default();
    for row in truth.rows_from(Source::Cfi) {
        let mut at = row.start;
        while at < row.end {
            let thumb = image.thumb_at(at).unwrap_or(false);
            if image.symbols().code_kind(at) == Some(CodeKind::Data) {
                at += if thumb { 2 } else { 4 };
                continue;
            }
            let Some(len) = instruction_len(image, at, thumb) else {
                break;
            };
            if !states.contains_key(&at) && is_padding(image, at, thumb) {
                at += u64::from(len);
                continue;
            }
            let verdict = states.get(&at).map_or(Verdict::Unknown, |state| {
                judge(state, row.rule.cfa, row.rule.ra)
            });
            match verdict {
                Verdict::Agree => agreement.agree += 1,
                Verdict::Unknown => agreement.unknown += 1,
                Verdict::Wrong => agreement.wrong += 1,
            }
            if verdict != Verdict::Agree {
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
    agreement
}

/// Does `state` say what CFI says? A state may know several ways to the same place.
pub fn judge(state: &State, cfa: Cfa, ra: Place) -> Verdict {
    let Some((_, own)) = state.rule(&mut Vec::new()) else {
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
    match cfa {
        Cfa::Register { register, offset } => match state.register(register) {
            Value::Cfa(own) if own == offset.wrapping_neg() => {}
            Value::Cfa(_) => return Verdict::Wrong,
            _ => return Verdict::Unknown,
        },
        _ => return Verdict::Unknown,
    }
    if state.places_of(14).any(|place| place == ra) {
        Verdict::Agree
    } else {
        Verdict::Wrong
    }
}
