//! Fuzzes transcripts and the replay server. The client sends the transcript's last packet and then
//! its own text.

use unspool_rsp::transcript::{Replay, Transcript};

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let text = super::text(bytes);
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
}
