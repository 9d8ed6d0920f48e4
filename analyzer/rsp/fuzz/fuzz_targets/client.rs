//! See `unspool_rsp_fuzz::client`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| unspool_rsp_fuzz::client::run(bytes));
