//! The record of samples: CPU samples, and samples of threads that block.
//!
//! It is a table of columns. A sample has the number of its stack, because most samples repeat an
//! earlier stack.

use super::Snapshot;

/// CPU samples of threads. The fields 2 to 6 are the columns of one table.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Samples {
    /// The time to which the first sample's step is added.
    #[prost(uint64, tag = "1")]
    pub time_ns: u64,
    /// Nanoseconds since the previous sample; negative if that sample is later, on another
    /// processor.
    #[prost(sint64, repeated, tag = "2")]
    pub steps_ns: Vec<i64>,
    /// The threads.
    #[prost(uint64, repeated, tag = "3")]
    pub tids: Vec<u64>,
    /// The processors.
    #[prost(uint32, repeated, tag = "4")]
    pub cpus: Vec<u32>,
    /// The stacks, as indices into the `new_stacks` of all records of the capture.
    #[prost(uint32, repeated, tag = "5")]
    pub stacks: Vec<u32>,
    /// Bit 0: the thread ran in the kernel. Bit 1: the stack continues beyond the bytes that were
    /// copied.
    #[prost(uint32, repeated, tag = "6")]
    pub flags: Vec<u32>,
    /// Stacks that no earlier sample had since a module was last mapped or unmapped. Chunks have
    /// only the bytes that unwinding read.
    #[prost(message, repeated, tag = "7")]
    pub new_stacks: Vec<Snapshot>,
    /// Number of samples that are missing since the last record: the kernel had no buffer space for
    /// them, or the timer never found their threads running.
    #[prost(uint64, tag = "8")]
    pub lost: u64,
    /// Whether sampling begins or ends here.
    #[prost(enumeration = "SamplesEdge", tag = "9")]
    pub edge: i32,
    /// Interval of the samples, in nanoseconds of each thread's processor time. Present only in the
    /// record that begins sampling.
    #[prost(uint64, tag = "10")]
    pub period_ns: u64,
    /// Samples of threads that block. The first record with this field says whether they are taken.
    #[prost(message, optional, tag = "11")]
    pub off_cpu: Option<OffCpuSamples>,
}

/// Samples of threads that block. Older kernels also sample threads whose processor another
/// thread takes. Each belongs to the entry of the schedule in which its thread next stops.
/// The fields 1 to 4 are the columns of one table.
#[derive(Clone, PartialEq, prost::Message)]
pub struct OffCpuSamples {
    /// Nanoseconds since the previous sample; negative if that sample is later, on another
    /// processor. The first step is added to the time of the [`Samples`] record.
    #[prost(sint64, repeated, tag = "1")]
    pub steps_ns: Vec<i64>,
    /// The threads.
    #[prost(uint64, repeated, tag = "2")]
    pub tids: Vec<u64>,
    /// The stacks, as indices into the `new_stacks` of all [`Samples`] records of the capture.
    #[prost(uint32, repeated, tag = "3")]
    pub stacks: Vec<u32>,
    /// Bit 1: the stack continues beyond the bytes that were copied.
    #[prost(uint32, repeated, tag = "4")]
    pub flags: Vec<u32>,
    /// Number of samples that are missing since the last record, because the kernel's buffers were
    /// full or the rate was above the limit.
    #[prost(uint64, tag = "5")]
    pub lost: u64,
    /// The reason why no samples are taken, with what to change; empty if they are taken.
    #[prost(string, tag = "6")]
    pub refusal: String,
}

/// One sample of [`OffCpuSamples`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffCpuSample {
    /// Time of the sample.
    pub time_ns: u64,
    /// The thread.
    pub tid: u64,
    /// Index of the stack.
    pub stack: u32,
    /// Whether the stack continues beyond the bytes that were copied.
    pub is_cut: bool,
}

impl OffCpuSamples {
    /// Appends a sample after the time `last_ns`. Returns the new sample's time.
    pub fn push(&mut self, last_ns: u64, sample: OffCpuSample) -> u64 {
        self.steps_ns
            .push(sample.time_ns.wrapping_sub(last_ns).cast_signed());
        self.tids.push(sample.tid);
        self.stacks.push(sample.stack);
        self.flags.push(u32::from(sample.is_cut) << 1);
        sample.time_ns
    }
}

/// Whether sampling begins or ends with a [`Samples`] record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum SamplesEdge {
    /// Neither.
    Unspecified = 0,
    /// It begins at `time_ns`, and leaves out the time that threads spend in the kernel.
    BeginsInUserMode = 1,
    /// It begins at `time_ns`.
    Begins = 2,
    /// It ends at `time_ns`, after the samples.
    Ends = 3,
    /// It begins at `time_ns`, by a timer of the server, which cannot tell user mode from time in
    /// the kernel.
    BeginsByTimer = 4,
}

/// One sample of [`Samples`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Time of the sample.
    pub time_ns: u64,
    /// The thread.
    pub tid: u64,
    /// The processor.
    pub cpu: u32,
    /// Index of the stack.
    pub stack: u32,
    /// Whether the thread ran in the kernel.
    pub in_kernel: bool,
    /// Whether the stack continues beyond the bytes that were copied.
    pub is_cut: bool,
}

impl Samples {
    /// Appends a sample after the time `last_ns`. Returns the new sample's time.
    pub fn push(&mut self, last_ns: u64, sample: Sample) -> u64 {
        self.steps_ns
            .push(sample.time_ns.wrapping_sub(last_ns).cast_signed());
        self.tids.push(sample.tid);
        self.cpus.push(sample.cpu);
        self.stacks.push(sample.stack);
        self.flags
            .push(u32::from(sample.in_kernel) | u32::from(sample.is_cut) << 1);
        sample.time_ns
    }

    /// The samples. Their number is that of the shortest column.
    pub fn samples(&self) -> impl Iterator<Item = Sample> {
        let mut time_ns = self.time_ns;
        let places = self.tids.iter().zip(&self.cpus);
        let rest = self.stacks.iter().zip(&self.flags);
        let all = self.steps_ns.iter().zip(places).zip(rest);
        all.map(move |((step, (tid, cpu)), (stack, flags))| {
            time_ns = time_ns.wrapping_add(step.cast_unsigned());
            Sample {
                time_ns,
                tid: *tid,
                cpu: *cpu,
                stack: *stack,
                in_kernel: flags & 1 != 0,
                is_cut: flags & 2 != 0,
            }
        })
    }
}

impl Samples {
    /// The samples of threads that block. Their number is that of the shortest column.
    pub fn off_cpu_samples(&self) -> impl Iterator<Item = OffCpuSample> {
        let mut time_ns = self.time_ns;
        let off_cpu = self.off_cpu.iter().flat_map(|off_cpu| {
            let rest = off_cpu.stacks.iter().zip(&off_cpu.flags);
            off_cpu.steps_ns.iter().zip(&off_cpu.tids).zip(rest)
        });
        off_cpu.map(move |((step, tid), (stack, flags))| {
            time_ns = time_ns.wrapping_add(step.cast_unsigned());
            OffCpuSample {
                time_ns,
                tid: *tid,
                stack: *stack,
                is_cut: flags & 2 != 0,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_come_back() {
        let sample = |time_ns, stack, in_kernel| Sample {
            time_ns,
            tid: 7,
            cpu: 3,
            stack,
            in_kernel,
            is_cut: !in_kernel,
        };
        let all = [
            sample(130, 0, true),
            sample(120, 5, false),
            sample(150, 1, true),
        ];
        let mut samples = Samples {
            time_ns: 100,
            ..Samples::default()
        };
        let last_ns = all
            .iter()
            .fold(100, |last_ns, one| samples.push(last_ns, *one));
        assert_eq!(last_ns, 150);
        assert_eq!(samples.samples().collect::<Vec<_>>(), all);
        // The columns of a damaged record may have any length.
        samples.flags.truncate(2);
        assert_eq!(samples.samples().count(), 2);
    }

    #[test]
    fn off_cpu_samples_come_back() {
        let sample = |time_ns, is_cut| OffCpuSample {
            time_ns,
            tid: 7,
            stack: 2,
            is_cut,
        };
        let all = [sample(130, true), sample(120, false)];
        let mut off_cpu = OffCpuSamples::default();
        let add = |last_ns, one: &OffCpuSample| off_cpu.push(last_ns, *one);
        assert_eq!(all.iter().fold(100, add), 120);
        let mut samples = Samples {
            time_ns: 100,
            off_cpu: Some(off_cpu),
            ..Samples::default()
        };
        assert_eq!(samples.off_cpu_samples().collect::<Vec<_>>(), all);
        samples.off_cpu.as_mut().unwrap().tids.truncate(1);
        assert_eq!(samples.off_cpu_samples().count(), 1);
        assert_eq!(Samples::default().off_cpu_samples().count(), 0);
    }
}
