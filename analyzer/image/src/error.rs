//! Why a file cannot serve as an image at all.
//!
//! Apart from the parsers: damage that leaves something usable is a note on the image, not an error.

use std::path::PathBuf;

/// Why an image could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not ELF.
    #[error("{name} is not an ELF file: expected the bytes 7f 45 4c 46 at its start, found {seen}")]
    NotElf {
        /// The image as the caller named it.
        name: String,
        /// The first bytes in hex, or what is there instead.
        seen: String,
    },
    /// The file ends before its headers do, or they are nonsense.
    #[error("{name} is truncated or corrupt: {what}; get an intact copy")]
    Corrupt {
        /// The image as the caller named it.
        name: String,
        /// Which part, where in the file, and what is wrong.
        what: String,
    },
    /// An ELF file of an architecture that is not supported.
    #[error(
        "{name} is an ELF file for machine {machine}: expected x86-64 (62), AArch64 (183) or ARM (40)"
    )]
    UnknownMachine {
        /// The image as the caller named it.
        name: String,
        /// `e_machine`.
        machine: u16,
    },
    /// Class (32 or 64 bit) and machine contradict each other.
    #[error("{name} is a {bits}-bit ELF file for {arch}, which has {} bits", arch.address_size() * 8)]
    WrongClass {
        /// The image as the caller named it.
        name: String,
        /// What the header says.
        bits: u8,
        /// What the header says, too.
        arch: crate::Arch,
    },
    /// Larger than any image we are willing to hold in memory.
    #[error("{name} has {size} bytes, more than the {limit} an image may have")]
    TooLarge {
        /// The image as the caller named it.
        name: String,
        /// Its size.
        size: u64,
        /// The limit.
        limit: u64,
    },
}
