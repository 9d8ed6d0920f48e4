//! What each fuzz target does with one input: a module each. Plain Rust apart from libFuzzer, so that the
//! crate's tests replay the kept inputs through the same functions (`tests/it/replay.rs`).

pub mod client;
pub mod description;
pub mod packet;
pub mod script;
pub mod stop;
pub mod transcript;

/// What runs an input.
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

/// As much of `bytes` as is text.
fn text(bytes: &[u8]) -> &str {
    bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid())
}
