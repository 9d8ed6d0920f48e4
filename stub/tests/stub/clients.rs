//! Several clients of one server: one controls the program, the others observe and change nothing
//! that the controlling client sees.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use super::attaching::{Looping, tasks};
use super::client::{Client, field, stopped, tid, unescape};
use super::gdb::{assert_order, gdb};
use super::programs::{address, build};
use super::server::{Server, eventually};
use super::target::{self, PC, SP};
use super::tracepoints::{define, frames, hits, status};

/// Starts a server that outlives its first client.
fn serve(program: &std::path::Path, arguments: &[&str]) -> Server {
    // No budget: every hit counts.
    let mut all = vec!["--budget", "none", ":0", program.to_str().unwrap()];
    all.extend(arguments);
    Server::start(&all)
}

/// Makes an observer record every hit at an address, with the thread.
fn trace(client: &mut Client, at: u64) {
    assert_eq!(client.ask("QUnspoolThreads:1"), "OK");
    assert_eq!(client.ask("QTinit"), "OK");
    assert_eq!(client.ask("QTDV:5:0:0:74726163655f746872656164"), "OK");
    assert_eq!(client.ask("QUnspoolTrace:1"), "OK");
    define(client, 1, at, &["X4,2e000527"]);
    assert_eq!(client.ask("QTStart"), "OK");
}

#[test]
fn an_observer_traces_invisibly_to_the_controller() {
    let program = build("hits", &["-no-pie"]);
    let (hit, end) = (address(&program, "hit"), address(&program, "the_end"));
    let each = target::many(1500);
    let all = u64::from(8 * each);
    let mut server = serve(&program, &["8", &each.to_string()]);
    let mut control = Client::connect(server.port);
    let mut observer = Client::observe(server.port);
    assert_eq!(observer.told("UnspoolControl"), "taken");
    let (pid, _) = stopped(&observer.ask("?"));
    assert_eq!(stopped(&control.ask("?")).0, pid);
    trace(&mut observer, hit);
    // The controller does not see this tracepoint, and may define its own at the same address.
    assert_eq!(status(&mut control, "tframes"), 0);
    assert_eq!(control.ask("qTfP"), "l");
    define(&mut control, 1, hit, &[]);
    assert_eq!(control.ask("QTBuffer:size:1000000"), "OK");
    assert_eq!(control.ask("QTStart"), "OK");
    control.plant(end);
    let stop = control.go();
    assert!(stop.contains("swbreak:;"), "{stop}");
    assert_eq!(control.register(PC), end);
    assert_eq!(hits(&mut control, 1, hit), all);
    assert!(control.notifications.is_empty());
    eventually("all frames", || {
        observer.ask("qTStatus");
        frames(&observer).len() as u64 == all
    });
    // Tracepoints of one client do not affect the other's.
    assert_eq!(control.ask("QTinit"), "OK");
    assert!(observer.ask("qTStatus").starts_with("T1;"));
    assert_eq!(hits(&mut observer, 1, hit), all);
    assert!(control.go().starts_with("W00"));
    assert_eq!(observer.told("UnspoolEnd"), format!("W00;process:{pid:x}"));
    drop((control, observer));
    assert!(server.wait().success());
    assert_eq!(server.output(), format!("total {all}\n"));
}

#[test]
fn an_observer_reads_running_threads() {
    let program = build("loop", &["-no-pie"]);
    let server = serve(&program, &[]);
    let mut control = Client::connect(server.port);
    control.send(b"vCont;c");
    let mut observer = Client::observe(server.port);
    let (pid, _) = stopped(&observer.ask("?"));
    eventually("threads", || observer.threads().len() > 1);
    for id in observer.threads() {
        assert_eq!(observer.ask(&format!("Hgp{pid:x}.{id:x}")), "OK");
        let (pc, sp) = (observer.register(PC), observer.register(SP));
        assert!(pc > 0x1000 && sp > 0x1000, "{pc:x} {sp:x}");
        assert!(observer.ask("g").len() > 200);
        let stacks = stacks(&mut observer, 64, &[id]);
        assert_eq!((stacks.len(), stacks[0].0), (1, id));
        assert!(stacks[0].2.len() == 64, "{}", stacks[0].2.len());
        let now = &stacks[0].1;
        let sp = target::register(now, SP);
        assert!(sp > 0x1000);
        assert_eq!(observer.ask(&format!("m{sp:x},8")).len(), 16);
    }
    // A thread that is gone has no registers, but the reply contains the others.
    let all = stacks(&mut observer, 16, &[1, pid]);
    assert_eq!(all.len(), 2);
    assert!(all[0].1.is_empty() && !all[1].1.is_empty());
    // None of this was a stop.
    assert!(control.silent(50));
    for packet in [
        "vCont;c",
        "Z0,401000,4",
        "M401000,1:00",
        "P0=00",
        "k",
        "QNonStop:1",
        "vKill;1",
        "X401000,0:",
    ] {
        let answer = observer.ask(packet);
        assert!(
            answer.starts_with("E.an observer cannot"),
            "{packet}: {answer}"
        );
    }
    assert_eq!(observer.ask("vNonsense"), "");
    observer.write(b"\x03");
    assert!(control.silent(50));
    control.write(b"\x03");
    assert!(control.text().starts_with("T02"));
    control.send(b"k");
    assert_eq!(observer.told("UnspoolEnd"), format!("X09;process:{pid:x}"));
}

/// Reads `qUnspoolStacks`: thread, registers, stack.
fn stacks(client: &mut Client, length: usize, tids: &[u32]) -> Vec<(u32, Vec<u8>, Vec<u8>)> {
    let list: Vec<String> = tids.iter().map(|tid| format!("{tid:x}")).collect();
    client.send(format!("qUnspoolStacks:{length:x};{}", list.join(";")).as_bytes());
    let reply = client.receive();
    assert_eq!(reply[0], b'b', "{}", String::from_utf8_lossy(&reply));
    let bytes = unescape(&reply[1..]);
    let mut rest = &bytes[..];
    let mut all = Vec::new();
    while !rest.is_empty() {
        let word = |at: usize| u32::from_le_bytes(*rest[at..].first_chunk().unwrap());
        let (tid, registers, stack) = (word(0), word(4) as usize, word(8) as usize);
        let (own, after) = rest[12..].split_at(registers + stack);
        all.push((tid, own[..registers].to_vec(), own[registers..].to_vec()));
        rest = after;
    }
    all
}

#[test]
fn a_second_controller_is_refused_and_learns_the_first() {
    let program = build("hits", &["-no-pie"]);
    let mut server = serve(&program, &["1", "1"]);
    let mut control = Client::connect(server.port);
    let text = gdb(&program, &format!("target remote :{}\n", server.port));
    assert_order(
        &text,
        &[
            "the program is controlled by the client at 127.0.0.1, port",
            "or only observe the program",
        ],
    );
    let mut second = Client::raw(server.port);
    assert_eq!(second.ask("qSupported:multiprocess+"), "");
    let answer = second.ask("?");
    assert!(
        answer.contains("controlled by the client at 127.0.0.1"),
        "{answer}"
    );
    assert_eq!(second.byte(), None);
    // The first client is not affected.
    assert!(control.go().starts_with("W00"));
    drop(control);
    assert!(server.wait().success());
}

#[test]
fn an_observed_program_runs_on_when_its_controller_detaches() {
    let program = build("hits", &["-no-pie"]);
    let (hit, end) = (address(&program, "hit"), address(&program, "the_end"));
    let each = target::many(2000);
    let all = 8 * each as usize;
    let mut server = serve(&program, &["8", &each.to_string()]);
    let mut observer = Client::observe(server.port);
    assert_eq!(observer.told("UnspoolControl"), "halted");
    trace(&mut observer, hit);
    let mut control = Client::connect(server.port);
    assert_eq!(observer.told("UnspoolControl"), "taken");
    assert!(
        observer
            .ask("QUnspoolGo")
            .starts_with("E.the client at 127.0.0.1")
    );
    control.plant(end);
    // Detach in the middle of a run: the controller's traps go, the observer's stay.
    control.plant(hit);
    for _ in 0..3 {
        let stop = control.go();
        assert!(stop.contains("swbreak:;"), "{stop}");
        assert_eq!(control.register(PC), hit);
    }
    assert_eq!(control.ask("D"), "OK");
    assert_eq!(observer.told("UnspoolControl"), "free");
    assert!(observer.told("UnspoolEnd").starts_with("W00"));
    assert_eq!(frames(&observer).len(), all);
    drop((control, observer));
    assert!(server.wait().success());
    assert_eq!(server.output(), format!("total {all}\n"));
}

#[test]
fn the_program_is_untraced_after_the_last_observer() {
    let program = build("loop", &["-no-pie"]);
    let mut server = serve(&program, &[]);
    let mut observer = Client::observe(server.port);
    let (pid, _) = stopped(&observer.ask("?"));
    assert_eq!(observer.ask("QUnspoolGo"), "OK");
    eventually("threads", || observer.threads().len() > 1);
    // An observer that disconnects changes nothing.
    drop(observer);
    let mut observer = Client::observe(server.port);
    assert_eq!(observer.told("UnspoolControl"), "free");
    let second = Client::observe(server.port);
    assert_eq!(observer.ask("D"), "OK");
    drop(second);
    let mut observer = Client::observe(server.port);
    assert_eq!(observer.ask("D"), "OK");
    eventually("let go", || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        status.contains("TracerPid:\t0")
    });
    // The stub, which started the program, keeps the terminal until the program ends.
    super::server::send_signal(pid, 9);
    assert!(server.wait().success());
}

#[test]
fn gdb_attaches_and_detaches_beside_an_observer() {
    let program = build("hits", &["-no-pie"]);
    let hit = address(&program, "hit");
    let mut server = serve(&program, &["4", "3000"]);
    let mut observer = Client::observe(server.port);
    trace(&mut observer, hit);
    let text = gdb(
        &program,
        &format!(
            "target remote :{}\nbreak work\ncontinue\nnext\nstepi\nstepi\nbt 1\ninfo threads\ncontinue\ndelete\n\
             tbreak hit\ncontinue\nstepi\nstepi\nfinish\ndetach\n",
            server.port
        ),
    );
    assert_order(
        &text,
        &[
            "hit Breakpoint 1, work",
            "#0",
            "hit Breakpoint 1, work",
            "hit Temporary breakpoint 2, hit",
            "Value returned",
            "detached",
        ],
    );
    assert!(observer.told("UnspoolEnd").starts_with("W00"));
    assert_eq!(frames(&observer).len(), 12_000);
    drop(observer);
    assert!(server.wait().success());
    assert_eq!(server.output(), "total 12000\n");
}

#[test]
fn a_lost_controller_is_replaced_by_another() {
    let program = build("hits", &["-no-pie"]);
    let (hit, end) = (address(&program, "hit"), address(&program, "the_end"));
    let mut server = serve(&program, &["4", "1000"]);
    let mut observer = Client::observe(server.port);
    trace(&mut observer, hit);
    let mut control = Client::connect(server.port);
    assert_eq!(observer.told("UnspoolControl"), "halted");
    assert_eq!(observer.told("UnspoolControl"), "taken");
    control.send(b"vCont;c");
    drop(control);
    assert_eq!(observer.told("UnspoolControl"), "halted");
    let mut control = Client::connect(server.port);
    control.plant(end);
    assert!(control.go().contains("swbreak:;"));
    assert_eq!(control.ask("D"), "OK");
    assert!(observer.told("UnspoolEnd").starts_with("W00"));
    assert_eq!(frames(&observer).len(), 4000);
    drop((control, observer));
    assert!(server.wait().success());
    assert_eq!(server.output(), "total 4000\n");
}

/// Two clients that do not read: one drains its trace, and one requests a lot of memory.
#[test]
fn clients_that_do_not_read_do_not_block_others() {
    let program = build("hits", &["-no-pie"]);
    let (hit, end) = (address(&program, "hit"), address(&program, "the_end"));
    let server = serve(&program, &["4", "20000"]);
    let mut deaf = Client::observe(server.port);
    assert_eq!(deaf.ask("QTinit"), "OK");
    assert_eq!(deaf.ask("QTBuffer:size:10000"), "OK");
    assert_eq!(deaf.ask("QUnspoolTrace:1"), "OK");
    define(&mut deaf, 1, hit, &[&format!("R1M{SP:x},0,400")]);
    assert_eq!(deaf.ask("QTStart"), "OK");
    let mut greedy = Client::observe(server.port);
    for _ in 0..2000 {
        greedy.send(format!("m{hit:x},1000").as_bytes());
    }
    let mut control = Client::connect(server.port);
    control.plant(end);
    let since = Instant::now();
    assert!(control.go().contains("swbreak:;"));
    assert!(control.ask(&format!("m{hit:x},40")).len() > 4);
    assert!(since.elapsed() < Duration::from_secs(25));
    // Both receive the pending output once they read.
    for _ in 0..2000 {
        assert_eq!(greedy.receive().len(), 0x2000);
    }
    let dropped = deaf.told("UnspoolDropped");
    assert!(dropped.starts_with("1,"), "{dropped}");
    assert_eq!(control.ask("D"), "OK");
}

/// Makes threads that reach `hit` wait for the observer, with `trace_stop`.
fn wait_at(observer: &mut Client, hit: u64) {
    assert_eq!(observer.ask("QTinit"), "OK");
    assert_eq!(observer.ask("QTDV:5:0:0:74726163655f73746f70"), "OK");
    assert_eq!(observer.ask("QUnspoolTrace:1"), "OK");
    define(observer, 1, hit, &["X7,22012d00052927"]);
    assert_eq!(observer.ask("QTStart"), "OK");
}

/// A thread that sets `trace_stop` waits for its observer while all others run. The budget does not
/// prevent the wait.
#[test]
fn a_hold_for_an_observer_times_out() {
    let program = build("hits", &["-no-pie"]);
    let (hit, end) = (address(&program, "hit"), address(&program, "the_end"));
    let path = program.to_str().unwrap();
    let mut server = Server::start(&["--budget", "0.0001%", ":0", path, "2", "3"]);
    let mut observer = Client::observe(server.port);
    wait_at(&mut observer, hit);
    let mut control = Client::connect(server.port);
    control.plant(end);
    control.send(b"vCont;c");
    let since = Instant::now();
    let mut seen = Vec::new();
    while seen.len() < 6 {
        for one in observer.told("UnspoolHeld").split(';') {
            let (thread, at) = one.split_once(',').unwrap();
            assert_eq!(u64::from_str_radix(at, 16).unwrap(), hit);
            let list = [u32::from_str_radix(thread, 16).unwrap()];
            let registers = &stacks(&mut observer, 0, &list)[0].1;
            assert_eq!(target::register(registers, PC), hit);
            seen.push(thread.to_owned());
            // Do not release the last thread.
            if seen.len() < 6 {
                assert_eq!(observer.ask(&format!("QUnspoolRelease:{thread}")), "OK");
            }
        }
    }
    assert!(control.text().contains("swbreak:;"));
    assert!(since.elapsed() > Duration::from_millis(200));
    assert_eq!(hits(&mut observer, 1, hit), 6);
    assert_eq!(control.ask("D"), "OK");
    assert!(observer.told("UnspoolEnd").starts_with("W00"));
    drop((control, observer));
    assert!(server.wait().success());
    assert_eq!(server.output(), "total 6\n");
}

/// Each packet of an observer extends the hold of a thread.
#[test]
fn packets_of_an_observer_extend_a_hold() {
    let program = build("hits", &["-no-pie"]);
    let hit = address(&program, "hit");
    let path = program.to_str().unwrap();
    let mut server = Server::start(&[":0", path, "1", "1"]);
    let mut observer = Client::observe(server.port);
    wait_at(&mut observer, hit);
    assert_eq!(observer.ask("QUnspoolGo"), "OK");
    let held = observer.told("UnspoolHeld");
    let (thread, _) = held.split_once(',').unwrap();
    let (since, mut said) = (Instant::now(), Instant::now());
    // The observer is silent for less than five seconds each time, unless this machine is
    // overloaded.
    while since.elapsed() < Duration::from_secs(7) {
        std::thread::sleep(Duration::from_millis(300));
        assert!(observer.ask("qTStatus").starts_with("T1;"));
        if said.elapsed() > Duration::from_secs(4) {
            return;
        }
        said = Instant::now();
    }
    // An error would mean that the thread has continued by itself.
    assert_eq!(observer.ask(&format!("QUnspoolRelease:{thread}")), "OK");
    assert!(observer.told("UnspoolEnd").starts_with("W00"));
    drop(observer);
    assert!(server.wait().success());
    assert_eq!(server.output(), "total 1\n");
}

/// When the process executes a file, the observer can set up its trace again before the new program
/// runs.
#[test]
fn an_exec_is_reported_to_an_observer() {
    let program = build("exec", &["-no-pie"]);
    let server = serve(&program, &[]);
    let mut observer = Client::observe(server.port);
    let main = address(&program, "main");
    trace(&mut observer, main);
    assert_eq!(observer.ask("QUnspoolGo"), "OK");
    let path = observer.told("UnspoolExec");
    let bytes: Vec<u8> = super::client::unhex(&path);
    assert!(bytes.starts_with(b"/"), "{path}");
    let held = observer.told("UnspoolHeld");
    let (thread, at) = held.split_once(',').unwrap();
    assert_eq!(at, "0");
    assert!(observer.ask("qTStatus").starts_with("T0;"));
    assert_eq!(observer.ask(&format!("QUnspoolRelease:{thread}")), "OK");
    let end = observer.told("UnspoolEnd");
    assert!(end.starts_with('W'), "{end}");
}

#[test]
fn eight_clients_can_connect() {
    let program = build("loop", &["-no-pie"]);
    let server = serve(&program, &[]);
    let mut clients: Vec<Client> = (0..8).map(|_| Client::observe(server.port)).collect();
    let mut ninth = std::net::TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    ninth
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let mut nothing = [0; 1];
    assert!(matches!(ninth.read(&mut nothing), Ok(0) | Err(_)));
    // The stub drops an endless packet of one client, without effect on others.
    clients[0].write(b"$");
    for _ in 0..64 {
        clients[0].write(&[b'a'; 4096]);
    }
    assert_eq!(
        tid(&clients[7].ask("qC")[2..]).0,
        stopped(&clients[7].ask("?")).0
    );
    clients[0].write(b"#00");
    assert!(field(&clients[0].ask("?"), "thread").is_some());
    // A client that has left makes room as soon as the stub has noticed.
    drop(clients.pop());
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let mut again = std::net::TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        again
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let asked = again.write_all(b"$?#3f");
        if asked.is_ok() && matches!(again.read(&mut nothing), Ok(1)) {
            assert_eq!(nothing, *b"+");
            break;
        }
        assert!(Instant::now() < deadline, "no place was free");
    }
}

/// `qUnspoolTimes` returns the same times for stopped threads as `/proc`.
#[test]
fn processor_times_of_threads() {
    let looping = Looping::start();
    let (mut server, mut client) = looping.server();
    let tids = tasks(looping.pid());
    let says = |tid: &u32| {
        let path = format!("/proc/{}/task/{tid}/schedstat", looping.pid());
        let text = std::fs::read_to_string(path).unwrap();
        let numbers: Vec<u64> = text
            .split_whitespace()
            .map(|n| n.parse().unwrap())
            .collect();
        format!(";{tid:x},{:x},{:x}", numbers[0], numbers[1])
    };
    for (after, tids) in [(0, &tids[..]), (tids[0], &tids[1..]), (tids[1], &[])] {
        let answer = client.ask(&format!("qUnspoolTimes:{after:x}"));
        let (now, times) = answer.split_at(answer.find(';').unwrap_or(answer.len()));
        assert!(now.starts_with('l'), "{answer}");
        assert_eq!(times, tids.iter().map(says).collect::<String>());
    }
    for wrong in ["", "x", "-1", "100000000"] {
        assert_eq!(client.ask(&format!("qUnspoolTimes:{wrong}")), "E16");
    }
    assert_eq!(client.ask("qUnspoolMemoryUsers"), "l");
    assert_eq!(client.ask("D"), "OK");
    server.wait();
    looping.finish();
}
