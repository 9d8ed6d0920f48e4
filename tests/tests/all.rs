//! The one test binary of this package: a harness with one named trial per case, so that a failing
//! combination of program and build can be read off its name and run alone:
//! `cargo test -p unspool-tests -- creation::pool::t32-O2-pie-bare-stripped`.

mod bad_input;
mod creation;
mod gdb_session;
mod identity;
mod inspect;
mod real;
mod record;
mod tidy;

use anyhow::Result;
use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    let arguments = Arguments::from_args();
    let trials = [
        tidy::trials(),
        bad_input::trials(),
        gdb_session::trials(),
        record::trials(),
        identity::trials(),
        inspect::trials(),
        real::trials(),
        creation::trials(),
    ]
    .into_iter()
    .flatten()
    .map(|trial| match open(trial.name()) {
        Some(why) => trial.with_kind(why).with_ignored_flag(true),
        None => trial,
    })
    .collect();
    libtest_mimic::run(&arguments, trials).exit();
}

/// Why a trial is known to fail today. It is listed and counted as ignored, and runs with `--ignored`;
/// the README's limits say what it means for a user. Each line is a debt.
fn open(name: &str) -> Option<&'static str> {
    let sysroot = [
        "bad_input::sysroot_with_wrong_build_id",
        "bad_input::missing_library",
        "bad_input::corrupt_library",
    ];
    sysroot
        .contains(&name)
        .then_some("open: a wrong library in a sysroot is not reported")
}

/// A trial whose error is shown with its causes.
fn trial(name: impl Into<String>, check: impl FnOnce() -> Result<()> + Send + 'static) -> Trial {
    Trial::test(name, move || {
        check().map_err(|error| Failed::from(format!("{error:#}")))
    })
}
