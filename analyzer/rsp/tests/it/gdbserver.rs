//! Tests sessions with gdbserver on this machine.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use unspool_rsp::script::Script;
use unspool_rsp::{Client, Connection, ConnectionOptions, Endpoint, StopReply};

use crate::recorded;
use crate::target::{Log, Program, Server, build, drive, gdb_registers, options, run_to_marker};

/// Starts gdbserver with these arguments before and after its address. Returns the address.
fn start(before: &[&str], after: &[&str]) -> (Server, Endpoint) {
    let mut child = Command::new("gdbserver")
        .args(before)
        .arg("127.0.0.1:0")
        .args(after)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("gdbserver is needed for this test");
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let port = lines.by_ref().find_map(|line| {
        let line = line.unwrap();
        Some(line.strip_prefix("Listening on port ")?.to_owned())
    });
    // gdbserver must not find its standard error closed.
    std::thread::spawn(move || lines.for_each(drop));
    let port = port.expect("gdbserver names its port");
    (Server(child), format!("127.0.0.1:{port}").parse().unwrap())
}

fn program() -> Program {
    build("", &["-no-pie"], 1)
}

#[test]
fn a_session_and_its_replay() {
    let program = program();
    let (_server, endpoint) = start(&["--once"], &[program.path.to_str().unwrap()]);
    let stream = endpoint.open(std::time::Duration::from_secs(10)).unwrap();
    let log = Log::default();
    let seen = drive(stream, &program.facts, &log);
    for expected in [
        "architecture: Some(\"i386:x86-64\")",
        "stop: 5 SwBreak",
        "threads: 4",
        "name: Some(\"worker-1\")",
        "message: hello, unspool",
        "changed: [4a, 65]",
        "events: true",
        "pass: true",
        "exit: 7",
    ] {
        assert!(seen.iter().any(|s| s == expected), "{expected}: {seen:#?}");
    }
    assert!(
        seen.iter()
            .any(|s| s.starts_with("library: ") && s.contains("libc")),
        "{seen:#?}"
    );
    assert!(
        seen.iter().any(|s| s.starts_with("file: gdbserver")),
        "{seen:#?}"
    );
    assert!(
        seen.iter()
            .any(|s| s.contains("cannot open /no/such/file on the target: no such file"))
    );
    recorded::check(&log.text(), &program.facts, &seen);
    recorded::bless("gdbserver-x86_64", &log.text(), &program.facts, &seen);
}

#[test]
fn registers_are_what_gdb_shows() {
    let program = program();
    let path = program.path.to_str().unwrap();
    let (_server, endpoint) = start(&["--once"], &[path]);
    let shown = gdb_registers("gdb", &endpoint.to_string(), &program);
    assert!(shown.len() >= 24, "{shown:?}");
    let (_server, endpoint) = start(&["--once"], &[path]);
    let mut client = Client::connect(&endpoint, options(&Log::default())).unwrap();
    let (thread, stop) = run_to_marker(&mut client, &program.facts);
    let registers = client.registers(thread).unwrap();
    let description = client.description().clone();
    let value = |name: &str| registers.value(description.register(name).unwrap());
    // Registers that do not depend on address space randomization, which gdbserver may not be
    // allowed to disable.
    for name in ["rip", "rdi", "rsi", "cs", "ss", "eflags"] {
        assert_eq!(value(name), Some(shown[name]), "{name}");
    }
    assert_eq!((value("rdi"), value("rsi")), (Some(0x1234), Some(0x5678)));
    let xmm0 = registers
        .get(description.register("xmm0").unwrap())
        .unwrap();
    assert_eq!(xmm0[..8], 2.5_f64.to_le_bytes());
    let rip = description.register("rip").unwrap();
    assert_eq!(stop.expedited(rip.number), registers.get(rip));
    let one = client.register(thread, rip.number).unwrap().unwrap();
    assert_eq!(registers.get(rip), Some(&one[..]));
    client.kill().unwrap();
}

#[test]
fn memory_ends_where_the_kernel_says() {
    let program = program();
    let (_server, endpoint) = start(&["--once"], &[program.path.to_str().unwrap()]);
    let mut client = Client::connect(&endpoint, options(&Log::default())).unwrap();
    let (thread, _) = run_to_marker(&mut client, &program.facts);
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", thread.pid.unwrap())).unwrap();
    let stack = maps.lines().find(|l| l.ends_with("[stack]")).unwrap();
    let end = stack.split(['-', ' ']).nth(1).unwrap();
    let end = u64::from_str_radix(end, 16).unwrap();
    assert_eq!(client.read_memory(end - 5000, 20_000).unwrap().len(), 5000);
    assert_eq!(client.read_memory(end - 100, 100).unwrap().len(), 100);
    let text = client.read_memory(end, 1).unwrap_err().to_string();
    assert!(text.contains(&format!("{end:#x}")), "{text}");
    let file = std::fs::read(&program.path).unwrap();
    let path = program.path.to_str().unwrap();
    assert_eq!(client.read_file(path, 1 << 24).unwrap(), file);
    assert_eq!(
        client.open_file(path).unwrap().status().unwrap().size,
        file.len() as u64
    );
    assert_eq!(client.exec_file(thread.pid).unwrap().as_deref(), Some(path));
    let link = format!("/proc/{}/exe", thread.pid.unwrap());
    assert_eq!(client.read_link(&link).unwrap(), path);
    client.detach().unwrap();
}

#[test]
fn extended_mode_runs_kills_and_attaches() {
    let program = program();
    let (_server, endpoint) = start(&["--multi"], &[]);
    let mut client = Client::connect(&endpoint, options(&Log::default())).unwrap();
    client.extended_mode().unwrap();
    let output = Log::default();
    client.set_console(Box::new(output.clone()));
    assert!(!client.monitor("help").unwrap().is_empty());
    let stop = client.run(program.path.to_str().unwrap(), &["x"]).unwrap();
    assert!(matches!(stop, StopReply::Stopped { .. }));
    client.kill().unwrap();
    let sleeper = Command::new("sleep").arg("60").spawn().unwrap();
    let sleeper = Server(sleeper);
    let stop = client.attach(sleeper.0.id().into()).unwrap();
    assert_eq!(stop.thread().unwrap().pid, Some(sleeper.0.id().into()));
    client.detach().unwrap();
    let error = client.attach(0x7fff_0000).unwrap_err();
    assert!(error.to_string().contains("vAttach"), "{error}");
}

#[test]
fn a_script_against_a_live_server() {
    let program = program();
    let (_server, endpoint) = start(&["--once"], &[program.path.to_str().unwrap()]);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/first.script");
    let text = std::fs::read_to_string(script).unwrap();
    let mut connection = Connection::connect(&endpoint, ConnectionOptions::default()).unwrap();
    let summary = Script::parse("first.script", &text)
        .unwrap()
        .run(&mut connection)
        .unwrap();
    assert!(
        summary.sent >= 6 && summary.variables.contains_key("pid"),
        "{summary:?}"
    );
}

use std::path::Path;
