//! See `unspool_unwind_fuzz::cfi`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| unspool_unwind_fuzz::cfi::run(bytes));
