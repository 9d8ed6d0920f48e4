//! The stacks of threads that create threads, in the descendants of the process or also in itself.
//!
//! A program in the kernel chooses these threads: it follows the creations of processes. Events
//! that threads inherit would cost each thread that the descendants create 45 us. Events that
//! sample each creation of the system take room in the rings, and time of programs that are not
//! recorded; they are used where the kernel runs no such program.

use std::ffi::CStr;
use std::os::fd::OwnedFd;

use nix::errno::Errno;

use crate::arch;
use crate::sys::bpf::{Helper, Instruction as I, Map, Outputs, Program};
use crate::sys::perf::{self, SampledStack};
use crate::sys::tracefs::Tracepoints;
use crate::thread_events::{RingLimits, ThreadEvents, sample};

use super::record::{CreationStack, Event, Parsed, Record};

/// The rings' sizes, in bytes. Each has room for eight stacks at least.
const RINGS: RingLimits = RingLimits {
    total: 16 << 20,
    most: 8 << 20,
    least: 256 << 10,
};
const SAMPLED: SampledStack = SampledStack {
    period_ns: 1,
    registers: arch::SAMPLED,
    // The kernel reserves it for each, so that larger ones fill the rings of a program that creates
    // thousands of threads.
    stack: 24 << 10,
    in_kernel: true,
};
/// Maximum size of a record in bytes.
pub(super) const MAX_RECORD: usize = SAMPLED.stack as usize + 512;

const TRACEPOINT: &str = "task/task_newtask";
const CREATES_THREAD: &CStr = c"clone_flags & 65536";
const CLONE_THREAD: i32 = 65536;

/// Maximum number of descendants that the program in the kernel knows. It forgets those that have
/// created nothing for longest.
const MAX_DESCENDANTS: u32 = 4096;

/// Events that sample the threads that create threads.
pub(super) struct Creations {
    pub(super) events: ThreadEvents,
    /// It writes the samples. Without it, the events sample all threads of the system.
    pub(super) program: Option<Program>,
}

impl Creations {
    /// Opens the events. `None` where the kernel refuses: only these stacks are missing then.
    /// With `own`, also those of the process itself.
    pub(super) fn open(process: u32, tracepoints: &Tracepoints, own: bool) -> Option<Creations> {
        of_descendants(process, tracepoints, own).or_else(|| of_system(tracepoints))
    }
}

fn of_descendants(process: u32, tracepoints: &Tracepoints, own: bool) -> Option<Creations> {
    // The program would see other ids than this process.
    super::is_in_first_namespace().then_some(())?;
    let open = |_, cpu, _, watermark| perf::open_output(cpu, watermark, SAMPLED);
    let events = ThreadEvents::open_for_processors(RINGS, &open).ok()?;
    let fields = [
        tracepoints.offset(TRACEPOINT, "clone_flags")?,
        tracepoints.offset(TRACEPOINT, "pid")?,
    ];
    let tracepoint = perf::open_for_program(tracepoints.id(TRACEPOINT)?).ok()?;
    Some(Creations {
        program: Some(program((process, own), &events, tracepoint, fields).ok()?),
        events,
    })
}

fn of_system(tracepoints: &Tracepoints) -> Option<Creations> {
    let tracepoint = (tracepoints.id(TRACEPOINT)?, CREATES_THREAD);
    let open = |tid, cpu, threads_only, watermark| {
        perf::open_tracepoint_samples(tid, cpu, threads_only, watermark, tracepoint, SAMPLED)
    };
    Some(Creations {
        events: ThreadEvents::open_for_processors(RINGS, &open).ok()?,
        program: None,
    })
}

/// Runs the program that follows the descendants of a process, and samples those of their threads
/// that create threads. With `own`, it also samples the process itself. `flags` and `created` are
/// positions in the tracepoint's data. Other users of the tracepoint do not notice it.
fn program(
    (process, own): (u32, bool),
    events: &ThreadEvents,
    tracepoint: OwnedFd,
    [flags, created]: [usize; 2],
) -> Result<Program, Errno> {
    // The registers that calls keep, and the end of the stack.
    const DATA: u8 = 6;
    const CREATOR: u8 = 7;
    const FLAGS: u8 = 8;
    const CREATED: u8 = 9;
    const STACK: u8 = 10;
    // Two words of the stack.
    const KEY: i16 = -4;
    const VALUE: i16 = -8;
    const CURRENT_PROCESSOR: i32 = -1;
    const ALWAYS: i32 = 0;

    let process = process as i32;
    let descendants = Map::words(MAX_DESCENDANTS)?;
    let outputs = Outputs::new(perf::processors())?;
    for (processor, ring) in events.by_processor() {
        outputs.put(processor, ring.event())?;
    }
    let place = |to, offset: i16| [I::copy(to, STACK), I::add(to, offset.into())];
    let length = |instructions: &[I]| instructions.len() as i16;
    // With another result, the events of others would not record the creation.
    let end = [I::set(0, 1), I::exit()];
    let add_process = [
        &[
            I::store(STACK, KEY, CREATED),
            I::store(STACK, VALUE, CREATED),
        ][..],
        &I::load_map(1, &descendants),
        &place(2, KEY),
        &place(3, VALUE),
        &[I::set(4, ALWAYS), I::call(Helper::Update)],
        &end,
    ]
    .concat();
    let sample = [
        &[I::copy(1, DATA)][..],
        &I::load_outputs(2, &outputs),
        &[I::set(3, CURRENT_PROCESSOR)],
        &place(4, KEY),
        &[I::set(5, size_of::<u32>() as i32), I::call(Helper::Output)],
    ]
    .concat();
    let only_others = [I::skip_if_equal(CREATOR, process, length(&sample))];
    let of_family = [
        &[I::load(FLAGS, DATA, flags as i16)][..],
        &[I::load(CREATED, DATA, created as i16)],
        &[I::skip_if_set(FLAGS, CLONE_THREAD, length(&add_process))],
        &add_process,
        if own { &[] } else { &only_others[..] },
        &sample,
    ]
    .concat();
    let find = [
        &[I::store(STACK, KEY, CREATOR)][..],
        &I::load_map(1, &descendants),
        &place(2, KEY),
        &[I::call(Helper::Lookup)],
        &[I::skip_if_equal(0, 0, length(&of_family))],
    ]
    .concat();
    let instructions = [
        &[I::copy(DATA, 1)][..],
        &[I::call(Helper::CurrentIds), I::shift_right(0, 32)],
        &[I::copy(CREATOR, 0)],
        &[I::skip_if_equal(CREATOR, process, length(&find))],
        &find,
        &of_family,
        &end,
    ]
    .concat();
    Program::run(tracepoint, &instructions, descendants, outputs)
}

/// Parses the sample of a thread that has created another one.
pub(super) fn parse(bytes: &[u8]) -> Option<Parsed> {
    let Some(sample::Record::Sample(sample)) = sample::parse(bytes) else {
        return None;
    };
    // Without registers, it is a program of the other size.
    (!sample.registers.is_empty()).then_some(())?;
    let creation = CreationStack {
        registers: sample.packet(),
        sp: sample.sp(),
        stack: sample.stack.to_vec(),
    };
    let record = Record {
        time_ns: sample.time_ns,
        tid: sample.tid,
        cpu: sample.cpu,
        event: Event::Creation(Box::new(creation)),
    };
    Some(Parsed::Record(sample.pid, record))
}
