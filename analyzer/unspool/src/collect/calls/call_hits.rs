//! Converts hits of call probes to events.

use std::collections::HashMap;

use unspool_capture::{Chunk, Event, Read, ReadRole, Snapshot};
use unspool_rsp::{Registers, TraceFrame};
use unspool_unwind::Stack;

use super::super::collected_stack::CollectedStack;
use super::super::error::Error;
use super::super::modules::Modules;
use super::super::session::Session;
use super::super::sink::Sink;
use super::super::stack::LiveStack;
use super::super::stack_walk::StackWalker;
use super::super::tracepoints::{
    CALL_SITE, FLAGS, FUNCTION, RESULT, RETURN_ADDRESS, SP, STACK_KEY,
};
use super::hooks::HookCalls;
use super::site::{OBJECT, Site, variable};
use crate::platform::abi::Abi;
use crate::platform::condition;

/// Bytes of stack read from a stopped thread.
const FIRST: usize = 1024;
/// Limit on remembered call paths. At the limit the reader forgets all and records them anew.
const MAX_PATHS: usize = 1 << 20;

/// A hit of a call's probe.
#[derive(Debug, Clone, Copy)]
pub(in crate::collect) struct CallHit {
    pub(in crate::collect) tid: u64,
    pub(in crate::collect) probe: u32,
    pub(in crate::collect) time_ns: u64,
    pub(in crate::collect) site: Site,
}

impl CallHit {
    fn event(self) -> Event {
        Event {
            time_ns: self.time_ns,
            tid: self.tid,
            probe: self.probe,
            ..Event::default()
        }
    }
}

/// Reads hits of calls and records each call path once.
#[derive(Debug, Default)]
pub(in crate::collect) struct CallReader {
    /// For the program counters of each stack, the number of the event that carries the stack.
    paths: HashMap<Box<[u64]>, u64>,
    /// The same by the keys that the server gives stacks. It sends each stack once.
    sent: HashMap<u64, u64>,
    hooks: HookCalls,
}

impl CallReader {
    /// Forgets all paths after a module was mapped or unmapped, since addresses change their
    /// meaning.
    pub(in crate::collect) fn forget_paths(&mut self) {
        self.paths.clear();
        self.hooks.forget();
    }

    /// Number of hits of hooks, and number of hits whose hook is unknown.
    pub(in crate::collect) fn hook_hits(&self) -> (u64, u64) {
        (self.hooks.hits, self.hooks.unclear)
    }

    /// Records a hit of a hook, unless it is unknown which hook was called.
    fn on_hook(
        &mut self,
        abi: &Abi,
        sink: &mut Sink,
        modules: &Modules,
        mut event: Event,
        ends: Option<bool>,
        [function, call_site, return_address]: [u64; 3],
    ) {
        let hooks = &mut self.hooks;
        if let Some(ends) = hooks.ends(ends, abi, modules, call_site, return_address) {
            event.args = vec![function, call_site, return_address, ends.into()];
            sink.record_event(event);
        }
    }

    /// Records a hit that the server recorded without a stop.
    pub(in crate::collect) fn on_frame(
        &mut self,
        abi: &Abi,
        sink: &mut Sink,
        modules: &Modules,
        walker: &mut StackWalker,
        hit: CallHit,
        frame: TraceFrame,
    ) {
        let site = hit.site;
        let mut event = hit.event();
        if let Site::Hook { ends } = site {
            let values = [FUNCTION, CALL_SITE, RETURN_ADDRESS].map(|of| variable(&frame, of));
            event.frame = variable(&frame, SP);
            if let [Some(function), Some(call_site), Some(back)] = values {
                let args = [function, call_site, back];
                self.on_hook(abi, sink, modules, event, ends, args);
            }
            return;
        }
        if !site.begins() {
            let sp = variable(&frame, SP);
            event.args.extend(variable(&frame, RESULT));
            event.frame = sp.map(|sp| site.entry_sp(abi, sp));
            if let (Site::Leave { condition, .. }, Some(flags)) = (site, variable(&frame, FLAGS))
                && !condition::holds(flags, condition)
            {
                return;
            }
            return sink.record_event(event);
        }
        let registers = abi.traced(&frame.registers);
        event.frame = abi.sp(&registers);
        event.args = site.args(abi, &registers);
        let object = site.object(&event.args);
        let key = variable(&frame, STACK_KEY);
        let mut memory = frame.memory.into_iter().peekable();
        let stack = memory
            .next_if(|(address, _)| Some(*address) == event.frame)
            .map(|(address, bytes)| Chunk { address, bytes });
        let read = memory.find(|(address, _)| Some(*address) == object);
        event
            .reads
            .extend(read.map(|(address, bytes)| object_at(address, bytes)));
        if stack.is_none()
            && let Some(seq) = key.and_then(|key| self.sent.get(&key))
        {
            event.same_stack_as = Some(*seq);
            return sink.record_event(event);
        }
        let mut noted = CollectedStack::needing(stack, 0);
        let file = abi.register_file(&registers);
        let walked = walker.walk(modules, &file, &mut noted);
        let settled = walked.end.is_complete() || noted.is_short();
        let chunks = noted.into_chunks();
        let seq = self.begin(sink, event, &registers, &walked, settled, chunks);
        if let Some(key) = key {
            self.sent.insert(key, seq);
        }
    }

    /// Records the hit of a thread that is stopped at a probe.
    pub(in crate::collect) fn on_stop(
        &mut self,
        session: &mut Session,
        sink: &mut Sink,
        modules: &Modules,
        walker: &mut StackWalker,
        hit: CallHit,
        registers: Registers,
    ) -> Result<(), Error> {
        let site = hit.site;
        let (client, abi) = (&mut session.client, &session.abi);
        if !site.counts(abi, &registers) {
            return Ok(());
        }
        let sp = abi.sp(&registers);
        let mut event = hit.event();
        event.frame = sp.map(|sp| site.entry_sp(abi, sp));
        if let Site::Hook { ends } = site {
            let file = abi.register_file(&registers);
            let back = match abi.platform.return_register {
                Some(register) => file.get(register),
                None => sp.and_then(|sp| {
                    let bytes = client.read_memory(sp, abi.pointer).ok()?;
                    abi.pointer_at(&bytes, 0)
                }),
            };
            if let (Some([function, call_site]), Some(back)) =
                (abi.args(&registers, 2).as_deref(), back)
            {
                let args = [*function, *call_site, back];
                self.on_hook(abi, sink, modules, event, ends, args);
            }
            return Ok(());
        }
        if !site.begins() {
            event.args.extend(site.result(abi, &registers));
            sink.record_event(event);
            return Ok(());
        }
        event.args = site.args(abi, &registers);
        let object = site.object(&event.args);
        let sent = walker.take_sent(sp);
        let mut batch = client.batch();
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
        let file = abi.register_file(&registers);
        let mut memory = LiveStack::new(client, sent.or(first));
        let walked = walker.walk(modules, &file, &mut memory);
        let (settled, chunks) = (walked.end.is_complete(), memory.into_chunks());
        self.begin(sink, event, &registers, &walked, settled, chunks);
        Ok(())
    }

    /// Records the beginning of a call. `settled` is set if another walk of the same stack, with
    /// other files, would give the same program counters. Gives the number of the event that
    /// carries the stack.
    pub(in crate::collect) fn begin(
        &mut self,
        sink: &mut Sink,
        mut event: Event,
        registers: &Registers,
        walked: &Stack,
        settled: bool,
        chunks: Vec<Chunk>,
    ) -> u64 {
        let pcs = walked.frames.iter().map(|frame| frame.pc).collect();
        let seq = sink.events() + 1;
        event.same_stack_as = settled.then(|| self.same_path(pcs, seq)).flatten();
        if event.same_stack_as.is_none() {
            let mut snapshot =
                Snapshot::of_registers(registers.bytes().to_vec(), registers.known());
            snapshot.chunks = chunks;
            event.snapshot = Some(snapshot);
        }
        let carrier = event.same_stack_as.unwrap_or(seq);
        sink.record_event(event);
        carrier
    }

    /// The number of the event that carries the same stack; `None` if `seq` is the first.
    fn same_path(&mut self, pcs: Box<[u64]>, seq: u64) -> Option<u64> {
        if self.paths.len() >= MAX_PATHS {
            self.paths.clear();
        }
        match self.paths.entry(pcs) {
            std::collections::hash_map::Entry::Occupied(known) => Some(*known.get()),
            std::collections::hash_map::Entry::Vacant(new) => {
                new.insert(seq);
                None
            }
        }
    }
}

/// The record of the object on which a call operates.
pub(in crate::collect) fn object_at(address: u64, bytes: Vec<u8>) -> Read {
    Read {
        role: ReadRole::Object.into(),
        address,
        bytes,
    }
}
