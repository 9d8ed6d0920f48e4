//! Reads `.gnu_debugdata`: an xz-compressed ELF file with the local function symbols of a stripped
//! file (Fedora's "MiniDebugInfo", described in the gdb manual).

use std::io::Read;

use crate::Image;

/// Maximum decompressed size, several times that of the largest programs.
const SIZE_LIMIT: u64 = 256 << 20;
/// Memory limit of the decoder: a 64 MiB dictionary, `xz -9`, needs 65 MiB.
const MEMORY_LIMIT: u64 = 256 << 20;

/// The file inside. `None` if there is none. The error says why it is unusable.
pub(crate) fn unpack(image: &Image) -> Result<Option<Image>, String> {
    let Some(section) = image.section(".gnu_debugdata") else {
        return Ok(None);
    };
    let failed = |why: String| format!("the symbols in .gnu_debugdata cannot be read: {why}");
    let stream = liblzma::stream::Stream::new_stream_decoder(MEMORY_LIMIT, 0)
        .map_err(|error| failed(error.to_string()))?;
    let decoder = liblzma::read::XzDecoder::new_stream(&section.data[..], stream);
    let mut bytes = Vec::new();
    decoder
        .take(SIZE_LIMIT + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| failed(error.to_string()))?;
    if u64::try_from(bytes.len()).is_ok_and(|len| len > SIZE_LIMIT) {
        return Err(failed(format!(
            "it unpacks to more than {SIZE_LIMIT} bytes"
        )));
    }
    let name = format!("{}(.gnu_debugdata)", image.name());
    Image::parse(&name, bytes)
        .map(Some)
        .map_err(|error| failed(error.to_string()))
}
