//! Scripts of packets.

use unspool_rsp::script::Script;

/// One input.
pub fn run(bytes: &[u8]) {
    let text = super::text(bytes);
    let _ = Script::parse("fuzz", text);
}
