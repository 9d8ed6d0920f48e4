//! The stacks at which threads were created, as the kernel sampled them: in the processes that the
//! program started, and in static programs.

use std::collections::HashMap;
use std::sync::Arc;

use unspool_capture::{Capture, Record};

use super::{Process, Processes};
use crate::model::backtrace::{Backtrace, Frames, NamedFrame, Place};
use crate::model::{Note, Thread, Topic, cxx};
use crate::platform::c_library::{MAX_CREATION_FRAMES, creates_threads, has_threads};

/// By thread id, in the order of their times.
#[derive(Debug, Default)]
pub(in crate::model) struct CreationStacks(HashMap<u64, Vec<(u64, SeenCreation)>>);

/// The creation of a thread.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::model) struct SeenCreation {
    pub(in crate::model) stack: Arc<Backtrace>,
    /// The thread function, if the stack shows it.
    pub(in crate::model) function: Option<Place>,
}

impl CreationStacks {
    pub(in crate::model) fn of(capture: &Capture, frames: &mut dyn Frames) -> CreationStacks {
        let mut by_number: HashMap<u32, Arc<Backtrace>> = HashMap::new();
        let mut stacks = CreationStacks::default();
        for (at, record) in capture.records.iter().enumerate() {
            let Record::CreationStack(created) = record else {
                continue;
            };
            if let Some(snapshot) = &created.snapshot {
                let stack = from_caller(&frames.backtrace(at, snapshot), created.inner);
                by_number.insert(created.stack, Arc::new(stack));
            }
            if let Some(stack) = by_number.get(&created.stack) {
                let of_tid = stacks.0.entry(created.tid).or_default();
                let creation = SeenCreation {
                    stack: Arc::clone(stack),
                    function: (created.routine.map(|routine| frames.place(at, routine)))
                        // The object that names the callable is not on the stack.
                        .filter(|function| !cxx::is_start(function)),
                };
                of_tid.push((created.time_ns, creation));
            }
        }
        stacks
    }

    /// The creation of a thread with this id that is nearest to a time, and at most `apart_ns` from
    /// it: the server's time of a creation is not exactly the kernel's.
    pub(in crate::model) fn nearest(
        &self,
        tid: u64,
        ns: u64,
        apart_ns: u64,
    ) -> Option<&SeenCreation> {
        let all = self.0.get(&tid)?.iter();
        let (time_ns, creation) = all.min_by_key(|(time_ns, _)| time_ns.abs_diff(ns))?;
        (time_ns.abs_diff(ns) <= apart_ns).then_some(creation)
    }

    /// The creation of the thread that had an id at this time.
    pub(super) fn of_thread(&self, tid: u64, from_ns: u64, to_ns: u64) -> Option<&SeenCreation> {
        let all = self.0.get(&tid)?;
        let earlier = all.partition_point(|(time_ns, _)| *time_ns < from_ns);
        let (time_ns, creation) = all.get(earlier)?;
        (*time_ns <= to_ns).then_some(creation)
    }
}

impl Processes {
    /// The threads of a process, the first one first.
    pub fn threads_of(&self, process: &Process) -> &[Thread] {
        let threads = process.first_thread..process.first_thread + process.threads;
        self.threads.get(threads).unwrap_or_default()
    }

    /// The threads that the first threads of some processes have created, directly or not.
    pub fn created_in<'p>(
        &self,
        processes: impl IntoIterator<Item = &'p Process>,
    ) -> impl Iterator<Item = &Thread> {
        let processes = processes.into_iter();
        processes.flat_map(|process| self.threads_of(process).iter().skip(1))
    }

    /// The numbers of threads whose creation was recorded, and of the others.
    fn creations(&self) -> (usize, usize) {
        let created = || self.created_in(&self.all);
        let is_seen = |thread: &&Thread| thread.creation_stack().is_some();
        let seen = created().filter(is_seen).count();
        (seen, created().count() - seen)
    }

    /// True if creations were recorded, and some are missing.
    pub fn lacks_creations(&self) -> bool {
        matches!(self.creations(), (1.., 1..))
    }

    /// A note on threads whose creation was not recorded.
    pub(in crate::model) fn unseen_creations(&self) -> Option<Note> {
        let (seen, unseen) = self.creations();
        let all = seen + unseen;
        let text = match (unseen, seen) {
            (0, _) => return None,
            (1, 0) => "The creation of a thread in a started process was not seen.".to_owned(),
            (unseen, 0) => {
                format!("The creations of {unseen} threads in started processes were not seen.")
            }
            (unseen, _) => format!(
                "The creations of {unseen} of {all} threads in started processes were not seen."
            ),
        };
        let details = match seen {
            0 => {
                "To see them, run the stub as root, or with CAP_PERFMON and a readable tracefs. \
                 The kernel reports only creations in programs with the stub's architecture."
            }
            _ => {
                "If threads are created too fast, the kernel leaves some creations out. It also \
                 leaves out programs with another architecture than unspool-stub."
            }
        };
        Some(Note::info(text).about(Topic::Threads).with_details(details))
    }
}

/// A stack taken in clone(2), from the caller of the creation function on. `inner`: number of
/// frames of the creation function, or 0 if names show them.
fn from_caller(stack: &Backtrace, inner: u32) -> Backtrace {
    let of_library = |frame: &&NamedFrame| {
        let module = frame.place.module.as_deref();
        module.is_some_and(has_threads)
    };
    let creates = |frame: &NamedFrame| {
        let function = frame.place.function.as_deref();
        function.is_some_and(creates_threads)
    };
    let innermost = &stack.frames[..stack.frames.len().min(MAX_CREATION_FRAMES)];
    let skip = match innermost.iter().position(creates) {
        _ if inner > 0 => innermost.len().min(inner as usize),
        // A sanitizer's function calls the library's.
        Some(at) => {
            at + innermost[at..]
                .iter()
                .take_while(|frame| creates(frame))
                .count()
        }
        None => stack.frames.iter().take_while(of_library).count(),
    };
    Backtrace {
        frames: stack.frames[skip..].to_vec(),
        truncated: stack.truncated.clone(),
    }
}

#[cfg(test)]
mod tests {
    use unspool_unwind::Provenance;

    use super::*;

    fn stack(frames: &[(&str, &str)]) -> Backtrace {
        let frame = |(module, function): &(&str, &str)| NamedFrame {
            place: Place {
                function: Some((*function).into()),
                module: Some((*module).into()),
                ..Place::default()
            },
            inlined: false,
            provenance: Provenance::Cfi,
            called: None,
        };
        Backtrace {
            frames: frames.iter().map(frame).collect(),
            truncated: None,
        }
    }

    #[test]
    fn begins_with_the_caller_of_the_creation_function() {
        let first = |frames: &[(&str, &str)]| {
            let frames = from_caller(&stack(frames), 0).frames;
            frames.first()?.place.function.clone()
        };
        let libc = "/lib/libc.so.6";
        let shared = [(libc, "clone3"), (libc, "pthread_create"), ("/p", "pool")];
        assert_eq!(first(&shared).as_deref(), Some("pool"));
        let unnamed = [(libc, "+0x10"), (libc, "+0x20"), ("/p", "pool")];
        assert_eq!(first(&unnamed).as_deref(), Some("pool"));
        let c11 = [shared[0], shared[1], (libc, "thrd_create"), ("/p", "pool")];
        assert_eq!(first(&c11).as_deref(), Some("thrd_create"));
        let inside = [
            ("/p", "clone"),
            ("/p", "__pthread_create_2_1"),
            ("/p", "pool"),
        ];
        assert_eq!(first(&inside).as_deref(), Some("pool"));
        let own = [("/p", "runtime.clone"), ("/p", "runtime.newosproc")];
        assert_eq!(first(&own).as_deref(), Some("runtime.clone"));
        let wrapper = [shared[0], shared[1], ("/p", "my_pthread_create")];
        assert_eq!(first(&wrapper).as_deref(), Some("my_pthread_create"));
        let sanitizer = [
            shared[0],
            shared[1],
            ("/libtsan.so", "pthread_create"),
            shared[2],
        ];
        assert_eq!(first(&sanitizer).as_deref(), Some("pool"));
        assert_eq!(first(&shared[..2]), None);
        let unnamed = [("/p", "+0x10"), ("/p", "+0x20"), ("/p", "+0x30")];
        let frames = from_caller(&stack(&unnamed), 2).frames;
        assert_eq!(frames[0].place.function.as_deref(), Some("+0x30"));
    }

    #[test]
    fn a_thread_id_that_is_used_again() {
        let [first, second] = ["a", "b"].map(|name| SeenCreation {
            stack: Arc::new(stack(&[("/p", name)])),
            function: None,
        });
        let all = vec![(10, first.clone()), (50, second.clone())];
        let stacks = CreationStacks(HashMap::from([(7, all)]));
        assert_eq!(stacks.of_thread(7, 9, 30), Some(&first));
        // The stack of the second life was lost.
        assert_eq!(stacks.of_thread(7, 31, 45), None);
        assert_eq!(stacks.of_thread(7, 50, 90), Some(&second));
        assert_eq!(stacks.of_thread(7, 60, 90), None);
        assert_eq!(stacks.of_thread(8, 0, 90), None);
        assert_eq!(stacks.nearest(7, 31, 25), Some(&second));
        assert_eq!(stacks.nearest(7, 9, 5), Some(&first));
        assert_eq!(stacks.nearest(7, 60, 5), None);
    }
}
