//! Decodes the target of a call instruction. It gives a name to a function without a symbol of its
//! own.

use std::sync::Arc;

use unspool_image::Arch;

use super::Symbolizer;

impl Symbolizer {
    /// The function that was called by the instruction before this return address.
    pub(super) fn called(&mut self, epoch: usize, return_avma: u64) -> Option<Arc<str>> {
        let target = match self.arch? {
            Arch::X86_64 => {
                // call rel32: e8 and four bytes (Intel SDM, CALL)
                let code = self.code_at(epoch, return_avma.checked_sub(5)?, 5)?;
                let distance = i32::from_le_bytes(code.get(1..5)?.try_into().ok()?);
                (code[0] == 0xe8).then(|| return_avma.wrapping_add_signed(distance.into()))
            }
            Arch::Aarch64 => {
                // 100101ii iiiiiiii iiiiiiii iiiiiiii, BL (ARM DDI 0487, C6.2)
                let at = return_avma.checked_sub(4)?;
                let word = u32::from_le_bytes(self.code_at(epoch, at, 4)?.try_into().ok()?);
                let distance = i64::from(((word << 6) as i32) >> 6) * 4;
                (word >> 26 == 0b100101).then(|| at.wrapping_add_signed(distance))
            }
            _ => self.called_by_arm(epoch, return_avma),
        }?;
        let (file, svma) = self.file_at(epoch, target)?;
        let symbol = self.files.image(file)?.symbols().containing(svma)?;
        (symbol.svma == svma).then(|| symbol.name.into())
    }

    /// Calls on ARM: the T32 and A32 forms of BL and BLX (ARM DDI 0406, A8.8.25).
    fn called_by_arm(&mut self, epoch: usize, return_avma: u64) -> Option<u64> {
        let return_avma = return_avma & !1;
        let at = return_avma.checked_sub(4)?;
        let code = self.code_at(epoch, at, 4)?;
        let (file, svma) = self.file_at(epoch, at)?;
        let thumb = self.files.image(file)?.thumb_at(svma)?;
        if thumb {
            let first = u32::from(u16::from_le_bytes([code[0], code[1]]));
            let second = u32::from(u16::from_le_bytes([code[2], code[3]]));
            // 11110Siiiiiiiiii 11j1kiiiiiiiiiii
            if first >> 11 != 0b11110 || second >> 14 != 0b11 {
                return None;
            }
            let sign = first >> 10 & 1;
            let bit = |at: u32| !(second >> at & 1 ^ sign) & 1;
            let distance = (sign << 24
                | bit(13) << 23
                | bit(11) << 22
                | (first & 0x3ff) << 12
                | (second & 0x7ff) << 1)
                << 7;
            let distance = i64::from((distance as i32) >> 7);
            // A call to A32 code is relative to the word that holds the instruction.
            let base = if second >> 12 & 1 == 1 {
                return_avma
            } else {
                return_avma & !3
            };
            return Some(base.wrapping_add_signed(distance));
        }
        let word = u32::from_le_bytes(code.try_into().ok()?);
        let distance = i64::from(((word << 8) as i32) >> 8) * 4;
        let base = return_avma.wrapping_add(4);
        match word >> 24 {
            0xeb => Some(base.wrapping_add_signed(distance)),
            0xfa | 0xfb => Some(base.wrapping_add_signed(distance + i64::from(word >> 24 & 1) * 2)),
            _ => None,
        }
    }

    /// The program's code, as its files have it.
    pub(super) fn code_at(&mut self, epoch: usize, avma: u64, len: usize) -> Option<Vec<u8>> {
        let (file, svma) = self.file_at(epoch, avma)?;
        Some(self.files.image(file)?.bytes_at(svma, len)?.to_vec())
    }

    pub(super) fn file_at(&mut self, epoch: usize, avma: u64) -> Option<(usize, u64)> {
        let load = self.owner(epoch, avma)?;
        let load = &self.loads[load];
        let mask = if self.arch == Some(Arch::Arm) {
            u64::from(u32::MAX)
        } else {
            u64::MAX
        };
        Some((load.file, avma.wrapping_sub(load.record.bias) & mask))
    }
}
