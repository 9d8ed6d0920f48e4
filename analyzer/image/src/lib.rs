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

mod arch;
mod build_id;
mod demangle;
mod dynamic;
mod error;
mod finder;
mod image;
mod locator;
mod symbols;

pub use arch::Arch;
pub use build_id::{BuildId, ParseBuildIdError};
pub use demangle::{demangle, function_name};
pub use dynamic::Dynamic;
pub use error::Error;
pub use finder::{Fetch, FindError, Finder, Found, Origin, Wanted};
pub use image::{Image, ImageKind, Section, Segment};
pub use locator::{Function, Location, Locator, SourceFrame};
pub use symbols::{Binding, CodeKind, Symbol, SymbolKind, Symbols};
