//! Joins and detaches: finds the thread of a handle, and the threads that a finished join proves to
//! have ended.
//!
//! Servers that do not report thread exits leave joins as the best witness: a thread that continues
//! after calling join has seen the other thread's end.

use unspool_capture::Event;

use super::{Handles, History};
use crate::model::thread::{Creation, ThreadIndex};

impl History<'_> {
    pub(super) fn join(&mut self, joiner: usize, handle: u64, time_ns: u64) {
        let threads = &self.threads;
        match self
            .handles
            .find(handle, |index| threads[index].joiner.is_none())
        {
            Some(index) => self.joined_by(index, (joiner, time_ns)),
            None => self.handles.expect_join(handle, (joiner, time_ns)),
        }
    }

    /// True if a join function has called another one, as in musl.
    pub(super) fn is_nested_join(&mut self, index: usize, event: &Event) -> bool {
        let Some(&handle) = event.args.first() else {
            return false;
        };
        let last = self.traces[index].last_join.take();
        let is_nested = last.is_some_and(|(of, probe)| of == handle && probe != event.probe);
        if !is_nested {
            self.traces[index].last_join = Some((handle, event.probe));
        }
        is_nested
    }

    pub(super) fn detach(&mut self, handle: u64) {
        let threads = &self.threads;
        match self.handles.find(handle, |index| {
            // A handle stays valid after its thread has ended, until it is joined or detached.
            threads[index].joiner.is_none() && !threads[index].detached
        }) {
            Some(index) => self.threads[index].detached = true,
            None => self.handles.expect_detach(handle),
        }
    }

    pub(super) fn known_handle(&mut self, index: usize, handle: Option<u64>, sp: Option<u64>) {
        let waiting = self.handles.started(index, handle, sp);
        if let Some(joiner) = waiting.joiner {
            self.joined_by(index, joiner);
        }
        self.threads[index].detached |= waiting.detached;
    }

    /// Handles a thread that continued or ended: its last join has returned. So the joined thread
    /// has ended, and the thread that this one joined last, and so on.
    pub(super) fn joins_returned(&mut self, index: usize, time_ns: u64) {
        let mut next = self.traces[index].joining.take();
        while let Some(joined) = next {
            if self.traces[joined].gone {
                break;
            }
            if let Some(tid) = self.threads[joined].tid
                && self.current.get(&tid) == Some(&joined)
            {
                self.current.remove(&tid);
            }
            self.gone(joined, time_ns, false);
            self.traces[joined].concluded = true;
            next = self.traces[joined].joining.take();
        }
    }

    fn joined_by(&mut self, index: usize, (joiner, time_ns): (usize, u64)) {
        self.threads[index].joiner = Some(ThreadIndex(joiner));
        self.threads[index].joined_ns = Some(time_ns);
        self.traces[joiner].joining = Some(index);
    }

    /// Handles the execution of a program, which has `killed` the threads of the former one.
    pub(super) fn executed(&mut self, at: usize, time_ns: u64, mut killed: Vec<usize>) {
        self.recording.programs.push((time_ns, at));
        if self.recording.execs().is_empty() {
            return;
        }
        killed.extend(self.current.values());
        for index in killed {
            let thread = &mut self.threads[index];
            if thread.creation != Creation::Main {
                (thread.by_exec, thread.joiner, thread.joined_ns) = (true, None, None);
            }
        }
        self.handles = Handles::default();
        for trace in &mut self.traces {
            (trace.joining, trace.last_join) = (None, None);
        }
    }

    /// Handles a program's exit. Most servers report its threads as exits just before the program's
    /// own, but they were alive to the end.
    pub(super) fn ended_with_program(&mut self, time_ns: u64) {
        for index in std::mem::take(&mut self.killed_by_exit) {
            self.ended_with_it(index);
        }
        if self.recording.knows_ends() {
            return;
        }
        let mut after = time_ns;
        while let Some((exit_ns, index)) = self.last_exits.pop() {
            if after.saturating_sub(exit_ns) > ONE_BURST {
                break;
            }
            after = exit_ns;
            if self.threads[index].joiner.is_none()
                && self.threads[index].creation != Creation::Main
            {
                self.ended_with_it(index);
            }
        }
    }

    /// Takes back the end of a thread that was alive until the program's end.
    fn ended_with_it(&mut self, index: usize) {
        self.threads[index].ended_ns = None;
        self.threads[index].end_exact = false;
        self.traces[index].gone = false;
    }
}

/// The reports of an exiting program's threads follow each other within this time.
const ONE_BURST: u64 = 5_000_000;

#[cfg(test)]
mod tests {
    use unspool_capture::{ModuleLoaded, ProcessEnded, Record, ThreadEnd, ThreadExited};

    use crate::model::Ending;
    use crate::model::fixture::{PID, Stage};

    const BEFORE: u64 = 11;
    const WITH_PROGRAM: u64 = 12;

    /// The ends of two threads, and whether an exec caused them. One ends by itself a millisecond
    /// before the other one is ended.
    fn ends(then: Option<&str>) -> ([Ending; 2], [bool; 2]) {
        let mut stage = Stage::new();
        if let Some(Record::Header(header)) = stage.records.first_mut() {
            header.format_version = super::super::EXITS_TOLD_SINCE;
        }
        let program = |path: &str| {
            Record::ModuleLoaded(ModuleLoaded {
                path: path.to_owned(),
                executable: true,
                ..ModuleLoaded::default()
            })
        };
        stage.records.push(program("/home/ann/orders"));
        for (tid, by) in [
            (BEFORE, ThreadEnd::Exited),
            (WITH_PROGRAM, ThreadEnd::KilledByExit),
        ] {
            stage.spawn(PID, tid, 1, "orders!serve", &["orders!main"]);
            stage.records.push(Record::ThreadExited(ThreadExited {
                tid,
                time_ns: tid * 1_000_000,
                code: Some(0),
                exact: true,
                by: by.into(),
            }));
        }
        stage.records.extend(then.map(program));
        stage.records.push(Record::ProcessEnded(ProcessEnded {
            time_ns: 14_000_000,
            exit_code: Some(0),
            signal: None,
        }));
        let model = stage.model();
        let threads = [BEFORE, WITH_PROGRAM].map(|tid| {
            let mut threads = model.threads.iter();
            threads.find(|thread| thread.tid == Some(tid)).unwrap()
        });
        (
            threads.map(|thread| thread.ending),
            threads.map(|thread| thread.by_exec),
        )
    }

    #[test]
    fn a_thread_that_the_exit_ended_was_alive_to_the_end() {
        assert_eq!(ends(None).0, [Ending::Exited, Ending::Alive]);
    }

    #[test]
    fn a_thread_that_an_exec_ended_was_not() {
        let (endings, by_exec) = ends(Some("/home/ann/other"));
        assert_eq!(endings, [Ending::Exited, Ending::Exited]);
        assert_eq!(by_exec, [false, true]);
    }
}
