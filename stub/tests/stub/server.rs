//! The server under test, as a process.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::client::Client;
use super::target;

/// Time limit for one server, so that a hanging trial does not hold up all others.
const LIFE: Duration = Duration::from_secs(15 * 60);

/// A server that listens.
pub struct Server {
    pub child: Child,
    pub port: u16,
    /// The server's standard error before it listened.
    pub preface: String,
    /// The server's standard error after it began to listen.
    complaints: Arc<Mutex<String>>,
    output: Option<std::thread::JoinHandle<String>>,
    /// Dropped together with the server, which ends the watchdog thread.
    _alive: mpsc::Sender<()>,
}

/// The command line of the server under test.
pub fn command() -> Command {
    Command::new(target::stub())
}

impl Server {
    /// Starts a server with `arguments`, which must include `:0`, and waits until it listens.
    pub fn start(arguments: &[&str]) -> Server {
        Server::spawn(command().args(arguments))
    }

    /// Like [`Server::start`], but with the terminal's interrupt keys ignored, as for a background
    /// process of a shell script.
    pub fn start_ignoring_keys(arguments: &[&str]) -> Server {
        let mut shell = Command::new("sh");
        shell.args(["-c", "trap '' INT QUIT; exec \"$0\" \"$@\""]);
        Server::spawn(shell.arg(target::stub()).args(arguments))
    }

    /// Like [`Server::start`], but through another program that executes the server.
    pub fn start_through(program: &std::path::Path, words: &[&str], arguments: &[&str]) -> Server {
        let mut command = Command::new(program);
        Server::spawn(command.args(words).arg(target::stub()).args(arguments))
    }

    fn spawn(command: &mut Command) -> Server {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let mut output = child.stdout.take().unwrap();
        let mut preface = String::new();
        let port = loop {
            let mut line = String::new();
            let got = errors.read_line(&mut line).unwrap();
            assert!(got > 0, "server ended: {preface}");
            preface.push_str(&line);
            if let Some(port) = line.strip_prefix("Listening on port ") {
                break port.trim().parse().unwrap();
            }
        };
        let complaints = Arc::<Mutex<String>>::default();
        let log = complaints.clone();
        std::thread::spawn(move || {
            let mut line = String::new();
            while errors.read_line(&mut line).is_ok_and(|got| got > 0) {
                log.lock().unwrap().push_str(&line);
                line.clear();
            }
        });
        let output = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = output.read_to_string(&mut text);
            text
        });
        let (alive, gone) = mpsc::channel();
        let (pid, log) = (child.id(), complaints.clone());
        std::thread::spawn(move || {
            if gone.recv_timeout(LIFE) == Err(RecvTimeoutError::Timeout) {
                let killed = format!("killed, for the trial has not ended in {LIFE:?}");
                log.lock().unwrap().push_str(&killed);
                kill_programs_of(pid);
                send_signal(pid, 9);
            }
        });
        Server {
            child,
            port,
            preface,
            complaints,
            output: Some(output),
            _alive: alive,
        }
    }

    /// The usual setup: one client, a program with arguments, and no budget.
    pub fn run(program: &std::path::Path, arguments: &[&str]) -> (Server, Client) {
        let mut all = vec!["--once", "--budget", "none", ":0"];
        all.push(program.to_str().unwrap());
        all.extend(arguments);
        let server = Server::start(&all);
        let client = Client::connect(server.port);
        (server, client)
    }

    /// Waits for the server's end.
    pub fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + target::event_timeout();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "the server does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The standard output of program and server. Waits for both to end.
    pub fn output(&mut self) -> String {
        self.output.take().unwrap().join().unwrap()
    }

    /// The tracer process. The process that was started is its guardian.
    pub fn tracer(&self) -> u32 {
        *children(self.child.id()).first().expect("a tracer")
    }

    /// Sends a signal to the server.
    pub fn signal(&self, signal: i32) {
        send_signal(self.child.id(), signal);
    }
}

/// The child processes of a process.
fn children(pid: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let list = list.unwrap_or_default();
    list.split_whitespace()
        .map(|n| n.parse().unwrap())
        .collect()
}

/// Kills the programs that a server has started.
fn kill_programs_of(server: u32) {
    for program in children(server).into_iter().flat_map(children) {
        let _ = Command::new("kill")
            .args(["-9", &program.to_string()])
            // The program may have ended by itself.
            .stderr(Stdio::null())
            .status();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let end = self.child.try_wait();
            let complaints = self.complaints.lock();
            println!("the server: {end:?}, {:?}", complaints.as_deref());
        }
        // The server's programs would outlive it.
        if matches!(self.child.try_wait(), Ok(None)) {
            kill_programs_of(self.child.id());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal with kill(1).
pub fn send_signal(pid: u32, signal: i32) {
    send_signals(&[pid], signal);
}

pub fn send_signals(pids: &[u32], signal: i32) {
    let status = Command::new("kill")
        .arg(format!("-{signal}"))
        .args(pids.iter().map(u32::to_string))
        .status()
        .unwrap();
    assert!(status.success());
}

/// Waits until `condition` holds.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + target::event_timeout();
    while !condition() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
