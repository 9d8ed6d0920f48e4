//! Reads threads without a stop: those that cannot be stopped, and those that are asleep in a
//! system call that a stop would end.

use std::collections::HashMap;
use std::time::Duration;

use unspool_capture::{Severity, Standstill};
use unspool_rsp::ThreadId;
use unspool_unwind::StackEnd;

use super::{FIRST_READ, Taken, ThreadReader};
use crate::collect::asleep::{Asleep, Rest};
use crate::collect::error::Error;

/// Limit on attempts to find all threads asleep.
const ASLEEP_TRIES: usize = 60;
/// Maximum number of times that a thread is read that runs meanwhile.
const UNSTOPPED_TRIES: usize = 5;
/// Time for which all threads must sleep.
const ASLEEP_FOR: Duration = Duration::from_millis(5);

impl ThreadReader<'_> {
    /// Reads all threads of a program again that cannot be stopped. Each thread may wait when it is
    /// read, although at every moment another thread runs. The kernel's files show whether all of
    /// them slept at the same time.
    pub(super) fn read_all_asleep(&mut self, threads: &[ThreadId]) -> Result<(), Error> {
        self.record_memory_users()?;
        let mut slept = None;
        // Threads that the first read woke need a processor to fall asleep again.
        for _ in 0..ASLEEP_TRIES {
            let before = self.asleep(threads);
            let from_ns = self.sink.now_ns();
            std::thread::sleep(ASLEEP_FOR);
            let to_ns = self.sink.now_ns();
            if before.is_some() && before == self.asleep(threads) {
                slept = before.map(|calls| (calls, from_ns, to_ns));
                break;
            }
        }
        let same = self.session.client.thread_ids()?.len() == threads.len();
        let Some((calls, from_ns, to_ns)) = slept.filter(|_| same) else {
            return self.read_threads(threads);
        };
        let taken = self.session.client.stacks(threads, FIRST_READ)?;
        let mut rested = HashMap::new();
        let mut asleep = true;
        for (one, call) in taken.iter().zip(calls) {
            let Some(registers) = &one.registers else {
                // It was left asleep.
                rested.insert(one.thread.tid, Rest::Asleep(call));
                continue;
            };
            let abi = &self.session.abi;
            let registers = abi.looked(registers);
            asleep &= (abi.waits_at(&registers), abi.sp(&registers))
                == (Some(call.args[0]), Some(call.sp));
        }
        let left = threads.iter().filter(|one| rested.contains_key(&one.tid));
        let left: Vec<ThreadId> = left.copied().collect();
        let states = self.rests(&left).unwrap_or_default();
        asleep &= (left.iter().map(|one| rested.get(&one.tid))).eq(states.iter().map(Some));
        if asleep {
            self.sink.record(Standstill { from_ns, to_ns });
        }
        let taken = Taken {
            threads: taken,
            rested,
            ..Taken::default()
        };
        self.record_taken(taken, Some(to_ns).filter(|_| asleep))
    }

    /// The system call that each thread sleeps in; `None` if one does not sleep.
    fn asleep(&mut self, threads: &[ThreadId]) -> Option<Vec<Asleep>> {
        let asleep = |rest| match rest {
            Rest::Asleep(asleep) => Some(asleep),
            Rest::Stopped | Rest::Uninterruptible => None,
        };
        self.rests(threads)?.into_iter().map(asleep).collect()
    }

    /// The states of threads that execute nothing now. `None` if one of them runs.
    pub(super) fn rests(&mut self, threads: &[ThreadId]) -> Option<Vec<Rest>> {
        let one = |id: &ThreadId| {
            let status = self.session.task_file(id.tid, "status")?;
            let call = self.session.task_file(id.tid, "syscall");
            Rest::read(&status, &call.unwrap_or_default())
        };
        threads.iter().map(one).collect()
    }

    /// Reads threads that are not stopped, because they cannot be or because a stop would end their
    /// system calls. The server knows only some of their registers. The ones in `rested` had these
    /// states at a time.
    pub(super) fn read_unstopped(
        &mut self,
        threads: &[ThreadId],
        (rested, time_ns): (&HashMap<u64, Rest>, Option<u64>),
    ) -> Result<(), Error> {
        let mut unstoppable = Vec::new();
        for thread in threads {
            let thread = std::slice::from_ref(thread);
            let mut rests = self.rests(thread);
            let mut is_cut = false;
            for _ in 0..UNSTOPPED_TRIES {
                let read = match rests {
                    Some(_) => self.separate_registers(thread)?,
                    // The server stops a thread that runs.
                    None => self.registers_of(thread)?,
                };
                let mut walked = Vec::new();
                for one in read {
                    let (chunks, end) = self.walk_thread(&one.registers, one.stack);
                    is_cut = matches!(end, StackEnd::RegisterMissing { .. });
                    walked.push((one.thread, one.registers, chunks));
                }
                let before = std::mem::replace(&mut rests, self.rests(thread));
                // Otherwise the thread may have run while its stack was read.
                let is_same = before.is_some() && before == rests;
                for (thread, registers, chunks) in walked {
                    let rest = rested.get(&thread.tid);
                    let has_rested = is_same && rest == rests.iter().flatten().next();
                    let time_ns = time_ns.filter(|_| has_rested);
                    self.record_thread(thread, &registers, chunks, time_ns);
                }
                if is_same {
                    break;
                }
            }
            let [thread] = thread else { continue };
            let waits = |rests: &Vec<Rest>| rests.contains(&Rest::Uninterruptible);
            if rests.as_ref().is_some_and(waits) {
                unstoppable.push(thread.tid);
            } else {
                self.needs_stop |= is_cut;
            }
        }
        let threads = match unstoppable[..] {
            [] => return Ok(()),
            [tid] => format!("Thread {tid}"),
            [first, .., last] => format!("{} threads ({first} to {last})", unstoppable.len()),
        };
        let note = format!(
            "{threads} could not be stopped: in an uninterruptible wait in the kernel, or frozen \
             by a cgroup. Frames may be missing from the stack."
        );
        self.sink.note(Severity::Warning, note);
        Ok(())
    }
}
