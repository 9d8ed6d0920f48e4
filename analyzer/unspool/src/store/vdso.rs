//! The vDSO: code that the kernel maps into each process, and that has no file. All programs of an
//! architecture have the same one on one kernel, so this process has it, too.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use unspool_image::{BuildId, Image};

use crate::maps;

/// The name of its module.
pub(super) const PATH: &str = "[vdso]";

/// The vDSO with this build-id, if this kernel has it.
pub(super) fn find(build_id: Option<&BuildId>) -> Option<Image> {
    let image = own()?;
    (build_id.is_some() && image.build_id() == build_id).then_some(image)
}

/// The vDSO of this process.
pub(super) fn own() -> Option<Image> {
    let text = fs::read_to_string("/proc/self/maps").ok()?;
    let line = text.lines().find(|line| line.ends_with(PATH))?;
    let (range, _) = maps::parse(line)?;
    let mut bytes = vec![0; usize::try_from(range.end.checked_sub(range.start)?).ok()?];
    let memory = File::open("/proc/self/mem").ok()?;
    memory.read_exact_at(&mut bytes, range.start).ok()?;
    Image::parse(PATH, bytes).ok()
}
