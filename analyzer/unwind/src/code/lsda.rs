//! Reads the language-specific data area (LSDA) of a function that catches exceptions.
//!
//! All GNU languages use this layout of call-site tables (Itanium C++ ABI, exception handling,
//! section 7). The callers check whether the content is plausible.

/// `DW_EH_PE_omit`, `DW_EH_PE_uleb128`, `DW_EH_PE_udata4`
pub(super) const OMIT: u8 = 0xff;
const ULEB128: u8 = 0x01;
const UDATA4: u8 = 0x03;

/// A range of calls and its landing pad, as offsets from the function's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Site {
    pub(super) start: u64,
    /// Length in bytes.
    pub(super) len: u64,
    /// The landing pad; 0 if there is none.
    pub(super) pad: u64,
}

/// Reads a call-site table.
#[derive(Debug)]
pub(super) struct Sites<'b> {
    form: u8,
    rest: &'b [u8],
    /// Length of the whole area, including the types after the table.
    pub(super) len: usize,
}

impl<'b> Sites<'b> {
    /// Reads the table's header: start of landing pads, encoding and end of the type table,
    /// encoding of call sites and their size.
    pub(super) fn read(bytes: &'b [u8]) -> Option<Sites<'b>> {
        let mut rest = bytes;
        // Compilers make landing pads relative to the function only.
        if byte(&mut rest)? != OMIT {
            return None;
        }
        let mut types = None;
        if byte(&mut rest)? != OMIT {
            let offset = usize::try_from(uleb128(&mut rest)?).ok()?;
            types = Some((bytes.len() - rest.len()).checked_add(offset)?);
        }
        let form = byte(&mut rest)?;
        let size = usize::try_from(uleb128(&mut rest)?).ok()?;
        let table = rest.get(..size)?;
        let end = bytes.len() - rest.len() + size;
        let len = types.unwrap_or(end);
        (len >= end).then_some(Sites {
            form,
            rest: table,
            len,
        })
    }

    /// Whether all call sites have been read.
    pub(super) fn is_done(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next call site; `None` if it is cut off or has another form.
    pub(super) fn site(&mut self) -> Option<Site> {
        let (start, len, pad) = (self.number()?, self.number()?, self.number()?);
        // The action for the exception.
        uleb128(&mut self.rest)?;
        Some(Site { start, len, pad })
    }

    fn number(&mut self) -> Option<u64> {
        match self.form {
            ULEB128 => uleb128(&mut self.rest),
            UDATA4 => {
                let (value, rest) = self.rest.split_first_chunk()?;
                self.rest = rest;
                Some(u64::from(u32::from_le_bytes(*value)))
            }
            _ => None,
        }
    }
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

    fn sites(bytes: &[u8]) -> Option<Vec<Site>> {
        let mut table = Sites::read(bytes)?;
        let mut sites = Vec::new();
        while !table.is_done() {
            sites.push(table.site()?);
        }
        Some(sites)
    }

    #[test]
    fn a_call_site_table_of_gcc() {
        // arm-linux-gnueabihf-gcc 12, -fexceptions: no base, no types, uleb128, 9 bytes: one call
        // with a landing pad, one without.
        let bytes = [
            0xff, 0xff, 0x01, 9, 0x10, 0x04, 0x86, 0x01, 0x00, 0x14, 0x04, 0x00, 0x00,
        ];
        let site = |start, pad| Site { start, len: 4, pad };
        assert_eq!(sites(&bytes), Some(vec![site(0x10, 0x86), site(0x14, 0)]));
        assert_eq!(sites(&bytes[..12]), None, "cut short");
        let mut shorter = bytes;
        shorter[3] = 8;
        assert_eq!(sites(&shorter), None, "the last site is cut short");
    }
}
