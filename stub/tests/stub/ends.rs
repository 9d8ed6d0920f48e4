//! Which client ends what. Tests each row of the table in docs/reference/protocol.md, "Ends".

use std::io::ErrorKind;
use std::net::TcpStream;
use std::time::Duration;

use super::attaching::Looping;
use super::client::{Client, stopped};
use super::programs::build;
use super::server::{Server, eventually, send_signal};

fn status(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default()
}

fn is_untraced(pid: u32) -> bool {
    status(pid).contains("TracerPid:\t0\n")
}

/// A program, started by a server, that runs until a file appears which never does.
fn start_looping(options: &[&str]) -> Server {
    let program = build("loop", &["-no-pie"]);
    let mut all = options.to_vec();
    all.extend([":0", program.to_str().unwrap(), "/no/such/file"]);
    Server::start(&all)
}

/// Observes the running program for a moment. Leaves by detaching or by disconnecting.
fn look(server: &Server, pid: u32, detach: bool) {
    let mut observer = Client::observe(server.port);
    assert_eq!(stopped(&observer.ask("?")).0, pid);
    // After the first QUnspoolGo, each observer finds the program running.
    assert_eq!(observer.ask("QUnspoolGo"), "OK");
    eventually("threads", || observer.threads().len() == 2);
    assert!(!is_untraced(pid));
    if detach {
        assert_eq!(observer.ask("D"), "OK");
    }
    drop(observer);
    eventually("the program is untraced", || is_untraced(pid));
}

#[test]
fn a_started_program_can_be_observed_repeatedly() {
    let mut server = start_looping(&[]);
    let pid = stopped(&Client::observe(server.port).ask("?")).0;
    for round in 0..4 {
        look(&server, pid, round % 2 == 0);
    }
    // A debugger finds it halted, and as a program that the stub has started. After the debugger's
    // detach, observers still find it.
    let mut control = Client::connect(server.port);
    assert_eq!(stopped(&control.ask("?")).0, pid);
    assert_eq!(control.ask("qAttached"), "0");
    assert!(!is_untraced(pid));
    assert_eq!(control.ask("D"), "OK");
    drop(control);
    eventually("the program is untraced", || is_untraced(pid));
    look(&server, pid, true);
    // The server ends with the program.
    send_signal(pid, 9);
    assert!(server.wait().success());
}

#[test]
fn an_attached_program_can_be_observed_repeatedly() {
    let looping = Looping::start();
    let mut server = Server::start(&["--attach", ":0", &looping.pid().to_string()]);
    for round in 0..4 {
        look(&server, looping.pid(), round % 2 == 0);
    }
    // As with gdbserver, a debugger's detach ends the server.
    let mut control = Client::connect(server.port);
    assert_eq!(stopped(&control.ask("?")).0, looping.pid());
    assert_eq!(control.ask("qAttached"), "1");
    assert_eq!(control.ask("D"), "OK");
    assert!(server.wait().success());
    assert!(looping.untraced());
    looping.finish();
}

#[test]
fn the_end_of_an_attached_program_ends_the_server() {
    let looping = Looping::start();
    let mut server = Server::start(&["--attach", ":0", &looping.pid().to_string()]);
    look(&server, looping.pid(), true);
    looping.finish();
    assert!(server.wait().success());
}

#[test]
fn a_halted_program_stays_halted() {
    let mut server = start_looping(&[]);
    let mut pid = 0;
    for detach in [true, false, true] {
        let mut observer = Client::observe(server.port);
        assert_eq!(observer.told("UnspoolControl"), "halted");
        pid = stopped(&observer.ask("?")).0;
        if detach {
            assert_eq!(observer.ask("D"), "OK");
        }
        drop(observer);
        assert!(!is_untraced(pid));
        assert!(status(pid).contains("State:\tt"), "{}", status(pid));
    }
    // The program was never resumed, so it does not outlive the server.
    server.signal(15);
    assert!(server.wait().success());
    assert!(is_gone(pid));
}

fn is_gone(pid: u32) -> bool {
    let status = status(pid);
    status.is_empty() || status.contains("State:\tZ")
}

#[test]
fn after_a_detach_tracing_ends_with_the_last_observer() {
    // For a started program, the server continues.
    let mut server = start_looping(&[]);
    let mut observer = Client::observe(server.port);
    let pid = stopped(&observer.ask("?")).0;
    let mut control = Client::connect(server.port);
    assert_eq!(control.ask("D"), "OK");
    drop(control);
    assert_eq!(observer.told("UnspoolControl"), "halted");
    assert_eq!(observer.told("UnspoolControl"), "taken");
    assert_eq!(observer.told("UnspoolControl"), "free");
    assert!(!is_untraced(pid));
    drop(observer);
    eventually("the program is untraced", || is_untraced(pid));
    look(&server, pid, true);
    send_signal(pid, 9);
    assert!(server.wait().success());
    // For an attached program, the server ends.
    let looping = Looping::start();
    let mut server = Server::start(&["--attach", ":0", &looping.pid().to_string()]);
    let mut observer = Client::observe(server.port);
    let mut control = Client::connect(server.port);
    assert_eq!(control.ask("D"), "OK");
    drop(control);
    assert_eq!(observer.ask("D"), "OK");
    assert!(server.wait().success());
    assert!(looping.untraced());
    looping.finish();
}

#[test]
fn a_client_is_refused_while_another_tracer_has_the_program() {
    let looping = Looping::start();
    let pid = looping.pid();
    let server = Server::start(&["--attach", ":0", &pid.to_string()]);
    look(&server, pid, true);
    let mut other = Server::start(&["--attach", ":0", &pid.to_string()]);
    for mut client in [Client::raw(server.port), Client::raw(server.port)] {
        assert_eq!(client.ask("qSupported:UnspoolObserve+"), "");
        client.write(b"+");
        let answer = client.ask("?");
        let words = format!(
            "E.cannot attach to process {pid}: process {} is tracing it already",
            other.tracer()
        );
        assert!(answer.starts_with(&words), "{answer}");
    }
    other.signal(15);
    other.wait();
    look(&server, pid, true);
    looping.finish();
}

#[test]
fn the_interrupt_key_ends_a_server_whose_program_runs_elsewhere() {
    let looping = Looping::start();
    let mut server = Server::start(&["--attach", ":0", &looping.pid().to_string()]);
    look(&server, looping.pid(), true);
    server.signal(2);
    assert!(server.wait().success());
    looping.finish();
    // For a program that the server has started, the key is meant for the program.
    let mut server = start_looping(&[]);
    let pid = stopped(&Client::observe(server.port).ask("?")).0;
    look(&server, pid, true);
    server.signal(2);
    look(&server, pid, true);
    send_signal(pid, 9);
    assert!(server.wait().success());
}

#[test]
fn once_means_one_client() {
    let mut server = start_looping(&["--once"]);
    let mut observer = Client::observe(server.port);
    let pid = stopped(&observer.ask("?")).0;
    assert_eq!(observer.ask("QUnspoolGo"), "OK");
    assert_eq!(observer.ask("D"), "OK");
    eventually("the program is untraced", || is_untraced(pid));
    // The server waits for the program's end, and refuses another client immediately.
    let another = TcpStream::connect(("127.0.0.1", server.port));
    assert_eq!(another.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    assert!(server.child.try_wait().unwrap().is_none());
    send_signal(pid, 9);
    assert!(server.wait().success());
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn an_observer_attaches_with_a_multi_server() {
    let looping = Looping::start();
    let pid = looping.pid();
    let server = Server::start(&["--multi", ":0"]);
    for go in [true, true, false] {
        let mut observer = Client::observe(server.port);
        assert_eq!(observer.ask("?"), "W00");
        let reply = observer.ask(&format!("vAttach;{pid:x}"));
        assert_eq!(stopped(&reply).0, pid);
        assert_eq!(observer.threads().len(), 2);
        // Another observer may attach to the same process, but not to a different one.
        let mut second = Client::observe(server.port);
        assert_eq!(stopped(&second.ask(&format!("vAttach;{pid:x}"))).0, pid);
        let refused = second.ask("vAttach;1");
        let words = format!("E.this stub serves process {pid}");
        assert!(refused.starts_with(&words), "{refused}");
        drop(second);
        if go {
            assert_eq!(observer.ask("QUnspoolGo"), "OK");
        }
        // This observer has not started the program.
        assert!(
            observer
                .ask("QUnspoolSignal:9")
                .starts_with("E.an observer")
        );
        drop(observer);
        // Even if the observer never let it run.
        eventually("the program is untraced", || is_untraced(pid));
    }
    let mut observer = Client::observe(server.port);
    let refused = observer.ask("vAttach;7fffffff");
    let words = "E.cannot attach to process 2147483647: no such process";
    assert!(refused.starts_with(words), "{refused}");
    // The client that controls the server decides what it serves.
    let mut control = Client::connect(server.port);
    assert_eq!(control.ask("!"), "OK");
    let refused = observer.ask(&format!("vAttach;{pid:x}"));
    assert!(
        refused.starts_with("E.the client at 127.0.0.1"),
        "{refused}"
    );
    drop((observer, control));
    looping.finish();
}

#[test]
fn an_observer_starts_a_program_and_ends_it() {
    let program = build("loop", &["-no-pie"]);
    // Like a server that an init script starts.
    let server = Server::start_ignoring_keys(&["--multi", ":0"]);
    let run = format!(
        "vRun;{};{}",
        hex(program.to_str().unwrap()),
        hex("/no/such/file")
    );
    let mut observer = Client::observe(server.port);
    assert!(observer.supported.contains(";QUnspoolSignal+"));
    let refused = observer.ask(&format!("vRun;{}", hex("/no/such/program")));
    assert!(refused.starts_with("E.cannot start"), "{refused}");
    for signal in ["2", "9"] {
        let pid = stopped(&observer.ask(&run)).0;
        assert_eq!(observer.ask("QUnspoolGo"), "OK");
        eventually("threads", || observer.threads().len() == 2);
        assert_eq!(observer.ask(&format!("QUnspoolSignal:{signal}")), "OK");
        let end = format!("X0{signal};process:{pid:x}");
        assert_eq!(observer.told("UnspoolEnd"), end);
    }
    // Once the program runs, it outlives the observer that started it.
    let pid = stopped(&observer.ask(&run)).0;
    assert_eq!(observer.ask("QUnspoolGo"), "OK");
    assert_eq!(observer.ask("D"), "OK");
    eventually("the program is untraced", || is_untraced(pid));
    send_signal(pid, 9);
    eventually("the program is gone", || status(pid).is_empty());
    // It does not if it never ran.
    let mut observer = Client::observe(server.port);
    let pid = stopped(&observer.ask(&run)).0;
    drop(observer);
    eventually("the program is gone", || status(pid).is_empty());
}

#[test]
fn a_server_that_waits_uses_no_processor_time() {
    let mut server = start_looping(&[]);
    let pid = stopped(&Client::observe(server.port).ask("?")).0;
    look(&server, pid, true);
    let used = || -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.tracer())).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    let before = used();
    std::thread::sleep(Duration::from_secs(3));
    // In clock ticks, 100 per second.
    assert!(used() - before <= 3, "{} {}", before, used());
    send_signal(pid, 9);
    assert!(server.wait().success());
}
