//! Decides what else to read of a program to explain its waits, based on gaps in the model.

use std::collections::HashSet;

use unspool_capture::{CallSubject, Capture, Unchanged};

use crate::collect::{self, Inspection, LocalProcess, MAX_LOOKS, PipeUsers, Wanted};
use crate::model::{Model, Symbolizer};

use super::across::{Group, calls};

/// The further reads that would clarify the findings of an inspection.
fn wanted(model: &Model) -> Wanted {
    let inspection = &model.inspection;
    // Only threads with findings are worth another stop. If the finding is that all threads wait,
    // read all of them.
    let concerned = model.findings.iter().flat_map(|finding| &finding.threads);
    let concerned: HashSet<u64> = concerned
        .filter_map(|thread| model.thread(*thread)?.tid)
        .collect();
    let all = inspection.all_wait && !concerned.is_empty();
    let doubtful = inspection.doubtful.iter().copied();
    let threads: Vec<u64> = doubtful
        .filter(|tid| all || concerned.contains(tid))
        .collect();
    let mut memory = match threads.is_empty() {
        true => Vec::new(),
        false => inspection.doubtful_words.clone(),
    };
    memory.extend(inspection.wanted.iter().cloned());
    Wanted { threads, memory }
}

/// The model of an inspection, after the further reads that clarify its findings.
pub(super) fn model_of(inspection: &mut Inspection, symbolizer: &mut Symbolizer) -> Model {
    let mut model = Model::build(&inspection.capture(), symbolizer);
    for _ in 0..MAX_LOOKS {
        let wanted = wanted(&model);
        if wanted.is_empty() {
            break;
        }
        inspection.read_more(&wanted);
        model.inspect_closer(&inspection.capture(), symbolizer);
    }
    model
}

/// Analyses a recording's last inspections.
pub(super) struct EndAnalysis {
    symbolizer: Box<dyn Fn(u32) -> Symbolizer>,
    /// The process that is being inspected.
    current: Option<(Symbolizer, Model)>,
    /// Those that were inspected.
    group: Group,
    /// Read once, because many processes may have many pipes. The last check reads them again.
    pipes: PipeUsers,
    recorded: Vec<u32>,
}

impl EndAnalysis {
    /// `symbolizer` gets a process of this machine, and `recorded` are the processes that are
    /// recorded together.
    pub(super) fn new(
        symbolizer: impl Fn(u32) -> Symbolizer + 'static,
        recorded: Vec<u32>,
    ) -> EndAnalysis {
        EndAnalysis {
            symbolizer: Box::new(symbolizer),
            current: None,
            group: Group::that_knows(&recorded),
            pipes: PipeUsers::default(),
            recorded,
        }
    }
}

impl collect::EndAnalysis for EndAnalysis {
    fn wanted(&mut self, capture: &Capture) -> Wanted {
        let pid = capture.target.pid;
        let current = self
            .current
            .take()
            .filter(|(_, model)| model.target.pid == pid);
        let (names, model) = match current {
            Some((mut names, mut model)) => {
                model.inspect_closer(capture, &mut names);
                (names, model)
            }
            None => {
                let mut names = (self.symbolizer)(pid as u32);
                let model = Model::build(capture, &mut names);
                (names, model)
            }
        };
        let wanted = wanted(&model);
        self.current = Some((names, model));
        wanted
    }

    fn is_recorded(&self, pid: u32) -> bool {
        self.recorded.contains(&pid)
    }

    fn add(&mut self, pid: u32) -> Vec<CallSubject> {
        let current = self.current.take();
        let Some((_, mut model)) = current.filter(|(_, model)| model.target.pid == u64::from(pid))
        else {
            return Vec::new();
        };
        let process = LocalProcess::new(pid);
        calls::name(model.call_subjects(), &process, &self.pipes);
        let subjects = model.call_subjects().map(|call| call.recorded()).collect();
        self.group.add(pid, model, true);
        subjects
    }

    fn expect(&mut self, pids: &[u32]) {
        self.group.expect(pids);
    }

    fn next(&mut self) -> Option<u32> {
        self.group.next()
    }

    fn unchanged(&mut self) -> Unchanged {
        let group = std::mem::take(&mut self.group);
        let named = group.len().saturating_sub(1);
        let stood = group.join(named).map(|(_, stood)| stood);
        Unchanged {
            tids: stood.into_iter().flatten().collect(),
        }
    }
}
