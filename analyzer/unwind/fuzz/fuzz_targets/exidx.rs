//! See `unspool_unwind_fuzz::exidx`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| unspool_unwind_fuzz::exidx::run(bytes));
