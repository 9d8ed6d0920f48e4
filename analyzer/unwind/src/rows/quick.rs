//! One rule in one word: what a step of pc, stack pointer and frame pointers needs.
//!
//! Separate from [`crate::Rule`] because a stack walk mostly waits for memory. A rule takes eight
//! bytes, and frequent rules lie together, so that the rules of most frames share a few cache
//! lines. A rule that does not fit is [`Quick::SLOW`] and is evaluated in its full form.
//!
//! ```text
//! bit  0..6    register that the CFA is relative to; 63: slow
//!      6..8    source
//!      8       the return address is signed (AArch64)
//!      9..11   where the return address is     (`At`)
//!     11..13   where the frame register is     (`At`)
//!     13..15   where r7 is (ARM)               (`At`)
//!     15..29   cfa - register
//!     29..41   place of the return address - cfa
//!     41..53   place of the frame register - cfa
//!     53..64   place of r7 - cfa
//! ```
//!
//! Offsets are signed, in units of the architecture's pointer size.

use unspool_image::Arch;

use crate::registers::roles;
use crate::rule::{Cfa, Place, Source};

/// Frame pointer of Thumb code.
pub(crate) const THUMB_FP: u8 = 7;

/// The place of the caller's value of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// In the register itself. For the return address: in the link register.
    Same,
    /// At the CFA plus an offset in bytes.
    Cfa(i64),
    /// Lost. For the return address: there is no caller.
    Undefined,
    /// Only the full rule states it.
    Elsewhere,
}

/// A rule in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quick(pub(crate) u64);

impl Quick {
    /// The rule does not fit; use the full rule.
    pub(crate) const SLOW: Quick = Quick(63);

    /// Packs a rule. Returns [`Quick::SLOW`] if it does not fit.
    pub(crate) fn new(
        arch: Arch,
        source: Source,
        cfa: Cfa,
        ra: Place,
        saved: impl Iterator<Item = (u8, Place)>,
        signed: bool,
        signal_frame: bool,
    ) -> Quick {
        let roles = roles(arch);
        let unit = roles.pointer as i32;
        let (register, offset) = match cfa {
            Cfa::Register { register, offset } => (register, offset),
            // The start of a thread needs no CFA.
            Cfa::Unknown if ra == Place::Undefined => (0, 0),
            _ => return Quick::SLOW,
        };
        let base = register == roles.sp
            || register == roles.fp
            || arch == Arch::Arm && register == THUMB_FP;
        if signal_frame || !base && ra != Place::Undefined {
            return Quick::SLOW;
        }
        // The walk computes a better stack pointer for the caller than such a CFA.
        if matches!(ra, Place::AtCfa(offset) if offset >= 0) {
            return Quick::SLOW;
        }
        let Some(cfa) = field(offset, unit, 14) else {
            return Quick::SLOW;
        };
        let Some((ra_at, ra)) = place(ra, unit, 12).filter(|(at, _)| *at != 3) else {
            return Quick::SLOW;
        };
        let (mut fp, mut r7) = ((0, 0), (0, 0));
        for (register, at) in saved {
            // A register that does not fit is left to the full rule.
            if register == roles.fp {
                fp = place(at, unit, 12).unwrap_or((3, 0));
            } else if arch == Arch::Arm && register == THUMB_FP {
                r7 = place(at, unit, 11).unwrap_or((3, 0));
            }
        }
        Quick(
            u64::from(register)
                | (source as u64) << 6
                | u64::from(signed) << 8
                | ra_at << 9
                | fp.0 << 11
                | r7.0 << 13
                | cfa << 15
                | ra << 29
                | fp.1 << 41
                | r7.1 << 53,
        )
    }

    #[inline]
    pub(crate) fn is_slow(self) -> bool {
        self.register() == 63
    }

    #[inline]
    pub(crate) fn register(self) -> u8 {
        self.0 as u8 & 63
    }

    #[inline]
    pub(crate) fn source(self) -> Source {
        Source::from_number(self.0 >> 6)
    }

    #[inline]
    pub(crate) fn signed(self) -> bool {
        self.0 >> 8 & 1 == 1
    }

    /// Whether the return address and the frame registers are each in place or at an offset from
    /// the CFA.
    #[inline]
    pub(crate) fn is_plain(self) -> bool {
        // These kinds of `At` have their second bit set.
        const UNUSUAL: u64 = 1 << 10 | 1 << 12 | 1 << 14;
        self.0 & UNUSUAL == 0
    }

    /// For a plain word: whether the first frame register was saved, and its place relative to the
    /// CFA.
    #[inline]
    pub(crate) fn plain_fp(self, log: u32) -> (bool, i64) {
        (self.0 >> 11 & 1 == 1, self.offset(41, 12) << log)
    }

    /// Like [`Self::plain_fp`], for r7.
    #[inline]
    pub(crate) fn plain_r7(self, log: u32) -> (bool, i64) {
        (self.0 >> 13 & 1 == 1, self.offset(53, 11) << log)
    }

    /// The CFA's offset in bytes, for pointers of `1 << log` bytes.
    #[inline]
    pub(crate) fn cfa_offset(self, log: u32) -> i64 {
        self.offset(15, 14) << log
    }

    /// The return address's offset from the CFA in bytes, if it is saved on the stack.
    #[inline]
    pub(crate) fn ra_offset(self, log: u32) -> i64 {
        self.offset(29, 12) << log
    }

    #[inline]
    pub(crate) fn ra(self, log: u32) -> At {
        self.at(9, self.ra_offset(log))
    }

    #[inline]
    pub(crate) fn fp(self, log: u32) -> At {
        self.at(11, self.offset(41, 12) << log)
    }

    #[inline]
    pub(crate) fn r7(self, log: u32) -> At {
        self.at(13, self.offset(53, 11) << log)
    }

    #[inline]
    fn offset(self, from: u32, bits: u32) -> i64 {
        (self.0 << (64 - from - bits)) as i64 >> (64 - bits)
    }

    #[inline]
    fn at(self, bit: u32, offset: i64) -> At {
        match self.0 >> bit & 3 {
            0 => At::Same,
            1 => At::Cfa(offset),
            2 => At::Undefined,
            _ => At::Elsewhere,
        }
    }
}

/// `offset` in units of a pointer, as a field of `bits` bits.
fn field(offset: i32, unit: i32, bits: u32) -> Option<u64> {
    let units = i64::from(offset / unit);
    let fits = offset % unit == 0 && units >= -(1 << (bits - 1)) && units < 1 << (bits - 1);
    fits.then_some(units as u64 & ((1 << bits) - 1))
}

fn place(place: Place, unit: i32, bits: u32) -> Option<(u64, u64)> {
    match place {
        Place::Same => Some((0, 0)),
        Place::AtCfa(offset) => Some((1, field(offset, unit, bits)?)),
        Place::Undefined => Some((2, 0)),
        _ => Some((3, 0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_survives_packing() {
        let saved = [(3, Place::AtCfa(-24)), (6, Place::AtCfa(-16))];
        let quick = Quick::new(
            Arch::X86_64,
            Source::Code,
            Cfa::Register {
                register: 7,
                offset: 4096,
            },
            Place::AtCfa(-8),
            saved.into_iter(),
            false,
            false,
        );
        assert_eq!(quick.register(), 7);
        assert_eq!(quick.source(), Source::Code);
        assert_eq!(quick.cfa_offset(3), 4096);
        assert_eq!(quick.ra(3), At::Cfa(-8));
        assert_eq!(quick.fp(3), At::Cfa(-16));
        assert_eq!(quick.r7(3), At::Same);
        assert!(!quick.signed());
    }

    #[test]
    fn rules_that_do_not_fit_are_slow() {
        let quick = |register, offset| {
            Quick::new(
                Arch::Arm,
                Source::Cfi,
                Cfa::Register { register, offset },
                Place::AtCfa(-4),
                [].into_iter(),
                false,
                false,
            )
        };
        assert!(!quick(13, 0x7ffc).is_slow());
        assert!(quick(13, 0x8000).is_slow());
        assert!(quick(13, 2).is_slow());
        assert!(quick(4, 8).is_slow());
        assert!(!quick(7, 8).is_slow());
    }
}
