//! A single inspection of a program's threads, for `unspool inspect`.
//!
//! `unspool-stub` captures the registers and stacks of all threads at one moment, and the program
//! runs on. With other servers the program is stopped until everything has been read.

use unspool_capture::{Capture, Severity};
use unspool_rsp::{Control, Notice};

use super::error::Error;
use super::launch;
use super::modules::Modules;
use super::options::{Options, Source};
use super::program::Program;
use super::session::Session;
use super::sink::Sink;
use super::thread_reader::ThreadReader;
use super::threads::Threads;
use super::wanted::Wanted;

/// The threads of a running program. The caller can read more until it finishes the inspection.
pub struct Inspection {
    session: Session,
    sink: Sink,
    program: Program,
    threads: Threads,
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
        // Read the state first, because a stop changes it.
        let before = match options.source {
            Source::Attach { pid } => {
                // This processor would be idle while the server stops the threads.
                options.store.read_ahead(pid);
                state_of(pid)
            }
            _ => None,
        };
        let (session, _) = Session::open(&mut options, true)?;
        let sink = Sink::memory(Session::header(&options, true));
        let modules = Modules::new(options.store, &session.abi);
        let mut inspection = Self {
            session,
            sink,
            program: Program::new(modules, options.exec),
            threads: Threads::new(),
        };
        if let Err(error) = inspection.read(before) {
            // The program must run on.
            inspection.session.client.detach()?;
            return Err(error);
        }
        Ok(inspection)
    }

    /// All data read so far.
    pub fn capture(&self) -> Capture {
        Capture::from_records(self.sink.records().to_vec())
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

    fn read(&mut self, before: Option<char>) -> Result<(), Error> {
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
        let executable = self.program.identify(&mut self.session)?;
        self.sink
            .record(self.session.target(executable.path.clone()));
        self.threads
            .compare(&mut self.sink, &mut self.session, true);
        self.reader().record_kernel_state(before);
        self.program
            .list_modules(&mut self.session, &mut self.sink, executable);
        match taken {
            Some((taken, pcs)) => {
                self.program.modules.read_ahead(pcs);
                self.reader().record_taken(taken, Some(from_ns))
            }
            None => self.reader().read_each(from_ns, stops_all),
        }
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

/// The letter of a process's state (proc(5), `stat`).
fn state_of(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}
