//! Measures the time and memory to open and report a recording of calls with the whole command. The
//! recordings have 300 threads, 1,000 objects, and 100,000, a million and four million events.
//!
//! `cargo bench -p unspool --bench calls` prints the table in docs/internals/performance.md.

use std::fs::File;
use std::io::BufWriter;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use nix::sys::resource::{UsageWho, getrusage};
use unspool_capture::{
    Chunk, End, EndReason, Event, Header, Probe, ProbeKind, RegisterLayout, Snapshot, Target,
    ThreadSeen, Writer,
};

const THREADS: u64 = 300;
const OBJECTS: u64 = 1_000;
const STACKS: u64 = 200;
const SIZES: [u64; 3] = [100_000, 1_000_000, 4_000_000];
const ROUNDS: usize = 3;

fn main() {
    let folder = tempfile::tempdir().expect("a folder");
    println!(
        "{THREADS} threads, {OBJECTS} objects, {STACKS} call paths: `unspool report --view objects`, best of {ROUNDS}"
    );
    println!(
        "{:>10} {:>8} {:>8} {:>16} {:>12}",
        "events", "MB", "ms", "M events/s", "peak RSS, MB"
    );
    // The smallest first, because the peak includes all earlier runs.
    for events in SIZES {
        let path = folder.path().join(events.to_string());
        write(&path, events);
        let size = std::fs::metadata(&path).expect("written").len();
        let took = (0..ROUNDS).map(|_| report(&path)).min().expect("rounds");
        let peak = getrusage(UsageWho::RUSAGE_CHILDREN)
            .expect("usage")
            .max_rss();
        println!(
            "{events:>10} {:>8.1} {:>8.0} {:>16.2} {:>12.0}",
            size as f64 / 1e6,
            took as f64 / 1e6,
            events as f64 / took as f64 * 1e3,
            peak as f64 / 1e3
        );
    }
}

/// Time of the command, in nanoseconds.
fn report(path: &Path) -> u128 {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unspool"));
    command.args(["report", "--view", "objects"]).arg(path);
    let start = Instant::now();
    let status = command.stdout(Stdio::null()).status().expect("unspool");
    let took = start.elapsed().as_nanos();
    assert!(status.success(), "{status} {:?}", status.signal());
    took
}

/// Writes a capture. The threads take turns: each locks a mutex and another one within it, and
/// unlocks both. Each call path is stored once.
fn write(path: &Path, events: u64) {
    let file = BufWriter::new(File::create(path).expect("a file"));
    let mut writer = Writer::new(file, Header::default()).expect("a capture");
    writer
        .record(Target {
            arch: "i386:x86-64".into(),
            pid: 1000,
            registers: [("rip", 16, 0), ("rsp", 7, 8)]
                .map(|(name, number, offset)| RegisterLayout {
                    name: name.into(),
                    number,
                    bits: 64,
                    offset,
                })
                .to_vec(),
            ..Default::default()
        })
        .expect("written");
    for tid in 0..THREADS {
        let seen = ThreadSeen {
            tid: 1000 + tid,
            ..Default::default()
        };
        writer.record(seen).expect("written");
    }
    for (id, function, kind, ends) in [
        (1, "pthread_mutex_lock", ProbeKind::Enter, vec![]),
        (2, "pthread_mutex_lock", ProbeKind::Leave, vec![1]),
        (3, "pthread_mutex_unlock", ProbeKind::Enter, vec![]),
    ] {
        let probe = Probe {
            id,
            function: function.into(),
            kind: kind.into(),
            ends,
            ..Default::default()
        };
        writer.record(probe).expect("written");
    }
    // Lock, its end, lock, its end, unlock, unlock.
    const STEPS: [(u32, u64); 6] = [(1, 0), (2, 0), (1, 1), (2, 1), (3, 1), (3, 0)];
    let mut carried: Vec<Option<u64>> = vec![None; STACKS as usize];
    for seq in 1..=events {
        let (turn, step) = ((seq - 1) / 6, (seq - 1) % 6);
        let (probe, inner) = STEPS[step as usize];
        let ends = probe == 2;
        // Each object has a few paths of its own.
        let stack = (turn % OBJECTS * 7 + step) % STACKS;
        let known = carried[stack as usize];
        let snapshot = (!ends && known.is_none()).then(|| {
            carried[stack as usize] = Some(seq);
            Snapshot {
                registers: [0x40_0000 + 16 * stack, 0x7fff_0000]
                    .iter()
                    .flat_map(|value: &u64| value.to_le_bytes())
                    .collect(),
                chunks: vec![Chunk {
                    address: 0x7fff_0000,
                    bytes: vec![0; 256],
                }],
                ..Default::default()
            }
        });
        // Every thread takes two mutexes in the same order.
        let object = 2 * turn % OBJECTS + inner;
        let event = Event {
            seq,
            time_ns: seq * 100,
            tid: 1000 + turn % THREADS,
            probe,
            args: if ends {
                vec![0]
            } else {
                vec![0x5555_0000 + 40 * object, 0, 0, 0]
            },
            same_stack_as: known.filter(|_| !ends),
            snapshot,
            frame: Some(0x7fff_0000),
            ..Default::default()
        };
        writer.record(event).expect("written");
    }
    writer
        .record(End {
            reason: EndReason::ProgramEnded.into(),
            time_ns: events * 100,
            ..Default::default()
        })
        .expect("written");
    writer.finish().expect("written");
}
