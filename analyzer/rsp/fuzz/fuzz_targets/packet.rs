//! See `unspool_rsp_fuzz::packet`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| unspool_rsp_fuzz::packet::run(bytes));
