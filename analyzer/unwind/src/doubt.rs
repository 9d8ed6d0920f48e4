//! Call frame information that its own code contradicts: damaged, or wrong from the start.
//!
//! Apart from [`crate::verify`], which judges the analysis by call frame information taken for true, instruction by
//! instruction. Here neither is: compared are finished rows, function by function, and only a function of which
//! the code contradicts most of what is said is doubted. Single differences have many causes. A doubt is told, not
//! acted on: what fails a walk's checks is passed over anyway.

#[cfg(feature = "std")]
mod find;

use alloc::borrow::ToOwned;
use alloc::format;

use crate::table::Note;
#[cfg(feature = "std")]
pub(crate) use find::doubts;

/// A function whose call frame information is doubtful.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Doubt {
    /// The function's first address.
    pub(crate) start: u64,
    /// One past the last address that both speak of.
    pub(crate) end: u64,
    /// The first address where code and information differ.
    pub(crate) first: u64,
}

/// What to tell about doubted functions.
pub(crate) fn note(doubts: &[Doubt]) -> Option<Note> {
    let first = doubts.first()?;
    let what = match doubts.len() {
        1 => "one function".to_owned(),
        count => format!("{count} functions"),
    };
    Some(Note::new(format!(
        "the call frame information of {what} contradicts most of the code there, first at {:#x} in the function at \
         {:#x}: one of the two is damaged or wrong",
        first.first, first.start
    )))
}
