//! Compares compiled call frame information with gimli's evaluation of the same sections, row by
//! row.

use std::path::Path;
use std::process::Command;

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, DebugFrame, EhFrame, EndianSlice, LittleEndian, RegisterRule,
    UnwindContext, UnwindSection, Vendor,
};
use unspool_image::{Arch, Image};
use unspool_unwind::{Cfa, CompileOptions, Place, Row, Source, Table};

use crate::tools::{Scratch, armhf_sysroot, need, output};

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// The number of compared rows, and the differences.
#[derive(Debug, Default)]
struct Outcome {
    rows: usize,
    fdes: usize,
    differences: Vec<String>,
}

fn compare(image: &Image) -> Outcome {
    let table = Table::compile(image, &CompileOptions::default());
    let mut outcome = Outcome::default();
    let size = image.arch().address_size() as u8;
    let vendor = match image.arch() {
        Arch::Aarch64 => Vendor::AArch64,
        _ => Vendor::Default,
    };
    if let Some(section) = image.section(".eh_frame") {
        let mut frames = EhFrame::new(&section.data, LittleEndian);
        frames.set_address_size(size);
        frames.set_vendor(vendor);
        evaluate(image, &table, &frames, section.svma, &mut outcome);
    }
    if let Some(section) = image.section(".debug_frame") {
        let mut frames = DebugFrame::new(&section.data, LittleEndian);
        frames.set_address_size(size);
        frames.set_vendor(vendor);
        evaluate(image, &table, &frames, section.svma, &mut outcome);
    }
    outcome
}

fn evaluate<'a, S>(image: &Image, table: &Table, frames: &S, svma: u64, outcome: &mut Outcome)
where
    S: UnwindSection<Slice<'a>>,
    S::Offset: gimli::UnwindOffset<usize>,
{
    let text = image.text_ranges();
    let bases = BaseAddresses::default()
        .set_eh_frame(svma)
        .set_text(text.first().map_or(0, |range| range.start));
    let mut context = UnwindContext::new();
    let mut entries = frames.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let Ok(fde) = partial.parse(S::cie_from_offset) else {
            continue;
        };
        if !text
            .iter()
            .any(|range| range.contains(&fde.initial_address()))
        {
            continue;
        }
        outcome.fdes += 1;
        let ra = fde.cie().return_address_register();
        let Ok(mut rows) = fde.rows(frames, &bases, &mut context) else {
            continue;
        };
        while let Ok(Some(row)) = rows.next_row() {
            let (start, end) = (row.start_address(), row.end_address());
            if start >= end {
                continue;
            }
            outcome.rows += 1;
            for at in [start, end - 1] {
                let own = table.lookup_from(Source::Cfi, at);
                let Some(own) = own else {
                    outcome.differences.push(format!("no row at {at:#x}"));
                    continue;
                };
                let expected = expected(frames, row, ra, fde.is_signal_trampoline());
                let found = found(table, &own, ra);
                if expected != found {
                    outcome
                        .differences
                        .push(format!("{at:#x}: {found} instead of {expected}"));
                }
            }
        }
    }
}

/// gimli's row as text.
fn expected<'a, S: UnwindSection<Slice<'a>>>(
    frames: &S,
    row: &gimli::UnwindTableRow<usize>,
    ra: gimli::Register,
    signal_frame: bool,
) -> String {
    let bytes = |expression: &gimli::UnwindExpression<usize>| {
        expression
            .get(frames)
            .map_or("?".into(), |bytes| format!("{:?}", bytes.0.slice()))
    };
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => format!("r{}{offset:+}", register.0),
        CfaRule::Expression(expression) => bytes(expression),
    };
    let mut signed = false;
    let mut places = Vec::new();
    for (register, rule) in row.registers() {
        let place = match rule {
            RegisterRule::Undefined => "u".into(),
            RegisterRule::SameValue => "s".into(),
            RegisterRule::Offset(offset) => format!("c{offset:+}"),
            RegisterRule::ValOffset(offset) => format!("v{offset:+}"),
            RegisterRule::Register(other) => format!("r{}", other.0),
            RegisterRule::Expression(expression) => format!("*{}", bytes(expression)),
            RegisterRule::ValExpression(expression) => bytes(expression),
            RegisterRule::Constant(value) => {
                signed = *value == 1;
                continue;
            }
            _ => "?".into(),
        };
        // Unwinding does not need vector registers.
        if register.0 < 39 {
            places.push((register.0, place));
        }
    }
    if !places.iter().any(|(register, _)| *register == ra.0) {
        let usual = matches!(ra.0, 14 | 16 | 30);
        let place = if usual {
            "s".into()
        } else {
            format!("r{}", ra.0)
        };
        places.push((ra.0, place));
    }
    places.sort();
    format!("{cfa} {places:?} signal {signal_frame} signed {signed}")
}

/// Our row as the same text.
fn found(table: &Table, row: &Row<'_>, column: gimli::Register) -> String {
    let expression = |id| format!("{:?}", table.expression(Some(Source::Cfi), id));
    let cfa = match row.rule.cfa {
        Cfa::Register { register, offset } => format!("r{register}{offset:+}"),
        Cfa::Expression(id) => expression(id),
        Cfa::Unknown => "unknown".into(),
    };
    let place = |place: Place| match place {
        Place::Same => "s".into(),
        Place::Undefined => "u".into(),
        Place::AtCfa(offset) => format!("c{offset:+}"),
        Place::CfaPlus(offset) => format!("v{offset:+}"),
        Place::AtRegister { register, offset } => format!("*(r{register}{offset:+})"),
        Place::Register(register) => format!("r{register}"),
        Place::AtExpression(id) => format!("*{}", expression(id)),
        Place::Value(id) => expression(id),
    };
    let mut places: Vec<(u16, String)> = row
        .rule
        .saved
        .iter()
        .map(|&(register, at)| (u16::from(register), place(at)))
        .chain([(column.0, place(row.rule.ra))])
        .collect();
    places.sort();
    format!(
        "{cfa} {places:?} signal {} signed {}",
        row.rule.signal_frame, row.rule.signed
    )
}

fn check(name: &str, image: &Image, at_least: usize) {
    let outcome = compare(image);
    println!(
        "{name}: {} rows of {} FDEs equal to gimli's",
        outcome.rows, outcome.fdes
    );
    for note in Table::compile(image, &CompileOptions::default()).notes() {
        println!("  {note}");
    }
    assert!(
        outcome.differences.is_empty(),
        "{name}: {} differences, {:#?}",
        outcome.differences.len(),
        &outcome.differences[..outcome.differences.len().min(5)]
    );
    assert!(outcome.rows >= at_least, "{name}: {outcome:?}");
}

#[test]
fn libraries() {
    for (path, at_least) in [
        ("/lib/x86_64-linux-gnu/libc.so.6", 20_000),
        ("/usr/lib/x86_64-linux-gnu/libstdc++.so.6", 25_000),
        ("/usr/bin/python3", 20_000),
        ("/usr/bin/bash", 5_000),
        ("/usr/aarch64-linux-gnu/lib/libc.so.6", 20_000),
        ("/usr/aarch64-linux-gnu/lib/libstdc++.so.6", 20_000),
    ] {
        need(&[path]);
        let image = Image::open(Path::new(path)).expect("image");
        check(path, &image, at_least);
        let len = |name| image.section(name).map_or(0, |section| section.data.len());
        let replaced = len(".eh_frame") + len(".eh_frame_hdr");
        let bytes = Table::compile(&image, &CompileOptions::default()).bytes();
        println!("  {bytes} bytes for {replaced} of .eh_frame and .eh_frame_hdr");
        assert!(bytes <= replaced, "{path}: {bytes} > {replaced}");
    }
}

/// `.debug_frame` in a separate file with compressed sections.
#[test]
fn debug_files() {
    let root = armhf_sysroot();
    let library = Image::open(&root.join("lib/arm-linux-gnueabihf/libc.so.6")).expect("library");
    let id = library.build_id().expect("build-id").to_string();
    let debug = format!("usr/lib/debug/.build-id/{}/{}.debug", &id[..2], &id[2..]);
    let debug = Image::open(&root.join(debug)).expect("debug file");
    check("armhf libc", &library.with_debug_file(debug), 12_000);
}

#[test]
fn every_instruction() {
    need(&["gcc", "aarch64-linux-gnu-gcc"]);
    let dir = Scratch::new("gimli");
    for (compiler, program, rows) in [
        ("gcc", "cfi_x86_64.s", 18),
        ("aarch64-linux-gnu-gcc", "cfi_aarch64.s", 6),
    ] {
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/programs")
            .join(program);
        let target = dir.path().join(program.trim_end_matches(".s"));
        output(
            Command::new(compiler)
                .args(["-nostdlib", "-static", "-o"])
                .arg(&target)
                .arg(source),
        );
        let image = Image::open(&target).expect("image");
        check(program, &image, rows);
        let notes = Table::compile(&image, &CompileOptions::default());
        let notes: Vec<String> = notes.notes().iter().map(ToString::to_string).collect();
        if program == "cfi_x86_64.s" {
            assert_eq!(notes.len(), 1, "{notes:?}");
            assert!(
                notes[0].contains("instruction 0x3e is unknown"),
                "{notes:?}"
            );
        } else {
            assert!(notes.is_empty(), "{notes:?}");
            // gimli does not read the augmentation for key B.
            let table = Table::compile(&image, &CompileOptions::default());
            let last = table.rows_from(Source::Cfi).last().expect("rows");
            assert!(last.rule.signed, "{last:?}");
        }
    }
}
