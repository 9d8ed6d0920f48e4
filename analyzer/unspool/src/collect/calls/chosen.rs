//! Which version of a function the program uses, where it was chosen when the program started (`STT_GNU_IFUNC`): `memcpy` of glibc, for one.
//!
//! The symbol is that of the function that chooses, which is called once. What it chose is in the target's memory.

use std::collections::BTreeMap;

use unspool_image::{Arch, Image};
use unspool_rsp::Client;

use super::super::abi::Abi;
use super::super::memory;

/// A function's address in its image, and whether it is Thumb code.
pub(super) type Start = (u64, bool);

/// What was chosen, by the address of what chooses. Nothing is said of what is not chosen yet.
pub(super) fn of(client: &mut Client, abi: &Abi, image: &Image, bias: u64) -> BTreeMap<u64, Start> {
    let text = image.text_ranges();
    let mut chosen = BTreeMap::new();
    for choice in image.choices() {
        let slot = abi.wrap(choice.slot_svma.wrapping_add(bias));
        let Some(bytes) = memory::read(client, slot, abi.pointer) else {
            continue;
        };
        // As it is in the file: nobody has chosen yet.
        let untouched = image.bytes_at(choice.slot_svma, abi.pointer);
        let Some(value) = abi
            .pointer_at(&bytes, 0)
            .filter(|_| untouched != Some(&bytes))
        else {
            continue;
        };
        // aaelf32 5.5.3: bit 0 of a function's address means Thumb code.
        let thumb = abi.arch == Arch::Arm && value & 1 == 1;
        let svma = abi.wrap((value - u64::from(thumb)).wrapping_sub(bias));
        if svma != choice.resolver_svma && text.iter().any(|range| range.contains(&svma)) {
            chosen.insert(choice.resolver_svma, (svma, thumb));
        }
    }
    chosen
}
