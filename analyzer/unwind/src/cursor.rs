//! Reads numbers from bytes in DWARF's encodings (DWARF 5, 7.6). All targets are little-endian.

/// A position in bytes. Every read returns a whole number or `None`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Cursor { bytes, position: 0 }
    }

    pub(crate) fn at(bytes: &'a [u8], position: usize) -> Self {
        Cursor { bytes, position }
    }

    pub(crate) fn position(&self) -> usize {
        self.position
    }

    /// The bytes that are left.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.position..).unwrap_or(&[])
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.position >= self.bytes.len()
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.position)?;
        self.position += 1;
        Some(byte)
    }

    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let bytes = self.bytes.get(self.position..)?.get(..len)?;
        self.position += len;
        Some(bytes)
    }

    /// An unsigned number of `size` bytes, at most 8.
    #[inline]
    pub(crate) fn unsigned(&mut self, size: usize) -> Option<u64> {
        let bytes = self.take(size.min(8))?;
        let mut value = [0u8; 8];
        value[..bytes.len()].copy_from_slice(bytes);
        Some(u64::from_le_bytes(value))
    }

    /// A sign-extended number of `size` bytes, 1 to 8.
    #[inline]
    pub(crate) fn signed(&mut self, size: usize) -> Option<u64> {
        let unused = 64 - 8 * size as u32;
        let value = self.unsigned(size)?;
        Some(((value << unused) as i64 >> unused) as u64)
    }

    #[inline]
    pub(crate) fn uleb(&mut self) -> Option<u64> {
        let first = self.u8()?;
        if first < 0x80 {
            return Some(u64::from(first));
        }
        let mut value = u64::from(first & 0x7f);
        for shift in (7..64).step_by(7) {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    pub(crate) fn sleb(&mut self) -> Option<i64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                let end = shift + 7;
                if byte & 0x40 != 0 && end < 64 {
                    value |= u64::MAX << end;
                }
                return Some(value as i64);
            }
        }
        None
    }

    /// A block of bytes with its length in front (`DW_FORM_exprloc`).
    pub(crate) fn block(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.uleb()?).ok()?;
        self.take(len)
    }

    /// Moves the position by `by` bytes, forward or back.
    pub(crate) fn jump(&mut self, by: u64) -> Option<()> {
        let target = (self.position as i64).checked_add(by as i64)?;
        self.position = usize::try_from(target)
            .ok()
            .filter(|&target| target <= self.bytes.len())?;
        Some(())
    }
}
