//! Hardware watchpoints, and their division into pieces that one debug register can hold.

/// The kind of access that triggers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    /// The instruction at the address is about to be executed.
    Execute,
    /// The bytes are written.
    Write,
    /// The bytes are read.
    Read,
    /// The bytes are read or written.
    Any,
}

/// Upper limit of the watched bytes. No machine has more (AArch64: 16 registers of 8 bytes).
pub(crate) const MAX_WATCHED_BYTES: u64 = 128;

/// A range of watched bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Watch {
    pub(crate) access: Access,
    pub(crate) at: u64,
    pub(crate) length: u64,
}

impl Watch {
    /// Distance of `address` from the watched bytes.
    pub(crate) fn distance(&self, address: u64) -> u64 {
        let last = self.at.saturating_add(self.length.max(1) - 1);
        self.at
            .saturating_sub(address)
            .max(address.saturating_sub(last))
    }

    /// The range in pieces of 1, 2, 4 or 8 bytes, each aligned to its length. One debug register
    /// can hold one piece.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = (u64, u64)> {
        let end = self.at.saturating_add(self.length);
        let mut at = self.at;
        std::iter::from_fn(move || {
            let left = end.checked_sub(at).filter(|left| *left > 0)?;
            let length = [8, 4, 2, 1]
                .into_iter()
                .find(|length| at.is_multiple_of(*length) && *length <= left)?;
            let piece = (at, length);
            at += length;
            Some(piece)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(at: u64, length: u64) -> Watch {
        Watch {
            access: Access::Write,
            at,
            length,
        }
    }

    #[test]
    fn unaligned_bytes_take_several_registers() {
        let pieces: Vec<_> = watch(0x1003, 6).pieces().collect();
        assert_eq!(pieces, [(0x1003, 1), (0x1004, 4), (0x1008, 1)]);
        assert_eq!(watch(0x1000, 8).pieces().count(), 1);
        assert_eq!(watch(u64::MAX, 4).pieces().count(), 0);
    }

    #[test]
    fn distance_is_zero_inside() {
        assert_eq!(watch(16, 4).distance(19), 0);
        assert_eq!(watch(16, 4).distance(20), 1);
        assert_eq!(watch(16, 4).distance(12), 4);
    }
}
