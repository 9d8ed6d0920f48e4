//! The command line: one subcommand per file, each a `struct Cmd` with `run`.
//!
//! This file holds the shared parts: parsing, and how errors end the process. Exit codes: 0 done, 1
//! failed, 2 wrong command line, 3 a finding of `--fail-on` exists, 4 too little was seen to know.
//! `record` passes on the program's exit code.

mod across;
mod addr2line;
mod addresses;
mod demo;
mod diff;
mod end_analysis;
mod export;
mod fail_on;
mod inspect;
mod interrupt;
mod number;
mod output;
mod page;
mod prefer;
mod profile;
mod record;
mod recording;
mod report;
mod rsp;
mod stub;
mod symbolize;
mod symbols;
mod table;
mod target;
mod terminal;
mod top;
mod view;
mod whole_file;

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::debuginfod;

/// Shows where every thread of a running program came from, what it does and what it waits for.
///
/// Unspool watches a program through a debug server: its own, gdbserver or the one in QEMU. It
/// records each thread with the stack that created it, and prints the threads as a tree with
/// functions and source lines. You do not rebuild the program.
#[derive(Debug, Parser)]
#[command(name = "unspool", version, max_term_width = 100, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  unspool demo                          try it on a small bundled program
  unspool record xz -T2 -k big.tar      run a program and show where its threads came from
  unspool record --sync ./server        also record what its threads wait for
  unspool inspect 1234                  what all threads of a process do and wait for now
  unspool top --attach 1234             follow them live in the terminal
  unspool report                        show the last recording again
  unspool view                          show it in the browser
  unspool diff old.unspool new.unspool  what became slower, and why

`unspool COMMAND --help` explains a command and its options.\n";

#[derive(Debug, Subcommand)]
enum Command {
    Record(record::Cmd),
    Report(report::Cmd),
    Diff(diff::Cmd),
    View(view::Cmd),
    Export(export::Cmd),
    Inspect(inspect::Cmd),
    Top(top::Cmd),
    Demo(demo::Cmd),
    Addr2line(addr2line::Cmd),
    Symbolize(symbolize::Cmd),
    Table(table::Cmd),
    Rsp(rsp::Cmd),
    Stub(stub::Cmd),
}

/// Runs the command line `args` (the program's name first) and returns the exit code.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(without_help_of_help(addr2line::expanded(args))) {
        Ok(cli) => cli,
        // `--help` and `--version` arrive here too; clap prints them and knows the exit code.
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    // The screen of `top` has no place for it.
    if io::stderr().is_terminal() && !matches!(cli.command, Command::Top(_)) {
        debuginfod::announce(terminal::say);
    }
    // Only a process with a limit of file sizes gets the signal.
    let _ = interrupt::survive_file_size_limit();
    let result = match cli.command {
        Command::Record(cmd) => cmd.run(),
        Command::Report(cmd) => cmd.run(),
        Command::Diff(cmd) => cmd.run(),
        Command::View(cmd) => cmd.run(),
        Command::Export(cmd) => cmd.run(),
        Command::Inspect(cmd) => cmd.run(),
        Command::Top(cmd) => cmd.run(),
        Command::Demo(cmd) => cmd.run(),
        Command::Addr2line(cmd) => cmd.run(),
        Command::Symbolize(cmd) => cmd.run(),
        Command::Table(cmd) => cmd.run(),
        Command::Rsp(cmd) => cmd.run(),
        Command::Stub(cmd) => cmd.run(),
    };
    result.unwrap_or_else(|error| {
        terminal::print_error(&error);
        ExitCode::FAILURE
    })
}

/// Lets `help --help` show the same as `help`, because clap's command `help` has no options.
fn without_help_of_help(mut args: Vec<OsString>) -> Vec<OsString> {
    let is = |at: usize, command: &str| args.get(at).is_some_and(|arg| arg == command);
    if is(1, "help") || is(1, "rsp") && is(2, "help") {
        args.retain(|arg| arg != "--help" && arg != "-h");
    }
    args
}

#[cfg(test)]
mod tests {
    use super::without_help_of_help;

    #[test]
    fn help_has_no_options() {
        let shown = |args: &str| {
            let args = args.split(' ').map(Into::into).collect();
            without_help_of_help(args).join(" ".as_ref())
        };
        assert_eq!(shown("unspool help --help"), "unspool help");
        assert_eq!(shown("unspool rsp help --help"), "unspool rsp help");
        assert_eq!(
            shown("unspool rsp help script -h"),
            "unspool rsp help script"
        );
        assert_eq!(shown("unspool report --help"), "unspool report --help");
    }
}
