//! Stop replies.
#![no_main]

use libfuzzer_sys::fuzz_target;
use unspool_rsp::StopReply;

fuzz_target!(|bytes: &[u8]| {
    if let Some(reply) = StopReply::decode(bytes) {
        reply.thread();
        reply.expedited(15);
    }
});
