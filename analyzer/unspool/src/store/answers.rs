//! Reads and writes the files in the cache that hold answers about one image as JSON.
//!
//! Separate, because places and passages are kept in the same way. A file is used only if its
//! checksum is right and this build of the program wrote it, because another build may have other
//! answers.

use std::time::SystemTime;

use serde::Serialize;
use serde::de::DeserializeOwned;
use unspool_image::Image;
use unspool_unwind::Cache;

/// Maximum size of a file that is read, in bytes.
const SIZE_LIMIT: u64 = 64 << 20;

/// The name of the file with answers of one kind. It depends on the bytes of the image and of its
/// debug files. `None` if the image has no build-id.
pub(super) fn file_name(image: &Image, kind: &str) -> Option<String> {
    let id = image.build_id()?;
    let others = [image.debug_image(), image.supplementary_image()];
    let files = [Some(image)].into_iter().chain(others);
    let identities = files.map(|file| file.map_or([0; 32], |file| file.identity().to_bytes()));
    let identities: Vec<[u8; 32]> = identities.collect();
    let files = crc32c::crc32c(identities.as_flattened());
    Some(format!("{id}-{files:08x}.{kind}"))
}

/// Reads a file. `None` if it is missing or damaged, or if another build wrote it.
pub(super) fn read<T: DeserializeOwned>(cache: &Cache, name: &str) -> Option<T> {
    let bytes = cache.read(name, SIZE_LIMIT)?;
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let (line, text) = (&bytes[..end], &bytes[end + 1..]);
    (line == head(text).as_bytes()).then_some(())?;
    serde_json::from_slice(text).ok()
}

/// Writes a file atomically.
///
/// # Errors
/// Returns an error if the file cannot be written.
pub(super) fn write<T: Serialize>(cache: &Cache, name: &str, answers: &T) -> std::io::Result<()> {
    let text = serde_json::to_vec(answers)?;
    let head = head(&text) + "\n";
    cache.write(name, &[head.as_bytes(), &text].concat())
}

/// The first line of a file with this text: the program that wrote it, and the text's checksum.
fn head(text: &[u8]) -> String {
    let program = std::env::current_exe().and_then(std::fs::metadata).ok();
    let built = program.as_ref().and_then(|file| file.modified().ok());
    let built = built.and_then(|built| built.duration_since(SystemTime::UNIX_EPOCH).ok());
    let (length, built) = (
        program.map_or(0, |file| file.len()),
        built.unwrap_or_default(),
    );
    let sum = crc32c::crc32c(text);
    format!("unspool places {length} {} {sum:08x}", built.as_nanos())
}
