//! The kernel's schedule of threads, compared with the counters in `/proc` and with the program's
//! behaviour.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use super::attaching::Looping;
use super::client::{Client, stopped, unescape};
use super::programs::{address, build};
use super::server::Server;

/// The unit of times in `/proc/stat` (proc(5)), in nanoseconds.
const TICK_NS: u64 = 10_000_000;
/// Maximum time of a switch between threads, in a virtual machine with two levels of page tables.
const SWITCH_NS: u64 = 30_000;
/// Least number of the program's forty sleeps that a timer must be seen to end.
const MIN_TIMER_WAKES: usize = 30;

/// One record: its kind, time, thread, and details.
#[derive(Debug, Clone, PartialEq)]
struct Record {
    kind: u8,
    time_ns: u64,
    tid: u64,
    cpu: u64,
    detail: u64,
    name: String,
}

/// All records received so far.
fn records(client: &Client) -> Vec<Record> {
    let prefix = b"UnspoolSchedule:";
    let bodies = client.notified.iter();
    let bodies = bodies.filter_map(|body| body.strip_prefix(prefix));
    let mut all = Vec::new();
    for body in bodies {
        let start = body.iter().position(|byte| *byte == b';').unwrap() + 1;
        let bytes = unescape(&body[start..]);
        let mut rest = bytes.iter().copied();
        let mut time_ns = 0u64;
        while let Some(kind) = rest.next() {
            let mut number = || {
                let (mut value, mut shift) = (0, 0);
                loop {
                    let byte = rest.next().expect("a whole number");
                    value |= u64::from(byte & 0x7f) << shift;
                    shift += 7;
                    if byte < 0x80 {
                        return value;
                    }
                }
            };
            let change = number();
            let change = (change >> 1) as i64 ^ -((change & 1) as i64);
            time_ns = time_ns.wrapping_add(change as u64);
            let (tid, cpu) = (number(), number());
            let mut detail = 0;
            let mut name = String::new();
            match kind {
                0..=2 | 4 => {}
                3 | 6 => detail = number(),
                5 => {
                    let length = number();
                    name = (0..length).map(|_| rest.next().unwrap() as char).collect();
                }
                7 => {
                    detail = number();
                    number();
                }
                8 => detail = rest.next().unwrap().into(),
                other => panic!("kind {other}"),
            }
            all.push(Record {
                kind,
                time_ns,
                tid,
                cpu,
                detail,
                name,
            });
        }
    }
    all
}

/// The run time of each thread, in nanoseconds.
fn ran(records: &[Record]) -> BTreeMap<u64, u64> {
    let mut since = BTreeMap::new();
    let mut total: BTreeMap<u64, u64> = BTreeMap::new();
    for record in records {
        match record.kind {
            0 => drop(since.insert(record.tid, record.time_ns)),
            1 | 2 | 4 => {
                if let Some(since) = since.remove(&record.tid) {
                    *total.entry(record.tid).or_default() += record.time_ns - since;
                }
            }
            _ => {}
        }
    }
    total
}

/// Time for which a thread has run, in nanoseconds, as the kernel counts it.
fn counted(pid: u32, tid: u64) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

/// The time that the host of a virtual machine has taken from its processors, in nanoseconds.
fn stolen() -> u64 {
    let text = std::fs::read_to_string("/proc/stat").unwrap();
    let ticks: u64 = text.split_whitespace().nth(8).unwrap().parse().unwrap();
    ticks * TICK_NS
}

/// Asserts that the recorded run time of a thread and the kernel's counter agree within 1 % plus
/// 0.2 ms for the difference of the clocks. The counter leaves out stolen time. It includes the
/// switches to the thread, of up to [`SWITCH_NS`] each.
fn assert_close(records: &[Record], tid: u64, counted: u64, stolen: u64) {
    let recorded = ran(records)[&tid];
    let runs = records.iter();
    let runs = runs.filter(|it| it.kind == 0 && it.tid == tid).count() as u64;
    let allowed = counted / 100 + 200_000;
    assert!(
        recorded + allowed + runs * SWITCH_NS >= counted && recorded <= counted + allowed + stolen,
        "{recorded} {counted} {stolen}, {runs} runs"
    );
}

/// A processor on which `perf` sees timers wake the program's thread. Linux 6.18 can stop to report
/// what interrupts do on a processor, and does not begin again.
fn traced_processor(program: &Path) -> Option<String> {
    let file = std::env::temp_dir().join(format!("unspool-wakes-{}", std::process::id()));
    let processors = std::thread::available_parallelism().unwrap().get();
    let found = (0..processors).map(|cpu| cpu.to_string()).find(|cpu| {
        let mut record = Command::new("perf");
        record.args(["record", "-q", "-a", "-e", "sched:sched_waking", "-o"]);
        record.arg(&file).args(["taskset", "-c", cpu]).arg(program);
        assert!(record.stdout(Stdio::null()).status().unwrap().success());
        let mut script = Command::new("perf");
        let script = script.args(["script", "-F", "pid,trace", "-i"]).arg(&file);
        let text = String::from_utf8_lossy(&script.output().unwrap().stdout).into_owned();
        let by_timer = |line: &&str| {
            let line = line.trim_start();
            line.starts_with("0 ") && line.contains("comm=turns ")
        };
        text.lines().filter(by_timer).count() >= MIN_TIMER_WAKES
    });
    std::fs::remove_file(file).unwrap();
    found
}

/// The stub may use the wake-up tracepoint only as root.
fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    status.lines().any(|line| line.starts_with("Uid:\t0\t0"))
}

/// The wake-ups that the stub must report.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wakes {
    None,
    /// Those by threads. The kernel may leave out those by timers.
    ByThreads,
    All,
}

fn follow(mut server: Server, mut client: Client, program: &Path, wakes: Wakes) {
    let (pid, _) = stopped(&client.ask("?"));
    let (before, stolen_before) = (counted(pid, pid.into()), stolen());
    let reply = client.ask("QUnspoolSchedule:1");
    let parts: Vec<&str> = reply.split(';').collect();
    let [kind, size, own] = parts[..] else {
        panic!("{reply}")
    };
    assert!(own.starts_with("stub="), "{reply}");
    let wakers = wakes != Wakes::None;
    assert_eq!(kind, if wakers { "wakers" } else { "switches" });
    let size = u64::from_str_radix(size, 16).unwrap();
    assert!((1..=8 << 20).contains(&size), "{size}");
    client.plant(address(program, "ready"));
    assert!(client.go().contains("swbreak:;"));
    let here = records(&client);
    assert!(here.is_sorted_by_key(|record| record.time_ns));
    assert!(
        here.iter().all(|record| record.kind != 7),
        "nothing is lost"
    );
    let created: Vec<&Record> = here.iter().filter(|record| record.kind == 3).collect();
    let [created] = created[..] else {
        panic!("{created:?}");
    };
    assert_eq!(created.detail, pid.into());
    let worker = created.tid;
    // The kernel truncates both numbers.
    let stolen = stolen() - stolen_before + TICK_NS;
    let main = counted(pid, pid.into()) - before;
    assert_close(&here, pid.into(), main, stolen);
    assert_close(&here, worker, counted(pid, worker), stolen);
    let of = |kind, tid| {
        here.iter()
            .filter(move |it| (it.kind, it.tid) == (kind, tid))
    };
    assert!(
        of(8, pid.into()).any(|it| it.detail == b't'.into()),
        "traced at first"
    );
    assert!(of(5, worker).any(|it| it.name == "turns"));
    // Forty sleeps, each ended by a timer.
    assert!(of(1, worker).count() >= 40);
    assert!(of(0, worker).count() >= 41);
    let by = |tid, waker: u64| of(6, tid).filter(|it| it.detail == waker).count();
    if wakers {
        // A timer that expires before its thread sleeps wakes nothing.
        let timers = by(worker, 0);
        let enough = wakes != Wakes::All || timers >= MIN_TIMER_WAKES;
        assert!(enough, "{timers}, {}", server.tracer());
        assert!(
            by(pid.into(), worker) >= 1,
            "sem_post(3) wakes the first thread"
        );
    } else {
        assert_eq!(here.iter().filter(|it| it.kind == 6).count(), 0);
    }
    // For each thread, switch-in and switch-out alternate.
    for tid in [pid.into(), worker] {
        let mut runs = false;
        for record in here.iter().filter(|it| it.tid == tid && it.kind <= 2) {
            assert!(record.kind != 0 || !runs, "{record:?}");
            runs = record.kind == 0;
        }
        assert!(!runs, "it stands");
    }
    assert!(client.go().starts_with("W00"));
    let all = records(&client);
    let ends: Vec<u64> = all
        .iter()
        .filter(|it| it.kind == 4)
        .map(|it| it.tid)
        .collect();
    assert!(
        ends.contains(&worker) && ends.contains(&pid.into()),
        "{ends:?}"
    );
    drop(client);
    server.wait();
    assert_eq!(server.output(), "joined\n");
}

#[test]
fn run_times_and_wakers_of_threads() {
    let program = build("schedule", &["-no-pie"]);
    let arguments = [
        "--once",
        "--budget",
        "none",
        ":0",
        program.to_str().unwrap(),
    ];
    let (server, wakes) = match is_root().then(|| traced_processor(&program)) {
        None => (Server::start(&arguments), Wakes::None),
        Some(None) => (Server::start(&arguments), Wakes::ByThreads),
        Some(Some(cpu)) => {
            let words = ["-c", &cpu];
            let server = Server::start_through(Path::new("taskset"), &words, &arguments);
            (server, Wakes::All)
        }
    };
    let client = Client::connect(server.port);
    follow(server, client, &program, wakes);
}

#[test]
fn run_times_of_threads_without_privilege() {
    let program = build("schedule", &["-no-pie"]);
    let confined = build("confined", &[]);
    let arguments = ["--once", ":0", program.to_str().unwrap()];
    let server = Server::start_through(&confined, &["unprivileged"], &arguments);
    let client = Client::connect(server.port);
    follow(server, client, &program, Wakes::None);
}

#[test]
fn refused_perf_events() {
    let program = build("schedule", &["-no-pie"]);
    let confined = build("confined", &[]);
    let arguments = ["--once", ":0", program.to_str().unwrap()];
    let mut server = Server::start_through(&confined, &["refused"], &arguments);
    let mut client = Client::connect(server.port);
    let reply = client.ask("QUnspoolSchedule:1");
    assert!(
        reply.starts_with("E.") && reply.contains("perf_event_open"),
        "{reply}"
    );
    assert_eq!(client.ask("QUnspoolSchedule:0"), "OK");
    assert_eq!(client.ask("QUnspoolSchedule:2"), "E16");
    assert!(client.go().starts_with("W00"));
    assert_eq!(records(&client), []);
    drop(client);
    server.wait();
}

/// Records all threads of a running program, until the recording ends.
#[test]
fn an_attached_program() {
    let looping = Looping::start();
    let (mut server, mut client) = looping.server();
    assert_eq!(client.ask("QUnspoolSchedule:1;others"), "E16");
    let reply = client.ask("QUnspoolSchedule:1;processes");
    assert!(reply.contains(";processes;stub="), "{reply}");
    assert!(client.ask("QUnspoolSchedule:1").contains(';'));
    client.plant(looping.tick);
    for _ in 0..20 {
        assert!(client.go().contains("swbreak:;"));
    }
    client.lift(looping.tick);
    assert_eq!(client.ask("QUnspoolSchedule:0"), "OK");
    let all = records(&client);
    for tid in super::attaching::tasks(looping.pid()) {
        let of = |kind| {
            all.iter()
                .filter(move |it| it.tid == tid.into() && it.kind == kind)
        };
        assert_eq!(of(8).count(), 1);
        assert!(of(0).count() >= 2 && of(1).count() >= 2);
    }
    assert_eq!(client.ask("D"), "OK");
    assert_eq!(records(&client).len(), all.len());
    server.wait();
    looping.finish();
}
