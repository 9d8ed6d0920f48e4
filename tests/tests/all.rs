//! The test binary of this package: one named trial for each case.
//!
//! The name of a failing trial shows the combination of program and build, which can be run alone:
//! `cargo test -p unspool-tests -- creation::pool::t32-O2-pie-bare-stripped`.

mod addr2line;
mod bad_input;
mod beside;
mod board_script;
mod budget;
mod callables;
mod connections;
mod creation;
mod critical;
mod debuginfod;
mod diff;
mod diff_page;
mod export;
mod findings;
mod gdb_session;
mod html;
mod identity;
mod inspect;
mod lock_waits;
mod looks;
mod profile;
mod prose;
mod real;
mod record;
mod reload;
mod saved;
mod schedule;
mod several;
mod tidy;
mod top;
mod undisturbed;
mod waits;

use libtest_mimic::Arguments;

use unspool_tests::trial::trial;

fn main() {
    let mut arguments = Arguments::from_args();
    // Many trials wait for programs most of the time.
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    arguments.test_threads.get_or_insert(processors + 1);
    let trials = [
        tidy::trials(),
        prose::trials(),
        addr2line::trials(),
        debuginfod::trials(),
        bad_input::trials(),
        gdb_session::trials(),
        beside::trials(),
        board_script::trials(),
        budget::trials(),
        callables::trials(),
        record::trials(),
        reload::trials(),
        saved::trials(),
        profile::trials(),
        schedule::trials(),
        several::trials(),
        top::trials(),
        identity::trials(),
        inspect::trials(),
        lock_waits::trials(),
        looks::trials(),
        waits::trials(),
        findings::trials(),
        html::trials(),
        real::trials(),
        creation::trials(),
        critical::trials(),
        diff::trials(),
        diff_page::trials(),
        export::trials(),
        connections::trials(),
        undisturbed::trials(),
    ]
    .into_iter()
    .flatten()
    .collect();
    libtest_mimic::run(&arguments, trials).exit();
}
