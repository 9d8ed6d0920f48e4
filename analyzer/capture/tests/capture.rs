//! The capture file from outside: whatever happens to a file, what was flushed is there.
//!
//! Damage is done to real files' bytes, death to a real writing process, and `/dev/full` is the full
//! disk.

use std::io::{self, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use unspool_capture::{
    Capture, Chunk, CutReason, Dropped, End, EndReason, Event, Header, ModuleLoaded, Note, Probe,
    ProbeKind, ReadError, ReadRole, Reader, Record, RegisterLayout, Snapshot, Target, ThreadExited,
    ThreadSeen, WriteError, Writer,
};

/// Records of all sorts, in several blocks.
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
            kind: ProbeKind::Create.into(),
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
    }
}

fn end() -> End {
    End {
        reason: EndReason::ProgramEnded.into(),
        time_ns: 99,
        detail: String::new(),
    }
}

/// A whole capture, and how many records are readable after each of its flushes.
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
fn what_is_written_is_read() {
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

#[test]
fn every_length_opens_and_gives_what_was_flushed() {
    let (bytes, flushed) = file();
    let whole = Capture::read_from(&bytes[..]).unwrap().records;
    for length in 1..bytes.len() {
        let capture = Capture::read_from(&bytes[..length])
            .unwrap_or_else(|error| panic!("{length} bytes: {error}"));
        let (offset, readable) = flushed
            .iter()
            .rev()
            .find(|(offset, _)| *offset <= length as u64)
            .copied()
            .unwrap_or((length as u64, 0));
        assert_eq!(capture.records, whole[..readable], "{length} bytes");
        let cut = capture
            .cut
            .unwrap_or_else(|| panic!("{length} bytes: not cut"));
        assert_eq!(cut.offset, offset, "{length} bytes");
        if length as u64 == offset && length >= 16 {
            assert_eq!(cut.reason, CutReason::NoEnd);
        }
    }
    assert!(matches!(Capture::read_from(&[][..]), Err(ReadError::Empty)));
}

#[test]
fn a_flipped_bit_loses_its_block_and_no_other() {
    let (bytes, flushed) = file();
    let whole = Capture::read_from(&bytes[..]).unwrap().records;
    for at in 0..bytes.len() {
        for bit in [0, 3, 7] {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1 << bit;
            match Capture::read_from(&bytes[..]) {
                Ok(capture) => {
                    let before = flushed
                        .iter()
                        .rev()
                        .find(|(offset, _)| *offset <= at as u64);
                    let (offset, readable) = *before.unwrap();
                    assert_eq!(capture.records, whole[..readable], "byte {at} bit {bit}");
                    assert_eq!(capture.cut.map(|cut| cut.offset), Some(offset));
                }
                Err(ReadError::NotACapture) => assert!(at < 8),
                Err(ReadError::HeaderDamaged) => assert!((8..16).contains(&at)),
                Err(other) => panic!("byte {at} bit {bit}: {other}"),
            }
        }
    }
}

/// A file header of some version, with the right checksum.
fn header(major: u16, minor: u16) -> Vec<u8> {
    let mut header = b"UNSPOOL\n".to_vec();
    header.extend(major.to_le_bytes());
    header.extend(minor.to_le_bytes());
    header.extend(crc32c::crc32c(&header).to_le_bytes());
    header
}

/// A block with the right checksum, whatever it says.
fn block(flags: u32, stored: u32, unpacked: u32, payload: &[u8]) -> Vec<u8> {
    let mut checked = Vec::new();
    checked.extend(flags.to_le_bytes());
    checked.extend(stored.to_le_bytes());
    checked.extend(unpacked.to_le_bytes());
    checked.extend(payload);
    let mut block = b"UBLK".to_vec();
    block.extend(crc32c::crc32c(&checked).to_le_bytes());
    block.extend(checked);
    block
}

fn plain(batch: &[u8]) -> Vec<u8> {
    block(0, batch.len() as u32, batch.len() as u32, batch)
}

#[test]
fn other_versions_and_other_files_are_told_apart() {
    let error = Capture::read_from(&header(2, 5)[..]).unwrap_err();
    assert!(matches!(error, ReadError::Version { major: 2, minor: 5 }));
    assert!(error.to_string().contains("version 2.5"), "{error}");
    assert!(
        error.to_string().contains("this program reads version 1.x"),
        "{error}"
    );

    let minor = Capture::read_from(&header(1, 900)[..]).unwrap();
    assert_eq!(minor.cut.unwrap().reason, CutReason::NoEnd);

    for other in [
        &b"\x7fELF\x02"[..],
        b"x",
        b"unspool\n",
        b"UNSPOOM\n........",
    ] {
        let error = Capture::read_from(other).unwrap_err();
        assert!(matches!(error, ReadError::NotACapture), "{error}");
    }
    let error = Capture::read("/no/such/file").unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("cannot open the capture /no/such/file: "),
        "{error}"
    );
}

#[test]
fn newer_records_and_fields_are_skipped() {
    // record { 5 (ThreadSeen): { 1 (tid): 9, 99: 1, 98: "xyz" } }
    let known = [
        &[12, 0x2a, 10][..],
        &[8, 9, 0x98, 6, 1, 0x92, 6, 2, b'x', b'y'][..],
    ]
    .concat();
    // record { 500: { 1: 1 } }
    let unknown = [5, 0xa2, 31, 2, 8, 1];
    // An enum value of the future: record { 13 (End): { 1 (reason): 77 } }
    let end = [4, 0x6a, 2, 8, 77];
    let file = [
        header(1, 9),
        plain(&[&unknown[..], &known[..], &end[..]].concat()),
    ]
    .concat();
    let capture = Capture::read_from(&file[..]).unwrap();
    assert_eq!(capture.cut, None);
    assert_eq!(capture.unknown, 1);
    assert_eq!(
        capture.records[0],
        ThreadSeen {
            tid: 9,
            ..Default::default()
        }
        .into()
    );
    let Record::End(end) = &capture.records[1] else {
        panic!("{:?}", capture.records[1]);
    };
    assert_eq!(end.reason(), EndReason::Unspecified);
}

#[test]
fn hostile_sizes_take_no_memory() {
    let bomb = zstd::bulk::compress(&vec![0; 64 << 20], 1).unwrap();
    let size = bomb.len() as u32;
    let huge_record = [0xff, 0xff, 0xff, 0xff, 0x0f, 1, 2];
    for (name, block, expected) in [
        (
            "stored size",
            block(0, u32::MAX, 10, b"x"),
            CutReason::BlockTooLarge { size: 0xffff_ffff },
        ),
        (
            "unpacked size",
            block(1, size, u32::MAX, &bomb),
            CutReason::BlockTooLarge { size: 0xffff_ffff },
        ),
        (
            "missing bytes",
            block(0, 16 << 20, 16 << 20, b"x"),
            CutReason::InBlock {
                missing: Some((16 << 20) - 1),
            },
        ),
        (
            "more than declared",
            block(1, size, 1000, &bomb),
            CutReason::Compression,
        ),
        (
            "less than declared",
            block(0, 1, 9, b"\0"),
            CutReason::Compression,
        ),
        ("not zstd", block(1, 3, 9, b"abc"), CutReason::Compression),
        (
            "flags",
            block(6, 1, 1, b"\0"),
            CutReason::UnknownFlags { flags: 6 },
        ),
        ("record length", plain(&huge_record), CutReason::Record),
        ("half a record", plain(&[9, 0x2a]), CutReason::Record),
        (
            "another file behind",
            b"PK\x03\x04 and so on and on".to_vec(),
            CutReason::NoBlock,
        ),
    ] {
        let file = [header(1, 0), block].concat();
        let capture = Capture::read_from(&file[..]).unwrap();
        assert_eq!(capture.cut.unwrap().reason, expected, "{name}");
        assert!(capture.records.is_empty(), "{name}");
    }
}

#[test]
fn garbage_never_panics() {
    let mut state = 0x1234_5678_9abc_def1u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..2000 {
        let payload: Vec<u8> = (0..random() % 200).map(|_| random() as u8 & 0x3f).collect();
        let file = [header(1, 0), plain(&payload), payload].concat();
        let capture = Capture::read_from(&file[..]).unwrap();
        assert!(capture.cut.is_some());
    }
}

/// A sink with room for so many bytes.
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
                .starts_with("no space left for the capture"),
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
    // Just within the limit, twice: each gets a block.
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
        assert!(Instant::now() < until, "nobody killed this process");
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
