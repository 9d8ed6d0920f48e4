//! The command as a user meets it: what it prints, what it exits with, what it leaves behind.
//!
//! What it says about threads is compared with gdb in the package `unspool-tests`; here are the
//! command line, the program's own life under a recording, and how recordings end.

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
