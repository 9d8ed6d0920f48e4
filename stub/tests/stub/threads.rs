//! Many threads, short-lived threads, threads without names, and a first thread that ends first.

use std::path::Path;
use std::time::Duration;

use super::client::{field, stopped};
use super::programs::{address, build};
use super::server::Server;
use super::target::{PC, SP, many};

#[test]
fn a_thousand_threads_are_listed_and_released() {
    let program = build("many", &["-no-pie"]);
    let (mut server, mut client) = Server::run(&program, &["1000"]);
    let ready = address(&program, "ready");
    client.plant(ready);
    let (pid, _) = stopped(&client.go());
    let mut listed = client.threads();
    listed.sort_unstable();
    let mut tasks: Vec<u32> = std::fs::read_dir(format!("/proc/{pid}/task"))
        .unwrap()
        .map(|entry| {
            entry
                .unwrap()
                .file_name()
                .to_str()
                .unwrap()
                .parse()
                .unwrap()
        })
        .collect();
    tasks.sort_unstable();
    assert_eq!(listed, tasks);
    let xml = client.transfer("threads", "");
    assert_eq!(xml.matches("<thread id=").count(), 1001);
    for tid in listed.iter().step_by(97) {
        assert_eq!(client.ask(&format!("Hgp{pid:x}.{tid:x}")), "OK");
        assert!(client.register(PC) > 0x1000);
    }
    assert!(client.go().starts_with("W00"));
    drop(client);
    server.wait();
    assert_eq!(server.output(), "all gone\n");
}

/// In non-stop mode the stub reports every hit once while other threads run.
#[test]
fn hits_in_non_stop_mode() {
    const THREADS: usize = 8;
    const ROUNDS: usize = 150;
    let program = build("hits", &["-no-pie"]);
    let hit = address(&program, "hit");
    let counts = [THREADS.to_string(), ROUNDS.to_string()];
    let (mut server, mut client) = Server::run(&program, &[&counts[0], &counts[1]]);
    assert_eq!(client.ask("QNonStop:1"), "OK");
    let first = client.ask("?");
    assert!(first.starts_with("T05"), "{first}");
    assert_eq!(client.ask("vStopped"), "OK");
    client.plant(hit);
    assert_eq!(client.ask("vCont;c"), "OK");
    let mut hits = 0;
    'run: loop {
        let notice = match client.notifications.is_empty() {
            true => client.notification(),
            false => client.notifications.remove(0),
        };
        let mut stop = notice.strip_prefix("Stop:").expect("a stop").to_owned();
        while stop != "OK" {
            if stop.starts_with('W') {
                assert!(stop.starts_with("W00"), "{stop}");
                break 'run;
            }
            assert!(stop.contains("swbreak:;"), "{stop}");
            hits += 1;
            let (pid, tid) = stopped(&stop);
            stop = client.ask("vStopped");
            assert_eq!(client.ask(&format!("vCont;c:p{pid:x}.{tid:x}")), "OK");
        }
    }
    assert_eq!(hits, THREADS * ROUNDS);
    drop(client);
    server.wait();
    assert_eq!(server.output(), format!("total {}\n", THREADS * ROUNDS));
}

/// Threads can be held and released one by one, without stopping the others.
#[test]
fn one_thread_is_held_while_others_run() {
    let program = build("hits", &["-no-pie"]);
    let (mut server, mut client) = Server::run(&program, &["3", "400000000"]);
    assert_eq!(client.ask("QNonStop:1"), "OK");
    client.ask("?");
    assert_eq!(client.ask("vStopped"), "OK");
    assert_eq!(client.ask("vCont;c"), "OK");
    while client.threads().len() < 4 {}
    let threads = client.threads();
    let pid = threads[0];
    for tid in &threads[1..] {
        assert_eq!(client.ask(&format!("vCont;t:p{pid:x}.{tid:x}")), "OK");
        let notice = client.notification();
        assert!(notice.starts_with("Stop:T00"), "{notice}");
        assert_eq!(stopped(&notice["Stop:".len()..]), (pid, *tid));
        assert_eq!(client.ask("vStopped"), "OK");
        // This thread's registers can be read; those of the running first thread cannot.
        assert_eq!(client.ask(&format!("Hgp{pid:x}.{tid:x}")), "OK");
        assert!(client.register(PC) > 0x1000);
        assert_eq!(client.ask(&format!("Hgp{pid:x}.{pid:x}")), "OK");
        assert!(client.ask("p10").starts_with('E'));
        let state = |tid: u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).unwrap();
            stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
        };
        assert_eq!(state(*tid), 't');
        assert_ne!(state(pid), 't');
        assert_eq!(client.ask(&format!("vCont;c:p{pid:x}.{tid:x}")), "OK");
    }
    assert_eq!(client.ask(&format!("vKill;{pid:x}")), "OK");
    drop(client);
    server.wait();
}

/// A thread that creates threads all the time always has an event of its own. That event must not
/// replace the stop that the client requested.
#[test]
fn threads_that_create_threads_can_be_held() {
    let program = build("churn", &["-no-pie"]);
    let (_server, mut client) = Server::run(&program, &["1000000"]);
    assert_eq!(client.ask("QNonStop:1"), "OK");
    let (pid, _) = stopped(&client.ask("?"));
    assert_eq!(client.ask("vStopped"), "OK");
    let all_stand = || {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let mut stats = tasks.filter_map(|task| {
            let stat = task.unwrap().path().join("stat");
            std::fs::read_to_string(stat).ok()
        });
        stats.all(|stat| stat.rsplit_once(") ").unwrap().1.starts_with('t'))
    };
    for round in 0..many(100) {
        assert_eq!(client.ask("vCont;c"), "OK");
        std::thread::sleep(Duration::from_millis(u64::from(round % 7)));
        assert_eq!(client.ask("vCont;t"), "OK");
        super::server::eventually("all are held", || {
            while !client.notifications.is_empty() || !client.silent(1) {
                let mut stop = client.told("Stop");
                while stop != "OK" {
                    assert!(stop.starts_with("T00"), "{stop}");
                    stop = client.ask("vStopped");
                }
            }
            all_stand()
        });
    }
    client.send(format!("vKill;{pid:x}").as_bytes());
}

#[test]
fn thread_names_are_reported() {
    let program = build("hits", &["-no-pie"]);
    let (_server, mut client) = Server::run(&program, &["2", "100"]);
    let hit = address(&program, "hit");
    client.plant(hit);
    let (_, tid) = stopped(&client.go());
    let xml = client.transfer("threads", "");
    assert!(xml.contains("name=\"worker-"), "{xml}");
    let name = client.ask(&format!("qThreadExtraInfo,p1.{tid:x}"));
    let name = String::from_utf8(super::client::unhex(&name)).unwrap();
    assert!(name.starts_with("worker-"), "{name}");
}

#[test]
fn churn_with_stops() {
    let program = build("churn", &["-no-pie"]);
    let (mut server, mut client) = Server::run(&program, &["1500"]);
    let mut stops = 0;
    'run: loop {
        client.send(b"vCont;c");
        client.write(b"\x03");
        let stop = client.text();
        if stop.starts_with('W') {
            assert!(stop.starts_with("W00"), "{stop}");
            break 'run;
        }
        assert!(stop.starts_with("T02"), "{stop}");
        stops += 1;
        let (pid, _) = stopped(&stop);
        let threads = client.threads();
        for tid in &threads {
            // Every listed thread is stopped and has registers.
            client.ask(&format!("Hgp{pid:x}.{tid:x}"));
            assert!(client.register(PC) > 0x1000);
        }
        if stops > 400 {
            let end = client.go();
            assert!(end.starts_with("W00"), "{end}");
            break;
        }
    }
    drop(client);
    server.wait();
    assert_eq!(server.output(), "lived 6000\n");
}

#[test]
fn churn_with_a_breakpoint_in_every_thread() {
    let program = build("churn", &["-no-pie"]);
    let (mut server, mut client) = Server::run(&program, &["300"]);
    let life = address(&program, "short_life");
    client.plant(life);
    let mut lives = std::collections::HashSet::new();
    let mut hits = 0;
    loop {
        let stop = client.go();
        if stop.starts_with('W') {
            break;
        }
        hits += 1;
        lives.insert(stopped(&stop).1);
    }
    assert_eq!(hits, 1200);
    drop(client);
    server.wait();
    assert_eq!(server.output(), "lived 1200\n");
}

/// Runs a program to its end with thread events. Returns the number of threads that began, and that
/// ended.
fn thread_events_of(program: &Path, arguments: &[&str]) -> (u32, u32) {
    let (_server, mut client) = Server::run(program, arguments);
    assert_eq!(client.ask("QThreadEvents:1"), "OK");
    let (mut created, mut exited) = (0, 0);
    loop {
        let stop = client.go();
        match stop.as_bytes()[0] {
            b'T' => {
                assert_eq!(field(&stop, "create"), Some(""), "{stop}");
                created += 1;
            }
            b'w' => {
                assert!(stop.starts_with("w0;p"), "{stop}");
                exited += 1;
            }
            _ => {
                assert!(stop.starts_with("W00;process:"), "{stop}");
                return (created, exited);
            }
        }
    }
}

#[test]
fn thread_events() {
    let program = build("churn", &["-no-pie"]);
    assert_eq!(thread_events_of(&program, &["50"]), (204, 204));
}

/// The stub reports the end of the last thread, and then that of its process, which waited only for
/// it.
#[test]
fn the_end_of_the_last_thread_is_reported() {
    let program = build("churn", &["-no-pie"]);
    for _ in 0..40 {
        assert_eq!(thread_events_of(&program, &["1"]), (8, 8));
    }
}

#[test]
fn the_first_thread_may_end_first() {
    let program = build("leader", &["-no-pie"]);
    let (_server, mut client) = Server::run(&program, &[]);
    let alone = address(&program, "alone");
    client.plant(alone);
    let (pid, tid) = stopped(&client.go());
    assert_ne!(pid, tid);
    assert_eq!(client.threads(), [tid]);
    assert_eq!(client.ask(&format!("m{alone:x},1")).len(), 2);
    let end = client.go();
    assert_eq!(end, format!("W03;process:{pid:x}"));
}

#[test]
fn held_threads_stay_held() {
    let program = build("hits", &["-no-pie"]);
    let (_server, mut client) = Server::run(&program, &["3", "200"]);
    let hit = address(&program, "hit");
    client.plant(hit);
    // Until the three created threads exist, beside the main thread.
    let mut stop = client.go();
    while client.threads().len() < 4 {
        stop = client.go();
    }
    // Run one thread alone to its end. Then no thread runs.
    let (pid, tid) = stopped(&stop);
    loop {
        let stop = client.ask(&format!("vCont;c:p{pid:x}.{tid:x}"));
        if stop == "N" {
            break;
        }
        assert_eq!(stopped(&stop).1, tid, "{stop}");
    }
    client.lift(hit);
    assert!(client.go().starts_with("W00"));
}

/// The stub uses no processor time while nothing happens.
#[test]
fn waiting_costs_nothing() {
    let program = build("hits", &["-no-pie"]);
    let (server, mut client) = Server::run(&program, &["2", "2000000000"]);
    client.send(b"vCont;c");
    assert!(client.silent(200));
    let switches = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", server.tracer()));
        let status = status.unwrap();
        let line = status.lines().find(|l| l.starts_with("voluntary")).unwrap();
        line.to_owned()
    };
    let before = switches();
    assert!(client.silent(500));
    assert_eq!(switches(), before, "the server woke up");
    client.write(b"\x03");
    assert!(client.text().starts_with("T02"));
    client.send(b"k");
}

/// The stub reports the beginning and the end of every thread once, in order and without a stop.
#[test]
fn a_log_of_threads() {
    let program = build("churn", &["-no-pie"]);
    let (mut server, mut client) = Server::run(&program, &["1500"]);
    assert!(client.supported.contains("QUnspoolThreads+"));
    assert_eq!(client.ask("QUnspoolThreads:1"), "OK");
    let end = client.go();
    assert!(end.starts_with("W00"), "{end}");
    let first = u32::from_str_radix(end.split_once("process:").unwrap().1, 16).unwrap();
    let mut alive = vec![first];
    let (mut created, mut exited) = (0, 0);
    let log = client.notifications.iter();
    for entry in log.flat_map(|text| text.strip_prefix("UnspoolThreads:").unwrap().split(';')) {
        let fields: Vec<u64> = entry[1..]
            .split(',')
            .map(|field| u64::from_str_radix(field, 16).expect(entry))
            .collect();
        let tid = fields[0] as u32;
        match (&entry[..1], &fields[1..]) {
            // The time at which the notification was sent.
            ("t", []) => assert!(fields[0] > 0),
            ("c", [creator, pointer, _age]) => {
                assert!(alive.contains(&(*creator as u32)), "{entry}");
                assert!(!alive.contains(&tid), "{entry}");
                assert!(*pointer > 0x1000, "{entry}");
                alive.push(tid);
                created += 1;
            }
            // The exit of the process ends the last threads.
            ("x" | "k", [0, _age]) => {
                let index = alive.iter().position(|one| *one == tid);
                alive.swap_remove(index.expect(entry));
                exited += 1;
            }
            _ => panic!("{entry}"),
        }
    }
    assert!(created >= 1500, "{created}");
    // The stub does not report the end of single threads at the end of the process.
    assert!(exited + alive.len() == created + 1, "{exited} of {created}");
    drop(client);
    assert!(server.wait().success());
}

/// The stub reports a thread before its first stop. The stop reply contains registers and stack.
#[test]
fn stop_replies_with_registers_and_stack() {
    let program = build("hits", &["-no-pie"]);
    let (_server, mut client) = Server::run(&program, &["4", "50"]);
    assert_eq!(client.ask("QUnspoolThreads:1,100"), "OK");
    let hit = address(&program, "hit");
    client.plant(hit);
    let mut hits = 0;
    loop {
        let stop = client.go();
        if !stop.starts_with('T') {
            break;
        }
        hits += 1;
        let (_, tid) = stopped(&stop);
        let told = |text: &String| {
            let mut entries = text["UnspoolThreads:".len()..].split(';');
            entries.any(|entry| entry.starts_with(&format!("c{tid:x},")))
        };
        assert!(client.notifications.iter().any(told), "{tid:x}");
        if hits > 3 {
            continue;
        }
        let all = client.ask("g");
        for number in 0..17 {
            let sent = field(&stop, &format!("{number:02x}"));
            assert_eq!(sent, Some(&all[16 * number..16 * number + 16]), "{number}");
        }
        let (at, bytes) = field(&stop, "memory").unwrap().split_once('=').unwrap();
        let at = at.strip_prefix("0x").unwrap();
        assert_eq!(u64::from_str_radix(at, 16).unwrap(), client.register(SP));
        assert_eq!(bytes, client.ask(&format!("m{at},100")));
    }
    assert_eq!(hits, 200);
}
