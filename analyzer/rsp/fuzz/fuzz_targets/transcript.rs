//! A transcript, and the server that replays it to a client that sends what the transcript says
//! last and then its own text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use unspool_rsp::transcript::{Replay, Transcript};

fuzz_target!(|text: &str| {
    let Ok(transcript) = Transcript::parse(text) else {
        return;
    };
    let mut replay = Replay::new(transcript);
    for chunk in text.as_bytes().chunks(64).take(64) {
        if replay.feed(chunk).is_err() {
            break;
        }
    }
    replay.replayed();
});
