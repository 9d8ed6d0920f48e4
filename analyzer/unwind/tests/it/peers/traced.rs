//! Stops x86-64 programs of this machine with ptrace, at random moments and in any thread.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use unspool_image::Arch;

use super::snapshot::{Modules, Snapshot, stack};
use crate::robust::Random;

/// Calls from C to Python and back, recursion, and C functions of the standard library.
pub(crate) const PYTHON: &str = "
import json, re
class A:
    def __lt__(self, other): return id(self) % 97 < id(other) % 97
def f(n): return f(n - 1) + len(re.sub('a+', lambda m: 'b', 'aab' * 20)) if n else 0
while True:
    sorted((A() for _ in range(50)))
    f(12)
    json.loads(json.dumps([{'a': [1.5, None, 'x']}] * 20))
    pow(3, 5000) % 1000
";

pub(crate) const BASH: &str = "
f() { local x=$1; if ((x > 0)); then f $((x - 1)); else [[ abcde =~ b.*d ]]; fi; }
while :; do f 9; x=${x:1:20}abc$RANDOM; case $x in *b*c) ;; esac; done
";

const GDB: &str = "python
while True: gdb.execute('info functions ^str', to_string=True); gdb.execute('disassemble main', to_string=True)";

/// Programs, each with arguments that keep it busy forever.
pub(crate) const PROGRAMS: [(&str, &[&str]); 6] = [
    ("/usr/bin/python3", &["-S", "-c", PYTHON]),
    ("/usr/bin/bash", &["-c", BASH]),
    ("/usr/bin/xz", &["-c", "-3", "-T2"]),
    ("/usr/bin/pigz", &["-c", "-p2"]),
    ("/usr/bin/zstd", &["-c", "-5", "-T2", "-q"]),
    (
        "/usr/bin/gdb",
        &["-nx", "-batch", "-ex", GDB, "/usr/bin/bash"],
    ),
];

pub(crate) struct Process {
    child: Child,
    modules: Modules,
    scratch: PathBuf,
    random: Random,
    /// Whether its first thread stops when it starts another.
    followed: bool,
    /// The thread held at its first instructions.
    newborn: Option<Pid>,
}

impl Process {
    pub(crate) fn start(program: &str, arguments: &[&str], scratch: &Path) -> Process {
        let child = Command::new(program)
            .args(arguments)
            .stdin(File::open("/dev/urandom").expect("random bytes"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("start");
        Process {
            child,
            modules: Modules::default(),
            scratch: scratch.into(),
            random: Random(0x2545_f491_4f6c_dd1d),
            followed: false,
            newborn: None,
        }
    }

    pub(crate) fn arch(&self) -> Arch {
        Arch::X86_64
    }

    /// Stops one of its threads. `None` if the thread ended or stopped for another reason.
    pub(crate) fn stop(&mut self) -> Option<Snapshot> {
        std::thread::sleep(Duration::from_micros(self.random.below(2000)));
        let ended = self.child.try_wait().expect("wait");
        assert!(ended.is_none(), "the program ended: {ended:?}");
        let pid = self.child.id();
        let threads: Vec<i32> = std::fs::read_dir(format!("/proc/{pid}/task"))
            .expect("threads")
            .map(|entry| {
                entry
                    .expect("thread")
                    .file_name()
                    .to_str()
                    .expect("number")
                    .parse()
                    .expect("number")
            })
            .collect();
        let thread = Pid::from_raw(threads[self.random.below(threads.len() as u64) as usize]);
        ptrace::seize(thread, ptrace::Options::empty()).ok()?;
        ptrace::interrupt(thread).ok()?;
        let status = waitpid(thread, Some(WaitPidFlag::__WALL)).ok()?;
        let snapshot = match status {
            WaitStatus::PtraceEvent(..) => self.snapshot(thread),
            _ => None,
        };
        let signal = match status {
            WaitStatus::Stopped(_, signal) if signal != Signal::SIGTRAP => Some(signal),
            _ => None,
        };
        let _ = ptrace::detach(thread, signal);
        snapshot
    }

    /// Makes its first thread start another. Returns both at each of their next `count`
    /// instructions.
    pub(crate) fn birth(&mut self, count: usize) -> Vec<Snapshot> {
        let parent = Pid::from_raw(self.child.id() as i32);
        if self.followed {
            ptrace::cont(parent, None).expect("go on");
        } else {
            let options = ptrace::Options::PTRACE_O_TRACECLONE;
            ptrace::seize(parent, options).expect("seize");
            self.followed = true;
        }
        let clone = ptrace::Event::PTRACE_EVENT_CLONE as i32;
        match wait(parent) {
            WaitStatus::PtraceEvent(_, _, event) if event == clone => {}
            status => panic!("a new thread was expected: {status:?}"),
        }
        let child = ptrace::getevent(parent).expect("the new thread");
        let child = Pid::from_raw(child as i32);
        self.newborn = Some(child);
        // The kernel stops it before its first instruction.
        wait(child);
        let mut snapshots = Vec::new();
        for thread in [parent, child] {
            for _ in 0..count {
                snapshots.push(self.snapshot(thread).expect("a stopped thread"));
                ptrace::step(thread, None).expect("step");
                wait(thread);
            }
        }
        // Its parent stays stopped, so that it creates no more threads.
        ptrace::detach(child, None).expect("detach");
        self.newborn = None;
        snapshots
    }

    fn snapshot(&mut self, thread: Pid) -> Option<Snapshot> {
        let r = ptrace::getregs(thread).ok()?;
        let pid = self.child.id();
        let (modules, end) = self.modules.read(pid, r.rsp, &self.scratch);
        let (base, stack) = stack(pid, r.rsp, end);
        let registers = [
            ("rax", r.rax),
            ("rdx", r.rdx),
            ("rcx", r.rcx),
            ("rbx", r.rbx),
            ("rsi", r.rsi),
            ("rdi", r.rdi),
            ("rbp", r.rbp),
            ("rsp", r.rsp),
            ("r8", r.r8),
            ("r9", r.r9),
            ("r10", r.r10),
            ("r11", r.r11),
            ("r12", r.r12),
            ("r13", r.r13),
            ("r14", r.r14),
            ("r15", r.r15),
            ("rip", r.rip),
        ];
        Some(Snapshot {
            modules,
            registers: registers
                .map(|(name, value)| (name.to_owned(), value))
                .into(),
            base,
            stack,
        })
    }
}

fn wait(thread: Pid) -> WaitStatus {
    waitpid(thread, Some(WaitPidFlag::__WALL)).expect("a stop")
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        // The kernel reports its end only after that of a thread that we trace.
        if let Some(thread) = self.newborn {
            let _ = waitpid(thread, Some(WaitPidFlag::__WALL));
        }
        let _ = self.child.wait();
    }
}
