//! A directory in the Common Trace Format 1.8, as babeltrace2 and Trace Compass read it.
//!
//! Each processor has a file with the kernel's events `sched_switch` and `sched_wakeup`, with the
//! fields that LTTng gives them. The file `threads` has the other events: creations, waits, holds
//! and findings. The file `metadata` describes all of them (CTF 1.8.3, section 7).

use std::io::Write;

use super::exporter::{Error, Exporter, Options};
use super::switches::{self, OTHER, Switch, Wake};
use super::tracks::{self, Texts, Tracks};
use crate::model::sync::{HoldSpan, WaitSpan};
use crate::model::{Detail, Model, ThreadIndex};
use crate::views::finding_text;
use crate::views::text::line::clean;

/// The first number of each packet (CTF 1.8.3, section 5.1).
const MAGIC: u32 = 0xc1fc_1fc1;
/// Size of a packet's header and context in bytes.
const HEAD: usize = 4 + 4 + 8 + 8 + 8 + 8 + 4;
/// A packet ends after the event that reaches this size in bytes.
const PACKET: usize = 256 << 10;
/// Size of a thread's name in the kernel's events, with a zero.
const COMM: usize = 16;
/// The kernel's default priority of a thread (nice 0).
const PRIORITY: u32 = 120;

/// The file with the description.
const METADATA: &str = "metadata";
/// The file with everything but the schedule.
const THREADS: &str = "threads";
/// The files with the schedule, each followed by the processor's number.
const PROCESSOR: &str = "processor_";

#[derive(Debug)]
pub(super) struct Ctf;

impl Exporter for Ctf {
    fn name(&self) -> &'static str {
        "ctf"
    }

    fn about(&self) -> &'static str {
        "A directory for babeltrace2 and Trace Compass: the schedule, waits, holds, findings"
    }

    fn detail(&self) -> Detail {
        Detail::JOURNAL
    }

    fn is_directory(&self) -> bool {
        true
    }

    fn parts(&self, model: &Model) -> Vec<String> {
        let (processors, _) = switches::of(model, &Tracks::of(model));
        let processors = processors.keys();
        let processors = processors.map(|cpu| format!("{PROCESSOR}{cpu}"));
        let fixed = [METADATA, THREADS].map(str::to_owned);
        fixed.into_iter().chain(processors).collect()
    }

    fn write_part(&self, part: &str, model: &Model, out: &mut dyn Write) -> Result<(), Error> {
        let tracks = Tracks::of(model);
        match part {
            METADATA => metadata(model, out),
            THREADS => threads(model, &tracks, out),
            _ => {
                let cpu = part
                    .strip_prefix(PROCESSOR)
                    .and_then(|cpu| cpu.parse().ok());
                processor(model, &tracks, cpu.unwrap_or(0), out)
            }
        }
    }

    fn write(&self, model: &Model, _: &Options, out: &mut dyn Write) -> Result<(), Error> {
        metadata(model, out)
    }
}

/// The kinds of events; the numbers stand in the metadata, too.
#[derive(Clone, Copy, Debug)]
enum Id {
    Switch = 0,
    Wakeup = 1,
    Creates = 2,
    Starts = 3,
    Ends = 4,
    WaitBegin = 5,
    WaitEnd = 6,
    HoldBegin = 7,
    HoldEnd = 8,
    Finding = 9,
}

fn metadata(model: &Model, out: &mut dyn Write) -> Result<(), Error> {
    let (seconds, rest) = (
        model.recording.start_unix_ns / 1_000_000_000,
        model.recording.start_unix_ns % 1_000_000_000,
    );
    let program = text_of(&model.target.name).replace(['"', '\\'], "_");
    write!(
        out,
        "/* CTF 1.8 */\n\
         typealias integer {{ size = 8; align = 8; signed = false; }} := uint8_t;\n\
         typealias integer {{ size = 16; align = 8; signed = false; }} := uint16_t;\n\
         typealias integer {{ size = 32; align = 8; signed = false; }} := uint32_t;\n\
         typealias integer {{ size = 64; align = 8; signed = false; }} := uint64_t;\n\
         typealias integer {{ size = 32; align = 8; signed = true; }} := int32_t;\n\
         typealias integer {{ size = 64; align = 8; signed = true; }} := int64_t;\n\
         typealias integer {{ size = 8; align = 8; signed = false; encoding = UTF8; }} := char_t;\n\
         trace {{\n\
         \tmajor = 1; minor = 8; byte_order = le;\n\
         \tpacket.header := struct {{ uint32_t magic; uint32_t stream_id; }};\n\
         }};\n\
         env {{\n\
         \tdomain = \"kernel\"; tracer_name = \"unspool\"; tracer_major = 0; tracer_minor = 1;\n\
         \tprogram = \"{program}\"; pid = {};\n\
         }};\n\
         clock {{\n\
         \tname = monotonic; freq = 1000000000; offset_s = {seconds}; offset = {rest};\n\
         }};\n\
         typealias integer {{ size = 64; align = 8; signed = false; map = clock.monotonic.value; }} \
         := time_t;\n",
        model.target.pid
    )?;
    for stream in 0..2 {
        write!(
            out,
            "stream {{\n\
             \tid = {stream};\n\
             \tpacket.context := struct {{ time_t timestamp_begin; time_t timestamp_end; \
             uint64_t content_size; uint64_t packet_size; uint32_t cpu_id; }};\n\
             \tevent.header := struct {{ uint16_t id; time_t timestamp; }};\n\
             }};\n"
        )?;
    }
    for (id, stream, name, fields) in [
        (
            Id::Switch,
            0,
            "sched_switch",
            "char_t _prev_comm[16]; int32_t _prev_tid; int32_t _prev_prio; int64_t _prev_state; \
             char_t _next_comm[16]; int32_t _next_tid; int32_t _next_prio;",
        ),
        (
            Id::Wakeup,
            0,
            "sched_wakeup",
            "char_t _comm[16]; int32_t _tid; int32_t _prio; int32_t _target_cpu; \
             int32_t _waker_tid;",
        ),
        (
            Id::Creates,
            1,
            "unspool_thread_creates",
            "int32_t _tid; int32_t _child_tid; string _child_name; string _in;",
        ),
        (
            Id::Starts,
            1,
            "unspool_thread_starts",
            "int32_t _tid; int32_t _pid; string _name; string _key;",
        ),
        (Id::Ends, 1, "unspool_thread_ends", "int32_t _tid;"),
        (
            Id::WaitBegin,
            1,
            "unspool_wait_begin",
            "int32_t _tid; string _object; string _facts;",
        ),
        (
            Id::WaitEnd,
            1,
            "unspool_wait_end",
            "int32_t _tid; string _object; string _waiting_for; uint64_t _duration_ns; \
             int32_t _waker_tid;",
        ),
        (
            Id::HoldBegin,
            1,
            "unspool_hold_begin",
            "int32_t _tid; string _object;",
        ),
        (
            Id::HoldEnd,
            1,
            "unspool_hold_end",
            "int32_t _tid; string _object; uint64_t _duration_ns;",
        ),
        (
            Id::Finding,
            1,
            "unspool_finding",
            "int32_t _tid; string _kind; string _text;",
        ),
    ] {
        writeln!(
            out,
            "event {{ id = {}; name = \"{name}\"; stream_id = {stream}; \
             fields := struct {{ {fields} }}; }};",
            id as u16
        )?;
    }
    Ok(())
}

/// Writes one processor's events.
fn processor(model: &Model, tracks: &Tracks, cpu: u32, out: &mut dyn Write) -> Result<(), Error> {
    enum Event {
        Switch(Switch),
        Wake(Wake),
    }
    let (mut processors, wakes) = switches::of(model, tracks);
    let first = processors.keys().next().copied();
    let switches = processors.remove(&cpu).unwrap_or_default();
    let switches = switches
        .into_iter()
        .map(|switch| (switch.ns, Event::Switch(switch)));
    let here = |wake: &Wake| wake.cpu.or(first) == Some(cpu);
    let wakes = wakes.into_iter().filter(here);
    let wakes = wakes.map(|wake| (wake.ns, Event::Wake(wake)));
    let mut events: Vec<(u64, Event)> = switches.chain(wakes).collect();
    // A thread is woken before it runs.
    events.sort_by_key(|(ns, event)| (*ns, matches!(event, Event::Switch(_))));
    let names = tracks
        .threads
        .iter()
        .map(|track| (track.id, comm(&track.name)));
    let mut names: std::collections::HashMap<u64, [u8; COMM]> = names.collect();
    names.insert(tracks.other, comm(OTHER));
    let name = |id: u64| names.get(&id).copied().unwrap_or_default();
    let mut stream = Stream::new(out, 0, cpu);
    for (ns, event) in events {
        match event {
            Event::Switch(switch) => stream.event(Id::Switch, ns, |bytes| {
                let ((from, state), to) = (switch.from, switch.to);
                bytes.extend(name(from));
                number(bytes, from);
                bytes.extend(PRIORITY.to_le_bytes());
                bytes.extend(state.to_le_bytes());
                bytes.extend(name(to));
                number(bytes, to);
                bytes.extend(PRIORITY.to_le_bytes());
            })?,
            Event::Wake(wake) => stream.event(Id::Wakeup, ns, |bytes| {
                bytes.extend(name(wake.id));
                number(bytes, wake.id);
                bytes.extend(PRIORITY.to_le_bytes());
                bytes.extend(wake.cpu.unwrap_or(cpu).to_le_bytes());
                number(bytes, wake.waker);
            })?,
        }
    }
    stream.finish()
}

/// Writes what only Unspool knows.
fn threads(model: &Model, tracks: &Tracks, out: &mut dyn Write) -> Result<(), Error> {
    enum Event {
        Creates(ThreadIndex, ThreadIndex),
        Starts(ThreadIndex),
        Ends(ThreadIndex),
        WaitBegin(WaitSpan),
        WaitEnd(WaitSpan),
        HoldBegin(HoldSpan),
        HoldEnd(HoldSpan),
        Finding(usize, Option<ThreadIndex>),
    }
    let mut events: Vec<(u64, Event)> = Vec::new();
    for (index, thread) in model.any_threads().enumerate() {
        let this = ThreadIndex(index);
        if let Some((creator, ns)) = tracks::creation(model, this) {
            events.push((ns, Event::Creates(creator, this)));
        }
        let first_ns = thread.started_ns.or(thread.created_ns);
        events.extend(first_ns.map(|ns| (ns, Event::Starts(this))));
        events.extend(thread.ended_ns.map(|ns| (ns, Event::Ends(this))));
    }
    let waits = tracks::waits(model);
    for wait in waits.iter().flatten() {
        events.push((wait.from_ns, Event::WaitBegin(*wait)));
        events.push((wait.to_ns, Event::WaitEnd(*wait)));
    }
    for hold in model.sync.journal.iter().flat_map(|journal| &journal.holds) {
        events.push((hold.from_ns, Event::HoldBegin(*hold)));
        events.push((hold.to_ns.max(hold.from_ns), Event::HoldEnd(*hold)));
    }
    for (index, finding) in model.findings.iter().enumerate() {
        let (ns, thread) = tracks::time_of(model, &waits, finding);
        events.push((ns, Event::Finding(index, thread)));
    }
    events.sort_by_key(|(ns, _)| *ns);
    let texts = Texts::of(model);
    let id = |thread: ThreadIndex| tracks.threads.get(thread.0).map_or(0, |track| track.id);
    let name = |thread: ThreadIndex| {
        let track = tracks.threads.get(thread.0);
        track.map_or("", |track| track.name.as_str())
    };
    let mut stream = Stream::new(out, 1, 0);
    for (ns, event) in events {
        match event {
            Event::Creates(creator, child) => stream.event(Id::Creates, ns, |bytes| {
                let stack = model.thread(child).and_then(|child| child.creation_stack());
                let place = stack.and_then(|stack| stack.frames.first());
                number(bytes, id(creator));
                number(bytes, id(child));
                text(bytes, name(child));
                text(
                    bytes,
                    &place.map(crate::model::sync::place).unwrap_or_default(),
                );
            })?,
            Event::Starts(thread) => stream.event(Id::Starts, ns, |bytes| {
                let track = tracks.threads.get(thread.0);
                let key = model.thread(thread).map(|thread| thread.key.to_string());
                number(bytes, id(thread));
                number(bytes, track.map_or(0, |track| tracks.pid(track)));
                text(bytes, name(thread));
                text(bytes, &key.unwrap_or_default());
            })?,
            Event::Ends(thread) => {
                stream.event(Id::Ends, ns, |bytes| number(bytes, id(thread)))?;
            }
            Event::WaitBegin(wait) => stream.event(Id::WaitBegin, ns, |bytes| {
                let facts = texts.facts(tracks, &wait);
                let facts: Vec<String> = facts
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect();
                number(bytes, id(wait.thread));
                text(bytes, texts.object(wait.used));
                text(bytes, &facts.join("; "));
            })?,
            Event::WaitEnd(wait) => stream.event(Id::WaitEnd, ns, |bytes| {
                number(bytes, id(wait.thread));
                text(bytes, texts.object(wait.used));
                text(bytes, model.sync.used(wait.used).waiting.as_str());
                bytes.extend(wait.to_ns.saturating_sub(wait.from_ns).to_le_bytes());
                number(bytes, wait.waker.map_or(0, id));
            })?,
            Event::HoldBegin(hold) => stream.event(Id::HoldBegin, ns, |bytes| {
                number(bytes, id(hold.thread));
                text(bytes, texts.object(hold.taken));
            })?,
            Event::HoldEnd(hold) => stream.event(Id::HoldEnd, ns, |bytes| {
                number(bytes, id(hold.thread));
                text(bytes, texts.object(hold.taken));
                bytes.extend(hold.to_ns.saturating_sub(hold.from_ns).to_le_bytes());
            })?,
            Event::Finding(index, thread) => stream.event(Id::Finding, ns, |bytes| {
                let finding = &model.findings[index];
                number(bytes, thread.map_or(0, id));
                text(bytes, finding.kind.as_str());
                text(bytes, &finding_text::text(model, finding));
            })?,
        }
    }
    stream.finish()
}

/// One file of events, written packet by packet.
struct Stream<'o> {
    out: &'o mut dyn Write,
    id: u32,
    cpu: u32,
    packet: Vec<u8>,
    begin_ns: u64,
    end_ns: u64,
    written: bool,
}

impl Stream<'_> {
    fn new(out: &mut dyn Write, id: u32, cpu: u32) -> Stream<'_> {
        Stream {
            out,
            id,
            cpu,
            packet: Vec::new(),
            begin_ns: 0,
            end_ns: 0,
            written: false,
        }
    }

    /// Adds an event, which is not earlier than the one before.
    fn event(&mut self, id: Id, ns: u64, fill: impl FnOnce(&mut Vec<u8>)) -> Result<(), Error> {
        if self.packet.is_empty() {
            self.begin_ns = ns;
        }
        self.end_ns = ns;
        self.packet.extend((id as u16).to_le_bytes());
        self.packet.extend(ns.to_le_bytes());
        fill(&mut self.packet);
        match self.packet.len() >= PACKET {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<(), Error> {
        let bits = 8 * (HEAD + self.packet.len()) as u64;
        let mut head = Vec::with_capacity(HEAD);
        head.extend(MAGIC.to_le_bytes());
        head.extend(self.id.to_le_bytes());
        for number in [self.begin_ns, self.end_ns, bits, bits] {
            head.extend(number.to_le_bytes());
        }
        head.extend(self.cpu.to_le_bytes());
        self.out.write_all(&head)?;
        self.out.write_all(&self.packet)?;
        self.packet.clear();
        self.written = true;
        Ok(())
    }

    /// Writes the last packet. A file without events has one empty packet.
    fn finish(mut self) -> Result<(), Error> {
        match self.packet.is_empty() && self.written {
            true => Ok(()),
            false => self.flush(),
        }
    }
}

/// A thread's id, which is below 2^31.
fn number(bytes: &mut Vec<u8>, id: u64) {
    bytes.extend((id as u32).to_le_bytes());
}

/// A string of the format ends with a zero.
fn text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend(text_of(text).as_bytes());
    bytes.push(0);
}

fn text_of(text: &str) -> String {
    clean(text).replace('\0', "")
}

/// A name of at most 15 bytes, cut between characters and padded with zeros.
fn comm(name: &str) -> [u8; COMM] {
    let mut comm = [0; COMM];
    let name = text_of(name);
    let cut = (0..COMM)
        .rev()
        .find(|end| name.is_char_boundary((*end).min(name.len())));
    let name = &name.as_bytes()[..cut.unwrap_or(0).min(name.len())];
    comm[..name.len()].copy_from_slice(name);
    comm
}
