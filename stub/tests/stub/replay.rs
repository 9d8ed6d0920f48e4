//! The inputs that fuzzing kept (`tests/inputs/session`), each as what a client sends to a whole
//! server: what was found once is not let in again.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use super::programs::build;
use super::server::command;
use super::target;

#[test]
fn kept_inputs() {
    // One that ends by itself where a client lets it go.
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
        // As the fuzzer has it (`fuzz/src/session.rs`).
        if input.first() != Some(&b'+') {
            said.extend(b"$QStartNoAckMode#b0+");
        }
        said.extend(input.into_iter().filter(|&byte| byte != 0xff));
        // It is ended by the end of its input, and may leave before it has heard all.
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
