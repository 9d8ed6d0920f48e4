//! A running process of this machine: its threads' processor times and names, read from `/proc`.
//!
//! Reading `/proc` stops no thread, so this is how `unspool top` follows a program between two
//! inspections. The process is identified by its start time, because the kernel reuses process ids.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use unspool_capture::CpuTimes;
use unspool_image::Arch;

use super::asleep::{Asleep, field, own_tid};
use super::cpu_times;
use super::file_locks;
use super::kernel_state::{blocking_call, file_of};
use super::options::Ended;
use super::pipes::numbers;
use super::session;
use super::shared_memory::SharedMemory;
use crate::platform::syscall::{AwaitedChildren, Call};

/// Interval at which a thread is checked until it is asleep.
pub(super) const SLEEP_CHECK: Duration = Duration::from_millis(5);

/// Maximum time until a thread is back in its wait after a stop.
pub const MAX_RESUME: Duration = Duration::from_millis(200);

/// Time in which a process that makes progress shows it.
const PROGRESS_CHECK: Duration = Duration::from_millis(50);

/// The process of a thread of this machine.
pub fn process_of_thread(tid: u64) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    field(&status, "Tgid:")?.trim().parse().ok()
}

/// A process that is sampled.
#[derive(Debug)]
pub struct LocalProcess {
    pid: u32,
    start_ticks: Option<u64>,
    /// `/proc/PID/mem`, once it was needed.
    mem: OnceCell<Option<fs::File>>,
}

/// The result of a sample.
#[derive(Debug, Clone, PartialEq)]
pub enum Sampled {
    /// The threads and their processor times.
    Running(CpuTimes),
    /// The process has ended, in this way if it is known.
    Ended(Option<Ended>),
}

impl LocalProcess {
    /// The process with this id.
    pub fn new(pid: u32) -> LocalProcess {
        let start_ticks = stat(&format!("/proc/{pid}/stat")).and_then(|stat| stat.start_ticks);
        LocalProcess {
            pid,
            start_ticks,
            mem: OnceCell::new(),
        }
    }

    /// Its id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Reads the processor times of all threads.
    pub fn sample(&self) -> Sampled {
        let stat = stat(&format!("/proc/{}/stat", self.pid));
        let Some(stat) = stat.filter(|stat| stat.start_ticks == self.start_ticks) else {
            return Sampled::Ended(None);
        };
        let time_ns = monotonic_ns();
        let pid = u64::from(self.pid);
        let tids = numbers(&format!("/proc/{pid}/task"));
        let times = tids.filter_map(|tid| cpu_times::local(pid, tid));
        let threads: Vec<_> = times.collect();
        // The first thread of a process may end before the others. The kernel keeps it as a zombie.
        if stat.state == 'X' || stat.state == 'Z' && threads.len() <= 1 {
            return Sampled::Ended(stat.wait_status.map(ended));
        }
        Sampled::Running(CpuTimes { time_ns, threads })
    }

    /// Finds the thread that its own program knows by this id, which is another one in a PID
    /// namespace. `None` if it has ended.
    pub fn thread_of_own_id(&self, id: u64) -> Option<u64> {
        let folder = format!("/proc/{}/task", self.pid);
        numbers(&folder).find(|tid| {
            let status = fs::read_to_string(format!("{folder}/{tid}/status"));
            let status = status.unwrap_or_default();
            // A process keeps its first thread as a zombie.
            let lives = field(&status, "State:\tZ").is_none();
            lives && own_tid(&status) == Some(id)
        })
    }

    /// The folder in `/proc` of a thread that still has the process's memory and files. Those of a
    /// first thread that has ended before the others are empty. `None` if all have ended.
    pub(super) fn living_task(&self) -> Option<String> {
        let folder = format!("/proc/{}/task", self.pid);
        let mut tasks = numbers(&folder).map(|tid| format!("{folder}/{tid}"));
        tasks.find(|task| {
            let stat = stat(&format!("{task}/stat"));
            stat.is_some_and(|stat| !matches!(stat.state, 'Z' | 'X'))
        })
    }

    /// The memory that other processes may share.
    pub fn shared_memory(&self) -> SharedMemory {
        SharedMemory::of(self.pid)
    }

    /// Where a thread is asleep, and how often it has stopped running. `None` if it does not fall
    /// asleep until a deadline.
    pub fn asleep(&self, tid: u64, until: Instant) -> Option<Asleep> {
        loop {
            let read = |file: &str| text(&format!("/proc/{}/task/{tid}/{file}", self.pid));
            let asleep = Asleep::read(&read("status")?, &read("syscall")?);
            if asleep.is_some() || Instant::now() >= until {
                return asleep;
            }
            thread::sleep(SLEEP_CHECK);
        }
    }

    /// True if all threads that have not ended are among these.
    pub fn has_only(&self, known: &BTreeSet<u64>) -> bool {
        let mut all = self.tids();
        all.all(|tid| known.contains(&tid) || !self.lives(tid))
    }

    pub(super) fn tids(&self) -> impl Iterator<Item = u64> {
        numbers(&format!("/proc/{}/task", self.pid))
    }

    fn lives(&self, tid: u64) -> bool {
        let stat = stat(&format!("/proc/{}/task/{tid}/stat", self.pid));
        stat.is_some_and(|stat| stat.state != 'Z')
    }

    /// The threads that have not ended.
    pub(super) fn threads(&self) -> impl Iterator<Item = u64> {
        self.tids().filter(|tid| self.lives(*tid))
    }

    /// True if all threads are in calls that may wait for other processes or for each other: at
    /// futexes, for the ends of children, for locks of files, or at pipes.
    pub(super) fn waits_for_processes(&self, arch: Arch) -> bool {
        let waits = |tid: u64| {
            let call = blocking_call(self.pid, tid)?;
            let waits = self.pipe_of(&call, arch).is_some()
                || call.futex(arch).is_some()
                || call.children(arch).is_some()
                || call.file_lock(arch).is_some();
            Some(waits)
        };
        self.threads().all(|tid| waits(tid) == Some(true))
    }

    /// Keeps the processes whose threads all stay asleep in calls that may wait for other processes
    /// or for each other. A stop would end the writes of a process that makes progress.
    pub fn that_wait(mut processes: Vec<LocalProcess>, arch: Arch) -> Vec<LocalProcess> {
        let asleep = |process: &LocalProcess| -> Vec<Option<Asleep>> {
            let now = Instant::now();
            let threads = process.threads();
            threads.map(|tid| process.asleep(tid, now)).collect()
        };
        processes.retain(|process| process.waits_for_processes(arch));
        if processes.is_empty() {
            return processes;
        }
        let before: Vec<_> = processes.iter().map(asleep).collect();
        thread::sleep(PROGRESS_CHECK);
        let mut before = before.into_iter();
        processes.retain(|process| {
            Some(asleep(process)) == before.next() && process.waits_for_processes(arch)
        });
        processes
    }

    /// The processes that descend from this one, parents first.
    pub(super) fn descendants(&self) -> Vec<LocalProcess> {
        let all = numbers("/proc").filter_map(|pid| Some((pid, parent_of(pid)?)));
        let parents: Vec<(u64, u64)> = all.collect();
        let mut found = vec![u64::from(self.pid)];
        let mut next = 0;
        while let Some(&parent) = found.get(next) {
            let children = parents.iter().filter(|(_, other)| *other == parent);
            found.extend(children.map(|(pid, _)| pid));
            next += 1;
        }
        let found = found.into_iter().skip(1);
        let found = found.filter_map(|pid| u32::try_from(pid).ok());
        found.map(LocalProcess::new).collect()
    }

    /// True if the process exists, and no other traces it.
    pub(super) fn is_untraced(&self) -> bool {
        let status = text(&format!("/proc/{}/status", self.pid)).unwrap_or_default();
        field(&status, "TracerPid:").is_some_and(|tracer| tracer.trim() == "0")
    }

    /// The ids of the children, by the ids that their parent knows, which are other ones in a PID
    /// namespace.
    pub fn children(&self) -> BTreeMap<u64, u64> {
        let status = |pid: u64| fs::read_to_string(format!("/proc/{pid}/status")).ok();
        let ids = |status: &str| -> Vec<u64> {
            let ids = field(status, "NSpid:").unwrap_or_default();
            ids.split_whitespace()
                .filter_map(|id| id.parse().ok())
                .collect()
        };
        let own = status(self.pid.into()).unwrap_or_default();
        let Some(level) = ids(&own).len().checked_sub(1) else {
            return BTreeMap::new();
        };
        let mut by_id = BTreeMap::new();
        for pid in numbers("/proc") {
            let status = status(pid).unwrap_or_default();
            let parent = field(&status, "PPid:").and_then(|id| id.trim().parse().ok());
            if parent == Some(u64::from(self.pid))
                && let Some(id) = ids(&status).get(level)
            {
                by_id.insert(*id, pid);
            }
        }
        by_id
    }

    /// The process that a thread started last, if it runs in this process's memory, as after
    /// vfork(2). The sizes of its memory are then the same.
    pub fn child_in_memory(&self, tid: u64) -> Option<u64> {
        let path = format!("/proc/{}/task/{tid}/children", self.pid);
        let children = fs::read_to_string(path).ok()?;
        let child = children.split_whitespace().next_back()?.parse().ok()?;
        let sizes = |pid: u64| fs::read_to_string(format!("/proc/{pid}/statm")).ok();
        (sizes(child) == sizes(self.pid.into())).then_some(child)
    }

    /// The children for which a thread waits. `all` gives all of the process, which takes long.
    pub fn awaited_children<'c>(
        &self,
        tid: u64,
        awaited: AwaitedChildren,
        all: impl FnOnce() -> &'c BTreeMap<u64, u64>,
    ) -> Vec<u64> {
        match awaited {
            AwaitedChildren::One(id) => all().get(&id).copied().into_iter().collect(),
            AwaitedChildren::Any => all().values().copied().collect(),
            AwaitedChildren::Newest => Vec::from_iter(self.child_in_memory(tid)),
        }
    }

    /// The pipe at which a call works.
    pub(super) fn pipe_of(&self, call: &Call, arch: Arch) -> Option<String> {
        let file = self.file(call.descriptor(arch)?)?;
        file.starts_with("pipe:").then_some(file)
    }

    /// The file behind a descriptor, as `/proc` names it.
    pub fn file(&self, descriptor: i32) -> Option<String> {
        file_of(self.pid.into(), descriptor)
    }

    /// The processes that hold the lock of a file for which a thread waits. A thread that was
    /// stopped asks for the lock again, and the kernel lists it only when it is asleep.
    pub fn file_lock_holders(&self, tid: u64, descriptor: i32) -> BTreeSet<u64> {
        self.asleep(tid, Instant::now() + MAX_RESUME);
        file_locks::holders(self.pid.into(), descriptor)
    }

    /// Reads memory without a stop.
    pub fn memory(&self, address: u64, len: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.mem()?.read_exact_at(&mut bytes, address).ok()?;
        Some(bytes)
    }

    fn mem(&self) -> Option<&fs::File> {
        let open = || fs::File::open(format!("/proc/{}/mem", self.pid)).ok();
        self.mem.get_or_init(open).as_ref()
    }

    /// The path at an address of the process's memory.
    pub fn path_at(&self, address: u64) -> Option<String> {
        const PATH_MAX: usize = 4096;
        const PAGE: usize = 4096;
        let file = self.mem()?;
        let mut path = Vec::new();
        // The next page may not be mapped.
        while path.len() < PATH_MAX {
            let at = address.checked_add(path.len() as u64)?;
            let mut bytes = vec![0; PAGE - at as usize % PAGE];
            file.read_exact_at(&mut bytes, at).ok()?;
            path.extend(bytes);
            if let Some(end) = path.iter().position(|byte| *byte == 0) {
                path.truncate(end);
                return String::from_utf8(path).ok().filter(|path| !path.is_empty());
            }
        }
        None
    }

    /// The name of the process's first thread, which is usually that of its program.
    pub fn name(&self) -> Option<String> {
        self.thread_name(self.pid.into())
    }

    /// The name of a thread.
    pub fn thread_name(&self, tid: u64) -> Option<String> {
        session::thread_name(self.pid.into(), tid)
    }
}

/// Fields of `/proc/PID/stat` (proc(5)).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) state: char,
    start_ticks: Option<u64>,
    wait_status: Option<i32>,
}

impl Stat {
    /// `7 (a) b) S 1 7 ...`: the name may contain anything. The state is field 3, the start time
    /// field 22, the wait status field 52.
    fn parse(text: &str) -> Option<Stat> {
        let mut fields = text.rsplit_once(") ")?.1.split_whitespace();
        Some(Stat {
            state: fields.next()?.chars().next()?,
            start_ticks: fields.nth(18).and_then(|field| field.parse().ok()),
            wait_status: fields.nth(29).and_then(|field| field.parse().ok()),
        })
    }
}

/// Decodes a wait status: the signal is in the lowest 7 bits, the exit code above 8 bits.
fn ended(status: i32) -> Ended {
    match status & 0x7f {
        0 => Ended::Exited(status >> 8 & 0xff),
        signal => Ended::Terminated(signal as u8),
    }
}

/// The process that started a process, or adopted it.
pub(super) fn parent_of(pid: u64) -> Option<u64> {
    let status = text(&format!("/proc/{pid}/status"))?;
    field(&status, "PPid:")?.trim().parse().ok()
}

/// The time by the clock of the kernel's records.
pub(super) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC);
    now.map_or(0, |now| {
        u64::try_from(now.tv_sec() * 1_000_000_000 + now.tv_nsec()).unwrap_or(0)
    })
}

/// Reads the `stat` file of a process or thread.
pub(super) fn stat(path: &str) -> Option<Stat> {
    Stat::parse(&text(path)?)
}

/// Reads a file in `/proc` with few system calls. These files have no size, so that the standard
/// library reads them in some ten pieces.
pub(super) fn text(path: &str) -> Option<String> {
    let mut file = fs::File::open(path).ok()?;
    let mut bytes = vec![0; 4096];
    let mut end = 0;
    loop {
        match file.read(&mut bytes[end..]).ok()? {
            0 => break,
            count => end += count,
        }
        if end == bytes.len() {
            bytes.resize(2 * end, 0);
        }
    }
    bytes.truncate(end);
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_stat_files() {
        let fields: Vec<String> = (4..=52).map(|field| field.to_string()).collect();
        let text = format!("7 (a) b) Z {}\n", fields.join(" "));
        let stat = Stat::parse(&text).unwrap();
        assert_eq!(stat.state, 'Z');
        assert_eq!(stat.start_ticks, Some(22));
        assert_eq!(stat.wait_status, Some(52));
        assert_eq!(Stat::parse("7 (a"), None);
        assert_eq!(ended(3 << 8), Ended::Exited(3));
        assert_eq!(ended(9), Ended::Terminated(9));
    }

    #[test]
    fn samples_itself() {
        let process = LocalProcess::new(std::process::id());
        let Sampled::Running(times) = process.sample() else {
            panic!("this process runs");
        };
        let own = u64::from(std::process::id());
        assert!(times.threads.iter().any(|thread| thread.tid == own));
        assert!(
            process
                .thread_name(own)
                .is_some_and(|name| !name.is_empty())
        );
    }
}
