//! Tests instructions in place and displaced, and threads in collectors, on the boards' processors.
//!
//! The stub's own trials (`stub/src/arch/in_place.rs`, `stub/src/tracee/fast_tracepoints/tests.rs`)
//! are built for the board and run there.

use anyhow::{Result, ensure};
use libtest_mimic::Trial;

use unspool_tests::board::{self, Machine};

use super::server;

pub(super) fn trials() -> Vec<Trial> {
    Machine::ALL
        .map(|machine| {
            let name = format!("instructions-{}", machine.name());
            super::trial(&name, move || in_place(machine))
        })
        .into()
}

fn in_place(machine: Machine) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let trials = folder.path().join("in_place");
    server::built(machine, &["--lib"], &trials)?;
    let board = board::get(machine)?;
    let there = board.put(&trials, "/tmp/in_place")?;
    // `UNSPOOL_SEED` selects other random instructions.
    let seed =
        std::env::var("UNSPOOL_SEED").map_or(String::new(), |seed| format!("UNSPOOL_SEED={seed} "));
    let text = board.shell(&format!(
        "{seed}{there} in_place fast_tracepoints --nocapture --test-threads=1"
    ))?;
    ensure!(
        text.contains("test result: ok. 3 passed"),
        "on the board:\n{text}"
    );
    Ok(())
}
