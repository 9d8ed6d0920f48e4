//! See `unspool_image_fuzz::locator`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| unspool_image_fuzz::locator::run(bytes));
