//! A single inspection of a program's threads, for `unspool inspect`.
//!
//! `unspool-stub` captures the registers and stacks of all threads at one moment, and the program
//! runs on. With other servers the program is stopped until everything has been read.
//!
//! `unspool top` repeats an inspection over one connection.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use unspool_capture::{CallSubject, Capture, CpuTimes, EndReason, Header, Record, Severity};
use unspool_rsp::{Control, Notice, StopReply, ThreadId};

use super::cpu_times;
use super::end_analysis::Wanted;
use super::error::Error;
use super::generated_code::UnknownCode;
use super::kernel_state::BeforeStop;
use super::launch;
use super::local_process::Sampled;
use super::modules::Modules;
use super::options::{Ended, Options, Source};
use super::program::Program;
use super::session::{ANSWER_TIMEOUT, Session};
use super::sink::Sink;
use super::thread_reader::ThreadReader;
use super::threads::Threads;
use crate::store::Store;

/// The threads of a running program. The caller can read more until it finishes the inspection.
pub struct Inspection {
    session: Session,
    sink: Sink,
    program: Program,
    threads: Threads,
    /// For another inspection over the same connection.
    header: Header,
    store: Store,
    exec: Option<PathBuf>,
    begun: Instant,
    stopped: Duration,
    /// A thread that was left asleep must be stopped for its stack.
    needs_stop: bool,
}

impl Inspection {
    /// Reads all threads. With `unspool-stub` the program runs on at once, with other servers after
    /// the inspection.
    ///
    /// # Errors
    /// Returns errors that prevent the inspection. Notes threads that cannot be read.
    pub fn begin(options: Options) -> Result<Self, Error> {
        let attached = options.source.attached();
        Self::open(options).map_err(|error| launch::unless_ended(attached, error))
    }

    fn open(mut options: Options) -> Result<Self, Error> {
        let begun = Instant::now();
        // Read the state first, because a stop changes it.
        let before = match options.source {
            Source::Attach { pid } => {
                // This processor would be idle while the server stops the threads.
                options.store.read_ahead(pid);
                BeforeStop::of(pid.into())
            }
            _ => BeforeStop::default(),
        };
        let mut inspection = Self::attempt(&mut options, begun, &before, true)?;
        if inspection.needs_stop {
            // The stack is worth more than the calls that the stop ends early.
            inspection.finish()?;
            drop(inspection);
            inspection = Self::attempt(&mut options, begun, &before, false)?;
        }
        Ok(inspection)
    }

    fn attempt(
        options: &mut Options,
        begun: Instant,
        before: &BeforeStop,
        leave_asleep: bool,
    ) -> Result<Self, Error> {
        let (session, _) = Session::open(options, true, leave_asleep)?;
        let header = Session::header(options, true);
        let modules = Modules::new(options.store.clone(), &session.abi);
        let mut inspection = Self {
            session,
            sink: Sink::memory(header.clone()),
            program: Program::new(modules, options.exec.clone()),
            threads: Threads::new(),
            header,
            store: options.store.clone(),
            exec: options.exec.clone(),
            begun,
            stopped: Duration::ZERO,
            needs_stop: false,
        };
        if let Err(error) = inspection.read(before) {
            // The program must run on.
            inspection.session.client.detach()?;
            return Err(error);
        }
        Ok(inspection)
    }

    /// Reads all threads again over the same connection. Drops the data of the last inspection.
    ///
    /// # Errors
    /// Returns an error if the threads cannot be read.
    pub fn again(&mut self) -> Result<(), Error> {
        self.begun = Instant::now();
        let modules = Modules::new(self.store.clone(), &self.session.abi);
        self.program = Program::new(modules, self.exec.clone());
        self.threads = Threads::new();
        self.sink = Sink::memory(self.header.clone());
        // The server sends notices to every observer. An inspection needs none of them.
        self.session.client.take_notices();
        let pid = self.session.pid.filter(|_| self.session.local);
        let mut before = pid.map(BeforeStop::of).unwrap_or_default();
        // The state of a traced process says nothing about signals.
        before.state = None;
        self.read(&before)
    }

    /// True if the server answers requests while the program runs.
    pub fn is_observer(&self) -> bool {
        self.session.observes
    }

    /// Lets the server's program run if no client controls it. `unspool-stub` holds a program until
    /// its first client lets it run.
    ///
    /// # Errors
    /// Returns an error if the server does not answer.
    pub fn let_run(&mut self) -> Result<(), Error> {
        self.session.client.let_run()?;
        Ok(())
    }

    /// Upper limit of the time for which the inspection stopped the program.
    pub fn stopped(&self) -> Duration {
        self.stopped
    }

    /// The times that the threads of the server's program spent on a processor and waited for one.
    /// The time of the sample is the server's. `None` if the server does not know them.
    ///
    /// # Errors
    /// Returns an error if the server does not answer.
    pub fn sample(&mut self) -> Result<Option<Sampled>, Error> {
        let client = &mut self.session.client;
        let times = client.thread_times(ANSWER_TIMEOUT);
        for notice in client.take_notices() {
            match notice {
                // The thread waits for this client, which wants nothing from it.
                Notice::Held { tid, .. } | Notice::Fatal { tid, .. } => {
                    client.release(tid)?;
                }
                Notice::Ended(end) => {
                    return Ok(Some(Sampled::Ended(end.and_then(|end| match end {
                        StopReply::Exited { code, .. } => Some(Ended::Exited(code)),
                        StopReply::Terminated { signal, .. } => Some(Ended::Terminated(signal)),
                        _ => None,
                    }))));
                }
                _ => {}
            }
        }
        Ok(times?.map(|(time_ns, times)| {
            Sampled::Running(CpuTimes {
                time_ns,
                threads: times.into_iter().map(cpu_times::of_server).collect(),
            })
        }))
    }

    /// All data read so far.
    pub fn capture(&self) -> Capture {
        Capture::from_records(self.sink.records().to_vec())
    }

    /// Ends the inspection, and returns all data and the subjects of system calls.
    pub(super) fn into_records(mut self, subjects: Vec<CallSubject>) -> Vec<Record> {
        for subject in subjects {
            self.sink.record(subject);
        }
        self.sink.finish(EndReason::Detached, String::new());
        self.sink.into_records()
    }

    /// Reads more data. Unreadable data are missing from the capture.
    pub fn read_more(&mut self, wanted: &Wanted) {
        self.reader().read_more(wanted);
    }

    /// Detaches from the program. Dropping waits for a server that was started for this inspection.
    ///
    /// # Errors
    /// Returns an error if the server does not detach.
    pub fn finish(&mut self) -> Result<(), Error> {
        Ok(self.session.client.detach()?)
    }

    fn read(&mut self, before: &BeforeStop) -> Result<(), Error> {
        let stops_one = self.session.stops_one_thread();
        // QEMU reports "CPU#0 [running]" as a name.
        self.session.nameless |= stops_one;
        let stops_all = !self.session.observes && !stops_one;
        let halted = self.is_halted_at_server();
        // `unspool-stub` stops the program when it attaches.
        let is_stopped = self.session.own_stub || stops_all || halted;
        let from_ns = self.sink.now_ns();
        // Read the threads first, so that they are stopped no longer than necessary.
        let taken = self.reader().take_threads(from_ns, is_stopped)?;
        if taken.is_some() && self.session.observes {
            if halted {
                self.sink.note(
                    Severity::Info,
                    "the program was stopped before the inspection and stays stopped; a debugger \
                     or a recording can resume it",
                );
            } else if !self.session.served_before {
                self.session.client.let_run()?;
            }
        }
        self.stopped = self.begun.elapsed();
        let executable = self.program.identify(&mut self.session)?;
        self.sink
            .record(self.session.target(executable.path.clone()));
        let (threads, sink, session) = (&mut self.threads, &mut self.sink, &mut self.session);
        match &taken {
            Some(taken) => {
                let mut there: Vec<ThreadId> = Vec::with_capacity(taken.threads.len());
                for one in &taken.threads {
                    // A thread without registers has ended, or cannot be stopped and is read later.
                    let tid = one.thread.tid;
                    if one.registers.is_some() || session.task_file(tid, "comm").is_some() {
                        there.push(one.thread);
                    }
                }
                threads.compare_read(sink, session, &there);
            }
            None => threads.compare(sink, session, true),
        }
        before.record(&mut self.sink);
        let words = taken.as_ref().map_or(&[][..], |taken| &taken.words);
        self.reader().record_kernel_state(before, words);
        self.program
            .list_modules(&mut self.session, &mut self.sink, executable);
        match taken {
            Some(mut taken) => {
                let pcs = std::mem::take(&mut taken.pcs);
                self.program.modules.read_ahead(pcs);
                let mut reader = self.reader();
                reader.record_taken(taken, Some(from_ns))?;
                let needs_stop = reader.needs_stop;
                let unknown_code = reader.unknown_code;
                self.needs_stop = needs_stop;
                self.find_generated_code(unknown_code);
            }
            None => {
                let mut reader = self.reader();
                reader.read_each(from_ns, stops_all)?;
                let unknown_code = reader.unknown_code;
                self.find_generated_code(unknown_code);
            }
        }
        Ok(())
    }

    fn find_generated_code(&mut self, mut unknown_code: UnknownCode) {
        let (session, sink) = (&mut self.session, &mut self.sink);
        let modules = &mut self.program.modules;
        modules.find_generated_code(session, sink, &mut unknown_code);
    }

    /// True if the server's program was halted before the inspection and still is.
    fn is_halted_at_server(&mut self) -> bool {
        if !(self.session.observes && self.session.served_before) {
            return false;
        }
        let notices = self.session.client.take_notices();
        let control = notices.iter().rev().find_map(|notice| match notice {
            Notice::Control(control) => Some(*control),
            _ => None,
        });
        control == Some(Control::Halted)
    }

    fn reader(&mut self) -> ThreadReader<'_> {
        let modules = &self.program.modules;
        ThreadReader::new(&mut self.session, &mut self.sink, modules, &self.threads)
    }
}
