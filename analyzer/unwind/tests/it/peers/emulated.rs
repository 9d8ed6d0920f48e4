//! Stops AArch64 programs under qemu-aarch64 at random moments, through its debug server. Without a
//! guest base, guest addresses are qemu's own, so `/proc` shows the modules and the stack.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use unspool_image::Arch;

use super::snapshot::{Modules, Snapshot, hex, stack};
use super::traced::{BASH, PYTHON};
use crate::robust::Random;
use crate::tools::output;

pub(crate) const PROGRAMS: [(&str, &[&str]); 4] = [
    ("usr/bin/python3.11", &["-S", "-c", PYTHON]),
    ("bin/bash", &["-c", BASH]),
    ("usr/bin/xz", &["-c", "-3"]),
    ("usr/bin/pigz", &["-c", "-p1"]),
];

const PACKAGES: [&str; 16] = [
    "libc6",
    "libgcc-s1",
    "libstdc++6",
    "bash",
    "libtinfo6",
    "xz-utils",
    "liblzma5",
    "pigz",
    "zlib1g",
    "zstd",
    "libzstd1",
    "liblz4-1",
    "python3.11-minimal",
    "libpython3.11-stdlib",
    "libpython3.11-minimal",
    "libexpat1",
];

/// A signal without an answer for this long is sent again.
const LOST_SIGNAL: Duration = Duration::from_secs(2);
/// Time after which an answer is missing, even on a machine that others use.
const LONGEST_ANSWER: Duration = Duration::from_secs(60);

/// Debian's arm64 programs and libraries.
pub(crate) fn sysroot() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    let mut command = Command::new(root.join("qemu/packages.sh"));
    let text = output(
        command
            .arg(target.join("programs-arm64"))
            .arg("arm64")
            .args(PACKAGES),
    );
    PathBuf::from(text.trim_end())
}

pub(crate) struct Process {
    qemu: Child,
    server: Server,
    modules: Modules,
    scratch: PathBuf,
    random: Random,
}

impl Process {
    pub(crate) fn start(
        sysroot: &Path,
        program: &str,
        arguments: &[&str],
        scratch: &Path,
    ) -> Process {
        let socket = scratch.join(program.replace('/', "-"));
        let qemu = Command::new("qemu-aarch64")
            .arg("-g")
            .arg(&socket)
            .arg("-L")
            .arg(sysroot)
            .arg(sysroot.join(program))
            .args(arguments)
            .stdin(std::fs::File::open("/dev/urandom").expect("random bytes"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("start");
        // The socket file exists before qemu listens.
        let stream = loop {
            match UnixStream::connect(&socket) {
                Ok(stream) => break stream,
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        let server = Server(BufReader::new(stream));
        server.limit(LONGEST_ANSWER);
        Process {
            qemu,
            server,
            modules: Modules::default(),
            scratch: scratch.into(),
            random: Random(0x2545_f491_4f6c_dd1d),
        }
    }

    pub(crate) fn arch(&self) -> Arch {
        Arch::Aarch64
    }

    /// Runs for a time and returns the thread that stopped.
    fn run(&mut self, time: Duration) -> u64 {
        self.server.send("c");
        // A signal goes to any thread. If qemu has not read the last packet yet, the signal could
        // stop another thread, which would read the packet and resume. Then no thread would read
        // the next one.
        self.server.taken();
        std::thread::sleep(time);
        // qemu's user mode reads no packets while the program runs. A signal stops it, and the
        // program never sees that signal. A signal that a thread gets during its creation is lost.
        let stop = loop {
            kill(Pid::from_raw(self.qemu.id() as i32), Signal::SIGUSR2).expect("signal");
            if let Some(stop) = self.server.answer_within(LOST_SIGNAL) {
                break stop;
            }
        };
        let thread = stop.split_once("thread:").expect("a stop").1;
        hex(thread.split(';').next().unwrap_or_default())
    }

    pub(crate) fn stop(&mut self) -> Snapshot {
        let time = 500 + self.random.below(4000);
        let stopped = self.run(Duration::from_micros(time));
        let threads = self.server.threads();
        let chosen = threads[self.random.below(threads.len() as u64) as usize];
        // qemu stops one thread only. Another thread's snapshot is valid if it slept all the time.
        let before = sleeping(self.qemu.id(), chosen);
        if chosen != stopped && before.is_some() {
            let snapshot = self.snapshot(chosen);
            if sleeping(self.qemu.id(), chosen) == before {
                return snapshot;
            }
        }
        self.snapshot(stopped)
    }

    fn snapshot(&mut self, thread: u64) -> Snapshot {
        let registers = self.registers(thread);
        let sp = registers["sp"];
        let pid = self.qemu.id();
        let (modules, end) = self.modules.read(pid, sp, &self.scratch);
        let (base, stack) = stack(pid, sp, end);
        Snapshot {
            modules,
            base,
            stack,
            registers,
        }
    }

    fn registers(&mut self, thread: u64) -> HashMap<String, u64> {
        self.server.ask(&format!("Hg{thread:x}"));
        let text = self.server.ask("g");
        let words = text.as_bytes().chunks(16).map(|digits| {
            let digits = std::str::from_utf8(digits).expect("digits");
            hex(digits).swap_bytes()
        });
        // x0 to x30, sp, pc: the registers that gdb expects of a server without a description.
        let names = (0..31).map(|number| format!("x{number}"));
        let names = names.chain(["sp".into(), "pc".into()]);
        names.zip(words).collect()
    }
}

/// The part of gdb's protocol that this test needs. This crate does not depend on unspool-rsp.
struct Server(BufReader<UnixStream>);

impl Server {
    fn ask(&mut self, packet: &str) -> String {
        self.send(packet);
        self.answer_within(LONGEST_ANSWER).expect("an answer")
    }

    fn send(&mut self, packet: &str) {
        let sum = packet.bytes().fold(0u8, u8::wrapping_add);
        let text = format!("${packet}#{sum:02x}");
        self.0.get_mut().write_all(text.as_bytes()).expect("write");
    }

    /// Waits until the last packet was read.
    fn taken(&mut self) {
        self.0.read_until(b'+', &mut Vec::new()).expect("read");
    }

    /// The next packet. `None` if none came in time.
    fn answer_within(&mut self, time: Duration) -> Option<String> {
        let mut bytes = Vec::new();
        self.limit(time);
        let begun = self.0.read_until(b'$', &mut bytes);
        self.limit(LONGEST_ANSWER);
        match begun {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
            read => read.expect("read"),
        };
        bytes.clear();
        self.0.read_until(b'#', &mut bytes).expect("read");
        self.0.read_exact(&mut [0; 2]).expect("checksum");
        self.0.get_mut().write_all(b"+").expect("write");
        assert_eq!(bytes.pop(), Some(b'#'), "the server has gone");
        Some(String::from_utf8(bytes).expect("text"))
    }

    /// Sets the time after which a read fails.
    fn limit(&self, time: Duration) {
        let stream = self.0.get_ref();
        stream.set_read_timeout(Some(time)).expect("timeout");
    }

    fn threads(&mut self) -> Vec<u64> {
        let mut threads = Vec::new();
        let mut part = self.ask("qfThreadInfo");
        while let Some(list) = part.strip_prefix('m') {
            threads.extend(list.split(',').map(hex));
            part = self.ask("qsThreadInfo");
        }
        threads
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

/// The thread's scheduling counters, if it sleeps. qemu's threads are the guest's.
fn sleeping(pid: u32, thread: u64) -> Option<Vec<String>> {
    let path = format!("/proc/{pid}/task/{thread}/status");
    let status = std::fs::read_to_string(path).ok()?;
    let switches = status.lines().filter(|line| line.contains("ctxt_switches"));
    let sleeps = status.lines().any(|line| line.starts_with("State:\tS"));
    sleeps.then(|| switches.map(ToOwned::to_owned).collect())
}
