//! The fuzz targets, one module each.
//!
//! They are plain Rust without libFuzzer, so that the crate's tests replay stored inputs through
//! the same functions (`tests/image/replay.rs`).

pub mod elf;
pub mod locator;

/// Runs one input.
pub type Run = fn(&[u8]);

/// All targets.
pub const TARGETS: &[(&str, Run)] = &[("elf", elf::run), ("locator", locator::run)];
