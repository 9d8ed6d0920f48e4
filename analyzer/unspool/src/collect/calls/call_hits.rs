//! Hits of the probes of calls, as events.

use unspool_capture::{Chunk, Event, ProbeKind, Read, ReadRole, Snapshot};
use unspool_rsp::{Registers, ThreadId, TraceFrame};
use unspool_unwind::Stack;

use super::super::Error;
use super::super::collected_stack::CollectedStack;
use super::super::hits;
use super::super::recorder::Recorder;
use super::super::stack::LiveStack;
use super::super::tracepoints::{FLAGS, RESULT, SP};
use super::condition;
use super::site::{OBJECT, Site, variable};

/// No more is read of a stack while its thread stands, however deep it is.
const FIRST: usize = 1024;

impl Recorder {
    /// The server noted a hit by itself.
    pub(in crate::collect) fn on_call_frame(
        &mut self,
        thread: ThreadId,
        probe: u32,
        time_ns: u64,
        frame: TraceFrame,
    ) {
        let Some(&site) = self.calls.site(probe) else {
            return;
        };
        let mut event = Event {
            time_ns,
            tid: thread.tid,
            probe,
            ..Event::default()
        };
        if !site.begins() {
            let sp = variable(&frame, SP);
            event.args.extend(variable(&frame, RESULT));
            event.frame = sp.map(|sp| self.entry_sp(site, sp));
            if let (Site::Leave { condition, .. }, Some(flags)) = (site, variable(&frame, FLAGS))
                && !condition::holds(flags, condition)
            {
                return;
            }
            return self.note_call(event);
        }
        let abi = &self.session.abi;
        let registers = abi.traced(&frame.registers);
        event.frame = abi.sp(&registers);
        event.args = site.args(&self.session.abi, &registers);
        let object = site.object(&event.args);
        let mut memory = frame.memory.into_iter().peekable();
        let stack = memory
            .next_if(|(address, _)| Some(*address) == event.frame)
            .map(|(address, bytes)| Chunk { address, bytes });
        let read = memory.find(|(address, _)| Some(*address) == object);
        event
            .reads
            .extend(read.map(|(address, bytes)| object_at(address, bytes)));
        let mut noted = CollectedStack::needing(stack, 0);
        let file = self.session.abi.register_file(&registers);
        let walked = hits::walk_noting(&self.modules, &mut self.unusable, &file, &mut noted);
        let settled = walked.end.is_complete() || noted.is_short();
        self.note_begin(event, &registers, &walked, settled, noted.into_chunks());
    }

    /// A thread stands at a probe.
    pub(in crate::collect) fn on_call_stop(
        &mut self,
        thread: ThreadId,
        probe: u32,
        time_ns: u64,
        registers: Registers,
    ) -> Result<(), Error> {
        let Some(&site) = self.calls.site(probe) else {
            return Ok(());
        };
        let abi = &self.session.abi;
        if !site.counts(abi, &registers) {
            return Ok(());
        }
        let sp = abi.sp(&registers);
        let mut event = Event {
            time_ns,
            tid: thread.tid,
            probe,
            frame: sp.map(|sp| self.entry_sp(site, sp)),
            ..Event::default()
        };
        if !site.begins() {
            event.args.extend(site.result(abi, &registers));
            self.note_call(event);
            return Ok(());
        }
        event.args = site.args(&self.session.abi, &registers);
        let object = site.object(&event.args);
        let sent = std::mem::take(&mut self.stack_sent);
        let sent = sent.into_iter().find(|chunk| Some(chunk.address) == sp);
        let mut batch = self.session.client.batch();
        let unsent = sp.filter(|_| sent.is_none());
        let stack = unsent.map(|sp| (sp, batch.read_memory(sp, FIRST)));
        let object = object.map(|at| (at, batch.read_memory(at, OBJECT)));
        let mut answers = batch.send()?;
        let first = stack.and_then(|(address, ticket)| {
            let bytes = answers.take(ticket).ok()?;
            Some(Chunk { address, bytes })
        });
        let object =
            object.and_then(|(at, ticket)| Some(object_at(at, answers.take(ticket).ok()?)));
        event.reads.extend(object);
        let file = self.session.abi.register_file(&registers);
        let mut memory = LiveStack::new(&mut self.session.client, sent.or(first));
        let walked = hits::walk_noting(&self.modules, &mut self.unusable, &file, &mut memory);
        let (settled, chunks) = (walked.end.is_complete(), memory.into_chunks());
        self.note_begin(event, &registers, &walked, settled, chunks);
        Ok(())
    }

    /// Threads that are in a wait when the recording begins have begun it before anybody watched: for the recording it begins now.
    pub(in crate::collect) fn find_waits(&mut self, threads: &[ThreadId]) -> Result<(), Error> {
        if !self.probes.has(ProbeKind::FutexWait) {
            return Ok(());
        }
        for (thread, registers, stack) in self.registers_of(threads)? {
            if self.session.abi.waits_at(&registers).is_some() {
                self.on_wait(thread, registers, stack);
            }
        }
        Ok(())
    }

    fn on_wait(&mut self, thread: ThreadId, mut registers: Registers, stack: Option<Chunk>) {
        let abi = &self.session.abi;
        let there = abi
            .pc(&registers)
            .and_then(|pc| self.probes.wait_before(pc));
        if let Some((_, place)) = there {
            // Where it would have been noted: the path is that of other waits.
            abi.set_pc(&mut registers, place);
        }
        let file = abi.register_file(&registers);
        let mut memory = LiveStack::new(&mut self.session.client, stack);
        let walked = hits::walk_noting(&self.modules, &mut self.unusable, &file, &mut memory);
        let (settled, chunks) = (walked.end.is_complete(), memory.into_chunks());
        // T32 code of glibc calls a function for its system calls (`__libc_do_syscall`).
        let mut frames = walked.frames.iter().take(2);
        let begun = frames.find_map(|frame| Some((self.probes.wait_before(frame.pc)?.0, frame.sp)));
        let Some((probe, sp)) = begun else {
            return;
        };
        let mut event = Event {
            time_ns: self.sink.now_ns(),
            tid: thread.tid,
            probe,
            frame: Some(sp),
            args: (self.session.abi)
                .call_arguments(&registers, 4)
                .unwrap_or_default(),
            ..Event::default()
        };
        let site = self.calls.site(probe);
        if let Some(at) = site.and_then(|site| site.object(&event.args))
            && let Ok(bytes) = self.session.client.read_memory(at, OBJECT)
        {
            event.reads.push(object_at(at, bytes));
        }
        self.note_begin(event, &registers, &walked, settled, chunks);
    }

    /// The stack pointer with which the function was entered.
    fn entry_sp(&self, site: Site, sp: u64) -> u64 {
        match site {
            Site::Leave { below, .. } => {
                self.session.abi.wrap(sp.wrapping_add_signed(below.into()))
            }
            _ => sp,
        }
    }

    /// `settled`: reading the stack again, with other files, would give the same program counters.
    fn note_begin(
        &mut self,
        mut event: Event,
        registers: &Registers,
        walked: &Stack,
        settled: bool,
        chunks: Vec<Chunk>,
    ) {
        let pcs = walked.frames.iter().map(|frame| frame.pc).collect();
        let seq = self.sink.events() + 1;
        event.same_stack_as = settled.then(|| self.calls.same_path(pcs, seq)).flatten();
        if event.same_stack_as.is_none() {
            let mut snapshot =
                Snapshot::of_registers(registers.bytes().to_vec(), registers.known());
            snapshot.chunks = chunks;
            event.snapshot = Some(snapshot);
        }
        self.note_call(event);
    }

    fn note_call(&mut self, mut event: Event) {
        event.seq = self.sink.next_event();
        self.sink.record(event);
    }
}

fn object_at(address: u64, bytes: Vec<u8>) -> Read {
    Read {
        role: ReadRole::Object.into(),
        address,
        bytes,
    }
}
