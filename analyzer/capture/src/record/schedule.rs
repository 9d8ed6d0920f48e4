//! The record of when threads ran, as the kernel's scheduler says. Its columns keep a busy
//! program's hundred thousand switches a second small.

/// What the kernel recorded of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ScheduleKind {
    /// Not said, or a kind this version does not know.
    Unspecified = 0,
    /// The thread runs from now on.
    Runs = 1,
    /// The thread is blocked from now on.
    Blocks = 2,
    /// Another thread takes the processor; this one can still run.
    Preempted = 3,
    /// The thread was created. The detail is its creator.
    Created = 4,
    /// The thread has ended.
    Ended = 5,
    /// The thread was woken, and can run. The detail is its waker; 0 if an interrupt woke it.
    Woken = 6,
    /// The thread was there when this began. The detail is the kernel's letter for its state.
    Found = 7,
}

/// What the kernel recorded of threads' schedule: the first five fields are columns of one table.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Schedule {
    /// The time from which the first entry's step counts.
    #[prost(uint64, tag = "1")]
    pub time_ns: u64,
    /// The entries' kinds.
    #[prost(enumeration = "ScheduleKind", repeated, tag = "2")]
    pub kinds: Vec<i32>,
    /// Nanoseconds since the entry before.
    #[prost(uint64, repeated, tag = "3")]
    pub steps_ns: Vec<u64>,
    /// The threads.
    #[prost(uint64, repeated, tag = "4")]
    pub tids: Vec<u64>,
    /// The processors.
    #[prost(uint32, repeated, tag = "5")]
    pub cpus: Vec<u32>,
    /// What else there is to say; 0 if nothing.
    #[prost(uint64, repeated, tag = "6")]
    pub details: Vec<u64>,
    /// Records that the kernel had no room for.
    #[prost(message, repeated, tag = "7")]
    pub losses: Vec<ScheduleLoss>,
    /// What begins or ends here.
    #[prost(enumeration = "ScheduleEdge", tag = "8")]
    pub edge: i32,
}

/// Whether the recording of the schedule begins or ends with a [`Schedule`] record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ScheduleEdge {
    /// Neither.
    Unspecified = 0,
    /// It begins at `time_ns`, without wake-ups.
    Begins = 1,
    /// It begins at `time_ns`, with wake-ups.
    BeginsWithWakers = 2,
    /// It ends at `time_ns`, behind the entries.
    Ends = 3,
}

/// Records of one processor that are missing.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ScheduleLoss {
    /// From here.
    #[prost(uint64, tag = "1")]
    pub from_ns: u64,
    /// To here.
    #[prost(uint64, tag = "2")]
    pub to_ns: u64,
    /// The processor.
    #[prost(uint32, tag = "3")]
    pub cpu: u32,
    /// How many.
    #[prost(uint64, tag = "4")]
    pub count: u64,
}

/// One entry of a [`Schedule`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduleEntry {
    /// When.
    pub time_ns: u64,
    /// What happened.
    pub kind: ScheduleKind,
    /// The thread.
    pub tid: u64,
    /// The processor.
    pub cpu: u32,
    /// What else there is to say.
    pub detail: u64,
}

impl Schedule {
    /// Appends an entry behind one of this time, and returns the new one's: it is no earlier.
    pub fn push(&mut self, last_ns: u64, entry: ScheduleEntry) -> u64 {
        let time_ns = entry.time_ns.max(last_ns);
        self.kinds.push(entry.kind.into());
        self.steps_ns.push(time_ns - last_ns);
        self.tids.push(entry.tid);
        self.cpus.push(entry.cpu);
        self.details.push(entry.detail);
        time_ns
    }

    /// The entries, in order; as many as all columns have.
    pub fn entries(&self) -> impl Iterator<Item = ScheduleEntry> {
        let mut time_ns = self.time_ns;
        let times = self.steps_ns.iter();
        let rest = self.tids.iter().zip(&self.cpus).zip(&self.details);
        let all = self.kinds.iter().zip(times).zip(rest);
        all.map(move |((kind, step), ((tid, cpu), detail))| {
            time_ns = time_ns.saturating_add(*step);
            ScheduleEntry {
                time_ns,
                kind: ScheduleKind::try_from(*kind).unwrap_or(ScheduleKind::Unspecified),
                tid: *tid,
                cpu: *cpu,
                detail: *detail,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back() {
        let mut schedule = Schedule {
            time_ns: 100,
            ..Schedule::default()
        };
        let entry = |time_ns, kind, detail| ScheduleEntry {
            time_ns,
            kind,
            tid: 7,
            cpu: 3,
            detail,
        };
        let entries = [
            entry(100, ScheduleKind::Created, 5),
            entry(130, ScheduleKind::Runs, 0),
            entry(140, ScheduleKind::Woken, 8),
        ];
        let early = entry(120, ScheduleKind::Ended, 0);
        let all = entries.into_iter().chain([early]);
        let last_ns = all.fold(100, |last_ns, entry| schedule.push(last_ns, entry));
        assert_eq!(last_ns, 140);
        let all: Vec<ScheduleEntry> = schedule.entries().collect();
        assert_eq!(all[..3], entries);
        assert_eq!(all[3], entry(140, ScheduleKind::Ended, 0));
        // Columns of a damaged record have any length.
        schedule.tids.truncate(2);
        assert_eq!(schedule.entries().count(), 2);
    }
}
