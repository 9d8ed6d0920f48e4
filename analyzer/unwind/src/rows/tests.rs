//! Tests of rows written by hand, and of random rows against a plain list.

use super::*;

const ARCH: Arch = Arch::X86_64;

fn draft(offset: i32) -> Draft<'static> {
    Draft {
        cfa: Cfa::Register {
            register: 7,
            offset: offset * 8,
        },
        ra: Place::AtCfa(-8),
        saved: &[],
        signal_frame: false,
        signed: false,
    }
}

fn offset_at(rows: &Rows, svma: u64) -> Option<i32> {
    let row = rows.lookup(svma);
    assert_eq!(row.is_some(), rows.quick(svma).is_some());
    match row?.rule.cfa {
        Cfa::Register { offset, .. } => Some(offset / 8),
        _ => None,
    }
}

#[test]
fn gaps_overlaps_and_neighbours() {
    let mut builder = Builder::new(Source::Cfi, ARCH);
    builder.push(0x200, 0x210, &draft(2));
    builder.push(0x100, 0x110, &draft(1));
    builder.push(0x108, 0x120, &draft(9));
    builder.push(0x210, 0x220, &draft(2));
    let rows = builder.finish();
    assert_eq!(offset_at(&rows, 0xff), None);
    assert_eq!(offset_at(&rows, 0x100), Some(1));
    assert_eq!(offset_at(&rows, 0x10f), Some(1));
    assert_eq!(offset_at(&rows, 0x110), Some(9));
    assert_eq!(offset_at(&rows, 0x120), None);
    assert_eq!(offset_at(&rows, 0x21f), Some(2));
    assert_eq!(offset_at(&rows, 0x220), None);
    assert_eq!(rows.lookup(0x205).unwrap().end, 0x220);
}

#[test]
fn an_empty_set_has_no_rows() {
    let rows = Builder::new(Source::Cfi, ARCH).finish();
    assert!(rows.lookup(0).is_none());
    assert_eq!(rows.iter().count(), 0);
}

/// Pseudo-random numbers (xorshift).
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn every_address_finds_the_row_that_was_pushed() {
    let mut state = 0x9e37_79b9_7f4a_7c15;
    for density in [1, 3, 40, 5000] {
        let mut builder = Builder::new(Source::Cfi, ARCH);
        let mut expected = Vec::new();
        let mut at = 0x40_0000;
        for _ in 0..3000 {
            let len = 1 + random(&mut state) % density;
            let offset = (random(&mut state) % 700) as i32;
            if random(&mut state).is_multiple_of(4) {
                expected.push((at, at + len, None));
            } else {
                builder.push(at, at + len, &draft(offset));
                expected.push((at, at + len, Some(offset)));
            }
            at += len;
        }
        let rows = builder.finish();
        let mut bytes = Vec::new();
        rows.write(&mut bytes);
        let stored = Rows::read(ARCH, &mut &bytes[..]).expect("what was written");
        for (start, end, offset) in expected {
            for svma in [start, start + (end - start) / 2, end - 1] {
                assert_eq!(offset_at(&rows, svma), offset, "{svma:#x} of {density}");
                assert_eq!(offset_at(&stored, svma), offset, "{svma:#x} of {density}");
            }
        }
        let mut last = 0;
        for row in rows.iter() {
            assert!(row.start >= last && row.end > row.start);
            last = row.end;
        }
    }
}

/// Every form of a rule survives packing, whether it fits a quick word or not.
#[test]
fn rules_survive_packing() {
    let mut state = 1;
    let mut builder = Builder::new(Source::Code, Arch::Arm);
    let expression = builder.expression(&[0x77, 0x08]);
    let other = builder.expression(&[0x11]);
    let mut expected = Vec::new();
    for at in 0..4000u64 {
        let mut offset = || match random(&mut state) % 3 {
            0 => (random(&mut state) % 64) as i32 * -4,
            1 => random(&mut state) as i32 % 0x20_0000,
            _ => random(&mut state) as i32,
        };
        let mut place = |kind: u64| match kind % 8 {
            0 => Place::Undefined,
            1 => Place::Same,
            2 => Place::AtCfa(offset()),
            3 => Place::CfaPlus(offset()),
            4 => Place::AtRegister {
                register: kind as u8 % 39,
                offset: offset(),
            },
            5 => Place::Register(kind as u8 % 39),
            6 => Place::AtExpression(expression),
            _ => Place::Value(other),
        };
        let ra = place(at / 3);
        let saved: Vec<(u8, Place)> = (0..at % 5)
            .map(|n| (n as u8 * 3 + 3, place(at + n)))
            .collect();
        let cfa = match at % 5 {
            0 => Cfa::Unknown,
            1 => Cfa::Expression(expression),
            n => Cfa::Register {
                register: 10 + n as u8,
                offset: offset(),
            },
        };
        let draft = Draft {
            cfa,
            ra,
            saved: &saved,
            signal_frame: at % 7 == 0,
            signed: at % 11 == 0,
        };
        builder.push(at * 4, at * 4 + 3, &draft);
        expected.push((cfa, ra, saved.clone(), at % 7 == 0, at % 11 == 0));
    }
    let rows = builder.finish();
    let quick = (0..4000).filter(|at| {
        rows.quick(at * 4)
            .is_some_and(|(quick, _)| !quick.is_slow())
    });
    assert!(quick.count() > 50);
    for (at, (cfa, ra, saved, signal_frame, signed)) in expected.into_iter().enumerate() {
        let row = rows.lookup(at as u64 * 4 + 1).expect("row");
        assert_eq!(row.source, Source::Code);
        assert_eq!((row.rule.cfa, row.rule.ra), (cfa, ra), "{at}");
        assert_eq!(row.rule.saved, saved, "{at}");
        assert_eq!(
            (row.rule.signal_frame, row.rule.signed),
            (signal_frame, signed)
        );
    }
    assert_eq!(rows.expression(other), [0x11]);
}

#[test]
fn damaged_bytes_are_refused_or_harmless() {
    let mut builder = Builder::new(Source::Cfi, ARCH);
    for at in 0..300u64 {
        builder.push(0x1000 + 16 * at, 0x1008 + 16 * at, &draft(at as i32 % 9));
    }
    let mut bytes = Vec::new();
    builder.finish().write(&mut bytes);
    for len in 0..bytes.len() {
        assert!(Rows::read(ARCH, &mut &bytes[..len]).is_err(), "{len}");
    }
    let mut state = 7;
    for _ in 0..2000 {
        let mut bytes = bytes.clone();
        for _ in 0..3 {
            let at = random(&mut state) as usize % bytes.len();
            bytes[at] = random(&mut state) as u8;
        }
        if let Ok(rows) = Rows::read(ARCH, &mut &bytes[..]) {
            for at in 0..600 {
                rows.quick(0xff0 + 8 * at);
                rows.lookup(0xff0 + 8 * at);
            }
            rows.iter().for_each(drop);
        }
    }
}
