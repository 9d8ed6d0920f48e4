//! Tests of cut, damaged and constructed inspections: no panic, and no proof without full evidence.

use std::sync::Arc;

use unspool_capture::{
    Capture, Chunk, Event, Header, Record, RegisterLayout, SNAPSHOT_PROBE, Snapshot, Standstill,
    Target, ThreadSeen, ThreadState,
};
use unspool_unwind::Provenance;

use super::{Inspection, Onward, Program, Scene, at_end};
use crate::model::backtrace::{Backtrace, Frames, NamedFrame, Place};
use crate::model::{Detail, Doubt, Finding, FindingKind, Model};
use crate::platform::layouts::{Family, Library};
use crate::primitives::Kind;

const REGISTERS: [&str; 9] = [
    "orig_rax", "rax", "rdi", "rsi", "rdx", "r10", "r8", "r9", "rsp",
];
const MUTEXES: u64 = 0x6000_0000;
const STACKS: u64 = 0x7000_0000;

/// The files of a program in which all threads wait for a mutex.
struct Files {
    library: Result<Library, String>,
    /// The functions that all wait in, the innermost first. If empty, no function has a name.
    function: &'static str,
    /// The file that it is in.
    module: &'static str,
}

impl Files {
    fn new() -> Files {
        Files {
            library: Ok(Library {
                family: Family::Glibc(Some(36)),
                path: "/lib/libc.so.6".into(),
                inside: false,
            }),
            function: "pthread_mutex_lock",
            module: "/lib/libc.so.6",
        }
    }
}

impl Program for Files {
    fn library(&mut self) -> Result<Library, String> {
        self.library.clone()
    }
    fn code(&mut self, _: u64, _: usize) -> Option<Vec<u8>> {
        None
    }
    fn variable(&mut self, _: u64) -> Option<Arc<str>> {
        None
    }
    fn onward(&mut self, _: u64) -> Onward {
        Onward {
            ends_waits: true,
            returns: true,
        }
    }
}

impl Frames for Files {
    fn backtrace(&mut self, _: usize, _: &Snapshot) -> Arc<Backtrace> {
        let frame = |function: &str, module: &str| NamedFrame {
            place: Place {
                function: (!self.function.is_empty()).then(|| function.into()),
                module: Some(module.into()),
                ..Place::default()
            },
            inlined: false,
            provenance: Provenance::Cfi,
            called: None,
        };
        let functions = self.function.split(' ');
        let mut frames: Vec<_> = functions.map(|name| frame(name, self.module)).collect();
        frames.push(frame("work", "/bin/program"));
        Arc::new(Backtrace {
            frames,
            truncated: None,
        })
    }
    fn place(&mut self, _: usize, _: u64) -> Place {
        Place::default()
    }
    fn data(&mut self, _: usize, _: u64) -> Option<Place> {
        None
    }
}

/// Threads 100, 101, ... each of which holds a mutex and waits for the next one's.
fn ring(count: u64) -> Vec<Record> {
    let layout = |(at, name): (usize, &&str)| RegisterLayout {
        name: (*name).into(),
        number: at as u32,
        bits: 64,
        offset: at as u32 * 8,
    };
    let header = Header {
        source: unspool_capture::Source::Inspected.into(),
        ..Header::default()
    };
    let target = Target {
        arch: "i386:x86-64".into(),
        pid: 100,
        registers: REGISTERS.iter().enumerate().map(layout).collect(),
        ..Target::default()
    };
    let mut records = vec![Record::Header(header), Record::Target(target)];
    for n in 0..count {
        records.push(Record::ThreadSeen(ThreadSeen {
            tid: 100 + n,
            existed_before: true,
            ..ThreadSeen::default()
        }));
    }
    for n in 0..count {
        let mutex = MUTEXES + (n + 1) % count * 64;
        let sp = STACKS + n * 4096;
        // futex(mutex, FUTEX_WAIT_PRIVATE, 2, NULL), interrupted
        let registers = [202, -512i64 as u64, mutex, 128, 2, 0, 0, 0, sp];
        let bytes = registers.iter().flat_map(|value| value.to_le_bytes());
        let mut snapshot = Snapshot::of_registers(bytes.collect(), &[true; 72]);
        snapshot.chunks = vec![Chunk {
            address: sp,
            bytes: [mutex; 16]
                .iter()
                .flat_map(|word| word.to_le_bytes())
                .collect(),
        }];
        records.push(Record::Event(Event {
            seq: n,
            time_ns: 10,
            tid: 100 + n,
            probe: SNAPSHOT_PROBE,
            snapshot: Some(snapshot),
            ..Event::default()
        }));
    }
    for n in 0..count {
        let words = [2u32, 0, 100 + n as u32, 1, 0, 0, 0, 0, 0, 0];
        records.push(Record::Memory(unspool_capture::Memory {
            time_ns: 11,
            address: MUTEXES + n * 64,
            bytes: words.iter().flat_map(|word| word.to_le_bytes()).collect(),
        }));
    }
    records.push(Record::Standstill(Standstill {
        from_ns: 9,
        to_ns: 12,
    }));
    records.push(Record::ThreadState(ThreadState {
        tid: 100,
        time_ns: 13,
        state: "S".into(),
        handled_signals: Some(0),
        own_tid: Some(100),
        ..ThreadState::default()
    }));
    records
}

fn look(records: Vec<Record>, mut files: Files) -> (Inspection, Vec<Finding>) {
    let capture = Capture::from_records(records);
    let mut model = Model::interpret(&capture, &mut files, Detail::default());
    let inspection = super::inspect(&Scene::of(&capture, &model), &model, &mut files);
    model.add_hangs(Some(&inspection));
    (inspection, model.findings)
}

#[test]
fn a_frozen_program_is_still_in_a_deadlock() {
    let mut records = ring(2);
    for record in &mut records {
        if let Record::ThreadState(state) = record {
            state.frozen = true;
        }
    }
    let (inspection, findings) = look(records, Files::new());
    assert!(matches!(findings[..], [_]), "{findings:?}");
    for state in &inspection.states {
        assert_eq!(state.as_str(), Some("frozen"));
        assert!(state.wait().is_some(), "{state:?}");
    }
}

/// Another process in the same memory may release any lock.
#[test]
fn a_process_in_the_same_memory_leaves_doubt() {
    let mut records = ring(2);
    let (_, findings) = look(records.clone(), Files::new());
    assert!(matches!(&findings[..], [one] if one.proved), "{findings:?}");
    records.push(Record::ThreadState(ThreadState {
        tid: 100,
        time_ns: 10,
        memory_users: vec![77],
        ..ThreadState::default()
    }));
    let (inspection, findings) = look(records, Files::new());
    assert!(findings.iter().all(|one| !one.proved), "{findings:?}");
    let note = inspection.memory_users_note(100).unwrap().text;
    let shared = "Processes 77, 100 share their memory,";
    assert!(note.starts_with(shared), "{note}");
}

/// Turns an inspection into a recording that reads its threads at its end, at nanoseconds 9 to 14.
fn recorded(mut records: Vec<Record>) -> Model {
    let Some(Record::Header(header)) = records.first_mut() else {
        panic!("no header");
    };
    header.source = unspool_capture::Source::Launched.into();
    records.push(Record::Inspection(unspool_capture::Inspection {
        from_ns: 9,
        to_ns: 14,
        ..unspool_capture::Inspection::default()
    }));
    let mut files = Files::new();
    let capture = Capture::from_records(records);
    let mut model = Model::interpret(&capture, &mut files, Detail::default());
    assert!(model.findings.is_empty(), "{:?}", model.findings);
    add_at_end(&capture, &mut model, &mut files);
    model
}

fn add_at_end(capture: &Capture, model: &mut Model, files: &mut Files) {
    let inspection = at_end(capture, model, files);
    model.add_hangs(inspection.as_ref().map(|it| &it.inspection));
}

#[test]
fn a_deadlock_at_the_end_of_a_recording_is_proved_like_in_an_inspection() {
    let mut records = ring(3);
    // One thread has ended, and one has its id again.
    for (at, time_ns) in [(2, 1), (4, 3)] {
        records.insert(
            at,
            Record::ThreadSeen(ThreadSeen {
                tid: 101,
                time_ns,
                creator_tid: Some(100),
                ..ThreadSeen::default()
            }),
        );
    }
    let model = recorded(records);
    let [finding] = &model.findings[..] else {
        panic!("{:?}", model.findings);
    };
    assert_eq!(
        (finding.kind, finding.proved),
        (FindingKind::Deadlock, true)
    );
    let mut tids: Vec<_> = (finding.threads.iter())
        .map(|thread| model.threads[thread.0].tid)
        .collect();
    tids.sort_unstable();
    assert_eq!(tids, [Some(100), Some(101), Some(102)]);
}

#[test]
fn an_interrupted_inspection_gives_no_findings() {
    let mut records = ring(3);
    records.insert(
        2,
        Record::Inspection(unspool_capture::Inspection::default()),
    );
    let capture = Capture::from_records(records);
    let mut files = Files::new();
    let mut model = Model::interpret(&capture, &mut files, Detail::default());
    add_at_end(&capture, &mut model, &mut files);
    assert!(model.findings.is_empty(), "{:?}", model.findings);
}

#[test]
fn a_running_thread_is_in_no_deadlock() {
    let mut records = ring(3);
    for record in &mut records {
        if let Record::Event(event) = record
            && event.tid == 101
        {
            // No system call.
            let rax = u64::MAX.to_le_bytes();
            event.snapshot.as_mut().unwrap().registers[..8].copy_from_slice(&rax);
        }
    }
    let (_, findings) = look(records, Files::new());
    assert_eq!(findings, []);
}

#[test]
fn a_ring_is_a_proved_deadlock() {
    let (_, findings) = look(ring(3), Files::new());
    let found: Vec<_> = findings
        .iter()
        .map(|f| (f.kind, f.proved, f.threads.len()))
        .collect();
    assert_eq!(found, [(FindingKind::Deadlock, true, 3)]);
}

#[test]
fn without_a_halt_one_inspection_proves_nothing() {
    let mut records = ring(3);
    records.retain(|record| !matches!(record, Record::Standstill(_)));
    let (inspection, findings) = look(records, Files::new());
    assert!(!findings[0].proved && inspection.doubtful.len() == 3);
}

/// Threads that take turns: each one waits whenever it is read, because another one runs.
#[test]
fn waits_at_different_moments_are_no_deadlock() {
    let mut records = ring(3);
    records.retain(|record| !matches!(record, Record::Standstill(_)));
    let mut again = Vec::new();
    for record in &mut records {
        match record {
            // No thread is named as an owner.
            Record::Memory(memory) => memory.bytes[8..12].fill(0),
            Record::Event(event) => again.push(Record::Event(Event {
                time_ns: 20,
                ..event.clone()
            })),
            _ => {}
        }
    }
    let (once, findings) = look(records.clone(), Files::new());
    assert!(once.all_wait && once.doubtful.len() == 3);
    assert_eq!(findings.len(), 1);
    records.extend(again);
    let (_, findings) = look(records.clone(), Files::new());
    assert!(findings.is_empty(), "{findings:?}");
    // All three slept when they were looked at again.
    records.push(Record::Standstill(Standstill {
        from_ns: 19,
        to_ns: 20,
    }));
    let (_, findings) = look(records, Files::new());
    assert_eq!(findings.len(), 1);
}

#[test]
fn foreign_functions_and_libraries_have_no_holders() {
    let mut foreign = Files::new();
    foreign.module = "/lib/libtcmutex.so";
    let mut unknown = Files::new();
    unknown.library = Err("unknown library".to_owned());
    let mut newer = Files::new();
    if let Ok(library) = &mut newer.library {
        library.family = Family::Glibc(Some(77));
    }
    for files in [foreign, unknown, newer] {
        let (inspection, _) = look(ring(3), files);
        for state in &inspection.states {
            let wait = state.wait().unwrap();
            assert!(
                wait.holders.is_empty() && wait.unknown.is_some(),
                "{wait:?}"
            );
        }
    }
}

#[test]
fn a_shared_mutex_proves_nothing() {
    let mut records = ring(2);
    for record in &mut records {
        if let Record::Memory(memory) = record {
            memory.bytes[16] |= 128;
        }
    }
    let (_, findings) = look(records, Files::new());
    assert!(!findings[0].proved, "{findings:?}");
    assert!(
        findings[0].hang().doubts.contains(&Doubt::Shared),
        "{findings:?}"
    );
}

/// The last thread joins the first one, in a static program without symbols.
#[test]
fn a_join_is_known_by_the_id_in_its_word() {
    const JOINED: u64 = STACKS + 0x8_0000;
    let mut records = ring(3);
    for record in &mut records {
        if let Record::Event(event) = record
            && event.tid == 102
            && let Some(snapshot) = &mut event.snapshot
        {
            // futex(word, FUTEX_WAIT, 100, NULL)
            for (at, value) in [(2, JOINED), (3, 0), (4, 100)] {
                snapshot.registers[8 * at..][..8].copy_from_slice(&value.to_le_bytes());
            }
        }
    }
    records.push(Record::Memory(unspool_capture::Memory {
        time_ns: 11,
        address: JOINED,
        bytes: 100_u32.to_le_bytes().to_vec(),
    }));
    let mut files = Files::new();
    files.function = "";
    if let Ok(library) = &mut files.library {
        library.inside = true;
    }
    let (inspection, findings) = look(records, files);
    let wait = inspection.states[2].wait().unwrap();
    assert_eq!((wait.object.kind, wait.holders[0].tid), (Kind::Join, 100));
    let found: Vec<_> = findings.iter().map(|f| (f.kind, f.proved)).collect();
    assert_eq!(found, [(FindingKind::Deadlock, true)], "{findings:?}");
}

/// Without symbols a word may be a lock, and in the C library it is one.
#[test]
fn a_word_without_a_name_proves_no_lost_wake_up() {
    let mut records = ring(2);
    for record in &mut records {
        if let Record::Event(event) = record
            && let Some(snapshot) = &mut event.snapshot
        {
            // Another value than that of a held mutex.
            snapshot.registers[8 * 4..][..8].copy_from_slice(&7_u64.to_le_bytes());
        } else if let Record::Memory(memory) = record {
            for mutex in memory.bytes.chunks_exact_mut(64) {
                mutex[0] = 7;
            }
        }
    }
    for (function, module, kind, proved, doubts) in [
        (
            "",
            "/bin/program",
            FindingKind::LostWakeup,
            false,
            &[Doubt::Unnamed][..],
        ),
        ("put", "/bin/program", FindingKind::LostWakeup, true, &[]),
        (
            "__lll_lock_wait_private malloc",
            "/lib/libc.so.6",
            FindingKind::Deadlock,
            true,
            &[],
        ),
    ] {
        let mut files = Files::new();
        (files.function, files.module) = (function, module);
        let (_, findings) = look(records.clone(), files);
        let [one] = &findings[..] else {
            panic!("{function}: {findings:?}");
        };
        let found = (one.kind, one.proved, &one.hang().doubts[..]);
        assert_eq!(found, (kind, proved, doubts), "{function}");
    }
}

/// libstdc++ makes a process-shared system call, but a future belongs to one process.
#[test]
fn futures_that_no_thread_is_left_to_provide() {
    let mut records = ring(2);
    for record in &mut records {
        if let Record::Event(event) = record
            && let Some(snapshot) = &mut event.snapshot
        {
            // futex(word, FUTEX_WAIT, 2, NULL)
            snapshot.registers[24..32].fill(0);
        }
    }
    let mut files = Files::new();
    files.function = "std::__atomic_futex_unsigned_base::_M_futex_wait_until";
    files.module = "/lib/libstdc++.so.6";
    let (_, findings) = look(records.clone(), files);
    let found: Vec<_> = findings.iter().map(|f| (f.kind, f.proved)).collect();
    assert_eq!(found, [(FindingKind::LostWakeup, true)], "{findings:?}");
    // Of another word that may be shared, nothing follows.
    let mut files = Files::new();
    files.function = "wait_for_another_process";
    files.module = "/bin/program";
    let (_, findings) = look(records, files);
    assert_eq!(findings, []);
}

/// Missing or changed records cause no panic. A proof uses only states of one moment, and only
/// existing threads.
#[test]
fn cut_and_damaged_looks() {
    let mut seed = 4711u64;
    let mut random = move |below: usize| {
        seed = seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (seed >> 33) as usize % below.max(1)
    };
    for _ in 0..4000 {
        let mut records = ring(4);
        let whole = records.len();
        // The header and the target stay: without them there is no inspection.
        for _ in 0..random(4) {
            let at = 2 + random(records.len() - 2);
            match random(3) {
                0 => drop(records.remove(at)),
                1 => records.truncate(at),
                _ => damage(&mut records[at], &mut random),
            }
            if records.len() < 3 {
                break;
            }
        }
        let stood = records
            .iter()
            .any(|record| matches!(record, Record::Standstill(_)));
        let untouched = records.len() == whole && records == ring(4);
        let (_, findings) = look(records, Files::new());
        for finding in findings.iter().filter(|finding| finding.proved) {
            assert!(stood, "{finding:?}");
            let all = finding.threads.len() == 4;
            // If memory names another owner that waits too, a smaller circle is correct.
            assert!(all || !untouched, "{finding:?}");
        }
    }
}

fn damage(record: &mut Record, random: &mut dyn FnMut(usize) -> usize) {
    let mut bytes = |bytes: &mut Vec<u8>| {
        let length = bytes.len();
        match random(3) {
            0 => bytes.truncate(random(length)),
            _ => {
                for _ in 0..1 + random(8) {
                    if let Some(byte) = bytes.get_mut(random(length)) {
                        *byte = random(256) as u8;
                    }
                }
            }
        }
    };
    match record {
        Record::Memory(memory) => bytes(&mut memory.bytes),
        Record::Event(event) => {
            if let Some(snapshot) = &mut event.snapshot {
                bytes(&mut snapshot.registers);
                if let Some(chunk) = snapshot.chunks.first_mut() {
                    bytes(&mut chunk.bytes);
                }
            }
        }
        Record::ThreadState(state) => {
            state.own_tid = Some(random(200) as u64);
            state.handled_signals = None;
        }
        Record::ThreadSeen(seen) => seen.tid = random(200) as u64,
        Record::Standstill(stood) => stood.to_ns = random(20) as u64,
        _ => {}
    }
}
