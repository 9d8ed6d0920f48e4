//! Tests the capture file from outside: whatever happens to a file, its flushed records are
//! readable.
//!
//! The tests damage the bytes of real files and kill a real writing process. `/dev/full` is the
//! full disk.

use std::io::{self, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use unspool_capture::{
    Capture, Chunk, CutReason, Dropped, End, EndReason, Event, Header, ModuleLoaded, Note, Probe,
    ProbeKind, ReadError, ReadRole, Reader, Record, RegisterLayout, Snapshot, Target, ThreadEnd,
    ThreadExited, ThreadSeen, WriteError, Writer,
};

#[path = "capture/damage.rs"]
mod damage;

/// Records of all kinds, in several blocks.
fn records() -> Vec<Record> {
    let mut records: Vec<Record> = vec![
        Target {
            arch: "i386:x86-64".into(),
            pid: 7,
            local: true,
            ..Default::default()
        }
        .into(),
        ModuleLoaded {
            id: 1,
            path: "/bin/x".into(),
            bias: 0x5555_0000_0000,
            build_id: vec![1, 2, 3],
            ..Default::default()
        }
        .into(),
        Probe {
            id: 1,
            function: "pthread_create".into(),
            avma: 0x1000,
            module: Some(1),
            kind: ProbeKind::Leave.into(),
            ends: vec![1, 300],
        }
        .into(),
        Note {
            text: "ünïcode".into(),
            ..Default::default()
        }
        .into(),
    ];
    for i in 0..20u64 {
        records.push(
            ThreadSeen {
                tid: 100 + i,
                time_ns: i,
                ..Default::default()
            }
            .into(),
        );
        records.push(event(i).into());
        records.push(
            ThreadExited {
                tid: 100 + i,
                code: Some(-1),
                exact: true,
                time_ns: i,
                by: ThreadEnd::Killed.into(),
            }
            .into(),
        );
    }
    records.push(
        Dropped {
            probe: 1,
            count: 2,
            time_ns: 3,
        }
        .into(),
    );
    records
}

fn event(seq: u64) -> Event {
    let stack: Vec<u8> = (0..512u32).flat_map(|i| (i / 7).to_le_bytes()).collect();
    Event {
        seq,
        time_ns: seq * 1000,
        tid: 100 + seq,
        cpu: Some(1),
        probe: 1,
        args: vec![1, u64::MAX, 0],
        reads: vec![unspool_capture::Read {
            role: ReadRole::Handle.into(),
            address: 0x7fff_0000,
            bytes: vec![1; 8],
        }],
        snapshot: Some(Snapshot {
            registers: vec![seq as u8; 64],
            chunks: vec![Chunk {
                address: 0x7fff_ffff_0000,
                bytes: stack,
            }],
            ..Default::default()
        }),
        same_stack_as: seq.is_multiple_of(2).then_some(seq / 2),
        frame: Some(0x7fff_ffff_0000 + seq),
    }
}

fn end() -> End {
    End {
        reason: EndReason::ProgramEnded.into(),
        time_ns: 99,
        detail: String::new(),
    }
}

/// A complete capture, and the number of readable records after each of its flushes.
fn file() -> (Vec<u8>, Vec<(u64, usize)>) {
    let mut writer = Writer::new(Vec::new(), Header::default()).unwrap();
    let mut flushed = vec![(16, 0), (writer.written(), 1)];
    for (i, record) in records().into_iter().enumerate() {
        writer.record(record).unwrap();
        if i % 7 == 0 {
            writer.flush().unwrap();
            flushed.push((writer.written(), i + 2));
        }
    }
    writer.record(end()).unwrap();
    let bytes = writer.finish().unwrap();
    (bytes, flushed)
}

#[test]
fn written_records_are_read_back() {
    let (bytes, _) = file();
    let capture = Capture::read_from(&bytes[..]).unwrap();
    let mut expected = records();
    expected.push(end().into());
    assert_eq!(capture.records[1..], expected[..]);
    assert_eq!(capture.cut, None);
    assert_eq!(capture.target.pid, 7);
    assert_eq!(capture.events().count(), 20);
    assert_eq!(capture.unknown, 0);
    assert_eq!(
        Capture::from_records(capture.records.clone()).records,
        capture.records
    );
}

/// A sink with a limited size.
#[derive(Debug)]
struct Full(Vec<u8>, usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = self.1 - self.0.len();
        if room == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let n = room.min(bytes.len());
        self.0.extend(&bytes[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_keeps_what_was_written() {
    let (whole, _) = file();
    for room in 17..whole.len() {
        let mut sink = Full(Vec::new(), room);
        let mut written = 0;
        let result = (|| {
            let mut writer = Writer::new(&mut sink, Header::default())?;
            written = writer.written();
            for record in records() {
                writer.record(record)?;
                if let Err(error) = writer.flush() {
                    let again = writer.record(end()).unwrap_err();
                    assert!(matches!(again, WriteError::Broken { .. }), "{again}");
                    return Err(error);
                }
                written = writer.written();
            }
            writer.finish().map(drop)
        })();
        let error = result.unwrap_err();
        assert!(matches!(error, WriteError::Full { .. }), "{error}");
        assert!(
            error
                .to_string()
                .starts_with("no space left for the recording"),
            "{error}"
        );
        let capture = Capture::read_from(&sink.0[..]).unwrap();
        assert_eq!(capture.cut.unwrap().offset, written.max(16), "room {room}");
    }
}

#[test]
fn dev_full_is_a_full_disk() {
    let error = Writer::create("/dev/full", Header::default()).unwrap_err();
    assert!(
        matches!(error, WriteError::Full { written: 0, .. }),
        "{error}"
    );
    let error = Writer::create("/no/such/directory/x", Header::default()).unwrap_err();
    assert!(
        error.to_string().contains("/no/such/directory/x"),
        "{error}"
    );
}

#[test]
fn too_large_a_record_is_left_out_alone() {
    let mut writer = Writer::new(Vec::new(), Header::default()).unwrap();
    let note = |size: usize| Note {
        text: "x".repeat(size),
        ..Default::default()
    };
    let error = writer.record(note(17 << 20)).unwrap_err();
    assert!(
        matches!(error, WriteError::RecordTooLarge { .. }),
        "{error}"
    );
    // Just within the limit, twice: each gets its own block.
    writer.record(note((16 << 20) - 32)).unwrap();
    writer.record(note((16 << 20) - 32)).unwrap();
    writer.record(end()).unwrap();
    let capture = Capture::read_from(&writer.finish().unwrap()[..]).unwrap();
    assert_eq!(capture.cut, None);
    assert_eq!(capture.records.len(), 4);
}

#[test]
fn flushing_waits_until_it_is_due() {
    let mut writer = Writer::new(Vec::new(), Header::default()).unwrap();
    let before = writer.written();
    writer.record(event(1)).unwrap();
    writer.flush_if_due().unwrap();
    assert_eq!(writer.written(), before);
    std::thread::sleep(Duration::from_millis(210));
    writer.flush_if_due().unwrap();
    assert!(writer.written() > before);
}

#[test]
fn dropping_a_writer_writes_what_is_pending() {
    let mut sink = Vec::new();
    let mut writer = Writer::new(&mut sink, Header::default()).unwrap();
    writer.record(event(1)).unwrap();
    drop(writer);
    assert_eq!(Capture::read_from(&sink[..]).unwrap().events().count(), 1);
}

#[test]
fn stacks_compress_well() {
    let mut writer = Writer::new(Vec::new(), Header::default()).unwrap();
    let mut raw = 0;
    for seq in 0..2000 {
        let event = event(seq);
        raw += event.snapshot.as_ref().unwrap().chunks[0].bytes.len();
        writer.record(event).unwrap();
    }
    let written = writer.finish().unwrap().len();
    assert!(written * 20 < raw, "{written} bytes for {raw}");
}

#[test]
fn registers_are_read_by_layout_and_mask() {
    let layout = |bits, offset| RegisterLayout {
        bits,
        offset,
        ..Default::default()
    };
    let known = [true, true, true, true, true, false, true, true, true, true];
    let snapshot = Snapshot::of_registers(vec![1, 2, 3, 4, 5, 6, 7, 8, 9, 10], &known);
    assert_eq!(snapshot.register(&layout(32, 0)), Some(0x0403_0201));
    assert_eq!(
        snapshot.register(&layout(32, 4)),
        None,
        "byte 5 was not available"
    );
    assert_eq!(snapshot.register(&layout(32, 6)), Some(0x0a09_0807));
    assert_eq!(snapshot.register(&layout(32, 8)), None, "beyond the end");
    assert_eq!(
        snapshot.register(&layout(128, 0)),
        None,
        "wider than a word"
    );
    assert_eq!(snapshot.register(&layout(64, u32::MAX)), None);
    let all = Snapshot::of_registers(vec![1; 8], &[true; 8]);
    assert!(all.known.is_empty());
}

/// Not a test by itself: the process that `killed_in_the_middle_of_writing` kills.
#[test]
fn child_that_writes_until_killed() {
    let Some(path) = std::env::var_os("UNSPOOL_CAPTURE_CHILD") else {
        return;
    };
    let mut writer = Writer::create(path, Header::default()).unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    for seq in 0.. {
        writer.record(event(seq)).unwrap();
        writer.flush_if_due().unwrap();
        if seq % 5 == 0 {
            writer.flush().unwrap();
        }
        assert!(
            Instant::now() < until,
            "the parent did not kill this process"
        );
    }
}

#[test]
fn killed_in_the_middle_of_writing() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..5 {
        let path = directory.path().join(format!("{round}.unspool"));
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_that_writes_until_killed"])
            .env("UNSPOOL_CAPTURE_CHILD", &path)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let patience = Instant::now() + Duration::from_secs(20);
        while std::fs::metadata(&path).map_or(0, |m| m.len()) < 20_000 {
            assert!(Instant::now() < patience, "the child wrote nothing");
            std::thread::sleep(Duration::from_millis(1));
        }
        child.kill().unwrap(); // SIGKILL
        child.wait().unwrap();
        let capture = Capture::read(&path).unwrap();
        let seqs: Vec<u64> = capture.events().map(|event| event.seq).collect();
        assert!(seqs.len() > 10, "{} events", seqs.len());
        assert!(seqs.iter().copied().eq(0..seqs.len() as u64));
        assert!(capture.cut.is_some());
    }
}

#[test]
fn a_reader_gives_records_one_by_one() {
    let (bytes, _) = file();
    let mut reader = Reader::new(&bytes[..bytes.len() - 1]).unwrap();
    assert!(matches!(reader.next(), Some(Record::Header(_))));
    assert!(reader.by_ref().count() > 10);
    assert!(matches!(
        reader.cut().unwrap().reason,
        CutReason::InBlock { missing: Some(1) }
    ));
    assert_eq!(reader.next(), None);
}

/// Call events stay in the file. Read one by one, they equal events in memory.
#[test]
fn events_of_calls_are_shown_from_the_file() {
    let mut writer = Writer::new(Vec::new(), Header::default()).unwrap();
    for (id, kind) in [
        (1, ProbeKind::Create),
        (2, ProbeKind::Enter),
        (3, ProbeKind::Leave),
    ] {
        writer
            .record(Probe {
                id,
                kind: kind.into(),
                ..Default::default()
            })
            .unwrap();
    }
    let call = |seq: u64, probe| Event {
        seq,
        time_ns: seq * 10,
        tid: 100 + seq % 2,
        probe,
        args: vec![seq; 4],
        ..Default::default()
    };
    for seq in 1..=40_000 {
        writer.record(call(seq, 2 + (seq % 2) as u32)).unwrap();
        if seq == 20_000 {
            writer.record(call(0, 1)).unwrap();
            let (tid, time_ns) = (101, seq * 10);
            writer
                .record(ThreadExited {
                    tid,
                    time_ns,
                    ..Default::default()
                })
                .unwrap();
        }
    }
    let bytes = writer.finish().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("capture");
    std::fs::write(&path, &bytes).unwrap();

    let whole = Capture::read_from(&bytes[..]).unwrap();
    let capture = Capture::read(&path).unwrap();
    assert_eq!((whole.calls.count(), capture.calls.count()), (0, 40_000));
    assert_eq!(capture.calls.numbers, Some((1, 40_000)));
    assert_eq!(
        capture.calls.hits.values().collect::<Vec<_>>(),
        [&20_000; 2]
    );
    assert_eq!(capture.records.len() + 40_000, whole.records.len());
    // Thread id 101 has two threads, 100 has one.
    let ends: Vec<u64> = capture
        .calls
        .ends
        .iter()
        .map(|(_, event)| event.seq)
        .collect();
    assert_eq!(ends, [1, 2, 19_999, 20_001, 39_999, 40_000]);
    assert_eq!(capture.calls.ends[0].1.args, [1; 4]);
    assert_eq!((&capture.cut, capture.unknown), (&whole.cut, 0));

    let mut shown = Vec::new();
    let mut kept = 0;
    capture
        .each(&mut |at, record| {
            shown.push(record.clone());
            kept = at;
            let place = &capture.records[at];
            let of_call = matches!(record, Record::Event(event) if event.probe != 1);
            assert!(of_call || place == record);
        })
        .unwrap();
    assert!(shown == whole.records);
    assert_eq!(kept, capture.records.len() - 1);

    // A file that changes between two readings must cause an error, not a wrong result.
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let error = capture.each(&mut |_, _| {}).unwrap_err();
    assert!(matches!(error, ReadError::Changed), "{error}");
}

/// Each process has its own records and its own end, and an unknown number is skipped.
#[test]
fn processes_have_records_of_their_own() {
    let seen = |tid| ThreadSeen {
        tid,
        ..Default::default()
    };
    let end = || End {
        reason: EndReason::ProgramEnded.into(),
        ..Default::default()
    };
    let mut writer = Writer::new(Vec::new(), Header::default()).unwrap();
    writer.begin(1, Header::default()).unwrap();
    writer.record_of(1, seen(20)).unwrap();
    writer.record(seen(10)).unwrap();
    writer.record(end()).unwrap();
    writer.record_of(u32::MAX, seen(30)).unwrap();
    writer.record_of(1, seen(21)).unwrap();
    let bytes = writer.finish().unwrap();
    let tids = |records: &[Record]| -> Vec<u64> {
        let seen = records.iter().filter_map(|record| match record {
            Record::ThreadSeen(seen) => Some(seen.tid),
            _ => None,
        });
        seen.collect()
    };
    let first = Capture::read_from(&bytes[..]).unwrap();
    assert_eq!(tids(&first.records), [10]);
    assert_eq!(
        (first.further, first.unknown, first.cut),
        (vec![1], 1, None)
    );
    let mut reader = Reader::of_process(&bytes[..], 1).unwrap();
    let second: Vec<Record> = reader.by_ref().collect();
    assert_eq!(tids(&second), [20, 21]);
    // It has no end.
    assert!(matches!(second[0], Record::Header(_)) && reader.cut().is_some());
}
