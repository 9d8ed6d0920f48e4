//! Replays the inputs that fuzzing has kept (`tests/inputs/session`) to a complete server, as
//! regression tests.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use super::programs::build;
use super::server::command;
use super::target;

#[test]
fn kept_inputs() {
    // A program that ends by itself if the client detaches from it.
    let program = build("traced", &["-static", "-no-pie"]);
    let root = target::scratch().join("replay");
    std::fs::create_dir_all(&root).unwrap();
    let inputs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/inputs/session");
    let errors = root.join("errors");
    let mut count = 0;
    for entry in std::fs::read_dir(inputs).unwrap() {
        let path = entry.unwrap().path();
        let input = std::fs::read(&path).unwrap();
        let mut server = command()
            .args(["--once", "--may-attach", "2147483647", "--root"])
            .arg(&root)
            .arg("-")
            .arg(&program)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&errors).unwrap())
            .spawn()
            .unwrap();
        let mut said = Vec::new();
        // As in the fuzzer (`fuzz/src/session.rs`).
        if input.first() != Some(&b'+') {
            said.extend(b"$QStartNoAckMode#b0+");
        }
        said.extend(input.into_iter().filter(|&byte| byte != 0xff));
        // The server ends at the end of its input, and may stop reading earlier.
        let _ = server.stdin.take().unwrap().write_all(&said);
        let status = server.wait().unwrap();
        let said = std::fs::read_to_string(&errors).unwrap();
        assert!(
            !said.contains("panicked") && status.code().is_some(),
            "{}: {said}",
            path.display()
        );
        count += 1;
    }
    assert!(count > 0, "no inputs");
}
