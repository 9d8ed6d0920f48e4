//! Compares the code analysis with call frame information at sampled registers of running programs.
//!
//! Both rules are evaluated on the same registers. Code that runs often counts often.

use std::collections::BTreeMap;
use std::ops::Range;

use unspool_image::Image;

use super::Verdict;
use crate::code::Analysis;
use crate::code::region::{Outline, analyze};
use crate::expression::evaluate;
use crate::memory::SnapshotMemory;
use crate::registers::RegisterFile;
use crate::rows::Rows;
use crate::rule::{Cfa, Source};
use crate::table::Table;

/// The result of a comparison, in samples.
#[derive(Clone, Debug, Default)]
pub struct Sampled {
    /// The analysis and call frame information give the same CFA.
    pub agree: u64,
    /// The analysis has no CFA.
    pub unknown: u64,
    /// The two CFAs differ.
    pub wrong: u64,
    /// Not compared: call frame information has no rule, or the rule needs more than registers.
    pub skipped: u64,
    /// The addresses where the two do not agree, with the number of samples and both rules.
    pub disagreements: BTreeMap<u64, Disagreement>,
}

/// An address where the analysis and call frame information do not agree.
#[derive(Clone, Debug)]
pub struct Disagreement {
    /// [`Verdict::Unknown`] or [`Verdict::Wrong`], from the first sample.
    pub verdict: Verdict,
    /// Number of samples.
    pub samples: u64,
    /// The CFA in call frame information.
    pub stated: Cfa,
    /// The CFA of the analysis.
    pub analysed: Option<Cfa>,
}

impl Sampled {
    /// Samples compared.
    pub fn total(&self) -> u64 {
        self.agree + self.unknown + self.wrong
    }

    /// Adds the counts of another comparison, without its addresses.
    pub fn add(&mut self, other: &Sampled) {
        self.agree += other.agree;
        self.unknown += other.unknown;
        self.wrong += other.wrong;
        self.skipped += other.skipped;
    }
}

/// Compares the analysis of `analysed`'s code with the CFI in `truth`, at the registers of
/// `samples`. Each sample comes with its svma. If `symbols` is true, the analysis uses symbols,
/// including dynamic ones.
pub fn verify_samples<'a>(
    analysed: &Image,
    truth: &Table,
    symbols: bool,
    samples: impl IntoIterator<Item = (u64, &'a RegisterFile)>,
) -> Sampled {
    let mut sampled = Sampled::default();
    let (Some(outline), Some(stated)) = (Outline::new(analysed, symbols), truth.rows(Source::Cfi))
    else {
        return sampled;
    };
    let mut regions: BTreeMap<u64, (Range<u64>, Analysis)> = BTreeMap::new();
    for (svma, registers) in samples {
        let row = stated.lookup(svma);
        let right = row
            .as_ref()
            .and_then(|row| value(stated, row.rule.cfa, registers));
        let (Some(row), Some(right)) = (row, right) else {
            sampled.skipped += 1;
            continue;
        };
        let known = regions.range(..=svma).next_back();
        let known = known.is_some_and(|(_, (range, _))| range.contains(&svma));
        if !known && let Some(region) = analyze(analysed, &outline, svma, symbols) {
            regions.insert(region.0.start, region);
        }
        let rows = regions.range(..=svma).next_back();
        let rows = rows.map(|(_, (_, analysis))| analysis.rows());
        let own = rows.and_then(|rows| Some((rows, rows.lookup(svma)?.rule.cfa)));
        let verdict = match own.and_then(|(rows, cfa)| value(rows, cfa, registers)) {
            Some(cfa) if cfa == right => {
                sampled.agree += 1;
                continue;
            }
            Some(_) => Verdict::Wrong,
            None => Verdict::Unknown,
        };
        match verdict {
            Verdict::Wrong => sampled.wrong += 1,
            _ => sampled.unknown += 1,
        }
        let entry = sampled.disagreements.entry(svma);
        let entry = entry.or_insert(Disagreement {
            verdict,
            samples: 0,
            stated: row.rule.cfa,
            analysed: own.map(|(_, cfa)| cfa),
        });
        entry.samples += 1;
    }
    sampled
}

/// Evaluates a CFA that depends only on registers.
fn value(rows: &Rows, cfa: Cfa, registers: &RegisterFile) -> Option<u64> {
    match cfa {
        Cfa::Register { register, offset } => {
            Some(registers.get(register)?.wrapping_add_signed(offset.into()))
        }
        Cfa::Expression(expression) => {
            let mut memory = SnapshotMemory::new();
            evaluate(rows.expression(expression), None, registers, &mut memory)
        }
        Cfa::Unknown => None,
    }
}
