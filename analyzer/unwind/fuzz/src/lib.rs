//! The fuzz targets, one module each.
//!
//! They are plain Rust without libFuzzer, so that the crate's tests replay stored inputs through
//! the same functions (`tests/it/replay.rs`).

pub mod cache;
pub mod cfi;
pub mod code;
pub mod exidx;
pub mod sections;
pub mod walk;

/// Runs one input.
pub type Run = fn(&[u8]);

/// All targets.
pub const TARGETS: &[(&str, Run)] = &[
    ("cache", cache::run),
    ("cfi", cfi::run),
    ("code", code::run),
    ("exidx", exidx::run),
    ("walk", walk::run),
];
