//! A client that says anything to a stub with a program of its own, started for each input: two
//! threads at fixed addresses (`programs/spinning.c`). Input: the bytes as they come over the wire.
//! Acknowledgements are off from the start, so that checksums, which no fuzzer guesses, may be
//! wrong; an input that begins with `+` keeps them. A 0xff lets the program go on a little before
//! what follows is read.
//!
//! What the stub writes must be whole packets with right checksums.

use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

use tempfile::TempDir;
use unspool_stub::fuzzing::converse;

/// Where the program is, and an empty directory for the client's files.
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

/// One input.
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

/// `+`, `-`, `$body#ck` and `%body#ck`, and nothing else.
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
