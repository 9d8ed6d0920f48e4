//! ELF images of a debugged program and what can be looked up in them.
//!
//! This crate owns everything that is learned from files: ELF structure, build-ids, symbols, source
//! lines, separate debug files, and where on the host the target's files are. It is apart so that
//! the unwinder and the model can be tested on files alone, with no target and no capture.
//!
//! Every parser here takes bytes that may be corrupt: the answer is then partial, [`Image::notes`]
//! says what is missing, and nothing panics, loops or allocates by an unchecked length.
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
mod build_id;
#[cfg(feature = "std")]
mod choices;
#[cfg(feature = "std")]
mod demangle;
#[cfg(feature = "std")]
mod dynamic;
#[cfg(feature = "std")]
mod error;
#[cfg(feature = "std")]
mod finder;
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
pub use build_id::{BuildId, ParseBuildIdError};
#[cfg(feature = "std")]
pub use choices::Choice;
#[cfg(feature = "std")]
pub use demangle::{demangle, function_name};
#[cfg(feature = "std")]
pub use dynamic::Dynamic;
#[cfg(feature = "std")]
pub use error::Error;
#[cfg(feature = "std")]
pub use finder::{Fetch, FindError, Finder, Found, Origin, Wanted};
#[cfg(feature = "std")]
pub use image::{Identity, Image, ImageKind, Section, Segment};
#[cfg(feature = "std")]
pub use locator::{Function, Location, Locator, SourceFrame};
#[cfg(feature = "std")]
pub use symbols::{Binding, CodeKind, Symbol, SymbolKind, Symbols};
