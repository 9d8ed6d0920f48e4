//! A value made when first needed. Without `std` there is no lock that would let threads share one: what
//! holds it, such as a [`crate::Table`], stays with its thread there.

#[cfg(not(feature = "std"))]
pub(crate) use core::cell::OnceCell as Once;
#[cfg(feature = "std")]
pub(crate) use std::sync::OnceLock as Once;
