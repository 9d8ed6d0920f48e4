//! Inspects other processes when a recording ends: those that the program has started and that may
//! hang, and those for which the inspected threads wait.

use std::collections::BTreeSet;

use unspool_capture::{Record, Severity};

use super::end_analysis::EndAnalysis;
use super::end_inspection::MAX_LOOKS;
use super::error::Error;
use super::hang_candidates;
use super::inspection::Inspection;
use super::local_process::LocalProcess;
use super::options::{KernelRecords, Options, ProbeKinds, Source};
use super::recorder::Recorder;

/// Maximum number of processes, because the inspection of each takes some 20 milliseconds.
const MAX_PROCESSES: usize = 64;

impl Recorder {
    /// Inspects the other processes, once, after the threads of the program have been read. `runs`
    /// if the program does, so that its own waits can be compared later.
    pub(super) fn inspect_others(&mut self, runs: bool) {
        let session = &self.session;
        let pid = session.pid.filter(|_| session.local && session.own_stub);
        let pid = pid.filter(|_| self.wanted.processes).map(u32::try_from);
        let (Some(Ok(pid)), Some(mut analysis)) = (pid, self.end_inspection.analysis_of_others())
        else {
            return;
        };
        let arch = self.session.abi.arch;
        let mut started = LocalProcess::new(pid).descendants();
        started.retain(|process| !analysis.is_recorded(process.pid()));
        let hanging = hang_candidates::that_may_hang(&LocalProcess::new(pid), started, arch);
        analysis.expect(&hanging);
        if runs {
            for subject in analysis.add(pid) {
                self.sink.record(subject);
            }
        }
        let mut hanging = hanging.into_iter();
        let mut known = BTreeSet::from([pid]);
        let mut left = 0;
        while let Some(pid) = hanging.next().or_else(|| analysis.next()) {
            if known.len() > MAX_PROCESSES && !known.contains(&pid) {
                left += 1;
            } else if known.insert(pid) {
                self.inspect_other(pid, &mut *analysis);
            }
        }
        if left > 0 {
            let text = format!(
                "{left} processes that may hang were not inspected at the end, because a recording \
                 inspects at most {MAX_PROCESSES}"
            );
            self.sink.note(Severity::Info, text);
        }
        let unchanged = analysis.unchanged();
        if !unchanged.tids.is_empty() {
            self.sink.record(unchanged);
        }
        self.end_inspection.return_analysis(analysis);
    }

    fn inspect_other(&mut self, pid: u32, analysis: &mut dyn EndAnalysis) {
        match self.inspection_of(pid, analysis) {
            Ok(records) => self.sink.add_process(records),
            Err(Error::HasEnded(_) | Error::NoProcess(_)) => {}
            Err(error) => self.sink.note(
                Severity::Warning,
                format!("process {pid} was not inspected at the end: {error}"),
            ),
        }
    }

    fn inspection_of(
        &self,
        pid: u32,
        analysis: &mut dyn EndAnalysis,
    ) -> Result<Vec<Record>, Error> {
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
            analysis: None,
            stop: None,
            command: std::env::args().collect(),
        })?;
        let mut wanted = analysis.wanted(&inspection.capture());
        for _ in 0..MAX_LOOKS {
            if wanted.is_empty() {
                break;
            }
            inspection.read_more(&wanted);
            wanted = analysis.wanted(&inspection.capture());
        }
        inspection.finish()?;
        Ok(inspection.into_records(analysis.add(pid)))
    }
}
