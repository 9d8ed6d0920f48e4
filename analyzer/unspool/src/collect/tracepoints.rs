//! Recording by tracepoints: the server notes a hit by itself and sends it later, nothing waits for us.
//!
//! A frame holds what a stop would have brought: registers, the whole stack, what the arguments point to. Where
//! the stack is too long for that, the thread stops after all, and is looked at as at a breakpoint.

use std::time::Duration;

use unspool_capture::{
    Chunk, Dropped, Event, Gap, GapKind, Missed, ProbeKind, Read, ReadRole, ShortStops, Snapshot,
    StallCause, Stood,
};
use unspool_rsp::{Client, Notice, Registers, ThreadId, TraceAction, TraceFrame, TraceMark};
use unspool_unwind::RegisterFile;

use super::Error;
use super::abi::Abi;
use super::bytecode::*;
use super::calls::listed_functions;
use super::collected_stack::CollectedStack;
use super::hits::{self, ATTR, STATE};
use super::probes::{Planted, Purpose};
use super::recorder::Recorder;

/// The longest stack that is noted whole; a longer one is looked at while its thread stands.
const LONGEST_STACK: u16 = 0x4000;
/// What may wait to be sent: on this machine, for we may not run for a while when it is busy; and on one that may be small,
/// of calls, which come in bursts that nobody reads as fast as they come. Otherwise it is the server's choice.
const BUFFER: u32 = 128 << 20;
const CALLS_ELSEWHERE: u32 = 4 << 20;
/// The kernel's names have 15 bytes and a zero.
const NAME: u8 = 16;

/// So many functions are named in a note.
const MAX_NAMES: usize = 3;

/// What our stub sees at a hit (docs/reference/protocol.md, "Tracepoints"), in the order of their numbers.
/// Those without `trace_` are ours: what is collected at the end of a call.
const VARIABLES: [&str; 8] = [
    "trace_time",
    "trace_thread",
    "trace_stack_left",
    "trace_stop",
    "result",
    "stack_pointer",
    "flags",
    "trace_needed",
];
pub(super) const TIME: usize = 0;
pub(super) const THREAD: usize = 1;
pub(super) const STACK_LEFT: usize = 2;
const STOP: usize = 3;
pub(super) const RESULT: usize = 4;
pub(super) const SP: usize = 5;
pub(super) const FLAGS: usize = 6;
const NEEDED: usize = 7;

/// What is collected at a place.
pub(super) fn actions(abi: &Abi, purpose: Purpose, function: &str) -> Vec<TraceAction> {
    let mut actions = vec![
        TraceAction::Registers(abi.trace_registers()),
        TraceAction::Expression(vec![
            TRACEV,
            0,
            number(TIME),
            TRACEV,
            0,
            number(THREAD),
            END,
        ]),
    ];
    match purpose {
        Purpose::Probe {
            kind: ProbeKind::Create,
            ..
        } => {
            actions.push(TraceAction::Expression(stack(abi.sp_number())));
            let [high, low] = abi.argument_number(1).to_be_bytes();
            let attr = vec![REG, high, low, CONST8, ATTR as u8, TRACE, END];
            actions.push(TraceAction::Expression(attr));
            // Whatever it is. Where the thread will begin is known later.
            let [high, low] = abi.argument_number(3).to_be_bytes();
            let argument = vec![REG, high, low, CONST8, STATE as u8, TRACE, END];
            actions.push(TraceAction::Expression(argument));
        }
        Purpose::Name => {
            let [high, low] = abi.argument_number(1).to_be_bytes();
            actions.push(TraceAction::Expression(vec![
                REG, high, low, CONST8, NAME, TRACENZ, END,
            ]));
        }
        // Only an observer traces it: the thread waits until it has been followed (`observer`).
        Purpose::Linker | Purpose::Resolver => {
            actions.push(TraceAction::Expression(set(STOP)));
        }
        Purpose::Exec | Purpose::Probe { .. } => {}
    }
    if is_needed(purpose, function) {
        actions.push(TraceAction::Expression(set(NEEDED)));
    }
    actions
}

/// Whether nothing else can tell what a hit does: it is never paused and never dropped. A thread
/// is created, joined, detached and mostly named once; what may be tried again and again can wait.
fn is_needed(purpose: Purpose, function: &str) -> bool {
    match purpose {
        Purpose::Name => true,
        Purpose::Probe { kind, .. } => match kind {
            ProbeKind::Create | ProbeKind::Detach => true,
            ProbeKind::Join => function == "pthread_join",
            _ => false,
        },
        _ => false,
    }
}

/// The whole stack, or a stop if it is too long.
fn stack(sp: u16) -> Vec<u8> {
    let [high, low] = LONGEST_STACK.to_be_bytes();
    let [sp_high, sp_low] = sp.to_be_bytes();
    let left = [GETV, 0, number(STACK_LEFT)];
    let mut code = vec![CONST16, high, low];
    code.extend(left);
    let jump = code.len();
    code.extend([LESS_UNSIGNED, IF_GOTO, 0, 0, REG, sp_high, sp_low]);
    code.extend(left);
    code.extend([TRACE, END]);
    code[jump + 3] = code.len() as u8;
    code.extend(set(STOP));
    code
}

/// Sets a variable to one.
fn set(index: usize) -> Vec<u8> {
    vec![CONST8, 1, SETV, 0, number(index), END]
}

pub(super) fn number(index: usize) -> u8 {
    Client::trace_variable(index) as u8
}

impl Recorder {
    /// Has the server note hits by itself, if it can. Nothing is planted yet.
    pub(super) fn begin_trace(&mut self) -> Result<(), Error> {
        let buffer = match (self.session.local, self.calls.are_wanted()) {
            (true, _) => Some(BUFFER),
            (false, true) => Some(CALLS_ELSEWHERE),
            (false, false) => None,
        };
        let lossless = self.at_any_cost;
        self.probes.tracing = self.by_tracepoints
            && self.session.tells_creators
            && self.session.client.trace(&VARIABLES, buffer, lossless)?;
        let fast = self.session.client.features().has("FastTracepoints");
        self.probes.fast = self.probes.tracing && self.by_jumps && fast;
        Ok(())
    }

    /// Notes what the server has told by itself.
    pub(super) fn hear(&mut self) {
        if !self.session.tells_creators {
            return;
        }
        let notices = self.session.client.take_notices();
        let heard = notices.iter().filter_map(|notice| match notice {
            Notice::Frame(frame) => Some((frame.sent_ns, frame.since)),
            Notice::Thread {
                sent_ns: Some(sent_ns),
                since,
                ..
            }
            | Notice::Schedule { sent_ns, since, .. } => Some((*sent_ns, *since)),
            _ => None,
        });
        self.clock.begin(self.sink.now_ns(), heard);
        for notice in notices {
            match notice {
                Notice::Thread {
                    notice,
                    sent_ns,
                    since,
                } => {
                    let sent_ns = self.clock.sent(sent_ns, since);
                    let pid = self.session.pid;
                    self.threads
                        .heard(&mut self.sink, pid, notice, sent_ns, &mut self.clock);
                }
                Notice::Frame(frame) => self.on_frame(frame),
                Notice::Mark { tracepoint, mark } => self.on_mark(tracepoint, mark),
                Notice::Dropped { tracepoint, count } => self.on_dropped(tracepoint, count),
                Notice::Missed {
                    tracepoint,
                    pauses,
                    paused,
                    hits,
                } => {
                    if let Some(probe) = self.probe_of(tracepoint) {
                        let time_ns = self.sink.now_ns();
                        self.sink.record(Missed {
                            probe,
                            pauses,
                            paused_ns: u64::try_from(paused.as_nanos()).unwrap_or(u64::MAX),
                            hits,
                            time_ns,
                        });
                    }
                }
                Notice::Stood {
                    from_ns,
                    to_ns,
                    since,
                } => {
                    self.note_stall(StallCause::Unspecified, from_ns, to_ns, since);
                }
                Notice::Halted {
                    from_ns,
                    to_ns,
                    since,
                } => self.note_stall(StallCause::Halted, from_ns, to_ns, since),
                Notice::Schedule { records, since, .. } => self.on_schedule(records, since),
                Notice::ShortStops { count, total } => {
                    self.short_stops = Some((count, total));
                }
                other => self.observed.push_back(other),
            }
        }
    }

    fn note_stall(&mut self, cause: StallCause, from_ns: u64, to_ns: u64, since: Duration) {
        let [from_ns, to_ns] = [from_ns, to_ns].map(|ns| self.clock.sent(Some(ns), since));
        self.sink.record(Stood {
            from_ns,
            to_ns,
            cause: cause.into(),
        });
    }

    /// Writes how long threads were stopped for moments that no record tells of by itself.
    pub(super) fn note_short_stops(&mut self) {
        if let Some((count, total)) = self.short_stops.take() {
            self.sink.record(ShortStops {
                time_ns: self.sink.now_ns(),
                count,
                total_ns: u64::try_from(total.as_nanos()).unwrap_or(u64::MAX),
            });
        }
    }

    fn on_frame(&mut self, frame: TraceFrame) {
        let Some(planted) = self.probes.traced(frame.tracepoint) else {
            return;
        };
        let value = |index| frame.variable(Client::trace_variable(index));
        let (Some(time), Some(tid)) = (value(TIME), value(THREAD)) else {
            return;
        };
        let sent_ns = self.clock.sent(Some(time.cast_unsigned()), frame.since);
        let time_ns = self.clock.time(sent_ns, Duration::ZERO);
        let thread = ThreadId {
            pid: self.session.pid,
            tid: tid.cast_unsigned(),
        };
        if self.session.local {
            self.threads
                .seen(&mut self.sink, &mut self.session, thread, false);
        }
        if let Purpose::Probe { id, kind } = planted.purpose
            && kind.is_of_calls()
        {
            return self.on_call_frame(thread, id, time_ns, frame);
        }
        let registers = self.session.abi.traced(&frame.registers);
        match planted {
            Planted {
                purpose: Purpose::Name,
                ..
            } => {
                let name = frame.memory.into_iter().next().map(|(_, bytes)| bytes);
                self.named(thread, time_ns, &registers, name);
            }
            Planted {
                purpose: Purpose::Probe { id, kind },
                ..
            } => self.traced(thread, id, kind, time_ns, registers, frame.memory),
            _ => {}
        }
    }

    fn named(
        &mut self,
        thread: ThreadId,
        time_ns: u64,
        registers: &Registers,
        name: Option<Vec<u8>>,
    ) {
        let end = |bytes: &[u8]| bytes.iter().position(|byte| *byte == 0);
        let name = name.and_then(|bytes| {
            let end = end(&bytes)?;
            Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
        });
        if let Some(name) = name
            && hits::names_itself(&self.session.abi, registers)
        {
            // Then, and not now: it may have ended meanwhile.
            self.threads
                .renamed_at(&mut self.sink, thread.tid, time_ns, name);
        }
    }

    fn traced(
        &mut self,
        thread: ThreadId,
        id: u32,
        kind: ProbeKind,
        time_ns: u64,
        registers: Registers,
        memory: Vec<(u64, Vec<u8>)>,
    ) {
        let abi = &self.session.abi;
        let mut event = Event {
            time_ns,
            tid: thread.tid,
            probe: id,
            ..Event::default()
        };
        let mut snapshot = Snapshot::of_registers(registers.bytes().to_vec(), registers.known());
        if kind == ProbeKind::Create {
            event.args = abi.args(&registers, 4).unwrap_or_default();
            let mut memory = memory.into_iter();
            let stack = memory
                .next()
                .map(|(address, bytes)| Chunk { address, bytes });
            let attr = event.args.get(1).copied();
            let attr = attr.filter(|attr| hits::plausible(*attr));
            let state = hits::state_at(&self.modules, abi, &event.args);
            let rest: Vec<(u64, Vec<u8>)> = memory.collect();
            for (role, at, size) in [
                (ReadRole::Attr, attr, ATTR),
                (ReadRole::State, state, STATE),
            ] {
                let here = |(address, _): &&(u64, Vec<u8>)| Some(*address) == at;
                if let Some((address, bytes)) = rest.iter().find(here) {
                    event.reads.push(Read {
                        role: role.into(),
                        address: *address,
                        bytes: bytes[..bytes.len().min(size)].to_vec(),
                    });
                }
            }
            let file: RegisterFile = abi.register_file(&registers);
            let mut noted = CollectedStack::new(stack);
            hits::walk_noting(&self.modules, &mut self.unusable, &file, &mut noted);
            snapshot.chunks = noted.into_chunks();
        } else {
            event.args = abi.args(&registers, 1).unwrap_or_default();
        }
        event.snapshot = Some(snapshot);
        event.seq = self.sink.next_event();
        self.sink.record(event);
    }

    fn probe_of(&self, tracepoint: u32) -> Option<u32> {
        match self.probes.traced(tracepoint)?.purpose {
            Purpose::Probe { id, .. } => Some(id),
            _ => None,
        }
    }

    fn on_mark(&mut self, tracepoint: u32, mark: TraceMark) {
        let kind = match mark {
            TraceMark::Paused => GapKind::Paused,
            TraceMark::Resumed => GapKind::Resumed,
            // Some, or whatever else a newer server means.
            _ => GapKind::Dropped,
        };
        if let Some(probe) = self.probe_of(tracepoint) {
            self.sink.record(Gap {
                probe,
                kind: kind.into(),
                time_ns: self.clock.last(),
            });
        }
    }

    /// Whether a tracepoint records calls that may be many. Threads seldom get a name, and a program
    /// seldom executes another.
    fn is_of_interest(&self, tracepoint: u32) -> bool {
        let planted = self.probes.traced(tracepoint);
        planted.is_none_or(|planted| matches!(planted.purpose, Purpose::Probe { .. }))
    }

    /// Takes in at how many places the server notes hits without a stop, and the tracepoints where it does not. At once: their functions are
    /// not known any more when the program has been let go.
    pub(super) fn note_how(&mut self, (jumps, mut traps): (usize, Vec<u32>)) {
        traps.retain(|number| self.is_of_interest(*number));
        let functions = self.probes.functions(&traps);
        self.places = NotedPlaces {
            jumps,
            traps: traps.len(),
            functions: functions.into_iter().map(str::to_owned).collect(),
        };
    }

    /// Says which calls the recording made slower: at a trap their thread stops. Only calls are so many that it matters.
    pub(super) fn note_places(&mut self) {
        let places = &self.places;
        let none = places.jumps == 0 && (places.traps == 0 || !self.probes.fast);
        if !self.calls.are_wanted() || none {
            return;
        }
        let text = noted_at(places, self.remedy());
        self.sink.note_calls(text);
    }

    /// How the user can avoid traps.
    fn remedy(&self) -> &'static str {
        let settable = self.session.client.features().has("QUnspoolBudget");
        match (self.at_any_cost, self.session.own_stub || settable) {
            (true, _) => "a jump does not fit there",
            (false, true) => "'--budget none' uses jumps for most",
            (false, false) => "a server started with '--budget none' uses jumps for most",
        }
    }

    fn on_dropped(&mut self, tracepoint: u32, count: u64) {
        if let Some(id) = self.probe_of(tracepoint) {
            let told = self.dropped.insert(id, count).unwrap_or(0);
            let time_ns = self.sink.now_ns();
            self.sink.record(Dropped {
                probe: id,
                count: count.saturating_sub(told),
                time_ns,
            });
        }
    }
}

/// How the server notes hits.
#[derive(Debug, Default)]
pub(super) struct NotedPlaces {
    /// Without a stop, at so many places.
    pub(super) jumps: usize,
    /// By traps, at so many.
    traps: usize,
    /// In these functions.
    functions: Vec<String>,
}

/// How calls were recorded, and what that cost the program.
fn noted_at(places: &NotedPlaces, remedy: &str) -> String {
    let (jumps, traps) = (places.jumps, places.traps);
    let all = jumps + traps;
    if traps == 0 {
        return format!("all {all} probes recorded calls without a stop");
    }
    // Those that a user has heard of come first.
    let own = |name: &String| !name.starts_with('_');
    let names = places.functions.iter();
    let mut names: Vec<String> = names
        .map(|name| unspool_image::function_name(name))
        .collect();
    names.sort_by_key(|name| !own(name));
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let named = listed_functions(&names, MAX_NAMES);
    format!(
        "each recorded call of {named} stopped its thread for about 0.1 ms ({traps} of {all} probes use traps; {remedy})"
    )
}

#[cfg(test)]
mod tests {
    use super::{NotedPlaces, noted_at};

    #[test]
    fn a_note_names_functions_with_traps() {
        let places = |jumps, traps, functions: &[&str]| NotedPlaces {
            jumps,
            traps,
            functions: functions.iter().map(|name| (*name).to_owned()).collect(),
        };
        assert_eq!(
            noted_at(&places(105, 0, &[]), "remedy"),
            "all 105 probes recorded calls without a stop"
        );
        let names = ["__aio_notify", "pthread_mutex_lock", "sem_post", "sem_wait"];
        let within_budget = noted_at(&places(105, 124, &names), "with '--budget none'");
        assert!(within_budget.starts_with(
            "each recorded call of pthread_mutex_lock, sem_post, sem_wait and one other function stopped its thread"
        ));
        assert!(within_budget.contains("124 of 229") && within_budget.contains("'--budget none'"));
        let no_room = noted_at(&places(0, 1, &["__clone"]), "no room");
        assert!(no_room.starts_with("each recorded call of __clone stopped its thread"));
        assert!(no_room.contains("1 of 1 probes") && no_room.contains("no room"));
    }
}
