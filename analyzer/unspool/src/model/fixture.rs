//! A stand-in for programs and symbols in tests: stacks are written down as function names.
//!
//! Each function name gets a fixed svma in its module; `bias` moves all modules, as address
//! randomization does. A snapshot's chunk holds the pcs of its frames, innermost first.

use std::sync::Arc;

use unspool_capture::{
    Capture, Chunk, End, EndReason, Event, Header, Probe, ProbeKind, ProcessEnded, Read, ReadRole,
    Record, RegisterLayout, Schedule, ScheduleEdge, ScheduleEntry, ScheduleKind, Snapshot, Target,
    ThreadExited, ThreadName, ThreadSeen,
};
use unspool_unwind::Provenance;

use super::backtrace::{Backtrace, NamedFrame, Place};
use super::{Detail, Model, Module};
use crate::platform::layouts::Family;

mod symbols;
pub(crate) mod sync;

/// A function is `module!function@file:line`, `module!function` or `?` for code of no module; an
/// inlined one begins with `~`, an uncertain one with `*`.
pub(crate) type Function = &'static str;

/// The process id of every fixture.
pub(crate) const PID: u64 = 4242;

const CREATE: u32 = 1;
const JOIN: u32 = 2;
pub(crate) const TIMED_JOIN: u32 = 90;
const DETACH: u32 = 3;
const MODULE: u64 = 0x10_0000;
const FUNCTION: u64 = 0x100;
/// Where thread handles lie: the first argument of a creation.
const PLACE: u64 = 0x7ffe_0000;

/// A program on stage: records as a recorder would write them, and its symbols.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) records: Vec<Record>,
    pub(crate) bias: u64,
    modules: Vec<String>,
    functions: Vec<Function>,
    seq: u64,
    places: u64,
    stacks: std::collections::HashMap<(Vec<u64>, Option<&'static str>), Arc<Backtrace>>,
    /// Variables by address.
    pub(crate) data: std::collections::BTreeMap<u64, &'static str>,
    /// The reason why stacks end early, for stacks whose function has one.
    pub(crate) truncated: Option<&'static str>,
    /// The C library.
    pub(super) family: Option<Family>,
}

impl Stage {
    /// A program whose main thread runs.
    pub(crate) fn new() -> Stage {
        let mut stage = Stage {
            records: Vec::new(),
            bias: 0x5555_0000_0000,
            modules: Vec::new(),
            functions: Vec::new(),
            seq: 0,
            places: 0,
            stacks: Default::default(),
            data: Default::default(),
            truncated: None,
            family: None,
        };
        stage.add(Header {
            product: "unspool 0.1.0".into(),
            command: vec![
                "unspool".into(),
                "record".into(),
                "--".into(),
                "orders".into(),
            ],
            source: unspool_capture::Source::Launched.into(),
            ..Default::default()
        });
        stage.add(Target {
            arch: "i386:x86-64".into(),
            executable: "/home/ann/orders".into(),
            pid: PID,
            local: true,
            registers: [("fs_base", 58, 0), ("rsp", 7, 8)]
                .map(|(name, number, offset)| RegisterLayout {
                    name: name.into(),
                    number,
                    bits: 64,
                    offset,
                })
                .to_vec(),
            ..Default::default()
        });
        stage.seen(PID, "orders", 0);
        for (id, function, kind) in [
            (CREATE, "pthread_create", ProbeKind::Create),
            (JOIN, "pthread_join", ProbeKind::Join),
            (TIMED_JOIN, "pthread_timedjoin_np", ProbeKind::Join),
            (DETACH, "pthread_detach", ProbeKind::Detach),
        ] {
            stage.add(Probe {
                id,
                function: function.into(),
                avma: 0x1000,
                module: None,
                kind: kind.into(),
                ..Default::default()
            });
        }
        stage
    }

    /// Makes it a recording of a program that ran before.
    pub(crate) fn attached(&mut self) {
        for record in &mut self.records {
            if let Record::Header(header) = record {
                header.source = unspool_capture::Source::Attached.into();
            }
        }
    }

    /// Makes the program an AArch64 one, whose server reports creators.
    pub(crate) fn on_aarch64(&mut self) {
        for record in &mut self.records {
            if let Record::Target(target) = record {
                target.arch = "aarch64".into();
                target.tells_creators = true;
                target.registers.clear();
            }
        }
    }

    /// Adds the server's report of a created thread, with its thread pointer.
    pub(crate) fn told(&mut self, tid: u64, creator: u64, ms: u64, thread_pointer: u64) {
        self.add(ThreadSeen {
            tid,
            time_ns: ms * 1_000_000,
            creator_tid: Some(creator),
            thread_pointer: Some(thread_pointer),
            ..Default::default()
        });
    }

    pub(crate) fn add(&mut self, record: impl Into<Record>) {
        self.records.push(record.into());
    }

    pub(crate) fn seen(&mut self, tid: u64, name: &str, ms: u64) {
        self.add(ThreadSeen {
            tid,
            name: name.into(),
            time_ns: ms * 1_000_000,
            existed_before: false,
            ..Default::default()
        });
    }

    /// Adds a call of `pthread_create`. Returns the address of its `pthread_t` variable.
    pub(crate) fn create(
        &mut self,
        tid: u64,
        ms: u64,
        function: Function,
        arg: u64,
        stack: &[Function],
    ) -> u64 {
        self.places += 1;
        let place = PLACE + 8 * self.places;
        let mut whole: Vec<Function> = vec!["libc.so.6!pthread_create"];
        whole.extend(stack);
        let snapshot = self.snapshot(0, &whole);
        let routine = self.address(function);
        self.event(
            tid,
            ms,
            CREATE,
            vec![place, 0, routine, arg],
            Vec::new(),
            Some(snapshot),
        );
        place
    }

    /// Sets "detached" in the attributes of the last creation.
    pub(crate) fn with_detached_attr(&mut self) {
        let Some(Record::Event(event)) = self.records.last_mut() else {
            panic!("no creation");
        };
        let mut bytes = vec![0; 64];
        bytes[8] = 1;
        event.reads.push(Read {
            role: ReadRole::Attr.into(),
            address: 0x7000,
            bytes,
        });
    }

    /// Adds a new thread at its start routine. `handles` are the (place, handle) pairs that were
    /// read.
    pub(crate) fn start(
        &mut self,
        tid: u64,
        ms: u64,
        function: Function,
        arg: u64,
        handles: &[(u64, u64)],
        own: u64,
    ) {
        let avma = self.address(function);
        let probe = 1000 + (avma / FUNCTION % 4096) as u32;
        self.add(Probe {
            id: probe,
            function: function.into(),
            avma,
            module: None,
            kind: ProbeKind::Start.into(),
            ..Default::default()
        });
        let snapshot = Snapshot {
            registers: own.to_le_bytes().to_vec(),
            ..Default::default()
        };
        self.event(tid, ms, probe, vec![arg], reads(handles), Some(snapshot));
    }

    /// Adds a creation and a start that match without doubt. The handle is `tid * 0x1000`.
    pub(crate) fn spawn(
        &mut self,
        creator: u64,
        tid: u64,
        ms: u64,
        function: Function,
        stack: &[Function],
    ) {
        let place = self.create(creator, ms, function, tid, stack);
        self.start(tid, ms + 1, function, tid, &[(place, tid << 12)], tid << 12);
    }

    pub(crate) fn name(&mut self, tid: u64, name: &str, ms: u64) {
        self.add(ThreadName {
            tid,
            name: name.into(),
            time_ns: ms * 1_000_000,
        });
    }

    pub(crate) fn join(&mut self, tid: u64, ms: u64, handle: u64) {
        self.event(tid, ms, JOIN, vec![handle], Vec::new(), None);
    }

    pub(crate) fn detach(&mut self, tid: u64, ms: u64, handle: u64) {
        self.event(tid, ms, DETACH, vec![handle], Vec::new(), None);
    }

    pub(crate) fn exit(&mut self, tid: u64, ms: u64) {
        self.add(ThreadExited {
            tid,
            time_ns: ms * 1_000_000,
            code: None,
            exact: true,
            ..Default::default()
        });
    }

    pub(crate) fn look(&mut self, tid: u64, ms: u64, stack: &[Function]) {
        let snapshot = self.snapshot(0, stack);
        self.event(tid, ms, 0, Vec::new(), Vec::new(), Some(snapshot));
    }

    /// A thread whose start was not recorded is found with its stack pointer at `sp`. `handles` are
    /// the (place, handle) pairs that were read.
    pub(crate) fn meet(&mut self, tid: u64, ms: u64, sp: u64, handles: &[(u64, u64)]) {
        let mut snapshot = self.snapshot(0, &[]);
        snapshot.registers.extend(sp.to_le_bytes());
        self.event(tid, ms, 0, Vec::new(), reads(handles), Some(snapshot));
    }

    /// The last creation gets the same place as an earlier one, where `handle` lies.
    pub(crate) fn same_place(&mut self, place: u64, handle: u64) {
        let Some(Record::Event(event)) = self.records.last_mut() else {
            panic!("no creation");
        };
        event.args[0] = place;
        event.reads.extend(reads(&[(place, handle)]));
    }

    /// Adds a function whose calls are recorded, by the probe at its entry.
    pub(crate) fn instrument(&mut self, id: u32, function: Function, kind: ProbeKind) {
        let avma = self.address(function);
        let name = function.split_once('!').map_or(function, |(_, name)| name);
        self.add(Probe {
            id,
            function: name.into(),
            avma,
            kind: kind.into(),
            ..Default::default()
        });
    }

    /// Adds a place where calls end that began at the probes `ends`.
    pub(crate) fn instrument_end(&mut self, id: u32, kind: ProbeKind, ends: &[u32]) {
        self.add(Probe {
            id,
            kind: kind.into(),
            ends: ends.to_vec(),
            ..Default::default()
        });
    }

    /// Begins a call; returns the event's number.
    pub(crate) fn enter(
        &mut self,
        tid: u64,
        ns: u64,
        probe: u32,
        frame: u64,
        args: &[u64],
        stack: &[Function],
    ) -> u64 {
        let snapshot = self.snapshot(0, stack);
        self.event(tid, 0, probe, args.to_vec(), Vec::new(), Some(snapshot));
        self.call_event(ns, frame)
    }

    /// A call begins, with the stack of an earlier one.
    pub(crate) fn enter_as(
        &mut self,
        tid: u64,
        ns: u64,
        probe: u32,
        frame: u64,
        args: &[u64],
        as_in: u64,
    ) {
        self.event(tid, 0, probe, args.to_vec(), Vec::new(), None);
        self.call_event(ns, frame);
        if let Some(Record::Event(event)) = self.records.last_mut() {
            event.same_stack_as = Some(as_in);
        }
    }

    /// A call ends.
    pub(crate) fn leave(&mut self, tid: u64, ns: u64, probe: u32, frame: u64, result: u64) {
        self.event(tid, 0, probe, vec![result], Vec::new(), None);
        self.call_event(ns, frame);
    }

    fn call_event(&mut self, ns: u64, frame: u64) -> u64 {
        let Some(Record::Event(event)) = self.records.last_mut() else {
            panic!("no event");
        };
        (event.time_ns, event.frame) = (ns, Some(frame));
        event.seq
    }

    /// Sorts the events by time, behind all other records.
    pub(crate) fn in_time(&mut self) {
        let (mut events, mut records): (Vec<Record>, Vec<Record>) =
            std::mem::take(&mut self.records)
                .into_iter()
                .partition(|record| matches!(record, Record::Event(_)));
        events.sort_by_key(|record| match record {
            Record::Event(event) => event.time_ns,
            _ => 0,
        });
        for (record, seq) in events.iter_mut().zip(1..) {
            if let Record::Event(event) = record {
                event.seq = seq;
            }
        }
        records.extend(events);
        self.records = records;
    }

    /// The program and the recording end.
    pub(crate) fn end(&mut self, ms: u64) {
        self.add(ProcessEnded {
            time_ns: ms * 1_000_000,
            exit_code: Some(0),
            signal: None,
        });
        self.add(End {
            reason: EndReason::ProgramEnded.into(),
            time_ns: ms * 1_000_000,
            detail: String::new(),
        });
    }

    pub(crate) fn model(&mut self) -> Model {
        let capture = Capture::from_records(self.records.clone());
        self.model_of(&capture)
    }

    pub(crate) fn model_of(&mut self, capture: &Capture) -> Model {
        let mut model = Model::interpret(capture, self, Detail::default());
        model.modules = self
            .modules
            .iter()
            .map(|path| Module {
                path: path.clone(),
                build_id: Some("c0ffee".into()),
                ..Default::default()
            })
            .collect();
        model
    }

    pub(crate) fn event(
        &mut self,
        tid: u64,
        ms: u64,
        probe: u32,
        args: Vec<u64>,
        reads: Vec<Read>,
        snapshot: Option<Snapshot>,
    ) {
        self.seq += 1;
        let seq = self.seq;
        self.add(Event {
            seq,
            time_ns: ms * 1_000_000 + seq,
            tid,
            probe,
            args,
            reads,
            snapshot,
            ..Default::default()
        });
    }

    pub(crate) fn snapshot(&mut self, own: u64, stack: &[Function]) -> Snapshot {
        let pcs = stack
            .iter()
            .flat_map(|function| self.address(function).to_le_bytes())
            .collect();
        Snapshot {
            registers: u64::to_le_bytes(own).to_vec(),
            chunks: vec![Chunk {
                address: 0,
                bytes: pcs,
            }],
            ..Default::default()
        }
    }

    pub(crate) fn address(&mut self, function: Function) -> u64 {
        let number = match self.functions.iter().position(|known| *known == function) {
            Some(number) => number,
            None => {
                self.functions.push(function);
                self.functions.len() - 1
            }
        };
        self.bias + self.module(function) as u64 * MODULE + number as u64 * FUNCTION
    }

    fn module(&mut self, function: Function) -> usize {
        let name = function.trim_start_matches(['~', '*']);
        let module = match name.split_once('!').map_or("", |(module, _)| module) {
            "" => String::new(),
            "orders" => "/home/ann/orders".to_owned(),
            module => format!("/lib/{module}"),
        };
        match self.modules.iter().position(|known| *known == module) {
            Some(number) => number,
            None => {
                self.modules.push(module);
                self.modules.len() - 1
            }
        }
    }

    fn named(&self, pc: u64) -> NamedFrame {
        let number = ((pc - self.bias) % MODULE / FUNCTION) as usize;
        let module = &self.modules[((pc - self.bias) / MODULE) as usize];
        let text = self.functions[number];
        let name = text.trim_start_matches(['~', '*']);
        let name = name.split_once('!').map_or("?", |(_, name)| name);
        let (name, place) = name
            .split_once('@')
            .map_or((name, None), |(name, place)| (name, Some(place)));
        let (file, line) = place.and_then(|place| place.rsplit_once(':')).unzip();
        let known = !module.is_empty();
        let called = known && name != "?";
        NamedFrame {
            place: Place {
                function: called.then(|| name.into()),
                offset: if called { 0 } else { number as u64 * FUNCTION },
                module: known.then(|| module.as_str().into()),
                edition: None,
                link: None,
                svma: known.then_some(number as u64 * FUNCTION),
                avma: pc,
                file: file.map(|file| match file.starts_with('/') {
                    true => Arc::from(file),
                    false => format!("/home/ann/src/{file}").into(),
                }),
                line: line.and_then(|line: &str| line.parse().ok()),
            },
            inlined: text.starts_with('~'),
            provenance: match text.starts_with('*') {
                true => Provenance::Scan,
                false => Provenance::Cfi,
            },
            called: None,
        }
    }
}

/// (place, handle) pairs as they are recorded.
fn reads(handles: &[(u64, u64)]) -> Vec<Read> {
    let read = |(address, handle): &(u64, u64)| Read {
        role: ReadRole::Handle.into(),
        address: *address,
        bytes: handle.to_le_bytes().to_vec(),
    };
    handles.iter().map(read).collect()
}

/// An entry of a schedule.
pub(crate) fn entry(
    time_ns: u64,
    kind: ScheduleKind,
    tid: u64,
    cpu: u32,
    detail: u64,
) -> ScheduleEntry {
    ScheduleEntry {
        time_ns,
        kind,
        tid,
        cpu,
        detail,
    }
}

/// The beginning of a schedule with wakers, at the first millisecond.
pub(crate) fn schedule_begins() -> Schedule {
    Schedule {
        time_ns: 1_000_000,
        edge: ScheduleEdge::BeginsWithWakers.into(),
        ..Schedule::default()
    }
}

/// A part of a schedule from the first millisecond on, on processor 0. Each entry has the
/// microsecond, the kind, the thread and the detail.
pub(crate) fn scheduled(entries: &[(u64, ScheduleKind, u64, u64)]) -> Schedule {
    let all = entries.iter();
    let all = all.map(|&(us, kind, tid, detail)| (us, kind, tid, 0, detail));
    scheduled_on(&all.collect::<Vec<_>>())
}

/// Like [`scheduled`], on any processors. Each entry has the processor before the detail.
pub(crate) fn scheduled_on(entries: &[(u64, ScheduleKind, u64, u32, u64)]) -> Schedule {
    let mut part = Schedule {
        time_ns: 1_000_000,
        ..Schedule::default()
    };
    let mut last_ns = part.time_ns;
    for &(us, kind, tid, cpu, detail) in entries {
        last_ns = part.push(last_ns, entry(us * 1000, kind, tid, cpu, detail));
    }
    part
}
