//! Runs libunwind in its own process (`tests/programs/libunwind.c`).

use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

use super::snapshot::{Mapped, Snapshot, hex};
use crate::tools::{need, output};

pub(crate) fn compile(directory: &Path) -> PathBuf {
    need(&["/usr/include/x86_64-linux-gnu/libunwind-x86_64.h"]);
    let program = directory.join("libunwind");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/libunwind.c");
    output(
        Command::new("gcc")
            .args(["-O2", "-o"])
            .arg(&program)
            .arg(source)
            .args(["-lunwind-x86_64", "-lunwind"]),
    );
    program
}

pub(crate) struct Libunwind {
    program: PathBuf,
    /// The modules that the running process knows.
    modules: Arc<Vec<Mapped>>,
    running: Option<(Child, BufWriter<ChildStdin>, BufReader<ChildStdout>)>,
}

impl Libunwind {
    pub(crate) fn new(program: &Path) -> Libunwind {
        Libunwind {
            program: program.into(),
            modules: Arc::default(),
            running: None,
        }
    }

    pub(crate) fn unwind(&mut self, snapshot: &Snapshot) -> Vec<u64> {
        if self.running.is_none() || !Arc::ptr_eq(&self.modules, &snapshot.modules) {
            self.stop();
            let mut child = Command::new(&self.program)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("start");
            let mut input = BufWriter::new(child.stdin.take().expect("stdin"));
            for module in &*snapshot.modules {
                writeln!(input, "module {:x} {}", module.bias, module.path.display())
                    .expect("write");
            }
            let output = BufReader::new(child.stdout.take().expect("stdout"));
            self.running = Some((child, input, output));
            self.modules = snapshot.modules.clone();
        }
        let (_, input, output) = self.running.as_mut().expect("started");
        for (name, value) in &snapshot.registers {
            writeln!(input, "register {name} {value:x}").expect("write");
        }
        writeln!(
            input,
            "memory {:x} {:x}",
            snapshot.base,
            snapshot.stack.len()
        )
        .expect("write");
        input.write_all(&snapshot.stack).expect("write");
        writeln!(input, "unwind").expect("write");
        input.flush().expect("write");
        let mut line = String::new();
        output.read_line(&mut line).expect("read");
        assert!(line.ends_with('\n'), "libunwind ended");
        line.split_whitespace().map(hex).collect()
    }

    fn stop(&mut self) {
        if let Some((mut child, input, _)) = self.running.take() {
            // The process ends when its input ends.
            drop(input);
            let _ = child.wait();
        }
    }
}

impl Drop for Libunwind {
    fn drop(&mut self) {
        self.stop();
    }
}
