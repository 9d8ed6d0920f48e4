//! Waits whose end is known, and their comparison with a report.
//!
//! In the programs `programs/findings/ended.*` a thread waits at an object of each kind until
//! another thread ends the wait. The programs print each wait. Native trials and board trials share
//! this module.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::report;

/// A wait as the program states it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// `mutex`, `join` and so on, as in the report.
    pub kind: String,
    /// Address of the object; 0 if the program does not know it.
    pub address: u64,
    /// The thread that waited.
    pub waiter: u64,
    /// The thread that ended the wait.
    pub ender: u64,
    /// Minimum duration, from the kernel's view of the thread.
    pub least_ns: u64,
    /// Maximum duration, from the thread's own clock.
    pub most_ns: u64,
}

/// Parses the waits in a program's output: `ended KIND ADDRESS WAITER ENDER LEAST MOST`.
pub fn parse_all(text: &str) -> Result<Vec<Ended>> {
    text.lines()
        .filter_map(|line| line.strip_prefix("ended "))
        .map(|line| Ended::parse(line).with_context(|| format!("the program says {line:?}")))
        .collect()
}

/// Checks that a report (docs/reference/report-json.md) has these waits: same object, same waiter,
/// same ender, same duration.
pub fn compare(told: &[Ended], report: &Value) -> Result<()> {
    let known = told.iter().map(|wait| wait.address).collect();
    for wait in told {
        let recorded = wait
            .recorded(report, &known)
            .with_context(|| format!("not recorded: {wait:?}\n{:#}", report["objects"]))?;
        // On a busy machine, the recorder's times may deviate when hits come together. A lost or
        // mixed-up wait deviates completely.
        let slack = wait.most_ns / 4;
        ensure!(
            (wait.least_ns.saturating_sub(slack)..=wait.most_ns + slack).contains(&recorded),
            "{wait:?}: recorded {recorded} ns"
        );
    }
    Ok(())
}

impl Ended {
    fn parse(line: &str) -> Result<Ended> {
        let words: Vec<&str> = line.split(' ').collect();
        let [kind, numbers @ ..] = &words[..] else {
            bail!("no kind");
        };
        let numbers = numbers.iter().map(|number| number.parse());
        let numbers: Vec<u64> = numbers.collect::<Result<_, _>>()?;
        let &[address, waiter, ender, least_ns, most_ns] = &numbers[..] else {
            bail!("not five numbers");
        };
        Ok(Ended {
            kind: (*kind).to_owned(),
            address,
            waiter,
            ender,
            least_ns,
            most_ns,
        })
    }

    /// The recorded duration of the one thread's wait for the other.
    fn recorded(&self, report: &Value, known: &BTreeSet<u64>) -> Option<u64> {
        let tid = |index: &Value| report["threads"][index.as_u64()? as usize]["tid"].as_u64();
        let objects = report::objects(report, &self.kind, self.address, known);
        let mut blames =
            objects.flat_map(|object| object["blames"].as_array().into_iter().flatten());
        let between = blames.find(|blame| {
            tid(&blame["longest_waiter"]) == Some(self.waiter)
                && tid(&blame["longest_holder"]) == Some(self.ender)
        });
        between?["total_ns"].as_u64()
    }
}
