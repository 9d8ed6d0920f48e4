//! Attaching and all ways of detaching, after which the text must be the original.

use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};

use super::client::{Client, stopped};
use super::packets::text;
use super::programs::{address, build};
use super::server::{Server, eventually};
use super::target;

/// A program that runs until a file appears.
pub struct Looping {
    child: Child,
    end: PathBuf,
    pub tick: u64,
    pub main: u64,
}

impl Looping {
    pub fn start() -> Looping {
        let looping = Looping::run("loop");
        let pid = looping.pid();
        eventually("two threads", || tasks(pid).len() == 2);
        looping
    }

    fn run(program: &str) -> Looping {
        let program = build(program, &["-no-pie"]);
        let unique = format!(
            "end-{:?}-{}",
            std::thread::current().id(),
            std::process::id()
        );
        let end = target::scratch().join(unique);
        let _ = std::fs::remove_file(&end);
        let child = Command::new(&program)
            .arg(&end)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Looping {
            child,
            end,
            tick: address(&program, "tick"),
            main: address(&program, "main"),
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn server(&self) -> (Server, Client) {
        let server = Server::start(&["--once", "--attach", ":0", &self.pid().to_string()]);
        let client = Client::connect(server.port);
        (server, client)
    }

    /// Ends the program and asserts that it was not disturbed.
    pub fn finish(mut self) {
        std::fs::write(&self.end, "").unwrap();
        let status = self.child.wait().unwrap();
        assert_eq!(status.code(), Some(7));
        let mut text = String::new();
        use std::io::Read;
        self.child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        assert_eq!(text, "done 1\n");
        let _ = std::fs::remove_file(&self.end);
    }

    /// The exit status, if the program has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    pub fn untraced(&self) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        status.contains("TracerPid:\t0\n")
    }
}

pub fn tasks(pid: u32) -> Vec<u32> {
    let mut tasks: Vec<u32> = std::fs::read_dir(format!("/proc/{pid}/task"))
        .map(|entries| {
            let names = entries.flatten().map(|entry| entry.file_name());
            names.filter_map(|n| n.to_str()?.parse().ok()).collect()
        })
        .unwrap_or_default();
    tasks.sort_unstable();
    tasks
}

#[test]
fn attach_interrupt_and_detach() {
    let looping = Looping::start();
    let (mut server, mut client) = looping.server();
    let (pid, _) = stopped(&client.ask("?"));
    assert_eq!(pid, looping.pid());
    assert_eq!(client.ask(&format!("qAttached:{pid:x}")), "1");
    let mut threads = client.threads();
    threads.sort_unstable();
    assert_eq!(threads, tasks(pid));
    let original = text(pid, looping.tick);
    client.plant(looping.tick);
    for _ in 0..20 {
        assert!(client.go().contains("swbreak:;"));
    }
    assert_eq!(client.ask("D"), "OK");
    assert_eq!(text(pid, looping.tick), original);
    assert!(looping.untraced());
    assert!(server.wait().success());
    looping.finish();
}

#[test]
fn lost_clients_and_sigterm_restore_the_text() {
    for how in ["halted", "running", "sigterm", "sigterm running"] {
        let looping = Looping::start();
        let (mut server, mut client) = looping.server();
        let planted = [looping.tick, looping.main];
        let bytes = || planted.map(|at| text(looping.pid(), at));
        let original = bytes();
        client.plant(looping.tick);
        assert!(client.go().contains("swbreak:;"));
        if how.ends_with("running") {
            client.lift(looping.tick);
            // An address that neither thread reaches.
            client.plant(looping.main);
            client.send(b"vCont;c");
        }
        if how.starts_with("sigterm") {
            server.signal(15);
            server.wait();
        }
        drop(client);
        server.wait();
        assert_eq!(bytes(), original, "{how}");
        assert!(looping.untraced(), "{how}");
        looping.finish();
    }
}

#[test]
fn an_interrupt_stops_all_threads_and_the_key_does_not_end_the_stub() {
    let looping = Looping::start();
    let (server, mut client) = looping.server();
    for _ in 0..50 {
        client.send(b"vCont;c");
        client.write(b"\x03");
        let stop = client.text();
        assert!(stop.starts_with("T02"), "{stop}");
        for tid in client.threads() {
            let status =
                std::fs::read_to_string(format!("/proc/{}/task/{tid}/status", looping.pid()));
            assert!(status.unwrap().contains("State:\tt"), "thread {tid} runs");
        }
    }
    // The terminal's interrupt key reaches our process group, too.
    server.signal(2);
    assert!(client.ask("?").starts_with("T02"));
    assert_eq!(client.ask("D"), "OK");
    looping.finish();
}

#[test]
fn many_rounds_of_attaching() {
    let looping = Looping::start();
    for _ in 0..30 {
        let (mut server, mut client) = looping.server();
        assert_eq!(client.threads().len(), 2);
        assert_eq!(client.ask("D"), "OK");
        server.wait();
    }
    looping.finish();
}

/// If the stub missed a thread, the breakpoint's SIGTRAP would kill the program.
#[test]
fn attaching_finds_every_thread() {
    let looping = Looping::run("relay");
    for round in 0..target::many(40) {
        let (mut server, mut client) = looping.server();
        client.plant(looping.tick);
        for _ in 0..5 {
            let stop = client.go();
            assert!(stop.contains("swbreak:;"), "{round}: {stop}");
        }
        assert_eq!(client.ask("D"), "OK");
        server.wait();
    }
    looping.finish();
}

#[test]
fn a_stopped_program_stays_stopped() {
    let looping = Looping::start();
    super::server::send_signal(looping.pid(), 19);
    let state = |letter: char| {
        let status = std::fs::read_to_string(format!("/proc/{}/status", looping.pid())).unwrap();
        status.contains(&format!("State:\t{letter}"))
    };
    eventually("stopped", || state('T'));
    let (mut server, mut client) = looping.server();
    client.send(b"vCont;c");
    assert!(client.silent(100));
    super::server::send_signal(looping.pid(), 18);
    // The stub reports SIGCONT itself, and the client lets it pass.
    let stop = client.text();
    assert!(stop.starts_with("T13"), "{stop}");
    client.send(b"vCont;C13:-1;c");
    assert!(client.silent(50));
    client.write(b"\x03");
    assert!(client.text().starts_with("T02"));
    assert_eq!(client.ask("D"), "OK");
    server.wait();
    looping.finish();
}

#[test]
fn the_next_client_finds_the_program_halted() {
    let looping = Looping::start();
    let server = Server::start(&["--attach", ":0", &looping.pid().to_string()]);
    let mut first = Client::connect(server.port);
    first.send(b"vCont;c");
    drop(first);
    let mut second = Client::connect(server.port);
    assert_eq!(stopped(&second.ask("?")).0, looping.pid());
    assert_eq!(second.threads().len(), 2);
    assert_eq!(second.ask("D"), "OK");
    looping.finish();
}
