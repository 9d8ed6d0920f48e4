//! Where exceptions are caught, on ARM: code that nothing in the text leads to. The exception index leads from each
//! function to its handling table (EHABI 7), and behind that table's operations lie the language's own data, in the layout of
//! all GNU languages: call sites and the landing pad of each.

use unspool_image::Image;

use super::text::Text;
use crate::exidx;

/// Calls that lie here continue at `pad` when an exception passes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handler {
    /// Address of the first instruction.
    pub(crate) start: u64,
    /// One past the last.
    pub(crate) end: u64,
    /// Where the exception is caught.
    pub(crate) pad: u64,
}

/// `DW_EH_PE_omit`, `DW_EH_PE_uleb128`, `DW_EH_PE_udata4`
const OMIT: u8 = 0xff;
const ULEB128: u8 = 0x01;
const UDATA4: u8 = 0x03;

/// All of an image, in order of address.
pub(super) fn handlers(image: &Image, text: &Text<'_>) -> Vec<Handler> {
    let mut found = Vec::new();
    if let Some(index) = image.section(".ARM.exidx") {
        let bytes_at = |svma: u64, len: usize| image.bytes_at(svma, len);
        for (function, data) in exidx::language_data(&index.data, index.svma, &bytes_at) {
            let known = found.len();
            if call_sites(text.bytes(data), function & !1, &mut found).is_none() {
                found.truncate(known);
            }
        }
    }
    found.retain(|handler| handler.start < handler.end && text.is_text(handler.pad));
    found.sort_by_key(|handler| handler.start);
    found
}

/// The call-site table: start of landing pads, form of the type table, form of call sites, their size, call sites.
fn call_sites(bytes: &[u8], function: u64, found: &mut Vec<Handler>) -> Option<()> {
    let mut bytes = bytes;
    // Landing pads relative to anything but the function: none is made so.
    if byte(&mut bytes)? != OMIT {
        return None;
    }
    if byte(&mut bytes)? != OMIT {
        uleb128(&mut bytes)?;
    }
    let form = byte(&mut bytes)?;
    let size = usize::try_from(uleb128(&mut bytes)?).ok()?;
    let mut table = bytes.get(..size)?;
    while !table.is_empty() {
        let mut number = || match form {
            ULEB128 => uleb128(&mut table),
            UDATA4 => {
                let (value, rest) = table.split_first_chunk()?;
                table = rest;
                Some(u64::from(u32::from_le_bytes(*value)))
            }
            _ => None,
        };
        let (start, len, pad) = (number()?, number()?, number()?);
        uleb128(&mut table)?;
        if pad != 0 {
            let start = function.checked_add(start)?;
            found.push(Handler {
                start,
                end: start.checked_add(len)?,
                pad: function.checked_add(pad)?,
            });
        }
    }
    Some(())
}

fn byte(bytes: &mut &[u8]) -> Option<u8> {
    let (&first, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(first)
}

fn uleb128(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..63).step_by(7) {
        let next = byte(bytes)?;
        value |= u64::from(next & 0x7f) << shift;
        if next & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_site_table_of_gcc() {
        // arm-linux-gnueabihf-gcc 12, -fexceptions: no base, no types, uleb128, 8 bytes: a call with a pad, one without.
        let bytes = [
            0xff, 0xff, 0x01, 8, 0x10, 0x04, 0x86, 0x01, 0x00, 0x14, 0x04, 0x00,
        ];
        let mut found = Vec::new();
        assert_eq!(call_sites(&bytes, 0x1000, &mut found), None, "cut short");
        let bytes = [&bytes[..], &[0x00]].concat();
        let mut bytes = bytes;
        bytes[3] = 9;
        found.clear();
        call_sites(&bytes, 0x1000, &mut found).expect("a table");
        let only = Handler {
            start: 0x1010,
            end: 0x1014,
            pad: 0x1086,
        };
        assert_eq!(found, [only]);
    }
}
