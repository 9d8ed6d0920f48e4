//! Inspects the processes that the program has started when its recording ends, because they, too,
//! may hang.

use unspool_capture::{Record, Severity};

use super::end_inspection::MAX_LOOKS;
use super::error::Error;
use super::inspection::Inspection;
use super::local_process::LocalProcess;
use super::options::{KernelRecords, Options, ProbeKinds, Source};
use super::recorder::Recorder;

/// Maximum number of processes, because the inspection of each takes some 20 milliseconds.
const MAX_PROCESSES: usize = 64;

impl Recorder {
    /// Reads all threads of the program, as [`inspect_for_end`](Self::inspect_for_end), and those
    /// of its started processes that may hang.
    pub(super) fn inspect_all_for_end(
        &mut self,
        signal: Option<u8>,
        is_stopped: bool,
    ) -> Result<(), Error> {
        self.inspect_for_end(signal, is_stopped)?;
        self.inspect_started();
        Ok(())
    }

    /// Uses the time between the two halves of an inspection, in which the program may run.
    pub(super) fn find_wanted_for_end(&mut self) {
        self.end_inspection.find_wanted(&self.sink);
        self.inspect_started();
    }

    fn inspect_started(&mut self) {
        let pid = self.session.pid.filter(|_| self.session.local);
        let pid = pid.filter(|_| self.wanted.processes).map(u32::try_from);
        let Some(Ok(pid)) = pid else { return };
        if !self.end_inspection.begins_others() {
            return;
        }
        let arch = self.session.abi.arch;
        let started = LocalProcess::new(pid).descendants().into_iter();
        let started = started.filter_map(|pid| u32::try_from(pid).ok());
        let hanging = started.filter(|pid| LocalProcess::new(*pid).may_hang(arch));
        let hanging: Vec<u32> = hanging.collect();
        let (inspected, left) = hanging.split_at(hanging.len().min(MAX_PROCESSES));
        if !left.is_empty() {
            let text = format!(
                "{} processes that may hang were not inspected at the end, because a recording \
                 inspects at most {MAX_PROCESSES}",
                left.len()
            );
            self.sink.note(Severity::Warning, text);
        }
        for &pid in inspected {
            match self.inspect_process(pid) {
                Ok(records) => self.sink.add_process(records),
                Err(Error::HasEnded(_) | Error::NoProcess(_)) => {}
                Err(error) => self.sink.note(
                    Severity::Warning,
                    format!("process {pid} was not inspected at the end: {error}"),
                ),
            }
        }
    }

    fn inspect_process(&mut self, pid: u32) -> Result<Vec<Record>, Error> {
        let mut inspection = Inspection::begin(Options {
            source: Source::Attach { pid },
            exec: None,
            store: self.program.modules.store().of_process(pid),
            rsp_log: None,
            architecture: None,
            probes: ProbeKinds::default(),
            calls: Default::default(),
            kernel: KernelRecords::default(),
            budget: None,
            wanted: None,
            stop: None,
            command: std::env::args().collect(),
        })?;
        if let Some(mut wants_more) = self.end_inspection.wants_more() {
            for _ in 0..MAX_LOOKS {
                let wanted = wants_more(&inspection.capture());
                if wanted.is_empty() {
                    break;
                }
                inspection.read_more(&wanted);
            }
        }
        inspection.finish()?;
        Ok(inspection.into_records())
    }
}
