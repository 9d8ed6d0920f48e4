//! Support for tests that need more than one program.
//!
//! It contains the test programs and their builds, ground truth from gdb, qemu-arm and the board,
//! and the command under test. The tests are in `tests/`, one named trial for each case.

pub mod backtrace;
pub mod board;
pub mod browser;
pub mod build;
pub mod crowd;
pub mod elf;
pub mod ended;
pub mod finding;
pub mod inspection;
pub mod lock_waits;
pub mod memo;
pub mod perfetto;
pub mod process;
pub mod program;
pub mod python;
pub mod qemu;
pub mod report;
pub mod trial;
pub mod truth;
pub mod turns;
pub mod waiting;
pub mod wire;
pub mod workspace;
