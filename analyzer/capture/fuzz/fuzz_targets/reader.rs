//! See `unspool_capture_fuzz::reader`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| unspool_capture_fuzz::reader::run(bytes));
