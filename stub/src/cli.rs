//! The command line. It follows gdbserver's, which people and test boards know.

use std::ffi::{OsStr, OsString};
use std::net::IpAddr;

use crate::comm::Comm;
use crate::session::debuggee::limits::Limits;
use crate::session::disabled_packets::DisabledPackets;
use crate::tracepoint::budget::Share;

/// The text of `--help`.
pub(crate) const HELP: &str = "\
Serve a program to gdb or Unspool over the GDB remote protocol.

Usage: unspool-stub [OPTIONS] COMM PROG [ARGS...]    start PROG and serve it
       unspool-stub [OPTIONS] --attach COMM PID      serve a running process
       unspool-stub [OPTIONS] --multi COMM           serve programs that clients choose

COMM is one of
  :PORT, HOST:PORT   TCP; on loopback unless a host is named; port 0 picks a free port
  unix:PATH          a socket file that only its owner may use
  /dev/ttyS1         a serial line; set its speed with stty
  -, stdio           standard input and output
  fd:N               a connected socket that the stub inherits

Options:
  --once                          end after the first connection
  --no-disable-randomization      let the kernel choose random addresses for PROG
  --disable-randomization         give PROG fixed addresses (default)
  --wrapper WRAPPER [ARGS...] --  start PROG through WRAPPER, which must execute it
  --allow ADDRESS[,ADDRESS...]    accept TCP connections from these addresses and loopback only
  --root DIRECTORY                let clients read files below DIRECTORY only
  --allow-write                   let clients write, create and remove files
  --may-attach PID[,PID...]       let clients attach to these processes only
  --leave-asleep                  do not stop threads in system calls that a stop would end early,
                                  such as a write to a full pipe (x86-64 only)
  --budget SHARE                  share of one processor that tracepoints may use (default 5%);
                                  above it the most expensive ones pause; 'none': no limit
  --disable-packet=NAME[,NAME...] disable vCont, T, Tthread, qC or qfThreadInfo; 'threads'
                                  disables them all; for testing clients
  --version
  -h, --help
Accepted and ignored: --debug..., --remote-debug, --startup-with-shell,
  --no-startup-with-shell, --selftest...

The stub serves clients until the program ends. If a debugger detaches, the program continues, and
runs untraced while no client is connected. With --attach the stub then ends when no client is left.
If a debugger's connection is lost instead, the program stops and waits for the next client.

SIGTERM ends the stub. With --once, or if COMM is stdio or fd:N, the end of the connection ends it,
too. The program then continues, or is killed if it was never resumed. PROG shares the stub's
terminal and process group. The stub ignores Ctrl-C, so only PROG reacts to it.";

/// The action that the command line selects.
#[derive(Debug)]
pub(crate) enum Command {
    /// Print the help.
    Help,
    /// Print the version.
    Version,
    /// Serve.
    Serve(Options),
}

/// The program to serve, and the options for serving it.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) comm: Comm,
    pub(crate) subject: Subject,
    pub(crate) once: bool,
    pub(crate) fixed_addresses: bool,
    pub(crate) wrapper: Vec<OsString>,
    pub(crate) disabled_packets: DisabledPackets,
    pub(crate) peers: Option<Vec<IpAddr>>,
    pub(crate) limits: Limits,
}

/// The program to serve.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// A program to start, with its arguments.
    Start(Vec<OsString>),
    /// A process to attach to.
    Attach(i32),
    /// Any program that a client chooses.
    Any,
}

/// The reasons why a command line is invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum UsageError {
    /// The option is unknown.
    #[error("unknown option '{0}'; see --help")]
    UnknownOption(String),
    /// The packet cannot be disabled.
    #[error("cannot disable packet '{0}'; expected vCont, T, Tthread, qC, qfThreadInfo or threads")]
    UnknownPacket(String),
    /// COMM is missing.
    #[error("no connection given; expected COMM, for example ':1234'; see --help")]
    NoComm,
    /// COMM has an unknown form.
    #[error(
        "'{0}' is not a connection; expected ':PORT', 'HOST:PORT', 'unix:PATH', '/dev/...', '-', \
         'stdio' or 'fd:N'"
    )]
    BadComm(String),
    /// PROG is missing.
    #[error(
        "no program given; expected 'COMM PROG [ARGS...]', or '--attach COMM PID', or '--multi COMM'"
    )]
    NoProgram,
    /// The root is not a directory.
    #[error("'{0}' is not a directory; expected '--root DIRECTORY'")]
    BadRoot(String),
    /// A peer is not an IP address.
    #[error("'{0}' is not an IP address; expected '--allow ADDRESS[,ADDRESS...]'")]
    BadPeer(String),
    /// PID is missing or not a number.
    #[error(
        "'{0}' is not a process number; expected '--attach COMM PID' or '--may-attach PID[,PID...]'"
    )]
    BadPid(String),
    /// The budget is not a share of a processor.
    #[error(
        "'{0}' is not a share of a processor; expected for example '--budget 5%', or '--budget \
         none'"
    )]
    BadBudget(String),
    /// There are too many arguments.
    #[error("unexpected argument after '{0}'; see --help")]
    TooMuch(String),
    /// The wrapper has no end mark.
    #[error(
        "the wrapper's arguments do not end with --; expected '--wrapper WRAPPER [ARGS...] -- COMM PROG'"
    )]
    OpenWrapper,
    /// The modes contradict each other.
    #[error("--attach and --multi exclude each other; give one of them")]
    TwoModes,
}

const IGNORED: &[&str] = &[
    "--debug",
    "--debug-format",
    "--debug-file",
    "--event-loop-debug",
    "--remote-debug",
    "--startup-with-shell",
    "--no-startup-with-shell",
    "--selftest",
];

/// Parses the arguments after the program's name.
pub(crate) fn parse(args: impl Iterator<Item = OsString>) -> Result<Command, UsageError> {
    let mut args = args.peekable();
    let (mut attach, mut multi, mut once, mut fixed_addresses) = (false, false, false, true);
    let mut wrapper = Vec::new();
    let mut disabled_packets = DisabledPackets::default();
    let mut peers = None;
    let mut limits = Limits::default();
    while let Some(option) = args.next_if(|arg| is_option(arg)) {
        let text = option.to_string_lossy();
        match &*text {
            "--" => break,
            "-h" | "--help" => return Ok(Command::Help),
            "--version" => return Ok(Command::Version),
            "--attach" => attach = true,
            "--multi" => multi = true,
            "--once" => once = true,
            "--disable-randomization" => fixed_addresses = true,
            "--no-disable-randomization" => fixed_addresses = false,
            "--wrapper" => loop {
                match args.next() {
                    Some(word) if word == "--" => break,
                    Some(word) => wrapper.push(word),
                    None => return Err(UsageError::OpenWrapper),
                }
            },
            "--leave-asleep" => limits.leaves_asleep = true,
            "--allow-write" => limits.files.write = true,
            "--root" => {
                let root = args.next().unwrap_or_default();
                if !std::path::Path::new(&root).is_dir() {
                    return Err(UsageError::BadRoot(root.to_string_lossy().into_owned()));
                }
                limits.files.root = Some(root.into());
            }
            "--allow" => peers = Some(list(args.next(), UsageError::BadPeer)?),
            "--may-attach" => limits.attachable = Some(list(args.next(), UsageError::BadPid)?),
            "--budget" => {
                limits.budget = budget(args.next())?;
                limits.budget_is_given = true;
            }
            list if list.starts_with("--disable-packet=") => {
                let names = list.trim_start_matches("--disable-packet=").split(',');
                for name in names {
                    if !disabled_packets.add(name) {
                        return Err(UsageError::UnknownPacket(name.to_owned()));
                    }
                }
            }
            other if IGNORED.contains(&other.split('=').next().unwrap_or(other)) => {}
            other => return Err(UsageError::UnknownOption(other.to_owned())),
        }
    }
    let comm = args.next().ok_or(UsageError::NoComm)?;
    let comm: Comm = comm
        .to_str()
        .and_then(Comm::parse)
        .ok_or_else(|| UsageError::BadComm(comm.to_string_lossy().into_owned()))?;
    let mut rest: Vec<OsString> = args.collect();
    if rest.first().is_some_and(|word| word == "--") {
        rest.remove(0);
    }
    let subject = match (attach, multi) {
        (true, true) => return Err(UsageError::TwoModes),
        (true, false) => Subject::Attach(pid(&rest)?),
        // As with gdbserver, a program may follow --multi.
        (false, true) if rest.is_empty() => Subject::Any,
        (false, false) if rest.is_empty() => return Err(UsageError::NoProgram),
        _ => Subject::Start(rest),
    };
    Ok(Command::Serve(Options {
        comm,
        subject,
        once,
        fixed_addresses,
        wrapper,
        disabled_packets,
        peers,
        limits,
    }))
}

/// Parses a share of a processor, or `none`.
fn budget(word: Option<OsString>) -> Result<Option<Share>, UsageError> {
    let text = word.unwrap_or_default().to_string_lossy().into_owned();
    match Share::parse(&text) {
        None if text != "none" => Err(UsageError::BadBudget(text)),
        share => Ok(share),
    }
}

/// Parses values that are separated by commas.
fn list<T: std::str::FromStr>(
    word: Option<OsString>,
    error: fn(String) -> UsageError,
) -> Result<Vec<T>, UsageError> {
    let text = word.unwrap_or_default().to_string_lossy().into_owned();
    text.split(',')
        .map(|item| item.parse().map_err(|_| error(item.to_owned())))
        .collect()
}

fn is_option(arg: &OsStr) -> bool {
    arg.to_str()
        .is_some_and(|text| text.starts_with("--") || text == "-h")
}

fn pid(rest: &[OsString]) -> Result<i32, UsageError> {
    let word = rest.first().cloned().unwrap_or_default();
    let text = word.to_string_lossy().into_owned();
    if rest.len() > 1 {
        return Err(UsageError::TooMuch(text));
    }
    match text.parse() {
        Ok(pid) if pid > 0 => Ok(pid),
        _ => Err(UsageError::BadPid(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Command, UsageError> {
        parse(line.split_whitespace().map(OsString::from))
    }

    fn options(line: &str) -> Options {
        match read(line) {
            Ok(Command::Serve(options)) => options,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn gdbserver_command_lines_are_accepted() {
        let start = options("--once --no-startup-with-shell --debug-format=all :0 prog -x --y");
        assert!(start.once && start.fixed_addresses);
        let words = ["prog", "-x", "--y"].map(OsString::from).to_vec();
        assert_eq!(start.subject, Subject::Start(words));
        assert_eq!(options("--attach :0 12").subject, Subject::Attach(12));
        assert_eq!(options("--multi stdio").subject, Subject::Any);
        assert!(
            options("--disable-packet=threads :0 prog")
                .disabled_packets
                .stop_thread
        );
        let wrapped = options("--wrapper env A=1 -- :1 prog");
        assert_eq!(wrapped.wrapper, ["env", "A=1"]);
    }

    #[test]
    fn error_messages_name_the_mistake() {
        for (line, word) in [
            ("--frob :0 prog", "--frob"),
            ("nonsense prog", "nonsense"),
            (":0", "no program"),
            ("", "no connection"),
            ("--attach :0 x1", "x1"),
            ("--attach --multi :0", "exclude"),
            ("--wrapper env", "do not end"),
            ("--disable-packet=vCont,m :0 prog", "'m'"),
            ("--root /no/such :0 prog", "/no/such"),
            ("--allow 10.0.0.x :0 prog", "10.0.0.x"),
            ("--may-attach 1,y --multi :0", "'y'"),
            ("--budget 5 :0 prog", "'5'"),
        ] {
            let message = read(line).expect_err(line).to_string();
            assert!(message.contains(word), "{line}: {message}");
        }
    }
}
