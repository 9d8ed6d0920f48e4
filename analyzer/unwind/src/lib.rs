//! Stack unwinding from snapshots of registers and stack bytes.
