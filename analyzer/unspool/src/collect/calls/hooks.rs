//! The hooks of `-finstrument-functions`: functions that a program calls wherever one of its own
//! functions begins or ends.
//!
//! In glibc, both names belong to one empty function. There only the return address of a hit shows
//! which hook was called: the instruction before it calls a hook by name.

use std::collections::HashMap;

use unspool_image::Image;

use super::super::modules::{Mapped, Modules};
use crate::platform::abi::Abi;

/// The hook where a function begins.
pub(super) const ENTER: &str = "__cyg_profile_func_enter";
/// The hook where a function ends.
pub(super) const EXIT: &str = "__cyg_profile_func_exit";

/// Size of the longest call instruction that is decoded, in bytes.
const MAX_CALL: u64 = 6;

/// The hooks called at the places seen so far.
#[derive(Debug, Default)]
pub(super) struct HookCalls {
    /// By return address, whether the exit hook is called there; `None` if that is unknown.
    ends: HashMap<u64, Option<bool>>,
    /// Number of hits whose hook is unknown.
    pub(super) unclear: u64,
    /// Number of all hits.
    pub(super) hits: u64,
}

impl HookCalls {
    /// Forgets all places, because a module was mapped or unmapped.
    pub(super) fn forget(&mut self) {
        self.ends.clear();
    }

    /// True if a hit belongs to the exit hook; `None` if the hook is unknown. `known` is the answer
    /// that the hit's address gives, if any. Counts the hits, and those with an unknown hook.
    pub(super) fn ends(
        &mut self,
        known: Option<bool>,
        abi: &Abi,
        modules: &Modules,
        call_site: u64,
        return_address: u64,
    ) -> Option<bool> {
        self.hits += 1;
        // Only the exit hook can be a tail call, which returns to the function's caller.
        if known.is_some() || call_site == return_address {
            return known.or(Some(true));
        }
        let known = self.ends.entry(return_address).or_insert_with(|| {
            let (at, thumb) = abi.platform.split_code_pointer(return_address);
            let mapped = modules.at(at)?;
            called(abi, mapped, at.wrapping_sub(mapped.bias), thumb)
        });
        self.unclear += u64::from(known.is_none());
        *known
    }
}

/// Whether the instruction before a return address calls the exit hook; `None` if it calls neither
/// hook by name. A call without the procedure linkage table, as in a static program, has no name.
fn called(abi: &Abi, mapped: &Mapped, return_svma: u64, thumb: bool) -> Option<bool> {
    let image = mapped.image.as_ref()?;
    let before = (1..=MAX_CALL)
        .rev()
        .find_map(|size| image.bytes_at(return_svma.checked_sub(size)?, size as usize))?;
    let name = match (abi.platform.call_target)(before, return_svma, thumb) {
        Some(target) => {
            let symbol = image.symbols().containing(target)?;
            symbol.name.strip_suffix("@plt")?.to_owned()
        }
        None => called_by_slot(image, before, return_svma)?,
    };
    match name.split('@').next() {
        Some(ENTER) => Some(false),
        Some(EXIT) => Some(true),
        _ => None,
    }
}

/// The function that x86-64's `call *slot(%rip)`, `ff 15` and four bytes, calls (Intel SDM, CALL).
/// Programs built with `-fno-plt` use it.
fn called_by_slot(image: &Image, before: &[u8], return_svma: u64) -> Option<String> {
    let [0xff, 0x15, distance @ ..] = before.last_chunk::<6>()? else {
        return None;
    };
    let distance = i32::from_le_bytes(*distance);
    let slot = return_svma.wrapping_add_signed(distance.into());
    let mut slots = image.slots().into_iter();
    slots.find_map(|(at, name)| (at == slot).then_some(name))
}
