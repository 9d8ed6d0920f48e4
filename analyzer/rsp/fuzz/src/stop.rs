//! Fuzzes stop replies.

use unspool_rsp::StopReply;

/// Runs one input.
pub fn run(bytes: &[u8]) {
    if let Some(reply) = StopReply::decode(bytes) {
        reply.thread();
        reply.expedited(15);
    }
}
