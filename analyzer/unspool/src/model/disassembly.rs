//! Disassembles one function of a file to text. Capstone does this, because the unwinder's own
//! decoders only know an instruction's effect on the frame.

use std::ops::Range;

use thiserror::Error;
use unspool_image::{CodeKind, Image, Symbol};

use crate::platform::Architecture;
use crate::platform::disassembler::{self, Disassembler};

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
    /// The file has no symbol of this name, and the name is not an address.
    #[error("no function {0:?} in the file; give its address instead")]
    NoFunction(String),
    /// Nothing executable lies at the address.
    #[error("no code at address {0:#x} of the file")]
    NoCode(u64),
    /// The disassembler failed, or does not know the architecture.
    #[error(transparent)]
    Disassembler(#[from] disassembler::Error),
}

/// Disassembles the function that `wanted` names, or that contains the address `wanted`. Uses the
/// file's symbols only if `symbols` allows it.
pub fn disassemble(image: &Image, wanted: &str, symbols: bool) -> Result<Disassembly, Error> {
    let function = find(image, wanted, symbols)?;
    let mut lines = Vec::new();
    let length = usize::try_from(function.range.end - function.range.start).unwrap_or(0);
    let bytes = image.bytes_from(function.range.start).unwrap_or(&[]);
    let bytes = &bytes[..length.min(bytes.len())];
    let decoder = Disassembler::new(image.arch(), function.thumb)?;
    let platform = Architecture::of(image.arch());
    let step = platform.map_or(1, |platform| {
        platform.smallest_instruction[usize::from(function.thumb)]
    });
    let mut at = 0;
    while at < bytes.len() {
        let svma = function.range.start + at as u64;
        let line = match data_size(image, svma, symbols) {
            Some(size) => data(svma, &bytes[at..], size),
            None => instruction(&decoder, svma, &bytes[at..])?
                .unwrap_or_else(|| data(svma, &bytes[at..], step)),
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
    let platform = Architecture::of(image.arch());
    let (svma, bit) = platform.map_or((address, false), |platform| {
        platform.split_code_pointer(address)
    });
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
        thumb: bit || image.thumb_at(svma) == Some(true),
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

/// Size of the data at `svma` in bytes, if a mapping symbol marks it as data.
fn data_size(image: &Image, svma: u64, symbols: bool) -> Option<usize> {
    let kind = image.symbols().code_kind(svma).filter(|_| symbols);
    (kind == Some(CodeKind::Data)).then_some(4)
}

fn instruction(
    decoder: &Disassembler,
    svma: u64,
    bytes: &[u8],
) -> Result<Option<Line>, disassembler::Error> {
    let found = decoder.first(svma, bytes)?;
    Ok(found.map(|found| Line {
        svma,
        bytes: bytes[..found.size.min(bytes.len())].to_vec(),
        text: found.text,
        is_data: false,
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
