//! Tests findings of recordings on a real ARM kernel, with glibc and `unspool-stub`: the programs'
//! defects are found, and nothing in healthy programs.

use anyhow::{Context, Result};
use libtest_mimic::Trial;

use unspool_tests::finding::{self, C, CASES, Case, Mode, Recorded};

use super::waits::Recording;
use super::{ISAS, Isa};

/// Sources that run with both instruction sets; the others need one.
const BOTH: [&str; 2] = ["inversion.c", "convoy.c"];

pub(super) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for isa in ISAS {
        for case in CASES.iter().filter(|case| case.command == C) {
            if isa.name == "a32" && !BOTH.contains(&case.source) {
                continue;
            }
            for mode in Mode::ALL {
                let name = format!("findings::{}-{}-{}", case.name, mode.name(), isa.name);
                trials.push(super::trial(&name, move || {
                    finding::repeat_until_expected(|| once(isa, case, mode))
                }));
            }
        }
    }
    trials
}

fn once(isa: Isa, case: &Case, mode: Mode) -> Result<Option<String>> {
    let (source, arguments) = (case.source, case.arguments);
    let recording = Recording::with(isa, "findings", source, arguments, mode.name())?;
    let said = format!("cat {}.out", recording.placed.there);
    let (report, output) = recording.finish()?;
    let text = isa.board()?.shell(&said)?;
    let report = serde_json::from_value(report)?;
    let recorded = Recorded { text, report };
    recorded.unconfirmed_load(case, mode).context(output)
}
