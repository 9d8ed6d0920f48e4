//! Tests scripts against a replayed server, and the messages on success and failure.

use super::*;
use crate::connection::{Connection, ConnectionOptions};
use crate::transcript::{Replay, Transcript};

const SERVER: &str = "unspool-rsp transcript 1
-> qSupported
<- PacketSize=1000;multiprocess+
-> ?
<- O68690a
<- T05thread:p1f.2a;core:0;
-> Hgp1f.2a
<- OK
-> m1000,4
<- 7f454c46
-> vKill;1f
<- OK
closed
";

fn run(script: &str) -> Result<Summary, ScriptError> {
    run_against(SERVER, script)
}

fn run_against(server: &str, script: &str) -> Result<Summary, ScriptError> {
    let replay = Replay::new(Transcript::parse(server).unwrap());
    let (stream, server) = replay.spawn().unwrap();
    let options = ConnectionOptions {
        timeout: Duration::from_millis(300),
        ..ConnectionOptions::default()
    };
    let mut connection = Connection::over(stream, options).unwrap();
    let result = Script::parse("t.script", script)?.run(&mut connection);
    drop(connection);
    let _ = server.join();
    result
}

#[test]
fn captures_bind_and_are_used() {
    let summary = run(r#"unspool-rsp script 1
# A comment.
-> qSupported
<- {*}multiprocess+{*}
-> ?
<- T05thread:p{pid:hex}.{tid:hex};{:any}
let thread = p{pid}.{tid}
-> Hg{thread}
<- OK
-> m1000,4
<- 7f{hex "ELF"}
-> vKill;{pid}
<- OK
timeout 2s
closed
"#)
    .unwrap();
    assert_eq!((summary.sent, summary.received), (5, 5));
    assert_eq!(summary.console, b"hi\n");
    assert_eq!(summary.variables["thread"], b"p1f.2a");
}

#[test]
fn a_transcript_is_a_script() {
    let summary = run(SERVER).unwrap();
    assert_eq!((summary.sent, summary.received), (5, 6));
}

#[test]
fn a_notification_may_come_before_the_reply() {
    let server = "unspool-rsp transcript 1
-> qSupported
<~ Other:1
<~ UnspoolControl:halted
<- PacketSize=1000
-> Hgp0.0
<- OK
";
    let script = "-> qSupported\n<- {*}\n-> Hgp0.0\n<~ UnspoolControl:halted\n<- OK\n";
    let summary = run_against(server, script).unwrap();
    assert_eq!((summary.sent, summary.received), (2, 3));
}

#[test]
fn a_difference_is_shown_as_one() {
    let error = run("-> qSupported\n<- {*}\n-> ?\n<- T05thread:p{pid:hex}.2b;{*}\n").unwrap_err();
    assert_eq!(
        error.to_string(),
        "t.script:4: the server's packet differs from the script\n\
         - expected: T05thread:p{pid:hex}.2b;{*}\n\
         + got:      T05thread:p1f.2a;core:0;\n\
         \x20                          ^ from here"
    );
}

#[test]
fn silence_and_closing_are_told() {
    let error = run("-> qSupported\n<- {*}\n<- more\n")
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("t.script:3: the server sent nothing within 300ms;"),
        "{error}"
    );
    assert!(
        error.ends_with("- expected: more\n+ got:      (nothing)"),
        "{error}"
    );
    // The replay detects a difference and closes the connection.
    let error = run("-> other\n<- OK\n").unwrap_err().to_string();
    assert!(
        error.contains("the server closed the connection"),
        "{error}"
    );
}

#[test]
fn mistakes_name_file_and_line() {
    for (script, expected) in [
        ("-> {x}", "t.script:1: the variable `x` has no value yet"),
        (
            "\n-> {x:hex}",
            "t.script:2: `{x:hex}` matches replies; it cannot be sent",
        ),
        ("<- {x:digits}", "expected a kind `hex`"),
        ("<- {x y:hex}", "expected a name of letters"),
        ("say hello", "expected one of `-> <-"),
        ("interrupt now", "expected nothing after it"),
        ("timeout 5", "expected a time such as `5s`"),
        ("let x", "expected `let NAME = TEXT`"),
        ("-> {hex hello}", "expected `{hex \"TEXT\"}`"),
    ] {
        let error = Script::parse("t.script", script).unwrap_err().to_string();
        assert!(error.contains(expected), "{script}: {error}");
    }
}

#[test]
fn patterns_backtrack_and_stay_fast() {
    let matches = |text: &str, payload: &[u8]| {
        Pattern::parse(text, &mut BTreeSet::new())
            .unwrap()
            .matches(payload, &Default::default())
    };
    assert!(matches("{*}a{*}b", b"xxaxxab").is_ok());
    assert_eq!(
        matches("{x:hex}0;", b"abc0;"),
        Ok(vec![("x".into(), b"abc".to_vec())])
    );
    assert_eq!(
        matches("{x:hex*2}{*}", b"0102zz"),
        Ok(vec![("x".into(), b"0102".to_vec())])
    );
    assert_eq!(matches("{x:hex*2}{*}", b"010"), Err(0));
    assert_eq!(matches("abc", b"abd"), Err(2));
    assert_eq!(matches("ab", b"abc"), Err(2));
    assert_eq!(matches("", b""), Ok(vec![]));
    let long = vec![b'a'; 100_000];
    assert!(matches("{*}a{*}a{*}a{*}a{*}a{*}b", &long).is_err());
}

#[test]
fn noise_never_panics() {
    let words = [
        "-> ", "<- ", "<~ ", "let ", "a", " = ", "{", "}", "\\", "x4", "\"", "hex ", ":hex", "*",
        "\n", "1.5 ", "timeout ", "9s", "é", "closed", "#",
    ];
    for seed in 1..2000 {
        let text: String = crate::packet::tests::noise(seed, 40)
            .into_iter()
            .map(|b| words[usize::from(b) % words.len()])
            .collect();
        let _ = Script::parse("noise", &text);
        let _ = Transcript::parse(&format!("{}\n{text}", crate::transcript::HEADER));
    }
}
