//! Adds the creations of threads from a recording to an inspection of the same process.
//!
//! An inspection sees no creations. A thread matches a recorded thread that is alive at the
//! recording's end, with the same id. Both must have the same thread function, or come from the
//! same start code of libstdc++. The process id and the file must be equal too.

use super::{Creation, Ending, Model, Note, Thread, note, origin};

impl Model {
    /// Copies the creations of an inspected process's threads, and so their identities, from a
    /// recording of the process.
    pub fn learn_from(&mut self, recording: &Model) {
        let mut is_used = false;
        for one in recording.all_recorded() {
            is_used |= self.learn_from_one(one);
        }
        if !is_used {
            let (own, other) = (&self.target, &recording.target);
            self.notes.push(Note::error(format!(
                "The recording was not used, because it is of process {} ({}). This is process {} \
                 ({}).",
                other.pid, other.executable, own.pid, own.executable
            )));
        }
        note::arrange(&mut self.notes);
    }

    /// Learns from the recording of one process. False if it was not inspected.
    fn learn_from_one(&mut self, recording: &Model) -> bool {
        let (own, other) = (&self.target, &recording.target);
        let is_recorded = |pid, executable| (pid, executable) == (other.pid, &other.executable);
        let threads = match is_recorded(own.pid, &own.executable) {
            true => Some(&mut self.threads[..]),
            false => {
                let mut others = self.processes.all.iter();
                let found = others.find(|it| is_recorded(it.pid, &it.executable));
                let range = found.map(|it| it.first_thread..it.first_thread + it.threads);
                range.and_then(|range| self.processes.threads.get_mut(range))
            }
        };
        if let Some(threads) = threads {
            let mut unknown = 0usize;
            for thread in threads {
                if thread.creation == Creation::Main {
                    continue;
                }
                let known = recording.threads.iter().rev();
                let known = known.filter(|known| is_same(known, thread));
                let created = known.filter_map(|known| Some((known, created(recording, known)?)));
                match created.take(1).next() {
                    Some((known, creation)) => {
                        thread.creation = creation;
                        thread.key = known.key;
                    }
                    None => unknown += 1,
                }
            }
            if unknown > 0 {
                self.notes.push(Note::info(format!(
                    "The recording does not show where {unknown} of the threads were created."
                )));
            }
            return true;
        }
        false
    }
}

fn created(recording: &Model, known: &Thread) -> Option<Creation> {
    let Creation::Seen { creator, stack, .. } = &known.creation else {
        return None;
    };
    Some(Creation::Recorded {
        by: recording.thread_name(*creator).into(),
        stack: stack.clone(),
    })
}

fn is_same(known: &Thread, thread: &Thread) -> bool {
    let (Some(one), Some(other)) = (&known.function, &thread.function) else {
        return false;
    };
    let same =
        one.svma.is_some() && (one.svma, one.module_name()) == (other.svma, other.module_name());
    let start = known.start.as_ref().unwrap_or(one);
    let stack = thread.stack.as_deref();
    known.tid == thread.tid
        && known.ending == Ending::Alive
        && (same || stack.is_some_and(|stack| origin::began_at(stack, start)))
}
