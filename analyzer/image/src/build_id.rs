//! Build-ids: the linker's hash that tells one build of a file from another.
//!
//! Apart because build-ids are read from three places (a file's notes, a debug file's notes, and
//! `PT_NOTE` bytes found in target memory) and compared everywhere.

use std::fmt;
use std::str::FromStr;

/// The content of an `NT_GNU_BUILD_ID` note.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BuildId(Vec<u8>);

const NT_GNU_BUILD_ID: u32 = 3;
/// Maximum length. Linkers write 8 to 20 bytes; `--build-id=0x...` may give more.
const MAX_LENGTH: usize = 64;

impl BuildId {
    /// An id with these bytes. `None` if there are no bytes or too many.
    pub fn new(bytes: &[u8]) -> Option<BuildId> {
        (1..=MAX_LENGTH)
            .contains(&bytes.len())
            .then(|| BuildId(bytes.to_vec()))
    }

    /// Finds the build-id in a note segment or section.
    ///
    /// The bytes may come from a file, or from the target's memory at `PT_NOTE`. All supported
    /// architectures are used in little-endian form, so `big_endian` is false unless the image says
    /// otherwise.
    ///
    /// Layout (ELF gABI, "Note Section"): namesz, descsz, type (4 bytes each), name and descriptor.
    /// Name and descriptor are padded to 4 bytes. In a segment aligned to 8 they are padded to 8,
    /// but the name "GNU\0" ends at 16 and needs no padding.
    pub fn from_notes(notes: &[u8], big_endian: bool) -> Option<BuildId> {
        find_note(notes, big_endian, 4).or_else(|| find_note(notes, big_endian, 8))
    }

    /// The raw bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The path of the debug file in a build-id directory: `.build-id/ab/cdef.debug`.
    pub fn debug_path(&self) -> String {
        self.path(".debug")
    }

    pub(crate) fn path(&self, suffix: &str) -> String {
        let hex = self.to_string();
        format!(".build-id/{}/{}{suffix}", &hex[..2], &hex[2..])
    }
}

fn find_note(notes: &[u8], big_endian: bool, align: usize) -> Option<BuildId> {
    let word = |at: usize| -> Option<u32> {
        let bytes: [u8; 4] = notes.get(at..at.checked_add(4)?)?.try_into().ok()?;
        Some(if big_endian {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        })
    };
    let mut at = 0usize;
    while at < notes.len() {
        let name_size = usize::try_from(word(at)?).ok()?;
        let size = usize::try_from(word(at + 4)?).ok()?;
        let kind = word(at + 8)?;
        let name_at = at + 12;
        let start = name_at
            .checked_add(name_size)?
            .checked_next_multiple_of(align)?;
        let end = start.checked_add(size)?;
        let name = notes.get(name_at..name_at.checked_add(name_size)?)?;
        let descriptor = notes.get(start..end)?;
        if kind == NT_GNU_BUILD_ID && name == b"GNU\0" {
            return BuildId::new(descriptor);
        }
        at = end.checked_next_multiple_of(align)?;
    }
    None
}

impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BuildId({self})")
    }
}

/// A text that is not a build-id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a build-id as an even number of hex digits, found {0:?}")]
pub struct ParseBuildIdError(String);

impl FromStr for BuildId {
    type Err = ParseBuildIdError;

    fn from_str(text: &str) -> Result<BuildId, ParseBuildIdError> {
        let digits: Option<Vec<u8>> = text
            .chars()
            .map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
            .collect();
        digits
            .filter(|digits| digits.len() % 2 == 0)
            .map(|digits| {
                digits
                    .chunks(2)
                    .map(|pair| pair[0] << 4 | pair[1])
                    .collect()
            })
            .and_then(|bytes: Vec<u8>| BuildId::new(&bytes))
            .ok_or_else(|| ParseBuildIdError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_id_behind_another_note() {
        let mut notes = Vec::new();
        // NT_GNU_PROPERTY_TYPE_0, 4 bytes of content.
        notes.extend_from_slice(&[4, 0, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0]);
        notes.extend_from_slice(b"GNU\0wxyz");
        notes.extend_from_slice(&[4, 0, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0]);
        notes.extend_from_slice(b"GNU\0\xab\xcd\xef");
        let id = BuildId::from_notes(&notes, false).expect("a build-id");
        assert_eq!(id.to_string(), "abcdef");
        assert_eq!(id.debug_path(), ".build-id/ab/cdef.debug");
        assert_eq!("ABCDEF".parse(), Ok(id));
    }

    #[test]
    fn lengths_beyond_the_notes_give_nothing() {
        let mut notes = vec![4, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 3, 0, 0, 0];
        notes.extend_from_slice(b"GNU\0ab");
        for end in 0..notes.len() {
            assert_eq!(BuildId::from_notes(&notes[..end], false), None);
        }
        assert_eq!(BuildId::from_notes(&[0xff; 64], false), None);
    }

    #[test]
    fn text_that_is_no_id() {
        for text in ["", "a", "abc", "xy", "+1", "é0"] {
            assert!(text.parse::<BuildId>().is_err(), "{text:?}");
        }
    }
}
