//! What each fuzz target does with one input: a module each. Plain Rust apart from libFuzzer, so that the
//! crate's tests replay the kept inputs through the same functions (`tests/replay.rs`).

pub mod reader;

/// What runs an input.
pub type Run = fn(&[u8]);

/// All targets.
pub const TARGETS: &[(&str, Run)] = &[("reader", reader::run)];
