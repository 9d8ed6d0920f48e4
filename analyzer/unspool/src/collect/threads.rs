//! The live threads, with their start times and names.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use unspool_capture::{ProcessStarted, ThreadEnd, ThreadExited, ThreadName, ThreadSeen};
use unspool_rsp::{ThreadEntry, ThreadId, ThreadNotice};

use super::server_clock::ServerClock;
use super::session::Session;
use super::sink::Sink;

/// Minimum interval between two listings.
const LIST_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Debug)]
struct Thread {
    id: ThreadId,
    name: String,
    /// The thread has reached its start routine.
    started: bool,
}

/// All live threads.
#[derive(Debug)]
pub(super) struct Threads {
    live: BTreeMap<u64, Thread>,
    /// The server reports the end of every thread. Otherwise thread lists are compared.
    pub(super) exact: bool,
    /// Time of the latest listing.
    listed: Instant,
}

impl Threads {
    /// Creates an empty list of threads.
    pub(super) fn new() -> Threads {
        Threads {
            live: BTreeMap::new(),
            exact: false,
            listed: Instant::now(),
        }
    }

    /// Records a thread unless it is known. `existed_before` is set if its creation was not
    /// watched.
    pub(super) fn seen(
        &mut self,
        sink: &mut Sink,
        session: &mut Session,
        id: ThreadId,
        existed_before: bool,
    ) {
        if self.live.contains_key(&id.tid) {
            return;
        }
        let name = session.thread_name(id).unwrap_or_default();
        self.add(sink, id, name, existed_before);
    }

    fn add(&mut self, sink: &mut Sink, id: ThreadId, name: String, existed_before: bool) {
        let time_ns = if existed_before { 0 } else { sink.now_ns() };
        if !sink.takes_threads_at(time_ns) {
            return;
        }
        sink.record(ThreadSeen {
            tid: id.tid,
            name: name.clone(),
            time_ns,
            existed_before,
            ..ThreadSeen::default()
        });
        self.live.insert(
            id.tid,
            Thread {
                id,
                name,
                started: existed_before,
            },
        );
    }

    /// Handles a thread notice that the server sent at `sent_ns` in the recording's time.
    pub(super) fn on_notice(
        &mut self,
        sink: &mut Sink,
        pid: Option<u64>,
        notice: ThreadNotice,
        sent_ns: u64,
        clock: &mut ServerClock,
    ) {
        match notice {
            ThreadNotice::Created {
                tid,
                creator,
                thread_pointer,
                age,
            } => {
                let time_ns = clock.time(sent_ns, age);
                if !sink.takes_threads_at(time_ns) {
                    return;
                }
                // A new thread has its creator's name, because clone(2) copies the whole task.
                let name = self.live.get(&creator);
                let name = name.map_or(String::new(), |creator| creator.name.clone());
                sink.record(ThreadSeen {
                    tid,
                    name: name.clone(),
                    time_ns,
                    existed_before: false,
                    creator_tid: Some(creator),
                    thread_pointer,
                });
                let thread = Thread {
                    id: ThreadId { pid, tid },
                    name,
                    started: false,
                };
                self.live.insert(tid, thread);
            }
            ThreadNotice::Exited { tid, code, age } => {
                let exited = ThreadExited {
                    tid,
                    time_ns: clock.time(sent_ns, age),
                    code: Some(code),
                    exact: true,
                    by: ThreadEnd::Exited.into(),
                };
                self.gone(sink, exited);
            }
            ThreadNotice::Killed { tid, age, signal } => {
                let by = match signal {
                    0 => ThreadEnd::KilledByExit,
                    _ => ThreadEnd::Killed,
                };
                let exited = ThreadExited {
                    tid,
                    time_ns: clock.time(sent_ns, age),
                    code: None,
                    exact: true,
                    by: by.into(),
                };
                self.gone(sink, exited);
            }
            ThreadNotice::Started { pid, creator, age } => sink.record(ProcessStarted {
                time_ns: clock.time(sent_ns, age),
                pid,
                creator_tid: Some(creator),
                executable: String::new(),
            }),
            ThreadNotice::Executed { pid, file, age } => sink.record(ProcessStarted {
                time_ns: clock.time(sent_ns, age),
                pid,
                creator_tid: None,
                executable: file,
            }),
            _ => {}
        }
    }

    /// Records that a thread has reached a start routine. False if it had already started: then
    /// this is an ordinary call of the function.
    pub(super) fn start(&mut self, tid: u64) -> bool {
        self.live
            .get_mut(&tid)
            .is_some_and(|thread| !std::mem::replace(&mut thread.started, true))
    }

    /// Records the thread's present name, if it has changed.
    pub(super) fn rename(&mut self, sink: &mut Sink, tid: u64, name: String) {
        let now = sink.now_ns();
        self.renamed_at(sink, tid, now, name);
    }

    /// Records the name that a thread got at `time_ns`, if it has changed.
    pub(super) fn renamed_at(&mut self, sink: &mut Sink, tid: u64, time_ns: u64, name: String) {
        if let Some(thread) = self.live.get_mut(&tid)
            && !name.is_empty()
            && thread.name != name
        {
            thread.name.clone_from(&name);
            sink.record(ThreadName { tid, name, time_ns });
        }
    }

    /// Reads all names again without stopping the program. Works only for local programs.
    pub(super) fn refresh_local_names(&mut self, sink: &mut Sink, session: &Session) {
        if !session.local {
            return;
        }
        let tids: Vec<u64> = self.live.keys().copied().collect();
        for tid in tids {
            if let Some(name) = session.local_thread_name(tid) {
                self.rename(sink, tid, name);
            }
        }
    }

    pub(super) fn exited(&mut self, sink: &mut Sink, tid: u64, code: Option<i64>, exact: bool) {
        let exited = ThreadExited {
            tid,
            time_ns: sink.now_ns(),
            code,
            exact,
            by: ThreadEnd::Unspecified.into(),
        };
        self.gone(sink, exited);
    }

    fn gone(&mut self, sink: &mut Sink, exited: ThreadExited) {
        let was_alive = self.live.remove(&exited.tid).is_some();
        if was_alive && sink.takes_threads_at(exited.time_ns) {
            sink.record(exited);
        }
    }

    /// Compares with the server's list, and records new and ended threads. The program is stopped.
    pub(super) fn compare(&mut self, sink: &mut Sink, session: &mut Session, existed_before: bool) {
        if let Ok(list) = session.thread_list() {
            self.compare_list(sink, session, &list, existed_before);
        }
    }

    /// Records the threads that a server had when it read them. Takes only names from its list,
    /// because threads may begin and end until it sends the list.
    pub(super) fn compare_read(
        &mut self,
        sink: &mut Sink,
        session: &mut Session,
        there: &[ThreadId],
    ) {
        let list = match session.local {
            true => Vec::new(),
            false => session.thread_list().unwrap_or_default(),
        };
        let list = entries_of(there, list);
        self.compare_list(sink, session, &list, true);
    }

    fn compare_list(
        &mut self,
        sink: &mut Sink,
        session: &mut Session,
        list: &[ThreadEntry],
        existed_before: bool,
    ) {
        for entry in list {
            let name = entry.name.clone().filter(|_| !session.nameless);
            if session.local {
                self.seen(sink, session, entry.id, existed_before);
            } else if !self.live.contains_key(&entry.id.tid) {
                // For a single name the server would send its whole list again.
                let name = name.clone().unwrap_or_default();
                self.add(sink, entry.id, name, existed_before);
            }
            if let Some(name) = name {
                self.rename(sink, entry.id.tid, name);
            }
        }
        self.retain_present(sink, |tid| list.iter().any(|entry| entry.id.tid == tid));
    }

    /// Records the end of all threads for which `there` returns false.
    pub(super) fn retain_present(&mut self, sink: &mut Sink, there: impl Fn(u64) -> bool) {
        let gone: Vec<u64> = self
            .live
            .keys()
            .copied()
            .filter(|tid| !there(*tid))
            .collect();
        for tid in gone {
            self.exited(sink, tid, None, false);
        }
    }

    /// The ids of all live threads.
    pub(super) fn ids(&self) -> Vec<ThreadId> {
        self.live.values().map(|thread| thread.id).collect()
    }

    /// Removes all threads except `left`, which has executed another program and is now named after
    /// it.
    pub(super) fn replaced(&mut self, sink: &mut Sink, session: &mut Session, left: u64) {
        self.retain_present(sink, |tid| tid == left);
        if let Some(id) = self.live.get(&left).map(|thread| thread.id)
            && let Some(name) = session.thread_name(id)
        {
            self.rename(sink, left, name);
        }
    }

    /// If due, reads the names of local threads again, or lists the threads of a remote program,
    /// which is stopped.
    pub(super) fn list_if_due(&mut self, sink: &mut Sink, session: &mut Session) {
        if session.stops.one_thread || self.listed.elapsed() < LIST_INTERVAL {
            return;
        }
        self.listed = Instant::now();
        if session.local {
            self.refresh_local_names(sink, session);
        } else {
            self.compare(sink, session, false);
        }
    }
}

/// The entries of these threads. A thread that is not listed has no name.
fn entries_of(threads: &[ThreadId], listed: Vec<ThreadEntry>) -> Vec<ThreadEntry> {
    let mut listed: BTreeMap<u64, ThreadEntry> = listed
        .into_iter()
        .map(|entry| (entry.id.tid, entry))
        .collect();
    let entry = |id: &ThreadId| {
        listed.remove(&id.tid).unwrap_or(ThreadEntry {
            id: *id,
            name: None,
            core: None,
        })
    };
    threads.iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_begin_or_end_after_the_stop() {
        let id = |tid| ThreadId { pid: Some(1), tid };
        let entry = |tid, name: Option<&str>| ThreadEntry {
            id: id(tid),
            name: name.map(str::to_owned),
            core: None,
        };
        // Thread 2 has ended since, and thread 4 has begun.
        let listed = vec![entry(1, Some("main")), entry(4, Some("new"))];
        let entries = entries_of(&[id(1), id(2)], listed);
        assert_eq!(entries, [entry(1, Some("main")), entry(2, None)]);
    }
}
