//! The one test binary of this package: a harness with one named trial per case, so that a failing
//! combination of program and build can be read off its name and run alone:
//! `cargo test -p unspool-tests -- creation::pool::t32-O2-pie-bare-stripped`.

mod bad_input;
mod beside;
mod callables;
mod creation;
mod findings;
mod gdb_session;
mod identity;
mod inspect;
mod real;
mod record;
mod tidy;
mod waits;

use anyhow::Result;
use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    let arguments = Arguments::from_args();
    let trials = [
        tidy::trials(),
        bad_input::trials(),
        gdb_session::trials(),
        beside::trials(),
        callables::trials(),
        record::trials(),
        identity::trials(),
        inspect::trials(),
        waits::trials(),
        findings::trials(),
        real::trials(),
        creation::trials(),
    ]
    .into_iter()
    .flatten()
    .collect();
    libtest_mimic::run(&arguments, trials).exit();
}

/// A trial whose error is shown with its causes.
fn trial(name: impl Into<String>, check: impl FnOnce() -> Result<()> + Send + 'static) -> Trial {
    Trial::test(name, move || {
        check().map_err(|error| Failed::from(format!("{error:#}")))
    })
}
