//! Loads the DWARF sections of an image, its debug file and its supplementary file.

use std::sync::Arc;

use gimli::{EndianArcSlice, RunTimeEndian, SectionId, UnitHeader};

use super::scopes::Scopes;
use super::variables::Variables;
use super::{Dwarf, endianness};
use crate::Image;
use crate::image::SharedBytes;

pub(super) type Reader = EndianArcSlice<RunTimeEndian>;

/// The headers of all units in `.debug_info`, each with its offset there, in ascending order.
pub(crate) fn unit_headers<R: gimli::Reader<Offset = usize>>(
    dwarf: &gimli::Dwarf<R>,
) -> Vec<(usize, UnitHeader<R>)> {
    let mut headers = Vec::new();
    let mut units = dwarf.units();
    while let Ok(Some(header)) = units.next() {
        if let Some(offset) = header.debug_info_offset() {
            headers.push((offset.0, header));
        }
    }
    headers
}

/// Loads the sections. `None` if the image has no DWARF.
pub(super) fn load(image: &Image) -> Result<Option<Dwarf>, gimli::Error> {
    // Units without lines, or lines without units, are of no use.
    if image.shared_section(".debug_info").is_none() {
        return Ok(None);
    }
    let mut dwarf = sections(image)?;
    // `.debug_aranges` may be incomplete; the units' own ranges are not. Without it, we also know
    // which units a lookup reads.
    dwarf.debug_aranges = Reader::new(Arc::from([]), endianness(image)).into();
    if let Some(supplementary) = image.supplementary_image() {
        dwarf.set_sup(sections(supplementary)?);
    }
    // Units are opened twice: by addr2line and for the scopes.
    dwarf.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::All);
    let dwarf = Arc::new(dwarf);
    Ok(Some(Dwarf {
        scopes: Scopes::new(&dwarf),
        variables: Variables::new(&dwarf),
        context: addr2line::Context::from_arc_dwarf(dwarf)?,
        known: Default::default(),
    }))
}

fn sections(image: &Image) -> Result<gimli::Dwarf<Reader>, gimli::Error> {
    let endian = endianness(image);
    let load = |id: SectionId| -> Result<Reader, gimli::Error> {
        // These sections are large and only describe the places of local variables.
        if let SectionId::DebugLoc | SectionId::DebugLocLists = id {
            return Ok(Reader::new(Arc::from([]), endian));
        }
        let SharedBytes { whole, range } = image.shared_section(id.name()).unwrap_or(SharedBytes {
            whole: Arc::from([]),
            range: 0..0,
        });
        Ok(Reader::new(whole, endian).range(range))
    };
    gimli::Dwarf::load(load)
}
