//! Fuzzes the division of a byte stream into packets, at once and byte by byte, and packet
//! contents.

use unspool_rsp::packet::{Frame, Framer, escape, unescape};
use unspool_rsp::{Features, Registers};

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let mut whole = Framer::new(4096);
    whole.feed(bytes);
    let mut single = Framer::new(4096);
    for byte in bytes {
        single.feed(&[*byte]);
    }
    while let Some(frame) = whole.next_frame() {
        assert_eq!(single.next_frame().as_ref(), Some(&frame));
        if let Frame::Packet(payload) | Frame::Notification(payload) = frame {
            assert!(payload.len() <= 4096);
            unescape(&payload);
            if let Some(registers) = Registers::decode(&payload) {
                assert_eq!(registers.bytes().len(), registers.known().len());
                registers.encode();
            }
        }
    }
    assert!(!single.has_frame());
    assert_eq!(unescape(&escape(bytes)).as_deref(), Some(bytes));
    if let Ok(text) = std::str::from_utf8(bytes) {
        Features::decode(text).packet_size();
    }
}
