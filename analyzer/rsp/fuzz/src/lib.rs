//! The fuzz targets, one module each.
//!
//! They are plain Rust without libFuzzer, so that the crate's tests replay stored inputs through
//! the same functions (`tests/it/replay.rs`).

pub mod client;
pub mod description;
pub mod packet;
pub mod script;
pub mod stop;
pub mod transcript;

/// Runs one input.
pub type Run = fn(&[u8]);

/// All targets.
pub const TARGETS: &[(&str, Run)] = &[
    ("client", client::run),
    ("description", description::run),
    ("packet", packet::run),
    ("script", script::run),
    ("stop", stop::run),
    ("transcript", transcript::run),
];

/// The longest prefix of `bytes` that is valid UTF-8.
fn text(bytes: &[u8]) -> &str {
    bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid())
}
