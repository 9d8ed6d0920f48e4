//! A connected target: the client, the target's conventions, and the facts known about its process.

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpgid};
use unspool_capture::{self as capture, Document, Header, RegisterLayout};
use unspool_rsp::{Action, Client, ClientOptions, Registers, StopReply, ThreadEntry, ThreadId};

use crate::maps;

use super::error::Error;
use super::launch::{self, Stub};
use super::local_process::{LocalProcess, parent_of};
use super::options::{Options, Source, Subject};
use super::sink;
use crate::platform::abi::Abi;

/// gdb's number of SIGTRAP, the signal that reports breakpoints.
pub(super) const SIGTRAP: u8 = 5;
/// gdb's number of SIGCHLD, by which some servers report an attach.
pub(super) const SIGCHLD: u8 = 17;
/// gdb's number of SIGINT.
pub(super) const SIGINT: u8 = 2;
/// Time after which a silent observed stub must answer a question. Such a stub may have nothing to
/// report for hours, so only an answer shows that the link is up.
const SILENCE_LIMIT: Duration = Duration::from_secs(3);
/// Timeout of an answer while the program runs. Together with [`SILENCE_LIMIT`] less than 10 s.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(6);
/// Fields of `/proc/PID/status` with the signals that a process survives (proc(5)).
const SURVIVED_SIGNALS: [&str; 2] = ["SigCgt:", "SigIgn:"];

/// How the server stops the program.
#[derive(Debug, Default)]
pub(super) struct Stops {
    /// A stop holds only the thread that reports it; see `qemu_threads`.
    pub(super) one_thread: bool,
    /// The server stops before a signal ends the program.
    pub(super) before_fatal: bool,
}

/// One program behind one server.
pub(super) struct Session {
    pub(super) client: Client,
    pub(super) abi: Abi,
    /// The process id, if known.
    pub(super) pid: Option<u64>,
    /// The program runs on this machine, so the recorder can read its `/proc` entry and its files.
    pub(super) local: bool,
    /// The recording started the program, so the program ends with the recording.
    pub(super) launched: bool,
    /// The server sends other text instead of thread names.
    pub(super) nameless: bool,
    /// The server is `unspool-stub`, which steps over its breakpoints by itself.
    pub(super) own_stub: bool,
    /// The program ran under the server before the recorder connected, so an inspection leaves it
    /// there unchanged.
    pub(super) served_before: bool,
    /// The server reports the start and end of every thread without a stop.
    pub(super) tells_creators: bool,
    /// Another client may control the program, so the recorder neither stops nor resumes it.
    pub(super) observes: bool,
    pub(super) stops: Stops,
    /// Declared after the client, to be dropped later: the stub ends when the connection closes.
    pub(super) stub: Option<Stub>,
}

impl Session {
    /// Connects to the program, and returns the stop reply that says why it is stopped.
    /// A stub that attaches for it can `leave_asleep` threads in system calls that a stop would end
    /// early.
    pub(super) fn open(
        options: &mut Options,
        observe: bool,
        leave_asleep: bool,
    ) -> Result<(Self, StopReply), Error> {
        let client_options = ClientOptions {
            log: options.rsp_log.take(),
            architecture: options.architecture.clone(),
            observe,
            ..ClientOptions::default()
        };
        let (stub, result) = match &options.source {
            Source::Connect { endpoint, .. } => (None, Client::connect(endpoint, client_options)),
            Source::Launch { program, args } => {
                if let Ok(path) = launch::find(program) {
                    options.store.read_ahead_of_start(path);
                }
                let (stub, stream) = launch::program(program, args, options.budget.as_deref())?;
                (Some(stub), Client::over(stream, client_options))
            }
            Source::Attach { pid } => {
                let (stub, stream) =
                    launch::process(*pid, options.budget.as_deref(), leave_asleep)?;
                (Some(stub), Client::over(stream, client_options))
            }
        };
        let result = result.and_then(|mut client| {
            let (stop, served_before) = connect(&mut client, &options.source)?;
            Ok((client, stop, served_before))
        });
        let (client, stop, served_before) = match (result, stub) {
            (Ok((client, stop, served_before)), stub) => ((client, stub), stop, served_before),
            (Err(error), Some(stub)) if error.is_fatal() => {
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
            // QEMU halted the machine when the recorder connected.
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
        let abi = Abi::new(client.description());
        let abi = abi.ok_or_else(|| {
            let named = client.description().architecture.as_deref();
            Error::Architecture(named.unwrap_or("not named").to_owned())
        })?;
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
            stops: Stops::default(),
            stub,
        };
        Ok((session, stop))
    }

    /// Lets the recorder's own stub end by itself, after it has released the program.
    pub(super) fn leave_stub(&mut self) {
        if let Some(stub) = self.stub.take() {
            stub.leave();
        }
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
            traces_functions: Some(!options.calls.functions.is_empty()),
            ..Header::default()
        }
    }

    /// The record that describes the program and the machine.
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
            processors: match self.local {
                true => {
                    std::thread::available_parallelism().map_or(0, |number| small(number.get()))
                }
                false => 0,
            },
            parent_pid: match self.local {
                true => self.pid.and_then(parent_of).unwrap_or(0),
                false => 0,
            },
        }
    }

    /// True if the server steps over its own breakpoints when the client resumes a thread.
    /// `unspool-stub` does so where the kernel can single-step (docs/reference/protocol.md,
    /// "Resuming and breakpoints").
    pub(super) fn steps_over(&self) -> bool {
        self.client.features().has("QUnspoolThreads") && self.abi.platform.kernel_steps
    }

    /// True if the server reports the start and end of threads reliably.
    ///
    /// gdbserver offers these reports and, as of 13.1, aborts at the first new thread
    /// ("resume_one_lwp_throw: Assertion `lwp->waitstatus.kind () == TARGET_WAITKIND_IGNORE'
    /// failed"). Only gdbserver has both `StaticTracepoints` and `QStartupWithShell`.
    pub(super) fn can_report_threads(&self) -> bool {
        let features = self.client.features();
        !(features.has("StaticTracepoints") && features.has("QStartupWithShell"))
    }

    /// Lists all threads, with their names if `/proc` does not have them.
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

    /// Reads a thread's name in the cheapest way available.
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

    /// Reads a thread's name from `/proc`. Works while the program runs.
    pub(super) fn local_thread_name(&self, tid: u64) -> Option<String> {
        thread_name(self.pid?, tid)
    }

    /// True if a stop leaves other threads running. Only QEMU's user mode does that.
    pub(super) fn stops_one_thread(&mut self) -> bool {
        if self.own_stub || self.client.features().has("QThreadEvents") {
            return false;
        }
        let answer = self.client.raw(b"qqemu.sstepbits").unwrap_or_default();
        // QEMU's system emulation answers as well, but stops all processors. It has no auxv.
        let user_mode = self.client.features().has("qXfer:auxv:read");
        user_mode && answer.starts_with(b"ENABLE=")
    }

    /// The file that a local process has mapped at an address. If the dynamic linker has a relative
    /// path, only this mapping shows which directory it is relative to.
    pub(super) fn mapped_file(&self, avma: u64) -> Option<String> {
        if !self.local {
            return None;
        }
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.pid?)).ok()?;
        let there = maps::file_at(&maps, avma)?;
        Some(maps::without_mark(there.path).to_owned())
    }

    /// Reads `/proc/PID/maps` (proc(5)).
    pub(super) fn maps(&mut self) -> Option<String> {
        self.process_file("maps", 16 << 20)
    }

    /// Reads `/proc/PID/timers` (proc(5)), the timers that the program has created.
    pub(super) fn timers(&mut self) -> Option<String> {
        self.process_file("timers", 64 << 10)
    }

    /// Reads `/proc/PID/task/TID/NAME` (proc(5)), the kernel's description of a thread.
    pub(super) fn task_file(&mut self, tid: u64, name: &str) -> Option<String> {
        self.process_file(&format!("task/{tid}/{name}"), 64 << 10)
    }

    /// Reads a file below `/proc/PID`, on another machine up to a limit.
    fn process_file(&mut self, name: &str, limit: u64) -> Option<String> {
        let path = format!("/proc/{}/{name}", self.pid?);
        let bytes = if self.local {
            fs::read(path).ok()?
        } else {
            self.client.read_file(&path, limit).ok()?
        };
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The time that the host of a virtual machine has taken from all its processors since the
    /// machine started, in nanoseconds (`/proc/stat`, proc(5)).
    pub(super) fn stolen_ns(&mut self) -> Option<u64> {
        // The first line is the sum over all processors.
        const LINE: usize = 256;
        const TICK_NS: u64 = 10_000_000;
        let bytes = if self.local {
            let mut bytes = vec![0; LINE];
            let mut file = fs::File::open("/proc/stat").ok()?;
            let count = file.read(&mut bytes).ok()?;
            bytes.truncate(count);
            bytes
        } else {
            let mut file = self.client.open_file("/proc/stat").ok()?;
            let bytes = file.read_at(0, LINE).ok()?;
            file.close().ok()?;
            bytes
        };
        let text = String::from_utf8_lossy(&bytes);
        let ticks = text.lines().next()?.split_whitespace().nth(8)?;
        ticks.parse::<u64>().ok()?.checked_mul(TICK_NS)
    }

    /// Waits for a reply for at most `timeout`. An observer gets only notices, never replies.
    pub(super) fn wait(&mut self, timeout: Duration) -> Result<Option<StopReply>, Error> {
        if self.observes {
            self.client.listen(timeout)?;
            return Ok(None);
        }
        Ok(self.client.wait(Some(timeout))?)
    }

    /// Fails if an observed stub no longer answers. Other servers accept no questions while the
    /// program runs.
    pub(super) fn check_link(&mut self) -> Result<(), Error> {
        if !self.observes || self.local {
            return Ok(());
        }
        let client = &mut self.client;
        Ok(client.check_link(SILENCE_LIMIT, ANSWER_TIMEOUT)?)
    }

    /// The registers that the stop reply contained, or all registers if the pc is missing.
    pub(super) fn known_registers(
        &mut self,
        thread: ThreadId,
        expedited: &[(u32, Vec<u8>)],
    ) -> Result<Registers, Error> {
        let registers = self.abi.expedited(expedited);
        if self.abi.pc(&registers).is_some() {
            return Ok(registers);
        }
        Ok(self.client.registers(thread)?)
    }

    /// All registers of `thread`. Reads them only if the stop reply lacks some.
    pub(super) fn all_registers(
        &mut self,
        thread: ThreadId,
        expedited: Registers,
    ) -> Result<Registers, Error> {
        if self.abi.suffices(&expedited) {
            return Ok(expedited);
        }
        Ok(self.client.registers(thread)?)
    }

    /// The program counter of `thread` after `reply`.
    pub(super) fn pc_of(
        &mut self,
        thread: ThreadId,
        reply: &StopReply,
    ) -> Result<Option<u64>, Error> {
        let StopReply::Stopped { registers, .. } = reply else {
            return Ok(None);
        };
        let registers = self.known_registers(thread, registers)?;
        Ok(self.abi.pc(&registers).map(|pc| self.abi.code_address(pc)))
    }

    /// Resumes all threads.
    pub(super) fn resume(&mut self) -> Result<(), Error> {
        if self.observes {
            return Ok(());
        }
        Ok(self.client.resume(&[(Action::Continue, None)])?)
    }

    /// Resumes all threads and delivers a signal to `thread`.
    pub(super) fn resume_with(
        &mut self,
        thread: ThreadId,
        signal: Option<u8>,
    ) -> Result<(), Error> {
        match signal {
            None => self.resume(),
            Some(signal) => {
                let with_signal = (Action::ContinueWithSignal(signal), Some(thread));
                Ok(self
                    .client
                    .resume(&[with_signal, (Action::Continue, None)])?)
            }
        }
    }

    /// The processes that the program has started in its process group, if it runs on this machine.
    pub(super) fn started_in_group(&self) -> Vec<Pid> {
        let program = self.local_pid();
        let started =
            program.map(|pid| LocalProcess::new(pid.as_raw().cast_unsigned()).descendants());
        let started = started.into_iter().flatten();
        let started = started.map(|process| Pid::from_raw(process.pid().cast_signed()));
        started
            .filter(|pid| getpgid(Some(*pid)) == getpgid(program))
            .collect()
    }

    /// Sends a signal to the program.
    pub(super) fn kill_program(&mut self, signal: Signal) {
        if !self.local {
            // gdb and Linux have the same numbers for SIGINT and SIGKILL.
            let _ = self.client.signal(signal as u8);
        } else if let Some(pid) = self.local_pid() {
            // The process may just have ended. The server then still reports its end.
            let _ = kill(pid, signal);
        }
    }

    /// The program's id, if it runs on this machine.
    fn local_pid(&self) -> Option<Pid> {
        let pid = self.pid.filter(|_| self.local)?;
        let pid = i32::try_from(pid).ok().filter(|pid| *pid > 1)?;
        Some(Pid::from_raw(pid))
    }

    /// True if a signal that is about to be delivered will end the program. Apart from SIGINT the
    /// stub reports only fatal signals.
    pub(super) fn is_fatal(&mut self, signal: u8) -> bool {
        if !self.stops.before_fatal {
            return false;
        }
        if signal != SIGINT {
            return true;
        }
        let Some(pid) = self.pid else {
            return false;
        };
        let status = self.task_file(pid, "status").unwrap_or_default();
        !SURVIVED_SIGNALS.iter().any(|name| {
            let mut lines = status.lines();
            let mask = lines.find_map(|line| line.strip_prefix(name));
            let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
            mask.is_none_or(|mask| mask >> (SIGINT - 1) & 1 != 0)
        })
    }
}

/// Sets the budget of a running server: `5%`, or `none`.
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
            "this unspool-stub is too old to change its budget (it lacks QUnspoolBudget); start it \
             with this --budget, or use a newer one",
        )),
        // A server without a budget never pauses anything.
        Ok(false) if points.is_none() => Ok(()),
        Ok(false) => Err(refused(
            "this server has no budget (it lacks QUnspoolBudget); leave --budget out, or use unspool-stub",
        )),
        Err(unspool_rsp::Error::Remote { .. }) => Err(refused(
            "the stub was started with a smaller --budget; start it with a larger one, or without",
        )),
        Err(error) => Err(error.into()),
    }
}

/// Makes the server start or attach to the program that the user named. Returns the reason why the
/// program is stopped, and whether the server was already tracing it.
fn connect(client: &mut Client, source: &Source) -> Result<(StopReply, bool), unspool_rsp::Error> {
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

/// True if the server is QEMU's system emulation, the only server that answers this query.
fn is_whole_machine(client: &mut Client) -> bool {
    // Servers of user programs send an auxiliary vector.
    if client.is_observer() || client.features().has("qXfer:auxv:read") {
        return false;
    }
    let mode = client.raw(b"qqemu.PhyMemMode").unwrap_or_default();
    matches!(mode[..], [b'0' | b'1'])
}

/// The name of a thread of this machine.
pub(super) fn thread_name(pid: u64, tid: u64) -> Option<String> {
    // The kernel's names have at most 15 bytes, so one read suffices. A second read would cost time
    // for each of thousands of threads.
    let mut bytes = [0; 64];
    let mut file = fs::File::open(format!("/proc/{pid}/task/{tid}/comm")).ok()?;
    let count = file.read(&mut bytes).ok()?;
    let name = String::from_utf8_lossy(bytes.get(..count)?);
    Some(name.trim_end_matches('\n').to_owned())
}
