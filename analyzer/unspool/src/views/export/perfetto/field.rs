//! Numbers of Perfetto's fields, from perfetto_trace.proto.

/// `Trace.packet`
pub(super) const PACKET: u32 = 1;

// TracePacket
pub(super) const FTRACE_EVENTS: u32 = 1;
pub(super) const TIMESTAMP: u32 = 8;
pub(super) const SEQUENCE_ID: u32 = 10;
pub(super) const TRACK_EVENT: u32 = 11;
pub(super) const INTERNED_DATA: u32 = 12;
pub(super) const SEQUENCE_FLAGS: u32 = 13;
pub(super) const PACKET_DEFAULTS: u32 = 59;
pub(super) const TRACK_DESCRIPTOR: u32 = 60;
pub(super) const PERF_SAMPLE: u32 = 66;

// TrackDescriptor
pub(super) const UUID: u32 = 1;
pub(super) const TRACK_NAME: u32 = 2;
pub(super) const PROCESS: u32 = 3;
pub(super) const THREAD: u32 = 4;
pub(super) const PARENT_UUID: u32 = 5;
pub(super) const COUNTER: u32 = 8;

// ProcessDescriptor, ThreadDescriptor
pub(super) const PROCESS_PID: u32 = 1;
pub(super) const PROCESS_NAME: u32 = 6;
pub(super) const THREAD_PID: u32 = 1;
pub(super) const THREAD_TID: u32 = 2;
pub(super) const THREAD_NAME: u32 = 5;

// TrackEvent
pub(super) const DEBUG_ANNOTATIONS: u32 = 4;
pub(super) const EVENT_TYPE: u32 = 9;
pub(super) const TRACK_UUID: u32 = 11;
pub(super) const CATEGORIES: u32 = 22;
pub(super) const EVENT_NAME: u32 = 23;
pub(super) const DOUBLE_COUNTER_VALUE: u32 = 44;
pub(super) const FLOW_IDS: u32 = 47;
pub(super) const TERMINATING_FLOW_IDS: u32 = 48;

// DebugAnnotation
pub(super) const ANNOTATION_STRING: u32 = 6;
pub(super) const ANNOTATION_NAME: u32 = 10;

// FtraceEventBundle, FtraceEvent
pub(super) const FTRACE_CPU: u32 = 1;
pub(super) const FTRACE_EVENT: u32 = 2;
pub(super) const FTRACE_TIMESTAMP: u32 = 1;
pub(super) const FTRACE_PID: u32 = 2;
pub(super) const SCHED_SWITCH: u32 = 4;
pub(super) const SCHED_WAKING: u32 = 20;

// SchedSwitchFtraceEvent, SchedWakingFtraceEvent
pub(super) const PREV_COMM: u32 = 1;
pub(super) const PREV_PID: u32 = 2;
pub(super) const PREV_PRIO: u32 = 3;
pub(super) const PREV_STATE: u32 = 4;
pub(super) const NEXT_COMM: u32 = 5;
pub(super) const NEXT_PID: u32 = 6;
pub(super) const NEXT_PRIO: u32 = 7;
pub(super) const WAKING_PID: u32 = 2;
pub(super) const WAKING_SUCCESS: u32 = 4;

// TracePacketDefaults, PerfSampleDefaults, PerfEvents.Timebase
pub(super) const SAMPLE_DEFAULTS: u32 = 12;
pub(super) const TIMEBASE: u32 = 1;
pub(super) const TIMEBASE_PERIOD: u32 = 1;
pub(super) const TIMEBASE_COUNTER: u32 = 4;

// PerfSample
pub(super) const SAMPLE_CPU: u32 = 1;
pub(super) const SAMPLE_PID: u32 = 2;
pub(super) const SAMPLE_TID: u32 = 3;
pub(super) const SAMPLE_CALLSTACK: u32 = 4;
pub(super) const SAMPLE_CPU_MODE: u32 = 5;
pub(super) const SAMPLE_UNWIND_ERROR: u32 = 16;
pub(super) const SAMPLES_LOST: u32 = 17;

// InternedData
pub(super) const FUNCTION_NAMES: u32 = 5;
pub(super) const FRAMES: u32 = 6;
pub(super) const CALLSTACKS: u32 = 7;
pub(super) const BUILD_IDS: u32 = 16;
pub(super) const MAPPING_PATHS: u32 = 17;
pub(super) const MAPPINGS: u32 = 19;

/// The number of an interned entry in its own message: InternedString, Mapping, Frame, Callstack.
pub(super) const INTERNED_ID: u32 = 1;
pub(super) const INTERNED_TEXT: u32 = 2;
pub(super) const MAPPING_BUILD_ID: u32 = 2;
pub(super) const MAPPING_PATH: u32 = 7;
pub(super) const FRAME_NAME: u32 = 2;
pub(super) const FRAME_MAPPING: u32 = 3;
pub(super) const FRAME_ADDRESS: u32 = 4;
pub(super) const CALLSTACK_FRAMES: u32 = 2;
