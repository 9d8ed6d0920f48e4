//! Finds landing pads on ARM, which nothing in the text leads to.
//!
//! The exception index leads from each function to its handling table (EHABI 7). The
//! language-specific data ([`super::lsda`]) follows that table's operations.

use unspool_image::Image;

use super::lsda::Sites;
use super::text::Text;
use crate::exidx;

/// A range of calls, and the landing pad for exceptions that pass them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handler {
    /// Address of the first instruction.
    pub(crate) start: u64,
    /// One past the last.
    pub(crate) end: u64,
    /// Address of the landing pad.
    pub(crate) pad: u64,
}

/// All handlers of an image, in order of address.
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

fn call_sites(bytes: &[u8], function: u64, found: &mut Vec<Handler>) -> Option<()> {
    let mut sites = Sites::read(bytes)?;
    while !sites.is_done() {
        let site = sites.site()?;
        if site.pad != 0 {
            let start = function.checked_add(site.start)?;
            found.push(Handler {
                start,
                end: start.checked_add(site.len)?,
                pad: function.checked_add(site.pad)?,
            });
        }
    }
    Some(())
}
