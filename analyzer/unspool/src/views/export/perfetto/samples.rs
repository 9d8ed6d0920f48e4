//! CPU samples as packets of Perfetto's profiler.
//!
//! Strings, mappings, frames and stacks are "interned data": a packet refers to them by number, and
//! each is written once, in the packet of the first sample that needs it. Only their numbers stay
//! in memory.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use super::super::exporter::Error;
use super::super::protobuf::Message;
use super::super::tracks;
use super::{Trace, field};
use crate::model::profile::Profile;
use crate::model::{Backtrace, Model, Module, NamedFrame, Place};

/// `PerfEvents.Counter.SW_CPU_CLOCK`
const CPU_CLOCK: u64 = 1;
/// `Profiling.CpuMode`
const KERNEL_MODE: u64 = 1;
const USER_MODE: u64 = 2;
/// `Profiling.StackUnwindError.UNWIND_ERROR_UNKNOWN`
const UNWIND_ERROR: u64 = 0;

/// Adds what all samples have in common.
pub(super) fn defaults(profile: &Profile, packet: &mut Message) {
    if !profile.is_known() {
        return;
    }
    packet.message(field::PACKET_DEFAULTS, |defaults| {
        defaults.message(field::SAMPLE_DEFAULTS, |defaults| {
            defaults.message(field::TIMEBASE, |timebase| {
                timebase.number(field::TIMEBASE_PERIOD, profile.period_ns);
                timebase.number(field::TIMEBASE_COUNTER, CPU_CLOCK);
            });
        });
    });
}

impl Trace<'_> {
    pub(super) fn samples(&mut self) -> Result<(), Error> {
        let model = self.model;
        let profile = &model.profile;
        let mut interned = Interned::new(model);
        for sample in &profile.samples {
            let stack = profile.stack(sample);
            let data = interned.stack(sample.stack, stack);
            // A thread that the recording does not have keeps the kernel's id.
            let track = sample.thread.map(|thread| &self.tracks.threads[thread.0]);
            let tid = track.map_or(sample.tid, |track| track.id);
            let pid = self.tracks.processes[0].pid;
            self.packet(|packet| {
                packet.number(field::TIMESTAMP, sample.time_ns);
                if !data.is_empty() {
                    packet.bytes(field::INTERNED_DATA, &data);
                }
                packet.message(field::PERF_SAMPLE, |message| {
                    message.number(field::SAMPLE_CPU, sample.cpu.into());
                    message.number(field::SAMPLE_PID, pid);
                    message.number(field::SAMPLE_TID, tid);
                    // The format has no empty stacks.
                    if !stack.frames.is_empty() {
                        message.number(field::SAMPLE_CALLSTACK, number(sample.stack));
                    }
                    let mode = match sample.in_kernel {
                        true => KERNEL_MODE,
                        false => USER_MODE,
                    };
                    message.number(field::SAMPLE_CPU_MODE, mode);
                    if sample.is_cut || stack.truncated.is_some() {
                        message.number(field::SAMPLE_UNWIND_ERROR, UNWIND_ERROR);
                    }
                });
            })?;
        }
        let Some((_, to_ns)) = profile.span_ns.filter(|_| profile.lost > 0) else {
            return Ok(());
        };
        self.packet(|packet| {
            packet.number(field::TIMESTAMP, to_ns);
            packet.message(field::PERF_SAMPLE, |message| {
                message.number(field::SAMPLES_LOST, profile.lost);
            });
        })
    }
}

/// The number of an entry by its index. Numbers begin at 1.
fn number(index: usize) -> u64 {
    index as u64 + 1
}

/// Path and edition of a file.
type MappedFile = (Option<Arc<str>>, Option<Arc<str>>);

/// The numbers of the entries that were written.
struct Interned<'a> {
    model: &'a Model,
    names: HashMap<String, u64>,
    /// By path. A mapping, its path and its build-id have the same number.
    mappings: HashMap<MappedFile, u64>,
    /// By mapping, address and name. An inlined function has the address of the next frame.
    frames: HashMap<(u64, u64, u64), u64>,
    /// Per stack of the profile.
    has_stack: Vec<bool>,
}

impl Interned<'_> {
    fn new(model: &Model) -> Interned<'_> {
        Interned {
            model,
            names: HashMap::new(),
            mappings: HashMap::new(),
            frames: HashMap::new(),
            has_stack: vec![false; model.profile.stacks.len()],
        }
    }

    /// The entries that a stack needs and that were not yet written, with the stack itself.
    fn stack(&mut self, index: usize, stack: &Backtrace) -> Vec<u8> {
        let mut data = Message::default();
        if !std::mem::replace(&mut self.has_stack[index], true) {
            let outermost_first = stack.frames.iter().rev();
            let frames: Vec<u64> = outermost_first
                .map(|frame| self.frame(frame, &mut data))
                .collect();
            data.message(field::CALLSTACKS, |message| {
                message.number(field::INTERNED_ID, number(index));
                for frame in frames {
                    message.number(field::CALLSTACK_FRAMES, frame);
                }
            });
        }
        data.into_bytes()
    }

    fn frame(&mut self, frame: &NamedFrame, data: &mut Message) -> u64 {
        let place = &frame.place;
        let mapping = self.mapping(place, data);
        let text = tracks::function(place);
        let (name, is_new) = numbered(&mut self.names, text.clone());
        if is_new {
            string(data, field::FUNCTION_NAMES, name, text.as_bytes());
        }
        // Addresses in files are the same in every run.
        let address = place.svma.unwrap_or(place.avma);
        let (id, is_new) = numbered(&mut self.frames, (mapping, address, name));
        if is_new {
            data.message(field::FRAMES, |message| {
                message.number(field::INTERNED_ID, id);
                message.number(field::FRAME_NAME, name);
                message.number(field::FRAME_MAPPING, mapping);
                message.number(field::FRAME_ADDRESS, address);
            });
        }
        id
    }

    /// The number of a mapping. The format demands one even for an unknown file. It has no range:
    /// frames have their addresses in the file, and the trace processor ends at a range without an
    /// end, which the model does not have.
    fn mapping(&mut self, place: &Place, data: &mut Message) -> u64 {
        let file = (place.module.clone(), place.edition.clone());
        let (id, is_new) = numbered(&mut self.mappings, file);
        if is_new {
            let path = place.module.as_deref();
            let edition = place.edition.as_ref();
            let module = path.and_then(|path| self.model.module(path, edition));
            let build_id = module.and_then(Module::id);
            let path = path.unwrap_or("[unknown]");
            string(data, field::MAPPING_PATHS, id, path.as_bytes());
            if let Some(build_id) = &build_id {
                string(data, field::BUILD_IDS, id, build_id.as_bytes());
            }
            data.message(field::MAPPINGS, |message| {
                message.number(field::INTERNED_ID, id);
                if build_id.is_some() {
                    message.number(field::MAPPING_BUILD_ID, id);
                }
                message.number(field::MAPPING_PATH, id);
            });
        }
        id
    }
}

/// The number of a key, and whether the key is new.
fn numbered<K: Eq + Hash>(known: &mut HashMap<K, u64>, key: K) -> (u64, bool) {
    let next = number(known.len());
    let id = *known.entry(key).or_insert(next);
    (id, id == next)
}

fn string(data: &mut Message, kind: u32, id: u64, text: &[u8]) {
    data.message(kind, |message| {
        message.number(field::INTERNED_ID, id);
        message.bytes(field::INTERNED_TEXT, text);
    });
}
