//! Replays stored sessions, which must give the same results as when they were recorded.
//!
//! `UNSPOOL_BLESS=1` makes the tests with real servers store their sessions again.

use std::path::{Path, PathBuf};

use unspool_rsp::transcript::{Replay, Replayed, Transcript};
use unspool_rsp::{Client, ClientOptions};

use crate::target::{Facts, Log, drive};

/// Replays a transcript and compares the results of the session.
pub(crate) fn check(transcript: &str, facts: &Facts, expected: &[String]) {
    let replay = Replay::new(Transcript::parse(transcript).unwrap());
    let (stream, server) = replay.spawn().unwrap();
    let log = Log::default();
    let seen = drive(stream.into(), facts, &log);
    assert_eq!(seen, expected);
    let replayed = server.join().unwrap().unwrap();
    assert_eq!(replayed, Ok(Replayed { left: 0 }));
    // A transcript of the replay equals the original, except for the times.
    let events = |text: &str| -> Vec<_> {
        let transcript = Transcript::parse(text).unwrap();
        transcript.entries.into_iter().map(|e| e.event).collect()
    };
    assert_eq!(events(&log.text()), events(transcript));
}

/// Stores a session, if requested.
pub(crate) fn bless(name: &str, transcript: &str, facts: &Facts, seen: &[String]) {
    if std::env::var_os("UNSPOOL_BLESS").is_none() {
        return;
    }
    let facts = format!("{:x} {} {:x}\n", facts.marker, facts.size, facts.message);
    let seen: Vec<_> = seen.iter().map(|s| s.escape_debug().to_string()).collect();
    std::fs::write(fixture(name, "transcript"), transcript).unwrap();
    std::fs::write(fixture(name, "expected"), facts + &seen.join("\n") + "\n").unwrap();
}

fn fixture(name: &str, extension: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    directory.join(name).with_extension(extension)
}

fn stored(name: &str) {
    let transcript = std::fs::read_to_string(fixture(name, "transcript")).unwrap();
    let expected = std::fs::read_to_string(fixture(name, "expected")).unwrap();
    let mut lines = expected.lines();
    let facts: Vec<_> = lines.next().unwrap().split(' ').collect();
    let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let facts = Facts {
        marker: hex(facts[0]),
        size: facts[1].parse().unwrap(),
        message: hex(facts[2]),
    };
    let replay = Replay::new(Transcript::parse(&transcript).unwrap());
    let (stream, server) = replay.spawn().unwrap();
    let seen: Vec<_> = drive(stream.into(), &facts, &Log::default())
        .iter()
        .map(|s| s.escape_debug().to_string())
        .collect();
    assert_eq!(seen, lines.collect::<Vec<_>>());
    assert_eq!(server.join().unwrap().unwrap(), Ok(Replayed { left: 0 }));
}

#[test]
fn gdbserver_x86_64() {
    stored("gdbserver-x86_64");
}

#[test]
fn qemu_arm_thumb() {
    stored("qemu-arm-thumb");
}

#[test]
fn qemu_arm_a32() {
    stored("qemu-arm-a32");
}

#[test]
fn a_departure_is_shown_as_a_difference() {
    let text = "unspool-rsp transcript 1\n-> qSupported:x\n<- PacketSize=400\n";
    let replay = Replay::new(Transcript::parse(text).unwrap());
    let (stream, server) = replay.spawn().unwrap();
    assert!(Client::over(stream, ClientOptions::default()).is_err());
    let departure = server.join().unwrap().unwrap().unwrap_err().to_string();
    assert!(
        departure.starts_with(
            "the client departs from the transcript at line 2; record the transcript again if \
             the change is intended\n\
             - -> qSupported:x\n+ -> qSupported:multiprocess+;"
        ),
        "{departure}"
    );
}

#[test]
fn the_documented_script_is_the_tested_one() {
    let documentation = include_str!("../../../../docs/reference/rsp-scripts.md");
    assert!(documentation.contains(include_str!("../programs/first.script")));
}

#[test]
fn what_is_no_transcript() {
    for (text, expected) in [
        ("", "begins with `unspool-rsp transcript 1`, got ``"),
        (
            "unspool-rsp transcript 2\n",
            "got `unspool-rsp transcript 2`",
        ),
        (
            "unspool-rsp transcript 1\n\n-> a{b}\n",
            "line 3 of the transcript: ",
        ),
        ("unspool-rsp transcript 1\n=> a\n", "got `=>`"),
        ("unspool-rsp transcript 1\n-> \\q\n", "begins none of"),
    ] {
        let message = Transcript::parse(text).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
}
