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

use libtest_mimic::Arguments;

use unspool_tests::trial::trial;

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
