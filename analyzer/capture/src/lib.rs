//! The capture file: everything that was observed, nothing that was concluded.
