//! A value computed when it is first needed.
//!
//! Without `std` there is no lock with which threads could share one. A value that holds it, such
//! as a [`crate::Table`], then stays in one thread.

#[cfg(not(feature = "std"))]
pub(crate) use core::cell::OnceCell as Once;
#[cfg(feature = "std")]
pub(crate) use std::sync::OnceLock as Once;
