//! Recording on servers where a stop holds only the thread that hit a breakpoint.
//!
//! QEMU's user-mode server lets all other threads run. If two threads stop at once, both read from
//! its one connection and tear requests apart. So the recorder plants only the creation function,
//! which most programs call in one thread at a time, and identifies the created threads afterwards.
//! At the next creation the server's list names the threads that still run, and the handles that
//! the creators received show which creation each thread came from. A thread that has ended by then
//! has no thread id, but its creation is recorded like any other.

use unspool_capture::{Event, Read, ReadRole, SNAPSHOT_PROBE, Severity, Snapshot};
use unspool_rsp::{StopReply, ThreadId};

use super::creations::PendingCreations;
use super::error::Error;
use super::session::Session;
use super::sink::Sink;
use super::threads::Threads;

/// Finds out whether a stop leaves other threads running.
pub(super) fn detect(session: &mut Session, sink: &mut Sink, stop: &StopReply) {
    session.stops.one_thread = session.stops_one_thread();
    if session.stops.one_thread {
        // QEMU reports "CPU#0 [running]" as a name.
        session.nameless = true;
        // QEMU's process id is not the kernel's either; the first thread's id is.
        if let StopReply::Stopped { thread, .. } = stop {
            session.pid = thread.map(|thread| thread.tid);
        }
        sink.note(
            Severity::Info,
            "QEMU's server stops one thread at a time, so joins, detaches and thread names are not recorded",
        );
    }
}

/// Records new and ended threads while a creator is stopped at the creation function. Returns the
/// handles of all creations whose threads may be among the new ones.
pub(super) fn record_newcomers(
    session: &mut Session,
    sink: &mut Sink,
    threads: &mut Threads,
    creations: &PendingCreations,
) -> Result<Vec<Read>, Error> {
    let places = creations.places();
    let mut batch = session.client.batch();
    let tickets: Vec<_> = places
        .iter()
        .map(|at| batch.read_memory(*at, session.abi.pointer))
        .collect();
    let mut answers = batch.send()?;
    let reads: Vec<Read> = places
        .into_iter()
        .zip(tickets)
        .filter_map(|(address, ticket)| {
            Some(Read {
                role: ReadRole::Handle.into(),
                address,
                bytes: answers.take(ticket).ok()?,
            })
        })
        .collect();
    let list = session.client.threads()?;
    threads.retain_present(sink, |tid| list.iter().any(|thread| thread.tid == tid));
    let known = threads.ids();
    for thread in list {
        if !known.contains(&thread) {
            record_newcomer(session, sink, threads, thread, reads.clone())?;
        }
    }
    Ok(reads)
}

/// Records a new thread. Its stack pointer and the handles together identify its creation.
fn record_newcomer(
    session: &mut Session,
    sink: &mut Sink,
    threads: &mut Threads,
    thread: ThreadId,
    reads: Vec<Read>,
) -> Result<(), Error> {
    let registers = match session.client.registers(thread) {
        Ok(registers) => registers,
        // The thread has ended since it was listed. The id of an ending thread is nonsense, too.
        Err(error) if !error.is_fatal() => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    threads.seen(sink, session, thread, false);
    let event = Event {
        time_ns: sink.now_ns(),
        tid: thread.tid,
        probe: SNAPSHOT_PROBE,
        reads,
        snapshot: Some(Snapshot::of_registers(
            registers.bytes().to_vec(),
            registers.known(),
        )),
        ..Event::default()
    };
    sink.record_event(event);
    Ok(())
}
