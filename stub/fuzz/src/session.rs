//! A client that sends arbitrary bytes to a stub. The stub starts its own program for each input:
//! two threads at fixed addresses (`programs/spinning.c`). The input is the client's bytes.
//! Acknowledgements are off from the start, so that checksums may be wrong, because no fuzzer
//! guesses them. An input that begins with `+` keeps acknowledgements on. At each byte 0xff the
//! program runs for a moment before the session reads on.
//!
//! The stub's output must consist of whole packets with correct checksums.

use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

use tempfile::TempDir;
use unspool_stub::fuzzing::converse;

/// The temporary directory, the program in it, and an empty directory for the client's files.
static PLACE: LazyLock<(TempDir, PathBuf, PathBuf)> = LazyLock::new(|| {
    let directory = tempfile::tempdir().expect("directory");
    let program = directory.path().join("spinning");
    let files = directory.path().join("files");
    std::fs::create_dir(&files).expect("directory");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/spinning.c");
    let made = Command::new("gcc")
        .args(["-O1", "-static", "-nostdlib", "-no-pie", "-o"])
        .arg(&program)
        .arg(source)
        .status();
    assert!(made.expect("gcc").success());
    (directory, program, files)
});

/// Runs one input.
pub fn run(input: &[u8]) {
    let (_, program, files) = &*PLACE;
    let greeting: &[u8] = match input.first() {
        Some(b'+') => b"",
        _ => b"$QStartNoAckMode#b0+",
    };
    let parts = std::iter::once(greeting).chain(input.split(|&byte| byte == 0xff).take(64));
    let written = converse(program, files, parts);
    check(&written);
}

/// Checks that the output has only the forms `+`, `-`, `$body#ck` and `%body#ck`.
fn check(mut written: &[u8]) {
    while let Some((&first, rest)) = written.split_first() {
        written = rest;
        match first {
            b'+' | b'-' => {}
            b'$' | b'%' => {
                let end = rest.iter().position(|&byte| byte == b'#').expect("an end");
                let (body, tail) = rest.split_at(end);
                let sum = body.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
                let stated = std::str::from_utf8(&tail[1..3]).expect("digits");
                assert_eq!(u8::from_str_radix(stated, 16), Ok(sum), "a checksum");
                assert!(!body.contains(&b'$'), "an escape");
                written = &tail[3..];
            }
            other => panic!("{other:#x} between packets"),
        }
    }
}
