//! Errors that make a file unusable as an image.
//!
//! Separate from the parsers: damage that leaves a usable part is a note on the image, not an
//! error.

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
        /// The system's error.
        source: std::io::Error,
    },
    /// The file is not ELF.
    #[error("{name} is not an ELF file: expected the bytes 7f 45 4c 46 at its start, found {seen}")]
    NotElf {
        /// The name that the caller gave the image.
        name: String,
        /// The first bytes in hex, or a description.
        seen: String,
    },
    /// The file ends before its headers do, or the headers are invalid.
    #[error("{name} is truncated or corrupt: {what}; get an intact copy")]
    Corrupt {
        /// The name that the caller gave the image.
        name: String,
        /// The damaged part, its position in the file, and the problem.
        what: String,
    },
    /// An ELF file for an unsupported architecture.
    #[error(
        "{name} is an ELF file for machine {machine}: expected x86-64 (62), AArch64 (183) or ARM (40)"
    )]
    UnknownMachine {
        /// The name that the caller gave the image.
        name: String,
        /// `e_machine`.
        machine: u16,
    },
    /// Class (32 or 64 bit) and machine contradict each other.
    #[error("{name} is a {bits}-bit ELF file for {arch}: expected {} bits", arch.address_size() * 8)]
    WrongClass {
        /// The name that the caller gave the image.
        name: String,
        /// The class in the header.
        bits: u8,
        /// The machine in the header.
        arch: crate::Arch,
    },
    /// The image is larger than the limit.
    #[error("{name} has {size} bytes, more than the limit of {limit} bytes for an image")]
    TooLarge {
        /// The name that the caller gave the image.
        name: String,
        /// The size.
        size: u64,
        /// The limit.
        limit: u64,
    },
}
