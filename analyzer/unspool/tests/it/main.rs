//! Tests the command as a user meets it: its output, its exit code, and what it leaves behind.
//!
//! The package `unspool-tests` compares results about threads with gdb. This package tests the
//! command line, the program's life under a recording, and the ends of recordings.

mod attach;
mod bad_input;
mod calls;
mod command_line;
mod damaged;
mod ending;
mod failing_output;
mod files;
mod launched;
mod peers;
mod running;
mod shown;
mod stepped;
mod table;
