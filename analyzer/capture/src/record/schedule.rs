//! The record of the kernel's schedule of threads.
//!
//! It is a table of columns, which keeps the hundred thousand switches per second of a busy program
//! small.

/// The kind of a scheduling event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ScheduleKind {
    /// Not stated, or unknown to this version.
    Unspecified = 0,
    /// The thread runs from now on.
    Runs = 1,
    /// The thread is blocked from now on. The detail is the id of a [`BlockingCall`]; 0 if the call
    /// is not known.
    Blocks = 2,
    /// Another thread takes the processor; this one can still run.
    Preempted = 3,
    /// The thread was created. The detail is its creator.
    Created = 4,
    /// The thread has ended.
    Ended = 5,
    /// The thread was woken, and can run. The detail is its waker; 0 if an interrupt woke it.
    Woken = 6,
    /// The thread existed when the recording of the schedule started. The detail is the kernel's
    /// letter for its state.
    Found = 7,
    /// The thread is the first one of a new process. The detail is the thread that created the
    /// process. Only in [`Record::Processes`](super::Record::Processes), like the following.
    ProcessCreated = 8,
    /// The thread has a new name. The detail is its index in [`Schedule::names`].
    Named = 9,
    /// The process executed a program, and its only thread has a new name. The detail is the name's
    /// index in [`Schedule::names`].
    Executed = 10,
    /// Names the call of the thread's last [`Blocks`](Self::Blocks), now with its file. The detail
    /// is the id of a [`BlockingCall`].
    CallKnown = 11,
}

/// Scheduling events of threads. The fields 2 to 6 are the columns of one table.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Schedule {
    /// The time to which the first entry's step is added.
    #[prost(uint64, tag = "1")]
    pub time_ns: u64,
    /// The kinds of the entries.
    #[prost(enumeration = "ScheduleKind", repeated, tag = "2")]
    pub kinds: Vec<i32>,
    /// Nanoseconds since the previous entry.
    #[prost(uint64, repeated, tag = "3")]
    pub steps_ns: Vec<u64>,
    /// The threads.
    #[prost(uint64, repeated, tag = "4")]
    pub tids: Vec<u64>,
    /// The processors.
    #[prost(uint32, repeated, tag = "5")]
    pub cpus: Vec<u32>,
    /// Further details, which depend on the kind; 0 if there are none.
    #[prost(uint64, repeated, tag = "6")]
    pub details: Vec<u64>,
    /// Kernel records that were lost for lack of buffer space.
    #[prost(message, repeated, tag = "7")]
    pub losses: Vec<ScheduleLoss>,
    /// Whether the recording of the schedule begins or ends here.
    #[prost(enumeration = "ScheduleEdge", tag = "8")]
    pub edge: i32,
    /// Time that the host of a virtual machine has taken from its processors since the machine
    /// started, in nanoseconds. Only where the schedule begins or ends.
    #[prost(uint64, optional, tag = "9")]
    pub stolen_ns: Option<u64>,
    /// System calls that entries of this record and of later ones refer to.
    #[prost(message, repeated, tag = "10")]
    pub calls: Vec<BlockingCall>,
    /// The recorder's thread that stops and resumes the program's threads, which wakes them. Only
    /// where a schedule with wakers begins.
    #[prost(uint64, optional, tag = "11")]
    pub recorder_tid: Option<u64>,
    /// Names that entries of this record refer to.
    #[prost(string, repeated, tag = "12")]
    pub names: Vec<String>,
}

/// A system call in which threads were blocked.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct BlockingCall {
    /// Its number in this capture, from 1 on.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// The kernel's number of the call, if it is known.
    #[prost(uint64, optional, tag = "2")]
    pub number: Option<u64>,
    /// The first two arguments of a futex call, or the first argument if it is a descriptor. All
    /// others are 0. Futex calls with the same second argument share an entry.
    #[prost(uint64, repeated, tag = "3")]
    pub args: Vec<u64>,
    /// The file behind the descriptor in the first argument, as `/proc` names it.
    #[prost(string, tag = "4")]
    pub file: String,
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
    /// It ends at `time_ns`, after the entries.
    Ends = 3,
}

/// Missing records of one processor.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ScheduleLoss {
    /// Start.
    #[prost(uint64, tag = "1")]
    pub from_ns: u64,
    /// End.
    #[prost(uint64, tag = "2")]
    pub to_ns: u64,
    /// The processor.
    #[prost(uint32, tag = "3")]
    pub cpu: u32,
    /// The number of missing records.
    #[prost(uint64, tag = "4")]
    pub count: u64,
}

/// One entry of a [`Schedule`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduleEntry {
    /// Time of the event.
    pub time_ns: u64,
    /// The kind of event.
    pub kind: ScheduleKind,
    /// The thread.
    pub tid: u64,
    /// The processor.
    pub cpu: u32,
    /// Further details, which depend on the kind.
    pub detail: u64,
}

impl Schedule {
    /// Appends an entry after the time `last_ns`. Returns the new entry's time, which is not
    /// earlier.
    pub fn push(&mut self, last_ns: u64, entry: ScheduleEntry) -> u64 {
        let time_ns = entry.time_ns.max(last_ns);
        self.kinds.push(entry.kind.into());
        self.steps_ns.push(time_ns - last_ns);
        self.tids.push(entry.tid);
        self.cpus.push(entry.cpu);
        self.details.push(entry.detail);
        time_ns
    }

    /// The entries in order. Their number is that of the shortest column.
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
        // The columns of a damaged record may have any length.
        schedule.tids.truncate(2);
        assert_eq!(schedule.entries().count(), 2);
    }
}
