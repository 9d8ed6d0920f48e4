//! Runs real gdb in batch mode.

use std::path::Path;
use std::process::{Command, Stdio};

use super::target;

/// Runs gdb with these commands on `program`, and returns its complete output in order.
pub fn gdb(program: &Path, commands: &str) -> String {
    let script = target::scratch().join(format!(
        "{}-{:?}.gdb",
        std::process::id(),
        std::thread::current().id()
    ));
    // gdb waits two seconds for an answer by default, which is too short when many trials run at
    // once.
    let prologue = "set confirm off\nset pagination off\nset width 0\nset sysroot /\n\
                    set debuginfod enabled off\nset style enabled off\nset remotetimeout 60\n";
    std::fs::write(&script, format!("{prologue}{commands}")).unwrap();
    // Use one stream, so that the program's output appears at its place in gdb's.
    let output = Command::new("sh")
        .args([
            "-c",
            "exec timeout 90 gdb -q -nx -batch -x \"$0\" \"$1\" 2>&1",
        ])
        .arg(&script)
        .arg(program)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_ne!(output.status.code(), Some(124), "gdb hangs:\n{text}");
    text
}

/// Asserts that these strings occur in the text in this order.
pub fn assert_order(text: &str, expected: &[&str]) {
    let mut rest = text;
    for one in expected {
        match rest.find(one) {
            Some(at) => rest = &rest[at + one.len()..],
            None => panic!("'{one}' is missing, or not where expected, in:\n{text}"),
        }
    }
}
