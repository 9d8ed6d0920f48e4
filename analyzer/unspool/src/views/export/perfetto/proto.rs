//! Writes protobuf messages ("Encoding", protobuf.dev), and the numbers of Perfetto's fields.
//!
//! By hand, because a trace needs a dozen messages of Perfetto's several hundred.

/// A message that is being written.
#[derive(Debug, Default)]
pub(super) struct Message {
    bytes: Vec<u8>,
}

/// Wire types.
const VARINT: u32 = 0;
const FIXED_64: u32 = 1;
const LENGTH: u32 = 2;

impl Message {
    pub(super) fn number(&mut self, field: u32, value: u64) {
        self.tag(field, VARINT);
        self.varint(value);
    }

    pub(super) fn fixed(&mut self, field: u32, value: u64) {
        self.tag(field, FIXED_64);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn double(&mut self, field: u32, value: f64) {
        self.fixed(field, value.to_bits());
    }

    pub(super) fn text(&mut self, field: u32, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    pub(super) fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.tag(field, LENGTH);
        self.varint(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    /// Writes a message inside this one.
    pub(super) fn message(&mut self, field: u32, fill: impl FnOnce(&mut Message)) {
        let mut inner = Message::default();
        fill(&mut inner);
        self.bytes(field, &inner.bytes);
    }

    /// Writes the fields of another message.
    pub(super) fn append(&mut self, other: &Message) {
        self.bytes.extend_from_slice(&other.bytes);
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn tag(&mut self, field: u32, kind: u32) {
        self.varint(u64::from(field << 3 | kind));
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }
}

/// Numbers of fields, from perfetto_trace.proto.
pub(super) mod field {
    /// `Trace.packet`
    pub(in super::super) const PACKET: u32 = 1;

    // TracePacket
    pub(in super::super) const FTRACE_EVENTS: u32 = 1;
    pub(in super::super) const TIMESTAMP: u32 = 8;
    pub(in super::super) const SEQUENCE_ID: u32 = 10;
    pub(in super::super) const TRACK_EVENT: u32 = 11;
    pub(in super::super) const SEQUENCE_FLAGS: u32 = 13;
    pub(in super::super) const TRACK_DESCRIPTOR: u32 = 60;

    // TrackDescriptor
    pub(in super::super) const UUID: u32 = 1;
    pub(in super::super) const TRACK_NAME: u32 = 2;
    pub(in super::super) const PROCESS: u32 = 3;
    pub(in super::super) const THREAD: u32 = 4;
    pub(in super::super) const PARENT_UUID: u32 = 5;
    pub(in super::super) const COUNTER: u32 = 8;

    // ProcessDescriptor, ThreadDescriptor
    pub(in super::super) const PROCESS_PID: u32 = 1;
    pub(in super::super) const PROCESS_NAME: u32 = 6;
    pub(in super::super) const THREAD_PID: u32 = 1;
    pub(in super::super) const THREAD_TID: u32 = 2;
    pub(in super::super) const THREAD_NAME: u32 = 5;

    // TrackEvent
    pub(in super::super) const DEBUG_ANNOTATIONS: u32 = 4;
    pub(in super::super) const EVENT_TYPE: u32 = 9;
    pub(in super::super) const TRACK_UUID: u32 = 11;
    pub(in super::super) const CATEGORIES: u32 = 22;
    pub(in super::super) const EVENT_NAME: u32 = 23;
    pub(in super::super) const DOUBLE_COUNTER_VALUE: u32 = 44;
    pub(in super::super) const FLOW_IDS: u32 = 47;
    pub(in super::super) const TERMINATING_FLOW_IDS: u32 = 48;

    // DebugAnnotation
    pub(in super::super) const ANNOTATION_STRING: u32 = 6;
    pub(in super::super) const ANNOTATION_NAME: u32 = 10;

    // FtraceEventBundle, FtraceEvent
    pub(in super::super) const FTRACE_CPU: u32 = 1;
    pub(in super::super) const FTRACE_EVENT: u32 = 2;
    pub(in super::super) const FTRACE_TIMESTAMP: u32 = 1;
    pub(in super::super) const FTRACE_PID: u32 = 2;
    pub(in super::super) const SCHED_SWITCH: u32 = 4;
    pub(in super::super) const SCHED_WAKING: u32 = 20;

    // SchedSwitchFtraceEvent, SchedWakingFtraceEvent
    pub(in super::super) const PREV_COMM: u32 = 1;
    pub(in super::super) const PREV_PID: u32 = 2;
    pub(in super::super) const PREV_PRIO: u32 = 3;
    pub(in super::super) const PREV_STATE: u32 = 4;
    pub(in super::super) const NEXT_COMM: u32 = 5;
    pub(in super::super) const NEXT_PID: u32 = 6;
    pub(in super::super) const NEXT_PRIO: u32 = 7;
    pub(in super::super) const WAKING_PID: u32 = 2;
    pub(in super::super) const WAKING_SUCCESS: u32 = 4;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of "Encoding", protobuf.dev.
    #[test]
    fn as_the_documentation_has_it() {
        let mut message = Message::default();
        message.number(1, 150);
        assert_eq!(message.into_bytes(), [0x08, 0x96, 0x01]);
        let mut message = Message::default();
        message.text(2, "testing");
        assert_eq!(message.into_bytes(), b"\x12\x07testing");
        let mut message = Message::default();
        message.message(3, |inner| inner.number(1, 150));
        assert_eq!(message.into_bytes(), [0x1a, 0x03, 0x08, 0x96, 0x01]);
    }
}
