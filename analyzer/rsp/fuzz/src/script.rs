//! Fuzzes packet scripts.

use unspool_rsp::script::Script;

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let text = super::text(bytes);
    let _ = Script::parse("fuzz", text);
}
