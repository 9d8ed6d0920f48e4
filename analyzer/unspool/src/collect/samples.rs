//! Writes the samples that the server sends to the capture. A stack that was recorded before is not
//! recorded again.

use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

use unspool_capture::{
    Chunk, OffCpuSample, OffCpuSamples, Sample, Samples, SamplesEdge, Severity, Snapshot,
};
use unspool_rsp::{OffCpuSampling, Sampling, TimerSampling};
use unspool_unwind::{MemoryGap, Provenance, Stack, StackMemory};

use super::error::Error;
use super::hits::snapshot_of;
use super::modules::Modules;
use super::options::CpuSamples;
use super::server_clock::ServerClock;
use super::session::Session;
use super::sink::Sink;
use super::stack_walk::StackWalker;
use crate::platform::STUB_CODE;
use crate::platform::abi::Abi;

/// Maximum number of unread bytes between two ranges that form one chunk. A second chunk would need
/// an address of its own.
const MAX_GAP: usize = 16;

/// Maximum number of program counters that are kept, 16 bytes each.
const MAX_KEPT: usize = 4 << 20;

/// Maximum number of bytes of the stack of a thread that blocks. The kernel reserves them
/// for each sample. The main loop of libuv waits with 12 KiB in one frame.
const MAX_OFF_CPU_STACK: u32 = 24 << 10;

/// Maximum number of samples per second of threads that block.
const MAX_OFF_CPU_RATE: u32 = 4000;

/// The recording of CPU samples.
#[derive(Debug, Default)]
pub(super) struct SampleRecording {
    /// The server sends samples.
    is_on: bool,
    /// The reason why the server takes the samples by a timer.
    by_timer: Option<String>,
    /// Maximum number of bytes of the stack in an off-CPU sample.
    off_cpu_stack: u32,
    /// The numbers of the stacks that were recorded since the last change of modules, by their
    /// program counters.
    numbers: HashMap<StackKey, u32>,
    /// Number of program counters in `numbers`.
    kept: usize,
    /// Number of recorded stacks.
    count: u32,
    last_ns: u64,
}

/// Program counters with their provenance, and whether the stack is complete.
pub(super) type StackKey = (Vec<(u64, Provenance)>, bool);

impl SampleRecording {
    /// Makes the server send samples if they are wanted. Notes the reason if it cannot.
    pub(super) fn begin(
        &mut self,
        session: &mut Session,
        sink: &mut Sink,
        wanted: Option<CpuSamples>,
    ) -> Result<(), Error> {
        let Some(wanted) = wanted else {
            return Ok(());
        };
        let edge = match session.client.begin_samples(wanted.hz, wanted.stack)? {
            Sampling::Begun { kernel: true, .. } => SamplesEdge::Begins,
            Sampling::Begun { .. } => SamplesEdge::BeginsInUserMode,
            Sampling::Refused(reason) => {
                let client = &mut session.client;
                if client.begin_timer_samples(wanted.hz, wanted.stack)? != TimerSampling::Begun {
                    let text = format!("There are no CPU samples: {reason}");
                    sink.note(Severity::Warning, text);
                    return Ok(());
                }
                let text = format!(
                    "The stub's timer took the CPU samples, and stopped a thread for each, because \
                     {reason}"
                );
                sink.note(Severity::Info, text);
                self.by_timer = Some(reason);
                SamplesEdge::BeginsByTimer
            }
            _ => {
                let text = "There are no CPU samples: only unspool-stub takes them";
                sink.note(Severity::Warning, text);
                return Ok(());
            }
        };
        self.is_on = true;
        self.off_cpu_stack = wanted.stack.min(MAX_OFF_CPU_STACK);
        self.last_ns = sink.now_ns();
        sink.record(Samples {
            time_ns: self.last_ns,
            edge: edge.into(),
            period_ns: 1_000_000_000 / u64::from(wanted.hz),
            ..Samples::default()
        });
        Ok(())
    }

    /// Makes the server also sample threads that block, if it can. Otherwise records the
    /// reason.
    pub(super) fn begin_off_cpu(
        &mut self,
        session: &mut Session,
        sink: &mut Sink,
    ) -> Result<(), Error> {
        if !self.is_on {
            return Ok(());
        }
        let stack = self.off_cpu_stack;
        let client = &mut session.client;
        let refusal = match &self.by_timer {
            Some(reason) => reason.clone(),
            None => match client.begin_off_cpu_samples(stack, MAX_OFF_CPU_RATE)? {
                OffCpuSampling::Begun { .. } => String::new(),
                OffCpuSampling::Refused(reason) => reason,
                _ => "the target's unspool-stub is too old, so update it".to_owned(),
            },
        };
        sink.record(Samples {
            time_ns: sink.now_ns(),
            off_cpu: Some(OffCpuSamples {
                refusal,
                ..OffCpuSamples::default()
            }),
            ..Samples::default()
        });
        Ok(())
    }

    /// True while the server sends samples.
    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Forgets all stacks after a module was mapped or unmapped, since addresses change their
    /// meaning.
    pub(super) fn forget_stacks(&mut self) {
        self.numbers.clear();
        self.kept = 0;
    }

    /// Ends the samples. The server has sent all of them.
    pub(super) fn close(&mut self, sink: &mut Sink) {
        if std::mem::take(&mut self.is_on) {
            sink.record(Samples {
                time_ns: sink.now_ns().max(self.last_ns),
                edge: SamplesEdge::Ends.into(),
                ..Samples::default()
            });
        }
    }

    /// Records the samples that the server has sent.
    pub(super) fn record(
        &mut self,
        sink: &mut Sink,
        (abi, modules, walker): (&Abi, &Modules, &mut StackWalker),
        clock: &ServerClock,
        sent: unspool_rsp::Samples,
        since: Duration,
    ) {
        let mut record = Samples {
            time_ns: self.last_ns,
            lost: sent.lost,
            ..Samples::default()
        };
        let mut off_cpu = OffCpuSamples {
            lost: sent.lost_off_cpu,
            ..OffCpuSamples::default()
        };
        let mut last_off_cpu_ns = record.time_ns;
        for sample in sent.samples {
            let registers = abi.traced(&sample.registers);
            let mut memory = SampledStack::new(sample.sp, sample.stack);
            let walked = walker.walk(modules, &abi.register_file(&registers), &mut memory);
            // The stub's own code has no unwind rules, so a read beyond the end says nothing.
            let in_stub = walked.frames.first().and_then(|frame| modules.at(frame.pc));
            let in_stub = in_stub.is_some_and(|mapped| mapped.path == STUB_CODE);
            let is_cut = sample.is_cut && memory.is_short && !in_stub;
            if self.kept > MAX_KEPT {
                // A stack that comes again gets another number.
                self.forget_stacks();
            }
            let key = key(&walked);
            let depth = key.0.len();
            let number = *self.numbers.entry(key).or_insert_with(|| {
                self.kept += depth;
                record.new_stacks.push(Snapshot {
                    chunks: memory.into_chunks(),
                    ..snapshot_of(&registers)
                });
                self.count += 1;
                self.count - 1
            });
            let time_ns = clock.sent(Some(sample.server_ns), since);
            if sample.is_off_cpu {
                let taken = OffCpuSample {
                    time_ns,
                    tid: sample.tid,
                    stack: number,
                    is_cut,
                };
                last_off_cpu_ns = off_cpu.push(last_off_cpu_ns, taken);
                continue;
            }
            let taken = Sample {
                time_ns,
                tid: sample.tid,
                cpu: sample.cpu,
                stack: number,
                in_kernel: sample.in_kernel,
                is_cut,
            };
            self.last_ns = record.push(self.last_ns, taken);
        }
        if off_cpu.lost > 0 || !off_cpu.tids.is_empty() {
            record.off_cpu = Some(off_cpu);
        }
        if record.lost > 0 || !record.tids.is_empty() || record.off_cpu.is_some() {
            sink.record(record);
        }
    }
}

pub(super) fn key(stack: &Stack) -> StackKey {
    let frames = stack.frames.iter();
    let frames = frames.map(|frame| (frame.pc, frame.provenance));
    (frames.collect(), stack.end.is_complete())
}

/// A sample's stack. Notes the bytes that unwinding reads.
pub(super) struct SampledStack {
    address: u64,
    bytes: Vec<u8>,
    read: Vec<Range<usize>>,
    /// Unwinding read beyond the end.
    is_short: bool,
}

impl SampledStack {
    pub(super) fn new(address: u64, bytes: Vec<u8>) -> SampledStack {
        SampledStack {
            address,
            bytes,
            read: Vec::new(),
            is_short: false,
        }
    }

    /// The offsets of the words of `size` bytes that unwinding read.
    pub(super) fn words_read(&self, size: usize) -> impl Iterator<Item = usize> {
        let words = self.read.iter().filter(move |range| range.len() == size);
        words.map(|range| range.start)
    }

    pub(super) fn into_chunks(mut self) -> Vec<Chunk> {
        self.read.sort_unstable_by_key(|range| range.start);
        let mut merged: Vec<Range<usize>> = Vec::new();
        for range in self.read {
            match merged.last_mut() {
                Some(last) if range.start <= last.end + MAX_GAP => {
                    last.end = last.end.max(range.end);
                }
                _ => merged.push(range),
            }
        }
        let chunk = |range: Range<usize>| Chunk {
            address: self.address.wrapping_add(range.start as u64),
            bytes: self.bytes[range].to_vec(),
        };
        merged.into_iter().map(chunk).collect()
    }
}

impl StackMemory for SampledStack {
    fn read(&mut self, avma: u64, buf: &mut [u8]) -> Result<(), MemoryGap> {
        let start = avma.checked_sub(self.address);
        let start = start.and_then(|start| usize::try_from(start).ok());
        let range = start.and_then(|start| Some(start..start.checked_add(buf.len())?));
        let Some(range) = range else {
            return Err(MemoryGap { avma });
        };
        let Some(bytes) = self.bytes.get(range.clone()) else {
            self.is_short |= range.start >= self.bytes.len();
            return Err(MemoryGap { avma });
        };
        buf.copy_from_slice(bytes);
        self.read.push(range);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bytes_that_unwinding_read_are_kept() {
        let mut stack = SampledStack::new(1000, (0..200).collect());
        let mut word = [0; 8];
        for at in [1150, 1000, 1024] {
            stack.read(at, &mut word).unwrap();
        }
        assert!(!stack.is_short);
        assert!(stack.read(1300, &mut word).is_err());
        assert!(stack.read(900, &mut word).is_err());
        assert!(stack.is_short);
        let chunks = stack.into_chunks();
        let [first, second] = &chunks[..] else {
            panic!("{chunks:?}");
        };
        assert_eq!((first.address, first.bytes.len()), (1000, 32));
        assert_eq!((second.address, second.bytes.len()), (1150, 8));
        assert_eq!(second.bytes[0], 150);
    }
}
