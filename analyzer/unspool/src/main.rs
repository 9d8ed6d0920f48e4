//! Entry point of the `unspool` command.

fn main() {}
