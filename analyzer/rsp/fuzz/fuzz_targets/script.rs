//! Scripts of packets.
#![no_main]

use libfuzzer_sys::fuzz_target;
use unspool_rsp::script::Script;

fuzz_target!(|text: &str| {
    let _ = Script::parse("fuzz", text);
});
