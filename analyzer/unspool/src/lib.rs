//! The `unspool` command.
