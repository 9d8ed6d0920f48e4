//! Numbers of the fields of profile.proto (github.com/google/pprof, proto/profile.proto).

// Profile
pub(super) const SAMPLE_TYPE: u32 = 1;
pub(super) const SAMPLE: u32 = 2;
pub(super) const MAPPING: u32 = 3;
pub(super) const LOCATION: u32 = 4;
pub(super) const FUNCTION: u32 = 5;
pub(super) const STRING_TABLE: u32 = 6;
pub(super) const TIME_NANOS: u32 = 9;
pub(super) const DURATION_NANOS: u32 = 10;
pub(super) const COMMENT: u32 = 13;
pub(super) const DEFAULT_SAMPLE_TYPE: u32 = 14;

// ValueType
pub(super) const TYPE: u32 = 1;
pub(super) const UNIT: u32 = 2;

// Sample
pub(super) const SAMPLE_LOCATION: u32 = 1;
pub(super) const SAMPLE_VALUE: u32 = 2;
pub(super) const SAMPLE_LABEL: u32 = 3;

// Label
pub(super) const LABEL_KEY: u32 = 1;
pub(super) const LABEL_TEXT: u32 = 2;
pub(super) const LABEL_NUMBER: u32 = 3;

// Mapping
pub(super) const MAPPING_ID: u32 = 1;
pub(super) const MEMORY_LIMIT: u32 = 3;
pub(super) const MAPPING_FILE: u32 = 5;
pub(super) const BUILD_ID: u32 = 6;
pub(super) const HAS_FUNCTIONS: u32 = 7;
pub(super) const HAS_FILE_NAMES: u32 = 8;
pub(super) const HAS_LINE_NUMBERS: u32 = 9;
pub(super) const HAS_INLINE_FRAMES: u32 = 10;

// Location
pub(super) const LOCATION_ID: u32 = 1;
pub(super) const LOCATION_MAPPING: u32 = 2;
pub(super) const LOCATION_ADDRESS: u32 = 3;
pub(super) const LOCATION_LINE: u32 = 4;

// Line
pub(super) const LINE_FUNCTION: u32 = 1;
pub(super) const LINE_NUMBER: u32 = 2;

// Function
pub(super) const FUNCTION_ID: u32 = 1;
pub(super) const FUNCTION_NAME: u32 = 2;
pub(super) const FUNCTION_FILE: u32 = 4;
