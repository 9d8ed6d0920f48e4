//! Functions as compilers make them, byte by byte, and bytes that are no function at all.

use super::effect::{Instruction, Target};
use super::flow::{Function, Text, follow};
use super::state::State;
use super::{a32, t32};
use crate::rule::{Cfa, Place};

struct Bytes(Vec<u8>);

impl Bytes {
    fn half(&self, svma: u64) -> Option<u16> {
        let bytes = self.0.get(svma as usize..svma as usize + 2)?;
        Some(u16::from_le_bytes([bytes[0], bytes[1]]))
    }
}

impl Text for Bytes {
    fn decode(&self, svma: u64, thumb: bool) -> Option<Instruction> {
        if !thumb {
            return Some(a32::decode(self.word(svma)?, svma));
        }
        let first = self.half(svma)?;
        if t32::is_wide(first) {
            Some(t32::decode_wide(first, self.half(svma + 2)?, svma))
        } else {
            Some(t32::decode_narrow(first, svma))
        }
    }

    fn word(&self, svma: u64) -> Option<u32> {
        let bytes = self.0.get(usize::try_from(svma).ok()?..)?.get(..4)?;
        Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn is_data(&self, _svma: u64) -> bool {
        false
    }

    fn never_returns(&self, _target: Target) -> bool {
        false
    }
}

fn analyse(bytes: Vec<u8>, thumb: bool) -> Function {
    let end = bytes.len() as u64;
    let start = Target { svma: 0, thumb };
    follow(&Bytes(bytes), start, end, State::entry(), true)
}

fn a32(words: &[u32]) -> Function {
    analyse(
        words.iter().flat_map(|word| word.to_le_bytes()).collect(),
        false,
    )
}

fn t16(halves: &[u16]) -> Function {
    analyse(
        halves.iter().flat_map(|half| half.to_le_bytes()).collect(),
        true,
    )
}

/// (sp offset, return address) at every instruction; `None` where unknown.
fn rows(function: &Function) -> Vec<Option<(i32, Place)>> {
    let row = |state: &State| match state.rule(&mut Vec::new())? {
        (
            Cfa::Register {
                register: 13,
                offset,
            },
            ra,
        ) => Some((offset, ra)),
        _ => None,
    };
    function
        .instructions
        .iter()
        .map(|(_, _, state)| row(state))
        .collect()
}

/// The ancestors' example: `push {lr}; sub sp, sp, #12` is a 16-byte frame whose return address is the topmost word.
#[test]
fn the_worked_example() {
    // e52de004 push {lr}; e24dd00c sub sp, sp, #12; ebfffffe bl .; e28dd00c add sp, sp, #12; e49df004 pop {pc}
    let function = a32(&[
        0xe52d_e004,
        0xe24d_d00c,
        0xebff_fffe,
        0xe28d_d00c,
        0xe49d_f004,
    ]);
    let saved = Place::AtCfa(-4);
    let expected = [
        (0, Place::Same),
        (4, saved),
        (16, saved),
        (16, saved),
        (4, saved),
    ]
    .map(Some);
    assert_eq!(rows(&function), expected);
    assert!(function.clean);
}

/// An early return before the frame is built, and an IT block that returns from within it.
#[test]
fn conditional_returns() {
    // b130 cbz r0, 16; b510 push {r4, lr}; f7ff fffe bl .; 2800 cmp r0, #0; bf18 it ne; bd10 popne {r4, pc}; bd10 pop {r4, pc}; 4770 bx lr
    let function = t16(&[
        0xb130, 0xb510, 0xf7ff, 0xfffe, 0x2800, 0xbf18, 0xbd10, 0xbd10, 0x4770,
    ]);
    let (none, saved) = (Some((0, Place::Same)), Some((8, Place::AtCfa(-4))));
    assert_eq!(rows(&function)[..2], [none, none]);
    assert_eq!(rows(&function)[2..7], [saved; 5]);
    assert_eq!(rows(&function).last(), Some(&none));
}

/// A frame too large for an immediate: `ldr ip, =-70000; add sp, ip`.
#[test]
fn frames_by_register() {
    // b500 push {lr}; f8df c00c ldr.w ip, [pc, #12]; 44e5 add sp, ip; f7ff fffe bl .; e7fe b .; bf00 nop; literal
    let function = t16(&[
        0xb500, 0xf8df, 0xc00c, 0x44e5, 0xf7ff, 0xfffe, 0xe7fe, 0xbf00, 0xee90, 0xfffe,
    ]);
    let last = rows(&function).last().copied().flatten();
    assert_eq!(last, Some((70004, Place::AtCfa(-4))));
}

#[test]
fn any_bytes_end() {
    let mut value = 1u32;
    for round in 0..600 {
        let bytes: Vec<u8> = (0..400)
            .map(|_| {
                value = value.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (value >> 24) as u8
            })
            .collect();
        let function = analyse(bytes, round % 2 == 0);
        assert!(function.instructions.len() <= 200 * 64);
    }
}
