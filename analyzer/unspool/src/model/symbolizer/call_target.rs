//! Names the function that a call instruction calls, for a function without a symbol of its own.

use std::sync::Arc;

use crate::platform::Architecture;

use super::Symbolizer;

/// Maximum size of a call instruction that is decoded, in bytes.
const MAX_CALL: usize = 5;

impl Symbolizer {
    /// The function that was called by the instruction before this return address.
    pub(super) fn called(&mut self, epoch: usize, return_avma: u64) -> Option<Arc<str>> {
        let platform = Architecture::of(self.arch?)?;
        let (end, _) = platform.split_code_pointer(return_avma);
        let before = (1..=MAX_CALL).rev().find_map(|size| {
            let at = end.checked_sub(size as u64)?;
            self.code_at(epoch, at, size)
        })?;
        let bit = match platform.has_code_bit {
            true => {
                let (file, svma) = self.file_at(epoch, end.checked_sub(4)?)?;
                self.files.image(file)?.thumb_at(svma)?
            }
            false => false,
        };
        let target = (platform.call_target)(&before, end, bit)?;
        let (file, svma) = self.file_at(epoch, target)?;
        let symbol = self.files.image(file)?.symbols().containing(svma)?;
        (symbol.svma == svma).then(|| symbol.name.into())
    }

    /// The program's code, as its files have it.
    pub(super) fn code_at(&mut self, epoch: usize, avma: u64, len: usize) -> Option<Vec<u8>> {
        let (file, svma) = self.file_at(epoch, avma)?;
        Some(self.files.image(file)?.bytes_at(svma, len)?.to_vec())
    }

    pub(super) fn file_at(&mut self, epoch: usize, avma: u64) -> Option<(usize, u64)> {
        let load = self.owner(epoch, avma)?;
        let load = &self.loads[load];
        let svma = avma.wrapping_sub(load.record.bias) & self.address_mask();
        Some((load.file, svma))
    }
}
