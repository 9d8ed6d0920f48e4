//! Rows for the frame-pointer frames that compilers build, for all text.
//!
//! These rows are only listed and compared. [`crate::walk()`] follows frame-pointer chains with
//! checks of its own that no row can express.

use unspool_image::{Arch, Image};

use crate::rule::{Cfa, Place, Row, Rule, Source};

/// `push rbp; mov rbp, rsp`
const X86_64: Rule<'static> = rule(6, 16, -8, &[(6, Place::AtCfa(-16))]);
/// `stp x29, x30, [sp, #-16]!; mov x29, sp`
const AARCH64: Rule<'static> = rule(29, 16, -8, &[(29, Place::AtCfa(-16))]);
/// `push {fp, lr}; add fp, sp, #4`
const A32: Rule<'static> = rule(11, 4, -4, &[(11, Place::AtCfa(-8))]);
/// `push {r7, lr}; mov r7, sp`
const T32: Rule<'static> = rule(7, 8, -4, &[(7, Place::AtCfa(-8))]);

const fn rule(register: u8, offset: i32, ra: i32, saved: &'static [(u8, Place)]) -> Rule<'static> {
    Rule {
        cfa: Cfa::Register { register, offset },
        ra: Place::AtCfa(ra),
        saved,
        signal_frame: false,
        signed: false,
    }
}

/// One row for each range of text with one instruction set.
pub(crate) fn rows(image: &Image) -> Vec<Row<'static>> {
    let mut rows: Vec<Row<'static>> = Vec::new();
    let mut push = |start: u64, end: u64, rule: Rule<'static>| match rows.last_mut() {
        Some(last) if last.end == start && last.rule == rule => last.end = end,
        _ if start < end => rows.push(Row {
            start,
            end,
            source: Source::Code,
            rule,
        }),
        _ => {}
    };
    for range in image.text_ranges() {
        match image.arch() {
            Arch::X86_64 => push(range.start, range.end, X86_64),
            Arch::Aarch64 => push(range.start, range.end, AARCH64),
            _ => {
                // The instruction set can change where a function starts.
                let starts = image.symbols().functions().map(|symbol| symbol.svma);
                let mut starts: Vec<u64> = starts.filter(|svma| range.contains(svma)).collect();
                starts.extend([range.start, range.end]);
                starts.sort_unstable();
                for pair in starts.windows(2) {
                    let thumb = image.thumb_at(pair[0]).unwrap_or(false);
                    push(pair[0], pair[1], if thumb { T32 } else { A32 });
                }
            }
        }
    }
    rows
}
