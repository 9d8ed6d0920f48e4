//! Tests files that are truncated, damaged, of other versions, or no captures at all.

use super::*;

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

/// A file header of any version, with a correct checksum.
fn header(major: u16, minor: u16) -> Vec<u8> {
    let mut header = b"UNSPOOL\n".to_vec();
    header.extend(major.to_le_bytes());
    header.extend(minor.to_le_bytes());
    header.extend(crc32c::crc32c(&header).to_le_bytes());
    header
}

/// A block with a correct checksum and any content.
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
fn other_versions_and_other_files_are_rejected() {
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
            .starts_with("cannot open the recording /no/such/file: "),
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
    // An enum value of a later version: record { 13 (End): { 1 (reason): 77 } }
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
