//! Call frame information that the code contradicts: damaged, or wrong from the start.
//!
//! Separate from [`crate::verify`], which takes call frame information as the truth and checks the
//! code analysis against it, one instruction at a time. Here neither source is taken as true.
//! Finished rows are compared function by function, and a function is doubted only if its code
//! contradicts most of its rows, because single differences have many causes. A doubt is only
//! reported: a walk already rejects a rule whose result fails its checks.

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
    /// One past the last address that both sources cover.
    pub(crate) end: u64,
    /// The first address where the two sources differ.
    pub(crate) first: u64,
}

/// The note about doubted functions.
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
