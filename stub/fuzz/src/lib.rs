//! Runs one input of the fuzz target.

pub mod session;
