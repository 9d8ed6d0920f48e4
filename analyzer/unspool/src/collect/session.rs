//! A connected target: the client, the target's conventions, and what is known of its process.

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use unspool_capture::{self as capture, Document, Header, RegisterLayout};
use unspool_image::Arch;
use unspool_rsp::{Client, ClientOptions, StopReply, ThreadEntry, ThreadId};

use crate::maps;

use super::abi::Abi;
use super::launch::{self, Stub};
use super::{Error, Options, Source, Subject, sink};

/// One program behind one server.
pub(super) struct Session {
    pub(super) client: Client,
    pub(super) abi: Abi,
    /// The process, where it is known.
    pub(super) pid: Option<u64>,
    /// It runs on this machine: its `/proc` and its files are ours to read.
    pub(super) local: bool,
    /// We started it, or had our stub start it, so it ends with the recording.
    pub(super) launched: bool,
    /// What the server calls thread names are none.
    pub(super) nameless: bool,
    /// The server is our own stub, which steps over its breakpoints by itself.
    pub(super) own_stub: bool,
    /// The server had the program before we came, so a look leaves it halted or running.
    pub(super) served_before: bool,
    /// The server tells of every thread that begins or ends, without a stop.
    pub(super) tells_creators: bool,
    /// Somebody else may control the program: we neither stop nor resume it.
    pub(super) observes: bool,
    /// Declared after the client: the stub ends when the connection does.
    _stub: Option<Stub>,
}

impl Session {
    /// Comes to the program and gives the reason for which it stands still.
    pub(super) fn open(options: &mut Options, observe: bool) -> Result<(Self, StopReply), Error> {
        let client_options = ClientOptions {
            log: options.rsp_log.take(),
            architecture: options.architecture.clone(),
            observe,
            ..ClientOptions::default()
        };
        let (stub, result) = match &options.source {
            Source::Connect { endpoint, .. } => (None, Client::connect(endpoint, client_options)),
            Source::Launch { program, args } => {
                let (stub, stream) = launch::program(program, args, options.budget.as_deref())?;
                (Some(stub), Client::over(stream, client_options))
            }
            Source::Attach { pid } => {
                let (stub, stream) = launch::process(*pid, options.budget.as_deref())?;
                (Some(stub), Client::over(stream, client_options))
            }
        };
        let result = result.and_then(|mut client| {
            let (stop, served_before) = come_to(&mut client, &options.source)?;
            Ok((client, stop, served_before))
        });
        let (client, stop, served_before) = match (result, stub) {
            (Ok((client, stop, served_before)), stub) => ((client, stub), stop, served_before),
            (Err(error), Some(stub)) if error.is_fatal() => {
                if let Source::Attach { pid } = options.source
                    && let Some(tid) = launch::unstoppable(pid)
                {
                    return Err(Error::CannotHalt { pid, tid });
                }
                let reason = stub.reason();
                let reason = if reason.is_empty() {
                    error.to_string()
                } else {
                    reason
                };
                return Err(Error::Stub(reason));
            }
            (Err(error), _) => {
                return Err(match error.remote_message() {
                    Some(words) => Error::Refused(words.to_owned()),
                    None => error.into(),
                });
            }
        };
        let (mut client, stub) = client;
        if stub.is_none() && is_whole_machine(&mut client) {
            // QEMU has halted it for us.
            let _ = client.detach();
            return Err(Error::WholeMachine);
        }
        if let (Source::Connect { .. }, Some(budget)) = (&options.source, &options.budget) {
            set_budget(&mut client, budget)?;
        }
        let thread = match &stop {
            StopReply::Stopped { thread, .. } => *thread,
            _ => return Err(Error::NoTarget),
        };
        let abi = Abi::new(client.description())?;
        let pid = match &options.source {
            Source::Attach { pid } => Some(u64::from(*pid)),
            _ => thread.and_then(|thread| thread.pid.or(Some(thread.tid))),
        };
        let launched = match &options.source {
            Source::Launch { .. } => true,
            Source::Connect {
                subject: Subject::Program { .. },
                ..
            } => client.is_observer() && client.has_signal(),
            _ => false,
        };
        let session = Self {
            observes: client.is_observer(),
            client,
            abi,
            pid,
            local: stub.is_some(),
            launched,
            nameless: false,
            own_stub: stub.is_some(),
            served_before,
            tells_creators: false,
            _stub: stub,
        };
        Ok((session, stop))
    }

    /// The header of a capture of this session.
    pub(super) fn header(options: &Options, inspected: bool) -> Header {
        let (source, endpoint) = match &options.source {
            _ if inspected => (capture::Source::Inspected, String::new()),
            Source::Launch { .. } => (capture::Source::Launched, String::new()),
            Source::Attach { .. } => (capture::Source::Attached, String::new()),
            Source::Connect { endpoint, .. } => (capture::Source::Connected, endpoint.to_string()),
        };
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        let (sysroot, debug) = options.store.directories();
        Header {
            product: concat!("unspool ", env!("CARGO_PKG_VERSION")).to_owned(),
            start_unix_ns: sink::unix_ns(),
            command: options.command.clone(),
            source: source.into(),
            host: fs::read_to_string("/proc/sys/kernel/hostname")
                .unwrap_or_default()
                .trim()
                .to_owned(),
            endpoint,
            sysroot: sysroot.map(text).unwrap_or_default(),
            debug_directories: debug.into_iter().map(text).collect(),
            ..Header::default()
        }
    }

    /// The record that describes program and machine.
    pub(super) fn target(&self, executable: String) -> capture::Target {
        let description = self.client.description();
        let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        capture::Target {
            arch: self.abi.arch.gdb_name().to_owned(),
            osabi: description.osabi.clone().unwrap_or_default(),
            documents: description
                .documents
                .iter()
                .map(|(annex, xml)| Document {
                    annex: annex.clone(),
                    xml: xml.clone(),
                })
                .collect(),
            registers: description
                .registers
                .iter()
                .map(|register| RegisterLayout {
                    name: register.name.clone(),
                    number: register.number,
                    bits: register.bits,
                    offset: small(register.offset),
                })
                .collect(),
            pid: self.pid.unwrap_or(0),
            executable,
            local: self.local,
            tells_creators: self.tells_creators,
        }
    }

    /// Whether the server is known to step over its own breakpoints when told to continue: our stub
    /// does, where the kernel can step (docs/reference/protocol.md, "Resuming and breakpoints").
    pub(super) fn steps_over(&self) -> bool {
        self.client.features().has("QUnspoolThreads") && self.abi.arch != Arch::Arm
    }

    /// Whether the server can be trusted to report the start and end of threads.
    ///
    /// gdbserver offers to and, as of 13.1, aborts at the first new thread ("resume_one_lwp_throw:
    /// Assertion `lwp->waitstatus.kind () == TARGET_WAITKIND_IGNORE' failed"). It is known by two
    /// features that nobody else has both of.
    pub(super) fn can_report_threads(&self) -> bool {
        let features = self.client.features();
        !(features.has("StaticTracepoints") && features.has("QStartupWithShell"))
    }

    /// All threads, with names where these are not to be had for less.
    pub(super) fn thread_list(&mut self) -> Result<Vec<ThreadEntry>, Error> {
        if !self.local {
            return Ok(self.client.thread_list()?.to_vec());
        }
        let ids = self.client.thread_ids()?;
        let entry = |id| ThreadEntry {
            id,
            name: None,
            core: None,
        };
        Ok(ids.into_iter().map(entry).collect())
    }

    /// A thread's name, by the cheapest means there is.
    pub(super) fn thread_name(&mut self, thread: ThreadId) -> Option<String> {
        if self.local {
            return self.local_thread_name(thread.tid);
        }
        if self.nameless {
            return None;
        }
        self.client
            .thread_name(thread)
            .ok()
            .flatten()
            .filter(|name| !name.is_empty())
    }

    /// A thread's name from `/proc`; works while the program runs.
    pub(super) fn local_thread_name(&self, tid: u64) -> Option<String> {
        let path = format!("/proc/{}/task/{tid}/comm", self.pid?);
        // One read: the kernel's names have 15 bytes, and there may be thousands of threads.
        let mut bytes = [0; 64];
        let count = fs::File::open(path).ok()?.read(&mut bytes).ok()?;
        let name = String::from_utf8_lossy(bytes.get(..count)?);
        Some(name.trim_end_matches('\n').to_owned())
    }

    /// Whether a stop leaves other threads running: QEMU's user mode, which alone answers this query.
    pub(super) fn stops_one_thread(&mut self) -> bool {
        if self.own_stub || self.client.features().has("QThreadEvents") {
            return false;
        }
        let answer = self.client.raw(b"qqemu.sstepbits").unwrap_or_default();
        // Its system emulation answers as well, but stops all processors; it knows no auxv.
        let user_mode = self.client.features().has("qXfer:auxv:read");
        user_mode && answer.starts_with(b"ENABLE=")
    }

    /// The file that a process of this machine has mapped at an address. Where the dynamic linker has a relative path, nothing else
    /// tells relative to what.
    pub(super) fn mapped_file(&self, avma: u64) -> Option<String> {
        if !self.local {
            return None;
        }
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.pid?)).ok()?;
        let mut files = maps::files(&maps);
        let there = files.find(|file| file.range.contains(&avma))?;
        Some(there.path.to_owned())
    }

    /// What the kernel says of a thread, in the words of `/proc/PID/task/TID/NAME` (proc(5)).
    pub(super) fn kernels_word(&mut self, tid: u64, name: &str) -> Option<String> {
        let path = format!("/proc/{}/task/{tid}/{name}", self.pid?);
        let bytes = if self.local {
            fs::read(path).ok()?
        } else {
            self.client.read_file(&path, 64 << 10).ok()?
        };
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Waits for a reply for at most `timeout`. An observer gets none, only notices.
    pub(super) fn wait(&mut self, timeout: Duration) -> Result<Option<StopReply>, Error> {
        if self.observes {
            self.client.listen(timeout)?;
            return Ok(None);
        }
        Ok(self.client.wait(Some(timeout))?)
    }
}

/// Has a server that was started by somebody else keep to this budget: `5%`, or `none`.
fn set_budget(client: &mut Client, budget: &str) -> Result<(), Error> {
    let refused = |why| Error::Budget {
        asked: budget.to_owned(),
        why,
    };
    let percent = budget
        .strip_suffix('%')
        .and_then(|text| text.parse::<f64>().ok());
    // Hundredths of a percent, at least one.
    let points = percent.map(|percent| (percent * 100.0).round().max(1.0) as u32);
    match client.set_budget(points) {
        Ok(true) => Ok(()),
        Ok(false) if client.features().value("UnspoolBudget").is_some() => Err(refused(
            "this unspool-stub is older and cannot be told (it lacks QUnspoolBudget); start it \
             with that --budget, or use a newer one",
        )),
        // A server without a budget never pauses anything.
        Ok(false) if points.is_none() => Ok(()),
        Ok(false) => Err(refused(
            "it has none (it lacks QUnspoolBudget); leave --budget out, or use unspool-stub",
        )),
        Err(unspool_rsp::Error::Remote { .. }) => Err(refused(
            "it was started with a smaller --budget; start it with a larger one, or without",
        )),
        Err(error) => Err(error.into()),
    }
}

/// Has the server take the program that the user named. Returns why that stands still, and whether
/// the server had it before.
fn come_to(client: &mut Client, source: &Source) -> Result<(StopReply, bool), unspool_rsp::Error> {
    let Source::Connect { subject, .. } = source else {
        return Ok((client.stop_reason()?, false));
    };
    if *subject != Subject::Served && !client.is_observer() {
        client.extended_mode()?;
    }
    Ok(match subject {
        Subject::Served => (client.stop_reason()?, true),
        Subject::Process(pid) => {
            let has_one = matches!(client.stop_reason(), Ok(StopReply::Stopped { .. }));
            (client.attach(u64::from(*pid))?, has_one)
        }
        Subject::Program { program, args } => (client.run(program, args)?, false),
    })
}

/// Whether the server is QEMU's system emulation, which alone answers this query.
fn is_whole_machine(client: &mut Client) -> bool {
    // A program's servers say where the kernel has put it.
    if client.is_observer() || client.features().has("qXfer:auxv:read") {
        return false;
    }
    let mode = client.raw(b"qqemu.PhyMemMode").unwrap_or_default();
    matches!(mode[..], [b'0' | b'1'])
}
