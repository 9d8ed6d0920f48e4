//! Writes the kernel's schedule of the program's threads, which the server sends, to the capture.

use std::collections::HashMap;
use std::time::Duration;

use unspool_capture::{
    Record, Schedule, ScheduleEdge, ScheduleEntry, ScheduleKind, ScheduleLoss, Severity, ThreadName,
};
use unspool_rsp::{Notice, ScheduleEvent, ScheduleRecord};

use super::blocking_calls::{Batch, BlockingCalls};
use super::code_of_processes::ProcessCodes;
use super::creation_stacks::{Created, CreationStacks};
use super::error::Error;
use super::modules::Modules;
use super::other_processes::OtherProcesses;
use super::server_clock::ServerClock;
use super::session::Session;
use super::sink::Sink;

/// Time in nanoseconds after which the recorder reads why a blocked thread waits.
const LONG_WAIT_NS: u64 = 100_000_000;

/// The recording of the schedule.
#[derive(Default)]
pub(super) struct ScheduleRecording {
    /// The server sends the schedule.
    is_on: bool,
    /// The server also sends the stacks at which the program creates threads.
    sees_creations: bool,
    /// The time of the last entry.
    last_ns: u64,
    /// The time of the last entry of another process.
    last_process_ns: u64,
    calls: BlockingCalls,
    others: OtherProcesses,
    codes: ProcessCodes,
    creations: CreationStacks,
    /// Blocked threads: since when, and whether the reason for the wait has been read.
    blocked: HashMap<u64, (u64, bool)>,
}

impl ScheduleRecording {
    /// Makes the server send the schedule, if it can. Otherwise notes the reason.
    /// With `follow`, also for the processes that the program starts. With `own_creations`, also
    /// with the stacks at which the program creates threads: the functions of a static program that
    /// do so may have no names.
    pub(super) fn begin(
        &mut self,
        session: &mut Session,
        sink: &mut Sink,
        (follow, own_creations): (bool, bool),
    ) -> Result<(), Error> {
        let time_ns = sink.now_ns();
        let answer = session.client.begin_schedule(follow, own_creations)?;
        let (edge, recorder_tid) = match answer {
            unspool_rsp::Schedule::Recorded {
                wakers,
                server_tid,
                own_creations,
                ..
            } => {
                self.sees_creations = own_creations;
                match wakers {
                    true => (ScheduleEdge::BeginsWithWakers, server_tid),
                    false => (ScheduleEdge::Begins, None),
                }
            }
            unspool_rsp::Schedule::Refused(reason) => {
                sink.note(Severity::Info, refused(&reason));
                return Ok(());
            }
            _ => return Ok(()),
        };
        self.is_on = true;
        (self.last_ns, self.last_process_ns) = (time_ns, time_ns);
        sink.record(Schedule {
            time_ns,
            edge: edge.into(),
            stolen_ns: session.stolen_ns(),
            recorder_tid,
            ..Schedule::default()
        });
        Ok(())
    }

    /// The program has executed another one.
    pub(super) fn on_exec(&mut self) {
        self.others.program_executed();
    }

    /// True if the server sends the stacks at which the program creates threads.
    pub(super) fn sees_creations(&self) -> bool {
        self.sees_creations
    }

    /// True while the server sends the schedule.
    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Ends the schedule. The server has sent all entries, so nothing changed until now.
    pub(super) fn close(&mut self, session: &mut Session, sink: &mut Sink) {
        if !std::mem::take(&mut self.is_on) {
            return;
        }
        let time_ns = sink.now_ns().max(self.last_ns);
        let of_others = self.known_at_end(true, time_ns.max(self.last_process_ns));
        if !of_others.kinds.is_empty() {
            sink.record(Record::Processes(of_others));
        }
        sink.record(Schedule {
            edge: ScheduleEdge::Ends.into(),
            stolen_ns: session.stolen_ns(),
            ..self.known_at_end(false, time_ns)
        });
    }

    /// The calls in which threads are blocked at the end, as far as looks have shown their files.
    fn known_at_end(&mut self, other: bool, time_ns: u64) -> Schedule {
        let mut schedule = Schedule {
            time_ns,
            ..Schedule::default()
        };
        for (tid, call) in self.calls.at_end(other, &mut schedule.calls) {
            schedule.push(time_ns, call_known(time_ns, tid, call));
        }
        schedule
    }

    /// Records the entries that the server has sent, of the program or of other processes.
    pub(super) fn record(
        &mut self,
        (session, modules): (&Session, &Modules),
        sink: &mut Sink,
        clock: &ServerClock,
        notice: Notice,
    ) {
        match notice {
            Notice::Schedule {
                mut records, since, ..
            } => {
                records.retain(|record| {
                    let of_lives = matches!(
                        record.event,
                        ScheduleEvent::Created { .. } | ScheduleEvent::Ended
                    );
                    let time_ns = || clock.sent(Some(record.server_ns), since);
                    !of_lives || sink.takes_threads_at(time_ns())
                });
                for record in &records {
                    self.others.on_own_event(record.tid, &record.event);
                }
                let created = own_creations(&mut records, clock, since, &mut self.others);
                let program = (session, modules);
                let calls = self.calls.batch(program, &mut self.codes);
                let last_ns = &mut self.last_ns;
                for record in translated(records, clock, since, calls, last_ns) {
                    if let Record::Schedule(schedule) = &record {
                        self.follow(schedule);
                    }
                    sink.record(record);
                }
                self.record_creations(program, sink, created);
            }
            Notice::Processes { records, since, .. } => {
                let program = (session, modules);
                let calls = self.calls.batch(program, &mut self.codes);
                let others = &mut self.others;
                let last_ns = &mut self.last_process_ns;
                let (entries, created) =
                    of_processes(records, clock, since, (others, calls), last_ns);
                sink.record(Record::Processes(entries));
                self.record_creations(program, sink, created);
            }
            _ => {}
        }
        for place in self.calls.new_places(&mut self.codes) {
            sink.record(place);
        }
    }

    fn record_creations(
        &mut self,
        program: (&Session, &Modules),
        sink: &mut Sink,
        created: Vec<Created>,
    ) {
        for thread in created {
            let code = (&mut self.codes, &self.others);
            if let Some(stack) = self.creations.record(program, code, thread) {
                sink.record(stack);
            }
        }
    }

    /// Threads that have been blocked for a long time, and since when. Leaves out threads whose
    /// reason the recorder has already read.
    pub(super) fn long_blocked(&self, now_ns: u64) -> Vec<(u64, u64)> {
        let is_long = |since_ns: u64| now_ns.saturating_sub(since_ns) >= LONG_WAIT_NS;
        let blocked = self.blocked.iter();
        let unread = blocked.filter(|(_, (since_ns, read))| !read && is_long(*since_ns));
        unread
            .map(|(tid, (since_ns, _))| (*tid, *since_ns))
            .collect()
    }

    /// Records that the reason for a thread's wait has been read.
    pub(super) fn was_read(&mut self, tid: u64) {
        if let Some((_, read)) = self.blocked.get_mut(&tid) {
            *read = true;
        }
    }

    /// Updates the set of blocked threads.
    fn follow(&mut self, schedule: &Schedule) {
        for entry in schedule.entries() {
            match entry.kind {
                ScheduleKind::Blocks => {
                    self.blocked.insert(entry.tid, (entry.time_ns, false));
                }
                ScheduleKind::Found if entry.detail == u64::from(b'S') => {
                    self.blocked.insert(entry.tid, (entry.time_ns, false));
                }
                ScheduleKind::Runs | ScheduleKind::Ended => {
                    self.blocked.remove(&entry.tid);
                }
                _ => {}
            }
        }
    }
}

/// The text of the note in a recording without a schedule.
fn refused(reason: &str) -> String {
    format!(
        "The times at which threads ran are estimates from the kernel's counters, read every 100 \
         ms: {reason}"
    )
}

/// Takes the creations of the program's own threads from the server's records.
fn own_creations(
    records: &mut Vec<ScheduleRecord>,
    clock: &ServerClock,
    since: Duration,
    others: &mut OtherProcesses,
) -> Vec<Created> {
    let is_creation =
        |record: &mut ScheduleRecord| matches!(record.event, ScheduleEvent::CreatedAt(_));
    let creations = records.extract_if(.., is_creation);
    let created = creations.filter_map(|record| match record.event {
        ScheduleEvent::CreatedAt(stack) => Some(Created {
            code: others.program_code(),
            tid: record.tid,
            time_ns: clock.sent(Some(record.server_ns), since),
            stack: *stack,
        }),
        _ => None,
    });
    created.collect()
}

/// Converts the server's records to the recording's time. No entry is earlier than `last_ns`.
fn translated(
    records: Vec<ScheduleRecord>,
    clock: &ServerClock,
    since: Duration,
    mut calls: Batch<'_>,
    last_ns: &mut u64,
) -> Vec<Record> {
    let mut schedule = Schedule {
        time_ns: *last_ns,
        ..Schedule::default()
    };
    let mut names: Vec<Record> = Vec::new();
    for record in records {
        let time_ns = clock.sent(Some(record.server_ns), since);
        *last_ns = end_wait(&mut calls, &record, time_ns, &mut schedule, *last_ns);
        let (kind, detail) = match record.event {
            ScheduleEvent::Blocks { place: Some(place) } => {
                let at = (record.tid, record.server_ns);
                let call = calls.id_of(at, &place, None, &mut schedule.calls);
                (ScheduleKind::Blocks, call)
            }
            ScheduleEvent::Found { state } => (ScheduleKind::Found, state.into()),
            ScheduleEvent::Named(name) => {
                names.push(Record::ThreadName(ThreadName {
                    tid: record.tid,
                    name,
                    time_ns,
                }));
                continue;
            }
            ScheduleEvent::Lost { count, since_ns } => {
                calls.forget_waits();
                schedule.losses.push(ScheduleLoss {
                    from_ns: clock.sent(Some(since_ns), since),
                    to_ns: time_ns,
                    cpu: record.cpu,
                    count,
                });
                continue;
            }
            event => match kind_of(&event) {
                Some(plain) => plain,
                None => continue,
            },
        };
        let entry = ScheduleEntry {
            time_ns,
            kind,
            tid: record.tid,
            cpu: record.cpu,
            detail,
        };
        *last_ns = schedule.push(*last_ns, entry);
    }
    calls.look();
    names.push(schedule.into());
    names
}

/// Adds the call of a wait that a record ends, if its file has become known during the wait.
/// Returns the time of the last entry.
fn end_wait(
    calls: &mut Batch<'_>,
    record: &ScheduleRecord,
    time_ns: u64,
    schedule: &mut Schedule,
    last_ns: u64,
) -> u64 {
    let ends = kind_of(&record.event).is_some_and(|(kind, _)| kind != ScheduleKind::Created);
    let call = ends
        .then(|| calls.end_wait(record.tid, record.server_ns, &mut schedule.calls))
        .flatten();
    call.map_or(last_ns, |call| {
        schedule.push(last_ns, call_known(time_ns, record.tid, call))
    })
}

fn call_known(time_ns: u64, tid: u64, call: u64) -> ScheduleEntry {
    ScheduleEntry {
        time_ns,
        kind: ScheduleKind::CallKnown,
        tid,
        cpu: 0,
        detail: call,
    }
}

/// The kind and the detail of an event that needs no more than these.
fn kind_of(event: &ScheduleEvent) -> Option<(ScheduleKind, u64)> {
    Some(match event {
        ScheduleEvent::Runs => (ScheduleKind::Runs, 0),
        ScheduleEvent::Blocks { .. } => (ScheduleKind::Blocks, 0),
        ScheduleEvent::Preempted => (ScheduleKind::Preempted, 0),
        ScheduleEvent::Created { creator } => (ScheduleKind::Created, *creator),
        ScheduleEvent::Ended => (ScheduleKind::Ended, 0),
        ScheduleEvent::Woken { waker } => (ScheduleKind::Woken, waker.unwrap_or(0)),
        _ => return None,
    })
}

/// Converts the records of other processes. Returns also the creations whose stacks are known.
fn of_processes(
    records: Vec<ScheduleRecord>,
    clock: &ServerClock,
    since: Duration,
    (others, mut calls): (&mut OtherProcesses, Batch<'_>),
    last_ns: &mut u64,
) -> (Schedule, Vec<Created>) {
    let mut schedule = Schedule {
        time_ns: *last_ns,
        ..Schedule::default()
    };
    let mut created = Vec::new();
    for record in records {
        let before = others.process_of(record.tid);
        others.on_event(record.tid, &record.event);
        match record.event {
            ScheduleEvent::ProcessCreated { .. } => calls.forget_descriptors(record.tid),
            ScheduleEvent::Ended => {
                let ended = before.filter(|pid| !others.is_alive(*pid));
                ended
                    .into_iter()
                    .for_each(|pid| calls.forget_descriptors(pid));
            }
            _ => {}
        }
        let time_ns = clock.sent(Some(record.server_ns), since);
        *last_ns = end_wait(&mut calls, &record, time_ns, &mut schedule, *last_ns);
        let mut name = |name: String| {
            schedule.names.push(name);
            schedule.names.len() as u64 - 1
        };
        let (kind, detail) = match record.event {
            ScheduleEvent::ProcessCreated { creator } => (ScheduleKind::ProcessCreated, creator),
            ScheduleEvent::Named(text) => (ScheduleKind::Named, name(text)),
            ScheduleEvent::Executed(text) => (ScheduleKind::Executed, name(text)),
            ScheduleEvent::Blocks { place: Some(place) } => {
                let process = others.process_of(record.tid);
                let call = process.map_or(0, |pid| {
                    let at = (record.tid, record.server_ns);
                    calls.id_of(at, &place, Some((others, pid)), &mut schedule.calls)
                });
                (ScheduleKind::Blocks, call)
            }
            ScheduleEvent::CreatedAt(stack) => {
                let code = others.process_of(record.tid);
                if let Some(code) = code.and_then(|pid| others.code(pid)) {
                    created.push(Created {
                        code,
                        tid: record.tid,
                        time_ns,
                        stack: *stack,
                    });
                }
                continue;
            }
            event => match kind_of(&event) {
                Some(plain) => plain,
                None => continue,
            },
        };
        let entry = ScheduleEntry {
            time_ns,
            kind,
            tid: record.tid,
            cpu: record.cpu,
            detail,
        };
        *last_ns = schedule.push(*last_ns, entry);
    }
    calls.look();
    (schedule, created)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_processes_are_named() {
        let clock = ServerClock::default();
        let records = vec![
            record(10, ScheduleEvent::ProcessCreated { creator: 3 }),
            record(20, ScheduleEvent::Executed("tar".into())),
            record(30, ScheduleEvent::Named("worker".into())),
        ];
        let (mut others, mut calls) = (OtherProcesses::default(), BlockingCalls::default());
        let code = (&mut others, calls.without_program());
        let (schedule, _) = of_processes(records, &clock, Duration::ZERO, code, &mut 0);
        let seen: Vec<_> = schedule.entries().map(|e| (e.kind, e.detail)).collect();
        let expected = [
            (ScheduleKind::ProcessCreated, 3),
            (ScheduleKind::Executed, 0),
            (ScheduleKind::Named, 1),
        ];
        assert_eq!(seen, expected);
        assert_eq!(schedule.names, ["tar", "worker"]);
    }

    fn record(server_ns: u64, event: ScheduleEvent) -> ScheduleRecord {
        ScheduleRecord {
            server_ns,
            tid: 7,
            cpu: 1,
            event,
        }
    }

    #[test]
    fn converts_server_times() {
        let mut clock = ServerClock::default();
        // Our clock shows 2000 when the server's shows 1500.
        clock.begin(2000, [(1500, Duration::ZERO)].into_iter());
        let lost = ScheduleEvent::Lost {
            count: 5,
            since_ns: 600,
        };
        let records = vec![
            record(700, ScheduleEvent::Runs),
            record(800, ScheduleEvent::Named("worker".into())),
            record(900, lost),
            record(1000, ScheduleEvent::Woken { waker: Some(8) }),
            // Earlier than the previous record, as after a clock adjustment.
            record(650, ScheduleEvent::Ended),
        ];
        let mut last_ns = 1180;
        let mut calls = BlockingCalls::default();
        let calls = calls.without_program();
        let records = translated(records, &clock, Duration::ZERO, calls, &mut last_ns);
        let [Record::ThreadName(named), Record::Schedule(schedule)] = &records[..] else {
            panic!("{records:?}");
        };
        assert_eq!((named.time_ns, named.tid), (1300, 7));
        let entries: Vec<_> = schedule.entries().collect();
        let seen: Vec<_> = entries
            .iter()
            .map(|e| (e.time_ns, e.kind, e.detail))
            .collect();
        let expected = [
            (1200, ScheduleKind::Runs, 0),
            (1500, ScheduleKind::Woken, 8),
            (1500, ScheduleKind::Ended, 0),
        ];
        assert_eq!(seen, expected);
        assert_eq!(last_ns, 1500);
        let loss = schedule.losses[0];
        assert_eq!((loss.from_ns, loss.to_ns, loss.count), (1100, 1400, 5));
    }
}
