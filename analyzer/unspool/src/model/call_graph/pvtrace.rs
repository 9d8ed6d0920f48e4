//! Reads the trace of pvtrace: a line `E0x401136` where a function begins, `X0x401136` where it
//! ends, in the order of one thread.
//!
//! The trace has no times, and no stack pointers: calls that `longjmp` or an exception left stay
//! open until a function around them ends.

use std::collections::HashMap;
use std::io::{self, BufRead};

use thiserror::Error;
use unspool_image::{Image, function_name};

use super::{CallGraph, Ended, Open, Place, Stack, Sums};

/// Number of bytes of a wrong line that are shown.
const MAX_SHOWN: usize = 40;

/// The reason why a trace cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// A line has another form.
    #[error("line {line} is {text:?}; expected E or X and an address, such as E0x401136")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// Its beginning.
        text: String,
    },
}

/// Reads a trace. `image` has the functions' names. `base` is the address at which a
/// position-independent program was mapped.
///
/// # Errors
/// The trace cannot be read, or a line is malformed.
pub fn read(mut trace: impl BufRead, image: &Image, base: u64) -> Result<CallGraph, Error> {
    let mut sums = Sums::default();
    let mut stack = Stack::default();
    let mut known: HashMap<u64, usize> = HashMap::new();
    let mut bytes = Vec::new();
    for line in 1.. {
        bytes.clear();
        if trace.read_until(b'\n', &mut bytes)? == 0 {
            break;
        }
        let text = bytes.trim_ascii();
        if text.is_empty() {
            continue;
        }
        let Some((ends, address)) = parse(text) else {
            let text = &text[..text.len().min(MAX_SHOWN)];
            let text = String::from_utf8_lossy(text).into_owned();
            return Err(Error::Line { line, text });
        };
        let function = *known
            .entry(address)
            .or_insert_with(|| sums.function(place(image, address, base)));
        if ends {
            let ended = Ended {
                function,
                place: 0,
                call_site: 0,
            };
            sums.exit(&mut stack, &ended, 0);
            continue;
        }
        let call = Open {
            function,
            caller: stack.open.last().map(|open| open.function),
            place: 0,
            call_site: 0,
            return_address: 0,
            began_ns: 0,
            inner_ns: 0,
        };
        sums.begin(&mut stack, call);
    }
    sums.leave(&mut stack, 0, 0);
    Ok(sums.finish())
}

fn parse(line: &[u8]) -> Option<(bool, u64)> {
    let ends = match line.first()? {
        b'E' => false,
        b'X' => true,
        _ => return None,
    };
    let digits = std::str::from_utf8(line.get(1..)?).ok()?;
    let digits = digits.strip_prefix("0x")?;
    let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let address = u64::from_str_radix(digits, 16).ok().filter(|_| is_hex)?;
    Some((ends, address))
}

fn place(image: &Image, address: u64, base: u64) -> Place {
    let svma = address.wrapping_sub(base);
    let symbol = image.symbols().containing(svma);
    Place {
        function: symbol
            .as_ref()
            .map(|symbol| function_name(symbol.name).into()),
        offset: symbol.map_or(svma, |symbol| svma.wrapping_sub(symbol.svma)),
        module: Some(image.name().into()),
        svma: Some(svma),
        avma: address,
        ..Place::default()
    }
}
