//! Tests with entries as compilers write them, next to the disassembly of their functions.

use super::*;

fn frame(bytes: &[u8]) -> Option<FrameOf> {
    frame_of(&opcode::decode(bytes))
}

/// `push {r4, r5, lr}; sub sp, sp, #12`: 0x02 (vsp += 12), 0x84 0x03 (pop {r4, r5, r14}).
#[test]
fn pushes_and_locals() {
    let frame = frame(&[0x02, 0x84, 0x03]).unwrap();
    assert_eq!(
        frame.cfa,
        Cfa::Register {
            register: 13,
            offset: 24
        }
    );
    assert_eq!(frame.ra, Place::AtCfa(-4));
    assert_eq!(frame.saved, [(4, Place::AtCfa(-12)), (5, Place::AtCfa(-8))]);
}

/// `push {r7, lr}; sub sp, #32; add r7, sp, #0`: 0x97 (vsp = r7), 0x07 (vsp += 32), 0x84 0x08 (pop
/// {r7, r14}).
#[test]
fn frame_register() {
    let frame = frame(&[0x97, 0x07, 0x84, 0x08]).unwrap();
    assert_eq!(
        frame.cfa,
        Cfa::Register {
            register: 7,
            offset: 40
        }
    );
    assert_eq!(frame.ra, Place::AtCfa(-4));
    assert_eq!(frame.saved, [(7, Place::AtCfa(-8))]);
}

/// A leaf that saves nothing: 0xb0 (finish).
#[test]
fn leaf() {
    let frame = frame(&[0xb0, 0xb0, 0xb0]).unwrap();
    assert_eq!(frame.ra, Place::Same);
    assert!(frame.saved.is_empty());
}

/// `vpush {d8-d9}` above `push {r4-r11, lr}` and 0x604 bytes of locals by `0xb2`.
#[test]
fn large_frames_and_vfp() {
    let frame = frame(&[0xb2, 0x80, 0x02, 0xd1, 0xaf, 0xb0]).unwrap();
    assert_eq!(
        frame.cfa,
        Cfa::Register {
            register: 13,
            offset: 0x204 + 0x400 + 16 + 36
        }
    );
    assert_eq!(frame.saved[0], (4, Place::AtCfa(-36)));
}

#[test]
fn refusals() {
    assert_eq!(frame(&[0x80, 0x00]), None);
    assert_eq!(frame(&[0x9d]), None);
    assert_eq!(frame(&[0x84]), None);
    // vsp = r4 after r4 was popped: known only once memory is read
    assert_eq!(frame(&[0xa0, 0x94]), None);
}

#[test]
fn generic_personality_skips_its_word() {
    // prel31 of the routine, one further word, `vsp += 8; pop {r4, lr}; finish`
    let table: [u8; 12] = [
        0x10, 0, 0, 0, 0xb0, 0xa8, 0x01, 0x01, 0xb0, 0xb0, 0xb0, 0xb0,
    ];
    let bytes_at = |svma: u64, len: usize| table.get(svma as usize - 0x100..)?.get(..len);
    match table_entry(0x100, &bytes_at) {
        Entry::Operations(operations) => {
            assert_eq!(operations, [Op::AddSp(8), Op::Pop(0x4010), Op::Finish]);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn any_bytes_end() {
    for seed in 0..20_000u32 {
        let mut value = seed.wrapping_mul(2_654_435_761);
        let bytes: Vec<u8> = (0..12)
            .map(|_| {
                value = value.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (value >> 24) as u8
            })
            .collect();
        let _ = frame(&bytes);
    }
}
