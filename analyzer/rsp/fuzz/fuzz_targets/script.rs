//! See `unspool_rsp_fuzz::script`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| unspool_rsp_fuzz::script::run(bytes));
