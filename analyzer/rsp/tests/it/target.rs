//! A small program under a real server: its build, and one session that uses the whole client.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use unspool_rsp::{Action, Breakpoint, Client, ClientOptions, StopReply, Stream, ThreadId};

/// Long enough for a loaded machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// The compiled program.
pub(crate) struct Program {
    _directory: tempfile::TempDir,
    pub(crate) path: PathBuf,
    pub(crate) facts: Facts,
}

/// The facts about the program that the session needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) marker: u64,
    /// Size of the breakpoint instruction at the marker.
    pub(crate) size: u8,
    pub(crate) message: u64,
}

/// Compiles programs/threads.c. `prefix` is the tool chain's (`arm-linux-gnueabihf-`).
pub(crate) fn build(prefix: &str, flags: &[&str], size: u8) -> Program {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("threads");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/threads.c");
    let compiler = format!("{prefix}gcc");
    let mut command = Command::new(&compiler);
    command.args(["-O1", "-g", "-pthread"]).args(flags);
    run(command.arg("-o").arg(&path).arg(source));
    let symbols = run(Command::new(format!("{prefix}nm")).arg(&path));
    let address = |name: &str| {
        let line = symbols.lines().find(|l| l.split(' ').nth(2) == Some(name));
        u64::from_str_radix(line.unwrap().split(' ').next().unwrap(), 16).unwrap()
    };
    let facts = Facts {
        marker: address("marker") & !1,
        size,
        message: address("message"),
    };
    Program {
        _directory: directory,
        path,
        facts,
    }
}

/// Runs a tool to its end and returns its output.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("{command:?} is needed for this test: {e}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {text}\n{errors}");
    text
}

/// The register values that gdb prints: `info registers`, second column.
pub(crate) fn gdb_registers(gdb: &str, address: &str, program: &Program) -> BTreeMap<String, u64> {
    let text = run(Command::new(gdb)
        .args(["-nx", "-batch", "-ex", "set pagination off"])
        .args(["-ex", &format!("target remote {address}")])
        .args(["-ex", &format!("break *{:#x}", program.facts.marker)])
        .args(["-ex", "continue", "-ex", "info registers", "-ex", "kill"])
        .arg(&program.path));
    text.lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let (name, value) = (words.next()?, words.next()?.strip_prefix("0x")?);
            Some((name.to_owned(), u64::from_str_radix(value, 16).ok()?))
        })
        .collect()
}

/// A child process that is killed with the test.
pub(crate) struct Server(pub(crate) Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A transcript sink whose content can be read.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

pub(crate) fn options(log: &Log) -> ClientOptions {
    ClientOptions {
        timeout: TIMEOUT,
        log: Some(Box::new(log.clone())),
        ..ClientOptions::default()
    }
}

/// Runs to the marker. Returns the thread that stopped there.
pub(crate) fn run_to_marker(client: &mut Client, facts: &Facts) -> (ThreadId, StopReply) {
    client.stop_reason().unwrap();
    let breakpoint = Breakpoint::software(facts.marker, facts.size);
    client.insert_breakpoint(breakpoint).unwrap();
    client.resume(&[(Action::Continue, None)]).unwrap();
    let stop = client.wait(Some(TIMEOUT)).unwrap().expect("a stop");
    (stop.thread().expect("a thread"), stop)
}

/// The value of a register, by name.
pub(crate) fn value(client: &mut Client, thread: ThreadId, name: &str) -> Option<u64> {
    let registers = client.registers(thread).unwrap();
    registers.value(client.description().register(name)?)
}

/// Runs a whole session with the program, and returns one line for each observation. It is
/// deterministic, so that a replay of its transcript must return the same lines.
pub(crate) fn drive(stream: Stream, facts: &Facts, log: &Log) -> Vec<String> {
    let mut client = Client::over(stream, options(log)).unwrap();
    let mut seen = Vec::new();
    let mut see = |what: &str, value: String| seen.push(format!("{what}: {value}"));
    see(
        "architecture",
        format!("{:?}", client.description().architecture),
    );
    see(
        "registers",
        format!("{}", client.description().registers.len()),
    );
    let entry = client
        .auxv()
        .unwrap()
        .into_iter()
        .find(|(kind, _)| *kind == 9);
    see("entry", format!("{:x?}", entry));
    let (thread, stop) = run_to_marker(&mut client, facts);
    let StopReply::Stopped { signal, reason, .. } = &stop else {
        panic!("{stop:?}");
    };
    see("stop", format!("{signal} {reason:?}"));
    let pc_name = ["pc", "rip"]
        .into_iter()
        .find(|n| client.description().register(n).is_some());
    let pc_name = pc_name.unwrap();
    let at = value(&mut client, thread, pc_name).unwrap();
    assert_eq!(at, facts.marker);
    let threads = client.threads().unwrap();
    assert!(threads.contains(&thread));
    see("threads", format!("{}", threads.len()));
    for thread in &threads {
        see(
            "name",
            format!("{:?}", client.thread_name(*thread).unwrap()),
        );
    }
    let text = client.read_memory(facts.message, 14).unwrap();
    see("message", String::from_utf8_lossy(&text).into_owned());

    let mut batch = client.batch();
    let others: Vec<_> = threads.iter().map(|t| batch.registers(*t)).collect();
    let code = batch.read_memory(facts.message, 5);
    let mut answers = batch.send().unwrap();
    let pc = &client.description().register(pc_name).unwrap().clone();
    for (thread, ticket) in threads.iter().zip(others) {
        let registers = answers.take(ticket).unwrap();
        assert_eq!(
            registers.value(pc) == Some(at),
            *thread == stop.thread().unwrap()
        );
    }
    assert_eq!(answers.take(code).unwrap(), b"hello");

    client.write_memory(facts.message, b"J").unwrap();
    see(
        "changed",
        format!("{:x?}", client.read_memory(facts.message, 2).unwrap()),
    );
    see("null", client.read_memory(0, 16).unwrap_err().to_string());
    match client.libraries() {
        Ok(list) => list.iter().for_each(|l| see("library", l.path.clone())),
        Err(error) => see("libraries", error.to_string()),
    }
    match client.read_file("/proc/self/comm", 100) {
        Ok(bytes) => see("file", String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) => see("file", error.to_string()),
    }
    match client.read_file("/no/such/file", 100) {
        Ok(_) => panic!("it exists"),
        Err(error) => see("no file", error.to_string()),
    }
    see(
        "events",
        format!("{:?}", client.thread_events(false).unwrap()),
    );
    see(
        "pass",
        format!("{:?}", client.pass_signals(&[14, 20]).unwrap()),
    );

    let number = pc.number;
    let size = pc.size();
    client
        .write_register(thread, number, &at.to_le_bytes()[..size])
        .unwrap();
    client
        .remove_breakpoint(Breakpoint::software(facts.marker, facts.size))
        .unwrap();
    client.resume(&[(Action::Step, Some(thread))]).unwrap();
    let stop = client.wait(Some(TIMEOUT)).unwrap().unwrap();
    assert!(
        matches!(stop, StopReply::Stopped { signal: 5, .. }),
        "{stop:?}"
    );
    let stepped = value(&mut client, thread, pc_name).unwrap();
    assert!((1..16).contains(&(stepped - at)), "{at:x} -> {stepped:x}");
    see("step", format!("{}", stepped - at));
    client.resume(&[(Action::Continue, None)]).unwrap();
    match client.wait(Some(TIMEOUT)).unwrap().unwrap() {
        StopReply::Exited { code, .. } => see("exit", code.to_string()),
        other => panic!("{other:?}"),
    }
    seen
}
