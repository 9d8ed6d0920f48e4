//! What the fuzz target does with one input.

pub mod session;
