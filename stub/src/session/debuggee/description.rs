//! target.xml (`qXfer:features:read`).

use gdbstub::target::TargetResult;
use gdbstub::target::ext::target_description_xml_override::TargetDescriptionXmlOverride;
use nix::errno::Errno;

use super::{Debuggee, part, refused};
use crate::arch;

impl TargetDescriptionXmlOverride for Debuggee {
    fn target_description_xml(
        &self,
        annex: &[u8],
        offset: u64,
        length: usize,
        buf: &mut [u8],
    ) -> TargetResult<usize, Self> {
        if annex != b"target.xml" {
            return Err(refused(Errno::ENOENT));
        }
        let text = arch::layout().description.as_bytes();
        Ok(part(text, offset, length, buf))
    }
}
