//! `QUnspoolFatal`: threads can be read before a signal ends the process.

use super::client::{Client, stopped};
use super::programs::build;
use super::server::{Server, eventually, send_signal};

/// Waits until the program sleeps in `pause`.
fn falls_asleep(pid: u32) {
    eventually("the program sleeps", || {
        let text = std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let handles = status.lines().any(|line| {
            let mask = line.strip_prefix("SigCgt:");
            mask.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).unwrap() != 0)
        });
        handles && !text.starts_with("running") && !text.is_empty()
    });
}

/// The controlling client gets a stop before a fatal signal, although all signals are to pass. It
/// gets none for a handled signal.
#[test]
fn the_client_in_control_gets_a_stop() {
    let program = build("asleep", &["-no-pie"]);
    for (signal, fatal) in [(libc::SIGUSR1, false), (libc::SIGTERM, true)] {
        let (mut server, mut client) = Server::run(&program, &[]);
        let (pid, _) = stopped(&client.ask("?"));
        client.pass_all_signals();
        assert_eq!(client.ask("QUnspoolFatal:1"), "OK");
        client.send(b"vCont;c");
        falls_asleep(pid);
        send_signal(pid, signal);
        if !fatal {
            assert!(client.text().starts_with("W00"));
            drop(client);
            server.wait();
            assert_eq!(server.output(), "woken\n");
            continue;
        }
        let stop = client.text();
        assert!(stop.starts_with("T0f"), "{stop}");
        let end = client.ask(&format!("vCont;C0f:{pid:x};c"));
        assert!(end.starts_with("X0f"), "{end}");
    }
}

/// The thread waits for an observer, and dies when the observer releases it.
#[test]
fn a_thread_waits_for_an_observer() {
    let program = build("asleep", &["-no-pie"]);
    let server = Server::start(&[":0", program.to_str().unwrap()]);
    let mut observer = Client::observe(server.port);
    let (pid, _) = stopped(&observer.ask("?"));
    assert_eq!(observer.ask("QUnspoolFatal:1"), "OK");
    assert_eq!(observer.ask("QUnspoolGo"), "OK");
    falls_asleep(pid);
    send_signal(pid, libc::SIGUSR2);
    assert_eq!(observer.told("UnspoolFatal"), format!("{pid:x},1f"));
    // The thread exists and can be read.
    let threads = observer.threads();
    assert_eq!(threads, [pid]);
    assert!(observer.ask(&format!("qUnspoolStacks:0;{pid:x}")).len() > 12);
    assert_eq!(observer.ask(&format!("QUnspoolRelease:{pid:x}")), "OK");
    assert!(observer.told("UnspoolEnd").starts_with("X1f"));
}

/// Without the request, no thread waits.
#[test]
fn without_a_request_no_thread_waits() {
    let program = build("asleep", &["-no-pie"]);
    let (_server, mut client) = Server::run(&program, &[]);
    let (pid, _) = stopped(&client.ask("?"));
    client.pass_all_signals();
    client.send(b"vCont;c");
    falls_asleep(pid);
    send_signal(pid, libc::SIGTERM);
    let end = client.text();
    assert!(end.starts_with("X0f"), "{end}");
}
