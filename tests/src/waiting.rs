//! Programs whose threads wait for each other in a known way (`programs/waits`).
//!
//! They print their waits in advance. This module parses that output and waits until the kernel
//! shows the threads waiting.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use crate::process::{self, Background};
use crate::workspace;

const TIME_LIMIT: Duration = Duration::from_secs(60);

/// A wait as the program states it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatedWait {
    /// `mutex`, `join` and so on, as in the report.
    pub kind: String,
    /// Address of the object; 0 if the program does not know it.
    pub address: u64,
    /// The holder, or the thread that is waited for.
    pub holder: Option<u64>,
}

/// A finding as the program states it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatedFinding {
    /// `deadlock` and so on, as in the report.
    pub kind: String,
    /// Whether it can be proved.
    pub proved: bool,
    /// The threads concerned, sorted; none if the program does not name them.
    pub tids: Vec<u64>,
}

/// A program that has printed everything and whose threads wait.
pub struct Waiting {
    child: Option<Background>,
    /// The process to inspect: the program or a child of it.
    pub pid: u32,
    /// The waits, by thread.
    pub waits: BTreeMap<u64, StatedWait>,
    /// The mutexes of waits at condition variables, by thread.
    pub mutexes: BTreeMap<u64, u64>,
    /// The expected findings.
    pub findings: Vec<StatedFinding>,
    _folder: Option<TempDir>,
}

/// How a kernel and a C library show that threads wait.
#[derive(Debug, Clone, Copy)]
pub struct KernelView {
    /// Numbers of the system calls that wait at futexes.
    pub futexes: &'static [u64],
    /// musl's threads wait at words of their own for condition variables and barriers.
    pub own_words: bool,
    /// The kernel refuses a thread its mutex, and the C library makes it wait at a word of its own.
    pub refused: bool,
    /// Only the offset in a page is the program's own, because QEMU's user mode maps it elsewhere.
    pub moved: bool,
}

/// This machine with glibc.
pub const HERE: KernelView = KernelView {
    futexes: &[202],
    own_words: false,
    refused: false,
    moved: false,
};

/// Compiles `programs/waits/SOURCE` with this command, into a temporary folder.
pub fn compile(source: &str, command: &[&str]) -> Result<(TempDir, PathBuf)> {
    compile_in("waits", source, command)
}

/// The same for `programs/FOLDER/SOURCE`.
pub fn compile_in(folder: &str, source: &str, command: &[&str]) -> Result<(TempDir, PathBuf)> {
    let source = format!("{folder}/{source}");
    let source = source.as_str();
    let parent = workspace::target_directory().join("programs");
    fs::create_dir_all(&parent)?;
    let folder = tempfile::tempdir_in(parent)?;
    let stem = Path::new(source).file_stem().context("a source file")?;
    let program = folder.path().join(stem);
    let [compiler, options @ ..] = command else {
        bail!("no compiler");
    };
    let mut compiler = Command::new(compiler);
    // The file comes last, because rustc requires options first.
    compiler.args(options).arg("-o").arg(&program);
    compiler.arg(workspace::file(&format!("programs/{source}")));
    compiler.current_dir(folder.path());
    process::run(&mut compiler, TIME_LIMIT)?.success()?;
    Ok((folder, program))
}

impl Waiting {
    /// Starts a compiled program with this command, and waits until it has printed its waits.
    pub fn start(command: &mut Command, folder: TempDir) -> Result<Waiting> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = Background(process::start(command)?);
        Waiting::listen_to(child, Some(folder))
    }

    /// The same for a running program with piped output.
    pub fn listen_to(mut child: Background, folder: Option<TempDir>) -> Result<Waiting> {
        let output = child.0.stdout.take().context("piped")?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let pid = child.0.id();
        let next = || {
            lines
                .recv_timeout(TIME_LIMIT)
                .context("the program says nothing more")
        };
        Ok(Waiting {
            child: Some(child),
            _folder: folder,
            ..Waiting::parse(pid, next)?
        })
    }

    /// Parses the output of a process, line by line.
    pub fn parse(pid: u32, mut next: impl FnMut() -> Result<String>) -> Result<Waiting> {
        let mut waiting = Waiting {
            child: None,
            pid,
            waits: BTreeMap::new(),
            mutexes: BTreeMap::new(),
            findings: Vec::new(),
            _folder: None,
        };
        waiting.listen(&mut next)?;
        Ok(waiting)
    }

    fn listen(&mut self, next: &mut dyn FnMut() -> Result<String>) -> Result<()> {
        let (mut ready, mut count) = (false, 0);
        while !ready || self.waits.len() < count {
            let line = next()?;
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["wait", tid, kind, address, ref holder @ ..] => {
                    let told = StatedWait {
                        kind: kind.to_owned(),
                        address: u64::from_str_radix(address.trim_start_matches("0x"), 16)?,
                        holder: holder.first().map(|tid| tid.parse()).transpose()?,
                    };
                    self.waits.insert(tid.parse()?, told);
                }
                ["mutex", tid, address] => {
                    let address = u64::from_str_radix(address.trim_start_matches("0x"), 16)?;
                    self.mutexes.insert(tid.parse()?, address);
                }
                ["finding", kind, sure, ref tids @ ..] => {
                    let mut tids: Vec<u64> = tids
                        .iter()
                        .map(|tid| tid.parse())
                        .collect::<Result<_, _>>()?;
                    tids.sort_unstable();
                    self.findings.push(StatedFinding {
                        kind: kind.to_owned(),
                        proved: sure == "proved",
                        tids,
                    });
                }
                ["pid", pid] => self.pid = pid.parse()?,
                ["waits", number] => count = number.parse()?,
                ["ready"] => ready = true,
                _ => bail!("the program says {line:?}"),
            }
        }
        Ok(())
    }

    /// Waits until every thread with a stated wait is in the system call `futex`, at a word of its
    /// object.
    pub fn wait_until_blocked(&self, view: KernelView) -> Result<()> {
        self.wait_until_blocked_by(view, || {
            let call = |tid: &u64| {
                let path = format!("/proc/{tid}/syscall");
                (*tid, fs::read_to_string(path).unwrap_or_default())
            };
            Ok(self.waits.keys().map(call).collect())
        })
    }

    /// The same, from the contents of `/proc/PID/task/TID/syscall` by thread.
    pub fn wait_until_blocked_by(
        &self,
        view: KernelView,
        mut calls: impl FnMut() -> Result<BTreeMap<u64, String>>,
    ) -> Result<()> {
        let start = Instant::now();
        loop {
            let calls = calls()?;
            let missing: Vec<_> = self
                .waits
                .iter()
                .map(|(tid, told)| (tid, told, calls.get(tid).cloned().unwrap_or_default()))
                .filter(|(_, told, call)| !view.is_blocked(told, call))
                .collect();
            if missing.is_empty() {
                return Ok(());
            }
            ensure!(
                start.elapsed() < TIME_LIMIT * 3,
                "they do not wait: {missing:x?}"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Replaces thread ids with the ids outside the program's PID namespace (`NSpid` in proc(5)).
    pub fn seen_from_outside(&mut self) -> Result<()> {
        let mut outside = BTreeMap::new();
        for entry in fs::read_dir(format!("/proc/{}/task", self.pid))? {
            let status = fs::read_to_string(entry?.path().join("status"))?;
            let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
            let ids: Vec<u64> = ids
                .context("no NSpid")?
                .split_whitespace()
                .map(str::parse)
                .collect::<Result<_, _>>()?;
            let [first, .., last] = ids[..] else {
                bail!("no PID namespace of its own: {ids:?}");
            };
            outside.insert(last, first);
        }
        let id = |own: &u64| outside.get(own).copied().unwrap_or(*own);
        self.waits = self
            .waits
            .iter()
            .map(|(t, told)| (id(t), told.clone()))
            .collect();
        self.mutexes = self
            .mutexes
            .iter()
            .map(|(t, mutex)| (id(t), *mutex))
            .collect();
        for told in self.waits.values_mut() {
            told.holder = told.holder.as_ref().map(id);
        }
        for wrong in &mut self.findings {
            wrong.tids = wrong.tids.iter().map(id).collect();
            wrong.tids.sort_unstable();
        }
        Ok(())
    }

    /// Writes a byte to the program's standard input.
    pub fn give(&mut self) -> Result<()> {
        let input = self.child.as_mut().and_then(|child| child.0.stdin.as_mut());
        Ok(input.context("no standard input")?.write_all(b"!")?)
    }

    /// Closes the program's input and waits for its end.
    pub fn end(mut self) -> Result<()> {
        let mut child = self.child.take().context("somewhere else")?;
        drop(child.0.stdin.take());
        child.ends_well("the program", TIME_LIMIT)
    }
}

impl KernelView {
    /// Whether a thread is in its stated wait, judging by its system call (proc(5), `syscall`:
    /// number, arguments).
    fn is_blocked(self, told: &StatedWait, call: &str) -> bool {
        let mut words = call.split(' ');
        let number = words.next().and_then(|number| number.parse().ok());
        let word = words
            .next()
            .and_then(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok());
        let (Some(number), Some(word)) = (number, word) else {
            return false;
        };
        let anywhere = told.address == 0
            || self.own_words && ["cond", "barrier"].contains(&told.kind.as_str())
            || self.refused && told.kind == "mutex";
        let mask = if self.moved { 0xfff } else { u64::MAX };
        let inside = word.wrapping_sub(told.address) & mask < 64;
        self.futexes.contains(&number) && (anywhere || inside)
    }
}
