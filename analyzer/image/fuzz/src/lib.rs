//! What each fuzz target does with one input: a module each. Plain Rust apart from libFuzzer, so that the
//! crate's tests replay the kept inputs through the same functions (`tests/image/replay.rs`).

pub mod elf;
pub mod locator;

/// What runs an input.
pub type Run = fn(&[u8]);

/// All targets.
pub const TARGETS: &[(&str, Run)] = &[("elf", elf::run), ("locator", locator::run)];
