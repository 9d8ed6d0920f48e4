//! Runs the command and test programs.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// The command under test.
pub(crate) fn unspool() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unspool"));
    command
        .env_remove("NO_COLOR")
        .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .stdin(Stdio::null());
    command
}

/// The test program, built once per run.
pub(crate) fn subject() -> &'static Path {
    static BUILT: LazyLock<(TempDir, PathBuf)> = LazyLock::new(|| {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("subject");
        build(&["-g", "-O1"], &path);
        (dir, path)
    });
    &BUILT.1
}

/// Builds the test program with more options.
pub(crate) fn build(options: &[&str], output: &Path) {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/subject.c");
    let status = Command::new(std::env::var_os("CC").unwrap_or("cc".into()))
        .args(options)
        .args(["-pthread", "-o"])
        .arg(output)
        .arg(source)
        .status()
        .expect("a C compiler");
    assert!(status.success(), "cannot build the test program");
}

/// The result of one run.
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    pub(crate) fn of(command: &mut Command) -> Run {
        Run::from(command.output().expect("the command starts"))
    }

    /// Asserts failure with one clear sentence that has all of `words` in it.
    #[track_caller]
    pub(crate) fn fails_with(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "stderr: {}", self.stderr);
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        for word in words {
            assert!(
                self.stderr.contains(word),
                "{word:?} is missing in: {}",
                self.stderr
            );
        }
        let errors = self
            .stderr
            .lines()
            .filter(|line| line.contains("error:"))
            .count();
        assert_eq!(errors, 1, "expected one error: {}", self.stderr);
    }

    #[track_caller]
    pub(crate) fn succeeds(&self) {
        assert_eq!(
            self.code,
            Some(0),
            "stdout: {}\nstderr: {}",
            self.stdout,
            self.stderr
        );
    }
}

impl From<Output> for Run {
    fn from(output: Output) -> Run {
        Run {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// `unspool record -o FILE ... -- subject ARGS`, not started yet.
pub(crate) fn record(file: &Path, args: &[&str]) -> Command {
    let mut command = unspool();
    command
        .arg("record")
        .arg("-o")
        .arg(file)
        // Without a budget, the recorder misses no creation.
        .args(["--budget", "none"])
        .arg("--")
        .arg(subject())
        .args(args);
    command
}

/// The JSON report of a recording that ended normally.
#[track_caller]
pub(crate) fn report(file: &Path) -> Value {
    let run = Run::of(unspool().arg("report").arg(file).args(["--format", "json"]));
    run.succeeds();
    serde_json::from_str(&run.stdout).expect("JSON")
}

/// The JSON report of a recording that was cut. The command shows what there is, and fails with an
/// error that says so.
#[track_caller]
pub(crate) fn report_of_cut(file: &Path) -> Value {
    let run = Run::of(unspool().arg("report").arg(file).args(["--format", "json"]));
    run.fails_with(
        1,
        &["cut", "the report shows only the events before that point"],
    );
    serde_json::from_str(&run.stdout).expect("JSON")
}

/// Waits until the recorder has written `enough`.
pub(crate) fn wait_until_recorded(file: &Path, enough: impl Fn(&Value) -> bool) {
    let seen = wait_for(Duration::from_secs(60), || {
        let run = Run::of(unspool().arg("report").arg(file).args(["--format", "json"]));
        let report = serde_json::from_str(&run.stdout).ok()?;
        enough(&report).then_some(())
    });
    assert!(seen.is_some(), "a minute is not enough to record that");
}

/// The threads of a report except the main one.
pub(crate) fn created(report: &Value) -> Vec<&Value> {
    let threads = report["threads"].as_array().expect("threads");
    threads
        .iter()
        .filter(|thread| !thread["creation"].as_array().is_none_or(Vec::is_empty))
        .collect()
}

/// A running process with readable output. It is killed when dropped.
pub(crate) struct Live {
    pub(crate) child: Child,
    out: BufReader<std::process::ChildStdout>,
}

impl Live {
    pub(crate) fn start(command: &mut Command) -> Live {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let out = BufReader::new(child.stdout.take().expect("stdout"));
        Live { child, out }
    }

    pub(crate) fn subject(args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Live {
        Live::start(Command::new(subject()).args(args))
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("output");
        line.trim_end().to_owned()
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a pid")
    }

    /// Waits for its end, for ten seconds at most.
    #[track_caller]
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let status = wait_for(Duration::from_secs(10), || {
            self.child.try_wait().expect("waited for")
        });
        status.expect("it ends within 10 s")
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Polls `ask` until it returns a value, for `time` at most.
pub(crate) fn wait_for<T>(time: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + time;
    loop {
        match ask() {
            Some(answer) => return Some(answer),
            None if Instant::now() > deadline => return None,
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Sends a signal to one process.
pub(crate) fn signal(pid: i32, signal: nix::sys::signal::Signal) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal).expect("the process is there");
}
