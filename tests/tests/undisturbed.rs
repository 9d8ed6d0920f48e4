//! Tests that recordings and inspections do not affect the program and the processes around it, or
//! report that they do.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use unspool_tests::process::{self, Background};
use unspool_tests::{report, waiting, workspace};

pub(crate) fn trials() -> Vec<Trial> {
    [
        ("other_processes", other_processes as fn() -> Result<()>),
        ("filtered_calls", filtered_calls),
        ("large_frames", large_frames),
        ("starts_of_processes", starts_of_processes),
        ("set_user_id", set_user_id),
        ("ignored_signals", ignored_signals),
        ("ending_process", ending_process),
        ("calls_of_inspected_threads", calls_of_inspected_threads),
        ("stops_of_inspected_threads", stops_of_inspected_threads),
        ("calls_of_recorded_threads", calls_of_recorded_threads),
        ("watchpoint_in_left_thread", watchpoint_in_left_thread),
        ("missed_change_of_a_word", missed_change_of_a_word),
    ]
    .into_iter()
    .map(|(name, check)| crate::trial(format!("undisturbed::{name}"), check))
    .collect()
}

const LIMIT: Duration = Duration::from_secs(60);
const OPTIONS: [&str; 4] = ["gcc", "-g", "-O1", "-pthread"];

/// The signals up to 31. The C library keeps the next ones for itself.
const STANDARD_SIGNALS: u64 = 0x7fff_ffff;

/// The program ignores the signals that it would ignore without the recorder: SIGHUP as under
/// nohup(1), and not those that the C library keeps for itself.
fn ignored_signals() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let recorder = report::unspool()?;
    let script = "trap '' HUP; exec \"$0\" record -q -o \"$1\" -- grep SigIgn: /proc/self/status";
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).arg(recorder.get_program());
    shell.arg(folder.path().join("capture"));
    let run = process::run(&mut shell, LIMIT)?.success()?;
    let mask = |status: &str| -> Result<u64> {
        let mut lines = status.lines();
        let mask = lines.find_map(|line| line.strip_prefix("SigIgn:"));
        Ok(u64::from_str_radix(mask.context("a mask")?.trim(), 16)?)
    };
    let own = mask(&std::fs::read_to_string("/proc/self/status")?)?;
    // Rust's runtime ignores SIGPIPE, but not in the programs that it starts.
    let inherited = own & STANDARD_SIGNALS & !(1 << (Signal::SIGPIPE as u32 - 1));
    ensure!(mask(&run.text())? == inherited | 1, "{run}");
    Ok(())
}

/// The report names the programs that were started, however they were started.
fn other_processes() -> Result<()> {
    let (folder, program) = waiting::compile_in(".", "processes.c", &OPTIONS)?;
    let capture = folder.path().join("capture");
    let mut record = report::unspool()?;
    record.args(["record", "-o"]).arg(&capture).arg("--");
    let run = process::run(record.arg(&program), LIMIT)?.success()?;
    let json = report::json(&capture, &[])?;
    let processes = json["processes"].as_array().context("processes")?;
    let mut names: Vec<&str> = processes
        .iter()
        .map(|process| process["executable"].as_str().unwrap_or_default())
        .map(|path| path.rsplit('/').next().unwrap_or(path))
        .collect();
    // The shell of system() and popen().
    let shell = std::fs::canonicalize("/bin/sh")?;
    let shell = shell.file_name().and_then(|name| name.to_str());
    let shell = shell.context("/bin/sh has a name")?;
    names.sort_unstable();
    let mut expected = ["", shell, shell, "sleep", "true"];
    expected.sort_unstable();
    ensure!(names == expected, "{names:?}\n{run}");
    let main = &json["threads"][0]["tid"];
    ensure!(
        processes
            .iter()
            .all(|process| &process["creator_tid"] == main)
    );
    let second = run.stderr.lines().nth(1).unwrap_or_default();
    ensure!(
        second.starts_with("It started 5 processes: ") && run.stderr.contains("sleep"),
        "{run}"
    );
    ensure!(
        processes
            .iter()
            .all(|process| process["times"]["running_ns"].as_u64() > Some(0)),
        "{processes:#?}"
    );
    // Without the option that records them, the report says so.
    let mut record = report::unspool()?;
    record.args(["record", "--no-follow", "-o"]).arg(&capture);
    let run = process::run(record.arg("--").arg(&program), LIMIT)?.success()?;
    let second = run.stderr.lines().nth(1).unwrap_or_default();
    ensure!(
        second.starts_with("It started 5 other processes, which were not recorded:"),
        "{run}"
    );
    Ok(())
}

/// The kernel resumes an interrupted sleep with a system call that this program's filter forbids.
fn filtered_calls() -> Result<()> {
    let (folder, program) = waiting::compile_in(".", "sealed.c", &OPTIONS)?;
    let capture = folder.path().join("capture");
    for words in [&["inspect"][..], &["record", "-q", "--sync", "-o"]] {
        // Built before the program starts, which sleeps for three seconds.
        let mut command = report::unspool()?;
        let mut child = Background(process::start(
            Command::new(&program).stdout(Stdio::piped()),
        )?);
        let mut line = String::new();
        BufReader::new(child.0.stdout.take().context("piped")?).read_line(&mut line)?;
        ensure!(line == "ready\n", "{line:?}");
        command.args(words);
        if words.len() > 1 {
            command.arg(&capture);
        }
        command.args(["--attach", &child.0.id().to_string()]);
        let run = process::run(&mut command, LIMIT)?;
        child
            .ends_well("the program", LIMIT)
            .with_context(|| format!("{run}"))?;
        run.success()?;
    }
    Ok(())
}

/// A creation from a large frame does not stop all threads, which would interrupt their system
/// calls. It has its caller.
fn large_frames() -> Result<()> {
    let (folder, program) = waiting::compile_in(".", "frames.c", &OPTIONS)?;
    let capture = folder.path().join("capture");
    let mut record = report::unspool()?;
    record.args(["record", "-q", "-o"]).arg(&capture).arg("--");
    let run = process::run(record.arg(&program), LIMIT)?.success()?;
    ensure!(run.text() == "write 262144\nepoll_wait 0 0\n", "{run}");
    let mut view = report::unspool()?;
    let text = process::run(view.arg("report").arg(&capture), LIMIT)?;
    let text = text.success()?.text();
    let created = text.matches("created by  main").count();
    ensure!(created == 3, "{text}");
    Ok(())
}

/// When a process starts, no other thread stops. All starts are recorded.
fn starts_of_processes() -> Result<()> {
    for compiler in [&OPTIONS[..], &["musl-gcc", "-static", "-O1"]] {
        let (folder, program) = waiting::compile_in(".", "starts.c", compiler)?;
        let capture = folder.path().join("capture");
        for options in [&["-q"][..], &["-q", "--sync"], &["-q", "--no-follow"]] {
            let mut record = report::unspool()?;
            record.arg("record").args(options);
            record.arg("-o").arg(&capture).arg("--");
            let run = process::run(record.arg(&program), LIMIT)?.success()?;
            ensure!(run.text() == "epoll_wait 1 0\nwrite 262144\n", "{run}");
            let json = report::json(&capture, &[])?;
            let processes = json["processes"].as_array().context("processes")?;
            let started = |process: &&serde_json::Value| {
                let path = process["executable"].as_str();
                path.is_some_and(|path| path.ends_with("/sleep"))
            };
            ensure!(processes.iter().filter(started).count() == 15, "{run}");
        }
    }
    Ok(())
}

/// Without privilege, a recorder makes a set-user-ID program run without its privilege. The report
/// says so.
fn set_user_id() -> Result<()> {
    let folder = tempfile::tempdir()?;
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777))?;
    // Other users may have no access to the target directory.
    let unspool = folder.path().join("unspool");
    process::install(&workspace::unspool()?, &unspool, 0o755)?;
    for (program, noted) in [("su", true), ("true", false)] {
        let mut command = if nix::unistd::geteuid().is_root() {
            let mut unprivileged = Command::new("setpriv");
            unprivileged.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
            unprivileged.arg(&unspool);
            unprivileged
        } else {
            Command::new(&unspool)
        };
        command.env("HOME", folder.path()).current_dir(&folder);
        command.args(["record", "-o", program, "--", program, "--version"]);
        let run = process::run(&mut command, LIMIT)?.success()?;
        let says = run.stderr.contains("the set-user-ID bit of");
        ensure!(says == noted, "{run}");
    }
    Ok(())
}

/// Whatever a process lacks while it is ending, the error says that it has ended.
fn ending_process() -> Result<()> {
    let (folder, program) = waiting::compile_in(".", "shortlife.c", &OPTIONS)?;
    let capture = folder.path().join("capture");
    let mut ended = 0;
    for round in 0..60 {
        let nap = (2000 + 300 * round).to_string();
        let child = Background(process::start(Command::new(&program).arg(nap))?);
        let mut command = report::unspool()?;
        if round % 2 == 0 {
            command.arg("inspect");
        } else {
            command.args(["record", "-q", "-o"]).arg(&capture);
        }
        command.args(["--attach", &child.0.id().to_string()]);
        let run = process::run(&mut command, LIMIT)?;
        if run.code()? == 0 {
            continue;
        }
        ended += 1;
        ensure!(run.stderr.contains("has ended"), "{run}");
    }
    // A zombie.
    let child = Background(process::start(&mut Command::new(&program))?);
    std::thread::sleep(Duration::from_millis(300));
    let mut command = report::unspool()?;
    command.args(["inspect", "--attach", &child.0.id().to_string()]);
    let run = process::run(&mut command, LIMIT)?;
    ensure!(
        run.code()? == 1 && run.stderr.contains("has ended"),
        "{ended} before: {run}"
    );
    Ok(())
}

/// An inspection does not end the system calls in which threads sleep, and shows their stacks.
fn calls_of_inspected_threads() -> Result<()> {
    let program = Interrupted::start()?;
    let pid = program.process.0.id();
    for _ in 0..3 {
        let shown = inspect(pid)?;
        let functions = ["writes", "polls", "receives", "reads", "waits"];
        let places = functions.map(|name| shown.find(&format!("\n    {name} ")));
        ensure!(
            places.is_sorted() && places[0].is_some(),
            "{functions:?} are not all there in this order:\n{shown}"
        );
        ensure!(!shown.contains("What is missing"), "{shown}");
    }
    program.end_uninterrupted()
}

/// An inspection stops a thread once: the thread leaves its processor for the stop, and again for
/// the rest of its sleep. Another stop to detach from the thread would double the number.
fn stops_of_inspected_threads() -> Result<()> {
    let program = Background(process::start(Command::new("sleep").arg("60"))?);
    let pid = program.0.id();
    let sleeps = || {
        let calls = process::calls(pid);
        calls
            .values()
            .any(|call| call.starts_with(&format!("{} ", nix::libc::SYS_clock_nanosleep)))
    };
    process::wait_until("sleep", LIMIT, sleeps)?;
    let switches = || -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let mut lines = status.lines();
        let count = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        count.trim().parse().ok()
    };
    let before = switches().context("a count")?;
    for round in 1..=5 {
        inspect(pid)?;
        let expected = Some(before + 2 * round);
        process::wait_until("two switches", Duration::from_secs(20), || {
            switches() == expected
        })?;
    }
    Ok(())
}

/// Nor does a recording, neither when it attaches nor when it ends.
fn calls_of_recorded_threads() -> Result<()> {
    for options in [&[][..], &["--sync"], &["--trace", "writes"]] {
        let program = Interrupted::start()?;
        let folder = tempfile::tempdir()?;
        let pid = program.process.0.id().to_string();
        let mut record = report::unspool()?;
        record.args(["record", "--attach", &pid]).args(options);
        record.arg("-o").arg(folder.path().join("capture"));
        record.stderr(Stdio::piped());
        let mut record = Background(process::start(&mut record)?);
        std::thread::sleep(Duration::from_secs(1));
        kill(Pid::from_raw(record.0.id().cast_signed()), Signal::SIGINT)?;
        record.ends_well("the recording", LIMIT)?;
        program
            .end_uninterrupted()
            .with_context(|| format!("{options:?}"))?;
    }
    Ok(())
}

/// Neither an inspection nor a recording ends a hang that a stop would end. An inspection proves
/// it.
fn missed_change_of_a_word() -> Result<()> {
    let (folder, file) = waiting::compile_in(".", "missed.c", &OPTIONS)?;
    let mut program = Command::new(&file);
    let mut program = Background(process::start(program.stdout(Stdio::piped()))?);
    let pid = program.0.id();
    let mut output = BufReader::new(program.0.stdout.take().context("piped")?);
    output.read_line(&mut String::new())?;
    let both_sleep = || {
        let calls = process::calls(pid);
        calls.len() == 2 && calls.values().all(|call| call.starts_with("202 "))
    };
    process::wait_until("both threads sleep", LIMIT, both_sleep)?;
    let before = process::calls(pid);
    for _ in 0..3 {
        let shown = inspect(pid)?;
        for words in ["Wake-up that cannot come (proved)", "futex at 0x", "waits "] {
            ensure!(shown.contains(words), "{words}: {shown}");
        }
    }
    let mut record = report::unspool()?;
    record.args(["record", "-q", "--attach", &pid.to_string()]);
    record.args(["--duration", "0.5", "-o"]);
    process::run(record.arg(folder.path().join("capture")), LIMIT)?.success()?;
    ensure!(process::calls(pid) == before, "{:?}", process::calls(pid));
    Ok(())
}

/// A watchpoint needs debug registers of every thread, so it stops threads that were left asleep.
fn watchpoint_in_left_thread() -> Result<()> {
    let program = Interrupted::start()?;
    let stub = workspace::stub()?;
    let pid = program.process.0.id();
    let target = format!(
        "target remote | {} --leave-asleep --attach - {pid}",
        stub.display()
    );
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-batch", "-ex", "set debuginfod enabled off"]);
    gdb.args(["-ex", &target, "-ex", "watch polled", "-ex", "continue"]);
    let run = process::run(gdb.arg(&program.file), LIMIT)?;
    ensure!(run.text().contains("New value = 1"), "{run}");
    Ok(())
}

/// A program whose threads sleep in system calls that a stop would end.
struct Interrupted {
    process: Background,
    file: std::path::PathBuf,
    _folder: tempfile::TempDir,
}

impl Interrupted {
    /// Starts it, and waits until the threads sleep.
    fn start() -> Result<Interrupted> {
        let (folder, file) = waiting::compile_in(".", "interrupted.c", &OPTIONS)?;
        let mut program = Command::new(&file);
        program.stdin(Stdio::piped()).stdout(Stdio::piped());
        let process = Background(process::start(&mut program)?);
        let pid = process.0.id();
        // write, epoll_wait, recvfrom, read, and read of the input, futex (x86-64)
        let expected = ["0", "0", "1", "202", "232", "45"];
        process::wait_until("all threads sleep in their calls", LIMIT / 10, || {
            let calls = process::calls(pid);
            let numbers = calls.values().filter_map(|call| call.split(' ').next());
            let mut numbers: Vec<&str> = numbers.collect();
            numbers.sort_unstable();
            numbers == expected
        })?;
        Ok(Interrupted {
            process,
            file,
            _folder: folder,
        })
    }

    /// Lets it end. Fails if a stop has ended a call.
    fn end_uninterrupted(mut self) -> Result<()> {
        drop(self.process.0.stdin.take());
        let mut results = String::new();
        let mut output = self.process.0.stdout.take().context("piped")?;
        output.read_to_string(&mut results)?;
        let mut results: Vec<&str> = results.lines().map(str::trim).collect();
        results.sort_unstable();
        let expected = [
            "epoll_wait 0",
            "read -1 EAGAIN",
            "recv -1 EAGAIN",
            "write 1048576",
        ];
        ensure!(results == expected, "{results:?}");
        self.process.ends_well("the program", LIMIT)
    }
}

fn inspect(pid: u32) -> Result<String> {
    let mut command = report::unspool()?;
    command.args(["inspect", "--attach", &pid.to_string()]);
    Ok(process::run(&mut command, LIMIT)?
        .success()?
        .text()
        .to_owned())
}
