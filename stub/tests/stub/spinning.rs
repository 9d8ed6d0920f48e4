//! A program that does many things at once until it is stopped, and checks its own results at the
//! end.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use super::client::Client;
use super::programs::{address, build};
use super::server::Server;

/// The running program.
pub struct Spinning {
    child: Child,
    output: BufReader<ChildStdout>,
    end: PathBuf,
    pub program: PathBuf,
    /// Address of the function that its threads call all the time.
    pub hit: u64,
    /// Address of a function that is never called.
    pub never: u64,
}

impl Spinning {
    /// Starts the program. `programs/spin.c` describes `kinds`.
    pub fn start(kinds: &str) -> Spinning {
        let program = build("spin", &["-no-pie"]);
        let library = build("there", &["-shared", "-fPIC"]);
        let end = program.with_extension(format!("end-{kinds}-{:?}", std::thread::current().id()));
        let _ = std::fs::remove_file(&end);
        let mut child = Command::new(&program)
            .args([end.as_os_str(), kinds.as_ref(), library.as_os_str()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Spinning {
            child,
            output,
            end,
            hit: address(&program, "hit"),
            never: address(&program, "never"),
            program,
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Starts a server that attaches to the program, and connects a client.
    pub fn server(&self) -> (Server, Client) {
        let server = self.server_with("none");
        let client = Client::connect(server.port);
        (server, client)
    }

    /// Starts a server that attaches to the program.
    pub fn server_with(&self, budget: &str) -> Server {
        let pid = self.pid().to_string();
        Server::start(&["--once", "--budget", budget, "--attach", ":0", &pid])
    }

    /// The first bytes of both functions.
    pub fn text(&self) -> [u8; 16] {
        let memory = std::fs::File::open(format!("/proc/{}/mem", self.pid())).unwrap();
        let mut bytes = [0; 16];
        let (hit, never) = bytes.split_at_mut(8);
        memory.read_exact_at(hit, self.hit).unwrap();
        memory.read_exact_at(never, self.never).unwrap();
        bytes
    }

    pub fn traced(&self) -> bool {
        // Skip threads that end meanwhile.
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
        let statuses = tasks
            .flatten()
            .filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok());
        statuses
            .into_iter()
            .any(|status| !status.contains("TracerPid:\t0\n"))
    }

    /// The exit status, if the program has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Ends the program, and asserts that its results are correct.
    pub fn finish(mut self) {
        std::fs::write(&self.end, "").unwrap();
        let mut text = String::new();
        self.output.read_to_string(&mut text).unwrap();
        let status = self.child.wait().unwrap();
        let _ = std::fs::remove_file(&self.end);
        assert!(status.success(), "{status:?}: {text}");
        assert_eq!(text, "bad 0\n");
    }
}

impl Drop for Spinning {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
