//! Tests unusual connections: a link that goes silent, a server that does not read while the
//! program runs, and a server of a whole machine.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use unspool_tests::process::{self, Background};
use unspool_tests::{qemu, report, waiting, workspace};

pub(crate) fn trials() -> Vec<Trial> {
    [
        ("silent_link", (|| silent(&[])) as fn() -> Result<()>),
        ("silent_link_with_sync", || silent(&["--sync"])),
        ("idle_under_qemu_arm", idle),
        ("whole_machine", whole_machine),
    ]
    .into_iter()
    .map(|(name, check)| crate::trial(format!("connections::{name}"), check))
    .collect()
}

const LIMIT: Duration = Duration::from_secs(60);

/// Has a second thread, and idles.
const IDLES: &str = "\
import threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
threading.Event().wait()
";

/// A proxy to a server that can stop forwarding without closing the connection.
fn proxy(server: String) -> Result<(String, Arc<AtomicBool>)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    let down = Arc::new(AtomicBool::new(false));
    let state = Arc::clone(&down);
    std::thread::spawn(move || -> Result<()> {
        let client = listener.accept()?.0;
        let server = TcpStream::connect(server)?;
        let back = (server.try_clone()?, client.try_clone()?);
        let backward = Arc::clone(&state);
        std::thread::spawn(move || forward(back.0, back.1, &backward));
        forward(client, server, &state)
    });
    Ok((address, down))
}

fn forward(mut from: TcpStream, mut to: TcpStream, down: &AtomicBool) -> Result<()> {
    let mut bytes = [0; 4096];
    loop {
        let count = from.read(&mut bytes)?;
        if count == 0 {
            return Ok(());
        }
        if !down.load(Ordering::SeqCst) {
            to.write_all(&bytes[..count])?;
        }
    }
}

/// A recording over a link that goes down ends, reports the reason, and is kept.
fn silent(options: &[&str]) -> Result<()> {
    let mut stub = Command::new(workspace::stub()?);
    stub.args(["127.0.0.1:0", "/usr/bin/python3", "-S", "-c", IDLES]);
    stub.stdin(Stdio::null()).stderr(Stdio::piped());
    let mut stub = Background(process::start(&mut stub)?);
    let mut errors = BufReader::new(stub.0.stderr.take().context("piped")?);
    let port = loop {
        let mut line = String::new();
        ensure!(errors.read_line(&mut line)? > 0, "the stub ended");
        if let Some(port) = line.trim().strip_prefix("Listening on port ") {
            break port.to_owned();
        }
    };
    std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
    let (address, down) = proxy(format!("127.0.0.1:{port}"))?;

    let folder = tempfile::tempdir()?;
    let capture = folder.path().join("capture");
    let mut command = record(&capture)?;
    command.args(["--connect", &address]).args(options);
    command.stderr(Stdio::piped());
    let mut recording = Background(process::start(&mut command)?);
    process::wait_until("the recording has both threads", LIMIT, || {
        report::report_while_recording(&capture).is_ok_and(|report| report.created().count() == 1)
    })?;
    down.store(true, Ordering::SeqCst);
    process::wait_until("the recording ends", LIMIT, || {
        !matches!(recording.0.try_wait(), Ok(None))
    })?;
    let code = recording.0.wait()?.code();
    let mut said = String::new();
    let mut stderr = recording.0.stderr.take().context("piped")?;
    stderr.read_to_string(&mut said)?;
    ensure!(code == Some(1), "{code:?}: {said}");
    ensure!(
        said.contains("error: the connection to the server was lost: no answer to `")
            && said.lines().count() == 1,
        "{said}"
    );
    let kept = report::report(&capture, &[])?;
    ensure!(kept.created().count() == 1, "{:?}", kept.threads);
    let lost = |note: &serde_json::Value| {
        note.to_string()
            .contains("the connection to the server was lost")
    };
    ensure!(kept.notes.iter().any(lost), "{:?}", kept.notes);
    Ok(())
}

fn record(capture: &Path) -> Result<Command> {
    let mut command = report::unspool()?;
    command.args(["record", "-q", "-o"]).arg(capture);
    Ok(command)
}

/// QEMU's server reads nothing while all threads wait. The recording still ends, knows every
/// thread, and the program continues.
fn idle() -> Result<()> {
    let (_folder, program) = waiting::compile_in(
        ".",
        "idle.c",
        &["arm-linux-gnueabihf-gcc", "-g", "-pthread"],
    )?;
    let mut waiting = qemu::start(&program, &[], Stdio::piped())?;
    let folder = tempfile::tempdir()?;
    let capture = folder.path().join("capture");
    let mut command = record(&capture)?;
    command.arg("--connect");
    command.arg(format!("unix:{}", waiting.socket.display()));
    command.arg("--sysroot").arg(qemu::sysroot()?);
    let mut recording = Background(process::start(&mut command)?);
    let mut output = BufReader::new(waiting.emulator.0.stdout.take().context("piped")?);
    let mut line = String::new();
    output.read_line(&mut line)?;
    ensure!(line == "idle\n", "{line:?}");
    kill(
        Pid::from_raw(recording.0.id().cast_signed()),
        Signal::SIGINT,
    )?;
    recording.ends_well("the recording", LIMIT)?;
    let report = report::report(&capture, &["--sysroot", &sysroot()?])?;
    let known = report.threads.iter().filter_map(|thread| thread.tid);
    ensure!(
        known.count() == 5,
        "{:?} {:?}",
        report.threads,
        report.notes
    );
    ensure!(report.created().count() == 4, "{:?}", report.threads);
    let alive = report.threads.iter().all(|thread| thread.end == "alive");
    ensure!(alive, "{:?}", report.threads);
    // An input line makes it print that it still runs.
    let mut input = waiting.emulator.0.stdin.take().context("piped")?;
    writeln!(input)?;
    line.clear();
    output.read_line(&mut line)?;
    ensure!(line == "still there\n", "{line:?}");
    Ok(())
}

fn sysroot() -> Result<String> {
    Ok(qemu::sysroot()?.display().to_string())
}

/// QEMU's system emulation with empty memory.
fn whole_machine() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let socket = |name: &str| -> PathBuf { folder.path().join(name) };
    let (gdb, monitor) = (socket("gdb"), socket("monitor"));
    let mut machine = Command::new("qemu-system-arm");
    machine.args(["-M", "virt", "-m", "64", "-nodefaults", "-display", "none"]);
    for (option, name, path) in [("-gdb", "gdb", &gdb), ("-mon", "monitor", &monitor)] {
        machine.arg("-chardev");
        machine.arg(format!(
            "socket,id={name},path={},server=on,wait=off",
            path.display()
        ));
        machine.arg(option);
        machine.arg(if option == "-gdb" {
            format!("chardev:{name}")
        } else {
            name.to_owned()
        });
    }
    machine.stdin(Stdio::null()).stdout(Stdio::null());
    let _machine = Background(process::start(&mut machine)?);
    qemu::listens(&gdb)?;
    for subcommand in ["inspect", "record"] {
        let mut command = report::unspool()?;
        command.arg(subcommand).current_dir(&folder);
        command.arg("--connect");
        command.arg(format!("unix:{}", gdb.display()));
        let run = process::run(&mut command, LIMIT)?;
        ensure!(run.code()? == 1, "{run}");
        ensure!(run.stderr.contains("a whole machine"), "{run}");
        ensure!(!folder.path().join("capture.unspool").exists());
    }
    // It must not be left stopped.
    let mut monitor = UnixStream::connect(&monitor)?;
    monitor.set_read_timeout(Some(LIMIT))?;
    monitor.write_all(b"info status\n")?;
    let mut said = String::new();
    let mut lines = BufReader::new(monitor);
    while !said.contains("VM status:") {
        ensure!(lines.read_line(&mut said)? > 0, "{said}");
    }
    ensure!(said.contains("VM status: running"), "{said}");
    Ok(())
}
