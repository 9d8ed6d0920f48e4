//! The ELF images of a debugged program: structure, symbols, source lines.
//!
//! This crate reads everything that comes from files: ELF structure, build-ids, symbols, source
//! lines, separate debug files. It also finds the target's files on the host. It is apart so that
//! tests of the unwinder and the model need only files, no target and no capture.
//!
//! Every parser accepts corrupt bytes. The result is then partial, and [`Image::notes`] says what
//! is missing. No input causes a panic, an endless loop or an allocation by an unchecked length.
//!
//! ```no_run
//! use unspool_image::{Image, Locator};
//! let image = Image::open("/usr/bin/true".as_ref())?;
//! let locator = Locator::new(&image);
//! println!("{:?}", locator.locate(image.entry()));
//! # Ok::<(), unspool_image::Error>(())
//! ```

#![cfg_attr(not(feature = "std"), no_std)]

mod arch;
#[cfg(feature = "std")]
mod binutils;
#[cfg(feature = "std")]
mod build_id;
#[cfg(feature = "std")]
mod demangle;
#[cfg(feature = "std")]
mod dynamic;
#[cfg(feature = "std")]
mod error;
#[cfg(feature = "std")]
mod finder;
#[cfg(feature = "std")]
mod ifuncs;
#[cfg(feature = "std")]
mod image;
#[cfg(feature = "std")]
mod locator;
#[cfg(feature = "std")]
mod pointers;
#[cfg(feature = "std")]
mod symbols;

pub use arch::Arch;
#[cfg(feature = "std")]
pub use binutils::{BinutilsFile, BinutilsFrame, BinutilsLocator, is_binutils_target};
#[cfg(feature = "std")]
pub use build_id::{BuildId, ParseBuildIdError};
#[cfg(feature = "std")]
pub use demangle::{demangle, function_name};
#[cfg(feature = "std")]
pub use dynamic::Dynamic;
#[cfg(feature = "std")]
pub use error::Error;
#[cfg(feature = "std")]
pub use finder::{
    Artifact, Fetch, FindError, Finder, Found, Open, Origin, Request, Servers, Unusable, Wanted,
};
#[cfg(feature = "std")]
pub use ifuncs::Ifunc;
#[cfg(feature = "std")]
pub use image::{Identity, Image, ImageKind, Section, Segment};
#[cfg(feature = "std")]
pub use locator::{Function, Location, Locator, SourceFrame};
#[cfg(feature = "std")]
pub use symbols::{Binding, CodeKind, Symbol, SymbolKind, Symbols};
