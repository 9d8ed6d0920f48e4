//! Disassembles one function of a file to text. Capstone does this, because the unwinder's own
//! decoders only know an instruction's effect on the frame.

use std::ops::Range;

use capstone::prelude::*;
use thiserror::Error;
use unspool_image::{Arch, CodeKind, Image, Symbol};

/// A function without a known end is shown up to this many bytes.
const MAX_UNKNOWN_SIZE: u64 = 4096;

/// The instructions of one function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disassembly {
    /// The function's symbol, if it has one.
    pub name: Option<String>,
    /// Addresses of the file.
    pub range: Range<u64>,
    /// Instructions and data, in order.
    pub lines: Vec<Line>,
}

/// One instruction, or data between instructions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Address in the file.
    pub svma: u64,
    /// The bytes as they stand in the file.
    pub bytes: Vec<u8>,
    /// Mnemonic and operands, or an assembler's directive for data.
    pub text: String,
    /// True for data, which has no unwind rule.
    pub is_data: bool,
}

/// The reason why a function cannot be disassembled.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The file has no symbol of this name, and the name is no address.
    #[error("no function {0:?} in the file; give its address instead")]
    NoFunction(String),
    /// Nothing executable lies at the address.
    #[error("no code at address {0:#x} of the file")]
    NoCode(u64),
    /// The disassembler does not know the architecture.
    #[error("code of {0} cannot be disassembled")]
    Architecture(Arch),
    /// The disassembler failed.
    #[error("the disassembler failed: {0}")]
    Capstone(#[from] capstone::Error),
}

/// Disassembles the function that `wanted` names, or that contains the address `wanted`. Uses the
/// file's symbols only if `symbols` allows it.
pub fn disassemble(image: &Image, wanted: &str, symbols: bool) -> Result<Disassembly, Error> {
    let function = find(image, wanted, symbols)?;
    let mut lines = Vec::new();
    let length = usize::try_from(function.range.end - function.range.start).unwrap_or(0);
    let bytes = image.bytes_from(function.range.start).unwrap_or(&[]);
    let bytes = &bytes[..length.min(bytes.len())];
    let decoder = decoder(image.arch(), function.thumb)?;
    let mut at = 0;
    while at < bytes.len() {
        let svma = function.range.start + at as u64;
        let line = match data_size(image, svma, symbols) {
            Some(size) => data(svma, &bytes[at..], size),
            None => instruction(&decoder, svma, &bytes[at..])?
                .unwrap_or_else(|| data(svma, &bytes[at..], step(image.arch(), function.thumb))),
        };
        at += line.bytes.len();
        lines.push(line);
    }
    Ok(Disassembly {
        name: function.name,
        range: function.range,
        lines,
    })
}

/// The place of a function.
struct Found {
    name: Option<String>,
    range: Range<u64>,
    thumb: bool,
}

fn find(image: &Image, wanted: &str, symbols: bool) -> Result<Found, Error> {
    let named = symbols.then(|| image.symbols().named(wanted));
    if let Some(symbol) = named
        .iter()
        .flatten()
        .find(|symbol| is_code(image, symbol.svma))
    {
        return Ok(of_symbol(image, symbol));
    }
    let digits = wanted.strip_prefix("0x").unwrap_or(wanted);
    let address =
        u64::from_str_radix(digits, 16).map_err(|_| Error::NoFunction(wanted.to_owned()))?;
    let is_arm = image.arch() == Arch::Arm;
    let svma = if is_arm { address & !1 } else { address };
    if !is_code(image, svma) {
        return Err(Error::NoCode(address));
    }
    let symbol = image.symbols().containing(svma);
    if let Some(symbol) = symbol.filter(|symbol| symbols && is_code(image, symbol.svma)) {
        return Ok(of_symbol(image, &symbol));
    }
    let analysis = unspool_unwind::code::analyze(image, symbols);
    let start = analysis.function_start(svma).unwrap_or(svma);
    let end = analysis.next_start(svma);
    Ok(Found {
        name: None,
        range: start..end_of(image, start, end.unwrap_or(start + MAX_UNKNOWN_SIZE)),
        thumb: is_arm && (address & 1 == 1 || image.thumb_at(svma) == Some(true)),
    })
}

fn of_symbol(image: &Image, symbol: &Symbol<'_>) -> Found {
    let size = if symbol.size == 0 {
        MAX_UNKNOWN_SIZE
    } else {
        symbol.size
    };
    Found {
        name: Some(symbol.name.to_owned()),
        range: symbol.svma..end_of(image, symbol.svma, symbol.svma.saturating_add(size)),
        thumb: symbol.thumb || image.thumb_at(symbol.svma) == Some(true),
    }
}

fn is_code(image: &Image, svma: u64) -> bool {
    image
        .text_ranges()
        .iter()
        .any(|range| range.contains(&svma))
}

/// The end of a function, limited to the end of the surrounding code.
fn end_of(image: &Image, start: u64, end: u64) -> u64 {
    let ranges = image.text_ranges();
    let text = ranges.iter().find(|range| range.contains(&start));
    text.map_or(start, |text| end.min(text.end))
}

fn decoder(arch: Arch, thumb: bool) -> Result<Capstone, Error> {
    let built = match arch {
        Arch::X86_64 => Capstone::new()
            .x86()
            .mode(arch::x86::ArchMode::Mode64)
            .build(),
        Arch::Aarch64 => Capstone::new()
            .arm64()
            .mode(arch::arm64::ArchMode::Arm)
            .build(),
        Arch::Arm => {
            let mode = match thumb {
                true => arch::arm::ArchMode::Thumb,
                false => arch::arm::ArchMode::Arm,
            };
            let v8 = [arch::arm::ArchExtraMode::V8];
            Capstone::new()
                .arm()
                .mode(mode)
                .extra_mode(v8.into_iter())
                .build()
        }
        other => return Err(Error::Architecture(other)),
    };
    Ok(built?)
}

/// Size of the data at `svma` in bytes, if a mapping symbol marks it as data.
fn data_size(image: &Image, svma: u64, symbols: bool) -> Option<usize> {
    let kind = image.symbols().code_kind(svma).filter(|_| symbols);
    (kind == Some(CodeKind::Data)).then_some(4)
}

/// Size of the smallest instruction, in bytes.
fn step(arch: Arch, thumb: bool) -> usize {
    match arch {
        Arch::X86_64 => 1,
        _ if thumb => 2,
        _ => 4,
    }
}

fn instruction(decoder: &Capstone, svma: u64, bytes: &[u8]) -> Result<Option<Line>, Error> {
    let found = decoder.disasm_count(bytes, svma, 1)?;
    Ok(found.first().map(|found| {
        let mnemonic = found.mnemonic().unwrap_or("");
        let operands = found.op_str().unwrap_or("");
        Line {
            svma,
            bytes: found.bytes().to_vec(),
            text: format!("{mnemonic} {operands}").trim_end().to_owned(),
            is_data: false,
        }
    }))
}

fn data(svma: u64, bytes: &[u8], size: usize) -> Line {
    let bytes = bytes[..size.min(bytes.len())].to_vec();
    let digits: String = bytes
        .iter()
        .rev()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let directive = match bytes.len() {
        4 => ".word",
        2 => ".short",
        _ => ".byte",
    };
    Line {
        svma,
        text: format!("{directive} 0x{digits}"),
        bytes,
        is_data: true,
    }
}
