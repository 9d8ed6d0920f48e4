//! See `unspool_stub_fuzz::session`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| unspool_stub_fuzz::session::run(bytes));
