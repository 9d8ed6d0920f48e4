//! Notifications for a client that drains its trace: `UnspoolTrace` with frames, and counts of
//! dropped and missed hits, and times for which threads were stopped (docs/reference/protocol.md).

use std::fmt::Write as _;
use std::io::Write as _;

use crate::sys::monotonic_ns;
use crate::tracepoint::budget::Missed;
use crate::tracepoint::frame_buffer::Frame;

use super::framing::{Framing, escape};

/// Size in bytes above which a notification ends.
const BATCH_BYTES: usize = 16 * 1024;

/// Queues `UnspoolTrace:NOW;` and frames in the format of trace files. Splits them into several
/// notifications if necessary.
pub(super) fn frames(frames: &[Frame], framing: &mut Framing) {
    let mut rest = frames.iter().peekable();
    while rest.peek().is_some() {
        framing.notify_with(|out| {
            let _ = write!(out, "UnspoolTrace:{:x};", monotonic_ns());
            let end = out.len() + BATCH_BYTES;
            while out.len() <= end
                && let Some(frame) = rest.next()
            {
                let (header, blocks) = frame.parts();
                escape(&header, out);
                escape(blocks, out);
            }
        });
    }
}

/// `UnspoolDropped:N,COUNT;...`: total counts of the tracepoints whose count has grown.
pub(super) fn dropped(counts: &[(u32, u64)]) -> Vec<u8> {
    let mut text = String::from("UnspoolDropped");
    for (index, (number, count)) in counts.iter().enumerate() {
        let separator = if index == 0 { ':' } else { ';' };
        let _ = write!(text, "{separator}{number:x},{count:x}");
    }
    text.into_bytes()
}

/// `UnspoolMissed:N,PAUSES,NS,HITS;...`: totals of the tracepoints that were paused again.
pub(super) fn missed(counts: &[(u32, Missed)]) -> Vec<u8> {
    let mut text = String::from("UnspoolMissed");
    for (index, (number, missed)) in counts.iter().enumerate() {
        let separator = if index == 0 { ':' } else { ';' };
        let Missed {
            pauses,
            paused_ns,
            hits,
        } = missed;
        let _ = write!(
            text,
            "{separator}{number:x},{pauses:x},{paused_ns:x},{hits:x}"
        );
    }
    text.into_bytes()
}

/// `UnspoolStood:FROM,TO;...` or `UnspoolHalted:...`: times at which threads were stopped, or may
/// have been.
pub(super) fn stalls(name: &str, spans: &[(u64, u64)]) -> Vec<u8> {
    let mut text = format!("Unspool{name}");
    for (index, (from, to)) in spans.iter().enumerate() {
        let separator = if index == 0 { ':' } else { ';' };
        let _ = write!(text, "{separator}{from:x},{to:x}");
    }
    text.into_bytes()
}
