//! A module for framehop. Apart because the tests that compare frames with framehop use it, too.

use framehop::{ExplicitModuleSectionInfo, Module};
use unspool_image::Image;

/// The module with all ELF sections that framehop uses.
pub(crate) fn for_framehop(image: &Image, bias: u64) -> Module<Vec<u8>> {
    let range = |name: &str| {
        let section = image.section(name)?;
        Some(section.svma..section.svma + section.data.len() as u64)
    };
    let data = |name: &str| Some(image.section(name)?.data.into_owned());
    let end = image.segments().iter().map(|segment| segment.range().end);
    Module::new(
        image.name().to_owned(),
        bias..bias + end.max().unwrap_or(0),
        bias,
        ExplicitModuleSectionInfo {
            base_svma: 0,
            text_svma: range(".text"),
            text: data(".text"),
            got_svma: range(".got"),
            eh_frame_svma: range(".eh_frame"),
            eh_frame: data(".eh_frame"),
            eh_frame_hdr_svma: range(".eh_frame_hdr"),
            eh_frame_hdr: data(".eh_frame_hdr"),
            ..Default::default()
        },
    )
}
