//! Tests sessions with qemu-arm's server. It runs ARM and Thumb code, always uses acknowledgements,
//! and sends no files.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use unspool_rsp::Client;

use crate::recorded;
use crate::target::{Log, Program, Server, build, drive, gdb_registers, options, run_to_marker};

/// Starts the program under qemu-arm, whose server listens on a Unix-domain socket.
fn start(program: &Program, socket: &Path) -> Server {
    let child = Command::new("qemu-arm")
        .arg("-g")
        .arg(socket)
        .arg(&program.path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("qemu-arm is needed for this test");
    let server = Server(child);
    let deadline = Instant::now() + Duration::from_secs(20);
    while !socket.exists() {
        assert!(Instant::now() < deadline, "qemu-arm does not listen");
        std::thread::sleep(Duration::from_millis(10));
    }
    server
}

/// Connects. The socket may exist shortly before qemu listens on it.
fn connect(socket: &Path) -> UnixStream {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match UnixStream::connect(socket) {
            Ok(stream) => return stream,
            Err(e) => assert!(Instant::now() < deadline, "{e}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn thumb() -> Program {
    build("arm-linux-gnueabihf-", &["-static", "-mthumb"], 2)
}

#[test]
fn a_session_and_its_replay() {
    for (name, program) in [
        ("qemu-arm-thumb", thumb()),
        (
            "qemu-arm-a32",
            build("arm-linux-gnueabihf-", &["-static", "-marm"], 4),
        ),
    ] {
        let socket = program.path.with_extension("socket");
        let _server = start(&program, &socket);
        let log = Log::default();
        let seen = drive(connect(&socket).into(), &program.facts, &log);
        for expected in [
            "architecture: Some(\"arm\")",
            "threads: 4",
            "message: hello, unspool",
            "changed: [4a, 65]",
            "events: false",
            "exit: 7",
        ] {
            assert!(seen.iter().any(|s| s == expected), "{expected}: {seen:#?}");
        }
        assert!(
            seen.iter()
                .any(|s| s.contains("does not support `vFile:open")),
            "{seen:#?}"
        );
        recorded::check(&log.text(), &program.facts, &seen);
        recorded::bless(name, &log.text(), &program.facts, &seen);
    }
}

#[test]
fn registers_are_what_gdb_shows() {
    let program = thumb();
    let socket = program.path.with_extension("gdb");
    let server = start(&program, &socket);
    let shown = gdb_registers("gdb-multiarch", socket.to_str().unwrap(), &program);
    assert!(shown.len() >= 17, "{shown:?}");
    drop(server);
    let socket = program.path.with_extension("ours");
    let _server = start(&program, &socket);
    let mut client = Client::over(connect(&socket), options(&Log::default())).unwrap();
    let (thread, _) = run_to_marker(&mut client, &program.facts);
    let registers = client.registers(thread).unwrap();
    let description = client.description().clone();
    let value = |name: &str| registers.value(description.register(name).unwrap());
    // The condition flags depend on which thread reached the barrier first.
    let mode = |cpsr: u64| cpsr & 0x0fff_ffff;
    assert_eq!(value("cpsr").map(mode), Some(mode(shown["cpsr"])));
    assert_eq!(value("cpsr").unwrap() >> 5 & 1, 1, "Thumb state");
    for name in ["r0", "r1", "pc", "lr"] {
        assert_eq!(value(name), Some(shown[name]), "{name}");
    }
    assert_eq!((value("r0"), value("r1")), (Some(0x1234), Some(0x5678)));
    // `g` omits it, but `p` returns it.
    let d0 = description.register("d0").unwrap().number;
    let d0 = client.register(thread, d0).unwrap().unwrap();
    assert_eq!(d0, 2.5_f64.to_le_bytes());
    client.kill().unwrap();
}
