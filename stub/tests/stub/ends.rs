//! Which client ends what: the table of docs/reference/protocol.md, "Ends", row by row.

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

/// A program that runs until a file appears, started by a server: the file is never made.
fn start_looping(options: &[&str]) -> Server {
    let program = build("loop", &["-no-pie"]);
    let mut all = options.to_vec();
    all.extend([":0", program.to_str().unwrap(), "/no/such/file"]);
    Server::start(&all)
}

/// Looks at the program, which runs meanwhile; leaves in one of two ways.
fn look(server: &Server, pid: u32, detach: bool) {
    let mut observer = Client::observe(server.port);
    assert_eq!(stopped(&observer.ask("?")).0, pid);
    // Once it has been let run, each look finds it running.
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
fn a_started_program_can_be_looked_at_any_number_of_times() {
    let mut server = start_looping(&[]);
    let pid = stopped(&Client::observe(server.port).ask("?")).0;
    for round in 0..4 {
        look(&server, pid, round % 2 == 0);
    }
    // A debugger finds it halted, as the program that the stub has started; what it leaves, others
    // find.
    let mut control = Client::connect(server.port);
    assert_eq!(stopped(&control.ask("?")).0, pid);
    assert_eq!(control.ask("qAttached"), "0");
    assert!(!is_untraced(pid));
    assert_eq!(control.ask("D"), "OK");
    drop(control);
    eventually("the program is untraced", || is_untraced(pid));
    look(&server, pid, true);
    // The program's end is the server's.
    send_signal(pid, 9);
    assert!(server.wait().success());
}

#[test]
fn an_attached_program_can_be_looked_at_any_number_of_times() {
    let looping = Looping::start();
    let mut server = Server::start(&["--attach", ":0", &looping.pid().to_string()]);
    for round in 0..4 {
        look(&server, looping.pid(), round % 2 == 0);
    }
    // As with gdbserver, what a debugger does ends the server.
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
    // Never resumed, it does not outlive the server.
    server.signal(15);
    assert!(server.wait().success());
    assert!(is_gone(pid));
}

fn is_gone(pid: u32) -> bool {
    let status = status(pid);
    status.is_empty() || status.contains("State:\tZ")
}

#[test]
fn what_a_debugger_leaves_to_observers_ends_with_the_last_of_them() {
    // Started: the server goes on.
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
    // Attached: it ends.
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
fn an_untraced_program_that_another_traces_is_refused_in_words() {
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
    // The key is meant for a program that the server has started.
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
    // It waits for the program's end, and another client does not wait for it in vain.
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
fn an_observer_names_a_process_to_a_server_for_any() {
    let looping = Looping::start();
    let pid = looping.pid();
    let server = Server::start(&["--multi", ":0"]);
    for go in [true, true, false] {
        let mut observer = Client::observe(server.port);
        assert_eq!(observer.ask("?"), "W00");
        let reply = observer.ask(&format!("vAttach;{pid:x}"));
        assert_eq!(stopped(&reply).0, pid);
        assert_eq!(observer.threads().len(), 2);
        // The same is known to others, another is not.
        let mut second = Client::observe(server.port);
        assert_eq!(stopped(&second.ask(&format!("vAttach;{pid:x}"))).0, pid);
        let refused = second.ask("vAttach;1");
        let words = format!("E.this stub serves process {pid}");
        assert!(refused.starts_with(&words), "{refused}");
        drop(second);
        if go {
            assert_eq!(observer.ask("QUnspoolGo"), "OK");
        }
        // Not started by it.
        assert!(
            observer
                .ask("QUnspoolSignal:9")
                .starts_with("E.an observer")
        );
        drop(observer);
        // Even if it was never let go.
        eventually("the program is untraced", || is_untraced(pid));
    }
    let mut observer = Client::observe(server.port);
    let refused = observer.ask("vAttach;7fffffff");
    let words = "E.cannot attach to process 2147483647: no such process";
    assert!(refused.starts_with(words), "{refused}");
    // Whoever controls the server decides what it serves.
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
    // As an init script starts it.
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
    // It outlives who started it once it runs.
    let pid = stopped(&observer.ask(&run)).0;
    assert_eq!(observer.ask("QUnspoolGo"), "OK");
    assert_eq!(observer.ask("D"), "OK");
    eventually("the program is untraced", || is_untraced(pid));
    send_signal(pid, 9);
    eventually("the program is gone", || status(pid).is_empty());
    // And not if it never did.
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
    // Clock ticks, of which a second has 100.
    assert!(used() - before <= 3, "{} {}", before, used());
    send_signal(pid, 9);
    assert!(server.wait().success());
}
