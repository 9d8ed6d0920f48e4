//! A named trial with a time limit.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use anyhow::Result;
use libtest_mimic::{Failed, Trial};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::process;

/// Several times the duration of the longest trial on a busy machine.
const LIMIT: Duration = Duration::from_secs(30 * 60);

/// Trials that need the processors for themselves hold it for writing, all others for reading.
static PROCESSORS: RwLock<()> = RwLock::new(());

/// A trial whose error is shown with its causes. If it does not end, all trials end with its name,
/// because it may hold resources that others need.
pub fn trial(
    name: impl Into<String>,
    check: impl FnOnce() -> Result<()> + Send + 'static,
) -> Trial {
    let name = name.into();
    Trial::test(name.clone(), move || {
        let _shared = PROCESSORS.read().unwrap_or_else(PoisonError::into_inner);
        limited(name, check)
    })
}

/// The same, while no other trial runs: for checks of what limits a program, which is the number of
/// processors if another trial uses them.
pub fn alone(
    name: impl Into<String>,
    check: impl FnOnce() -> Result<()> + Send + 'static,
) -> Trial {
    let name = name.into();
    Trial::test(name.clone(), move || {
        let _exclusive = PROCESSORS.write().unwrap_or_else(PoisonError::into_inner);
        limited(name, check)
    })
}

fn limited(name: String, check: impl FnOnce() -> Result<()>) -> Result<(), Failed> {
    let (over, waits) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        if waits.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout) {
            eprintln!("{name} does not end: given up after {LIMIT:?}");
            for pid in process::descendants(std::process::id()) {
                let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
            }
            std::process::exit(101);
        }
    });
    let result = check();
    drop(over);
    result.map_err(|error| Failed::from(format!("{error:#}")))
}
