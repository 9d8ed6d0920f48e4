//! The options that select the program: attach to a process, or connect to a debug server.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use unspool_rsp::Endpoint;

use super::terminal;
use crate::collect::{LocalProcess, Options, ProbeKinds, ProcessName, Source, Subject};
use crate::store::Store;

/// Maximum number of processes that an error lists.
const MAX_LISTED: usize = 10;

#[derive(Debug, Args)]
#[command(next_help_heading = "Which program")]
pub(super) struct Target {
    /// Attach to the running process PID (with --connect: on the server's machine)
    ///
    /// `record` and `inspect` take several: --attach PID,PID.
    #[arg(
        long,
        value_name = "PID",
        value_delimiter = ',',
        value_parser = pid,
        allow_negative_numbers = true
    )]
    pub(super) attach: Vec<u32>,

    /// Attach to the running process with this name; `record` and `inspect` take all that match
    ///
    /// GLOB must match the whole name of the process, of its program file, or of the script that
    /// an interpreter such as python3 runs. `*` stands for any characters, `?` for one. Leaves out
    /// Unspool itself and the processes that started it, such as sudo and the shell.
    #[arg(long, value_name = "GLOB", conflicts_with_all = ["attach", "connect"])]
    attach_name: Option<ProcessName>,

    /// Connect to a debug server: HOST:PORT, :PORT (this machine), unix:PATH, /dev/ttyUSB0,115200
    ///
    /// Any server of the GDB remote protocol: unspool-stub, gdbserver, `qemu-arm -g PORT`. For a
    /// server without a program (`unspool-stub --multi`) name a process with --attach PID or, for a
    /// recording, a program.
    #[arg(long, value_name = "ADDR", value_parser = endpoint)]
    pub(super) connect: Option<Endpoint>,

    /// The program's file: an unstripped copy, or the file itself if the server does not name it
    ///
    /// The file must have the program's build-id, or the same code if there is no build-id.
    #[arg(long, value_name = "FILE")]
    pub(super) exec: Option<PathBuf>,

    /// Architecture, if the server does not describe its registers: i386:x86-64, aarch64, arm
    #[arg(long = "arch", value_name = "NAME", requires = "connect")]
    pub(super) architecture: Option<String>,

    /// Write all packets to FILE as text (docs/reference/rsp-scripts.md)
    #[arg(long, value_name = "FILE")]
    rsp_log: Option<PathBuf>,
}

impl Target {
    /// True if an option names a program.
    pub(super) fn is_named(&self) -> bool {
        !self.attach.is_empty() || self.attach_name.is_some() || self.connect.is_some()
    }

    /// The processes to attach to, each once, in the order in which they are named.
    pub(super) fn processes(&self) -> anyhow::Result<Vec<u32>> {
        if let Some(exec) = self.exec.as_ref().filter(|exec| !exec.is_file()) {
            anyhow::bail!("--exec {}: no such file", exec.display());
        }
        let Some(name) = &self.attach_name else {
            let mut known = HashSet::new();
            let pids = self.attach.iter().copied();
            return Ok(pids.filter(|pid| known.insert(*pid)).collect());
        };
        let found = name.processes();
        if found.is_empty() {
            anyhow::bail!(
                "no process, program or script is named {name}; see `ps -ef` for all processes"
            );
        }
        Ok(found)
    }

    /// The process to attach to, if one is named.
    pub(super) fn process(&self) -> anyhow::Result<Option<u32>> {
        let pids = self.processes()?;
        if pids.len() < 2 {
            return Ok(pids.first().copied());
        }
        let listed = pids.iter().take(MAX_LISTED).map(|pid| {
            let name = LocalProcess::new(*pid).name();
            match name.filter(|_| self.connect.is_none()) {
                Some(name) => format!("{pid} ({name})"),
                None => pid.to_string(),
            }
        });
        let mut listed: Vec<String> = listed.collect();
        if pids.len() > MAX_LISTED {
            listed.push(format!("{} more", pids.len() - MAX_LISTED));
        }
        anyhow::bail!(
            "`top` and --connect take one process, and several are named: {}; name one with \
             --attach PID. On this machine, `record` and `inspect` take several",
            listed.join(", ")
        );
    }

    /// The processes of this machine to attach to, if there are several.
    pub(super) fn several(&self) -> anyhow::Result<Option<Vec<u32>>> {
        let pids = match self.connect {
            Some(_) => return Ok(None),
            None => self.processes()?,
        };
        Ok(Some(pids).filter(|pids| pids.len() > 1))
    }

    /// The program to observe: `program` if it is not empty, else the one that the options name.
    pub(super) fn source(&self, program: Vec<OsString>) -> anyhow::Result<Source> {
        Ok(match (self.process()?, &self.connect) {
            (attach, Some(endpoint)) => Source::Connect {
                endpoint: endpoint.clone(),
                subject: match attach {
                    Some(pid) => Subject::Process(pid),
                    None => served(program)?,
                },
            },
            (Some(pid), None) => Source::Attach { pid },
            (None, None) => {
                let mut words = program.into_iter();
                let program = words.next().context("you have not named a program")?;
                if is_process(&program) {
                    anyhow::bail!(
                        "{0} is a process, not a program; use --attach {0}",
                        program.display()
                    );
                }
                Source::Launch {
                    program,
                    args: words.collect(),
                }
            }
        })
    }

    /// The options of an inspection, which records no calls.
    pub(super) fn inspection(
        &self,
        source: Source,
        store: Store,
        rsp_log: Option<Box<dyn Write + Send>>,
    ) -> Options {
        Options {
            source,
            exec: self.exec.clone(),
            store,
            rsp_log,
            architecture: self.architecture.clone(),
            calls: Default::default(),
            probes: ProbeKinds::default(),
            kernel: Default::default(),
            budget: None,
            analysis: None,
            stop: None,
            command: std::env::args().collect(),
        }
    }

    /// Opens the file for `--rsp-log`.
    pub(super) fn rsp_log(&self) -> anyhow::Result<Option<Box<dyn Write + Send>>> {
        let open = |path: &PathBuf| -> anyhow::Result<Box<dyn Write + Send>> {
            let file = File::create(path)
                .with_context(|| format!("cannot write the log {}", path.display()))?;
            let path = path.clone();
            Ok(Box::new(Log { path, file }))
        };
        self.rsp_log.as_ref().map(open).transpose()
    }
}

/// The file of `--rsp-log`. The session goes on without it if it cannot be written.
struct Log {
    path: PathBuf,
    file: File,
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes).inspect_err(|error| {
            if error.kind() != io::ErrorKind::Interrupted {
                let path = self.path.display();
                terminal::say(&format!(
                    "warning: {path} has only the first packets, because it cannot be written: \
                     {error}"
                ));
            }
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// The program that a server starts; none if `program` is empty.
fn served(program: Vec<OsString>) -> anyhow::Result<Subject> {
    let text = |word: OsString| {
        let wrong = |word: OsString| anyhow::anyhow!("{word:?} is not UTF-8");
        word.into_string().map_err(wrong)
    };
    let mut words = program.into_iter().map(text);
    Ok(match words.next().transpose()? {
        None => Subject::Served,
        Some(program) => Subject::Program {
            program,
            args: words.collect::<anyhow::Result<_>>()?,
        },
    })
}

/// True if a word in place of a program is the number of a process.
fn is_process(program: &OsString) -> bool {
    let number = program.to_str().and_then(|word| word.parse::<u32>().ok());
    let exists = |pid: u32| Path::new("/proc").join(pid.to_string()).exists();
    number.is_some_and(exists) && !Path::new(program).exists()
}

/// A process by its number.
pub(super) fn pid(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|pid| *pid > 0);
    number.ok_or_else(|| format!("not a process number; for a name, use --attach-name {text}"))
}

fn endpoint(text: &str) -> Result<Endpoint, String> {
    text.parse().map_err(|error| format!("{error}"))
}
