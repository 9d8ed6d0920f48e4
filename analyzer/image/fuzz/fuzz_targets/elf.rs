//! See `unspool_image_fuzz::elf`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| unspool_image_fuzz::elf::run(bytes));
