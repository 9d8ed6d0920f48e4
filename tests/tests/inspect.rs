//! Tests one inspection of a running process: all stacks equal gdb's, and the process continues.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use libtest_mimic::Trial;
use nix::pty::openpty;
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::sys::termios::{SetArg, cfmakeraw, tcgetattr, tcsetattr};
use nix::unistd::{Pid, mkfifo, ttyname};
use serde_json::Value;

use unspool_tests::backtrace::{self, Backtrace, Depth, Frame};
use unspool_tests::process::{self, Background};
use unspool_tests::waiting::{HERE, Waiting};
use unspool_tests::{report, truth, waiting, workspace};

const LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        crate::trial("inspect::attach", || {
            with_python(|pid| attached(&["--attach", &pid.to_string()]))
        }),
        crate::trial("inspect::gdbserver", || {
            with_python(|pid| through("gdbserver".as_ref(), pid))
        }),
        crate::trial("inspect::stub", || {
            with_python(|pid| through(&workspace::stub()?, pid))
        }),
        crate::trial("inspect::serial-line", || with_python(over_a_line)),
        crate::trial("inspect::text", text),
        crate::trial("inspect::signal-handler", signal_handler),
        crate::trial("inspect::opens", opens),
        crate::trial("inspect::other-mounts", other_mounts),
        crate::trial("inspect::deleted-files", || replaced_files(None)),
        crate::trial("inspect::replaced-files", || {
            replaced_files(Some("-Wl,--build-id=none"))
        }),
    ]
}

/// Three threads that wait, one that sleeps, and a main thread that reads.
const PYTHON: &str = "\
import sys, threading, time
event = threading.Event()
threads = [threading.Thread(target=event.wait) for n in range(3)]
threads.append(threading.Thread(target=time.sleep, args=(3600,), daemon=True))
for thread in threads: thread.start()
print('ready', flush=True)
sys.stdin.readline()
event.set()
print('done', flush=True)
";

/// A program whose executable and library were deleted has all names. With `option` for the
/// linker, other files have their paths, and no build-id tells them apart.
fn replaced_files(option: Option<&str>) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let [library, program] = ["liblocks.so", "run"].map(|name| folder.path().join(name));
    let sources = [
        (
            "locks.c",
            "#include <pthread.h>
            pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
            void lock(void) { pthread_mutex_lock(&once); }
            void lock_twice(void) { lock(); lock(); }",
        ),
        (
            "run.c",
            "void lock_twice(void); int main(void) { lock_twice(); }",
        ),
    ];
    for (name, text) in sources {
        std::fs::write(folder.path().join(name), text)?;
    }
    let compile = |args: &[&str]| {
        let mut gcc = Command::new("gcc");
        gcc.args(["-g", "-O0"]).args(option).args(args);
        process::run(gcc.current_dir(folder.path()), LIMIT)?.success()
    };
    compile(&["-shared", "-fPIC", "locks.c", "-o", "liblocks.so"])?;
    compile(&["run.c", "./liblocks.so", "-o", "run"])?;
    let mut command = Command::new(&program);
    command.current_dir(folder.path()).process_group(0);
    let running = Background(command.spawn()?);
    let pid = running.0.id();
    process::wait_until("the program waits", LIMIT, || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.is_ok_and(|stat| stat.contains(") S "))
    })?;
    for file in [&library, &program] {
        std::fs::remove_file(file)?;
    }
    if option.is_some() {
        compile(&["-shared", "run.c", "-fPIC", "-o", "liblocks.so"])?;
        std::fs::copy(&library, &program)?;
    }
    let mut inspect = report::unspool()?;
    inspect.args(["inspect", "--attach", &pid.to_string()]);
    let run = process::run(&mut inspect, LIMIT)?.success()?;
    for expected in [
        "waiting for mutex once",
        "lock_twice ",
        "locks.c:4",
        "run.c:1",
        "liblocks.so, run: deleted or replaced",
    ] {
        ensure!(run.text().contains(expected), "{expected}: {run}");
    }
    Ok(())
}

/// The files of a program in another mount namespace are those that it sees. Here, another program
/// has the same path.
fn other_mounts() -> Result<()> {
    let command = ["gcc", "-g", "-O0", "-pthread"];
    let (folder, program) = waiting::compile("abba.c", &command)?;
    let mounted = folder.path().join("mounted");
    std::fs::create_dir(&mounted)?;
    std::fs::copy("/bin/true", mounted.join("run"))?;
    let script = "mount -t tmpfs tmpfs \"$1\" && cp \"$2\" \"$1/run\" && exec \"$1/run\"";
    let mut unshare = Command::new("unshare");
    unshare.args(["--map-root-user", "--mount", "sh", "-c", script, "sh"]);
    unshare.args([&mounted, &program]);
    let waiting = Waiting::start(&mut unshare, folder)?;
    waiting.wait_until_blocked(HERE)?;
    let mut inspect = report::unspool()?;
    inspect.args(["inspect", "--attach", &waiting.pid.to_string()]);
    let run = process::run(&mut inspect, LIMIT)?.success()?;
    for expected in ["Deadlock (proved)", "mutex journal", "transfer", "abba.c:"] {
        ensure!(run.text().contains(expected), "{expected}: {run}");
    }
    Ok(())
}

/// Starts Python and passes its pid to `look`, whose result must equal gdb's. Then Python must end
/// well.
fn with_python(look: impl FnOnce(u32) -> Result<BTreeMap<u64, Backtrace>>) -> Result<()> {
    let mut python = Command::new("/usr/bin/python3");
    python.args(["-S", "-c", PYTHON]);
    python
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit());
    let mut python = Background(process::start(&mut python)?);
    let mut lines = BufReader::new(python.0.stdout.take().context("piped")?).lines();
    ensure!(
        lines.next().transpose()?.as_deref() == Some("ready"),
        "Python did not start"
    );
    let pid = python.0.id();
    process::wait_until("all threads wait", LIMIT, || {
        let before = process::calls(pid);
        std::thread::sleep(Duration::from_millis(100));
        let running = before.values().any(|call| call.starts_with("running"));
        !before.is_empty() && !running && before == process::calls(pid)
    })?;
    let seen = look(pid)?;
    let expected = truth::stacks(pid)?;
    ensure!(
        expected.keys().eq(seen.keys()),
        "gdb sees the threads {:?}, we see {:?}",
        expected.keys(),
        seen.keys()
    );
    for (tid, stack) in &expected {
        backtrace::compare(
            std::slice::from_ref(stack),
            &[seen[tid].clone()],
            Depth::Addresses,
        )
        .with_context(|| format!("thread {tid}"))?;
    }

    drop(python.0.stdin.take());
    ensure!(
        lines.next().transpose()?.as_deref() == Some("done"),
        "Python did not go on"
    );
    python.ends_well("Python", LIMIT)
}

fn attached(options: &[&str]) -> Result<BTreeMap<u64, Backtrace>> {
    let mut command = report::unspool()?;
    command
        .arg("inspect")
        .args(options)
        .args(["--format", "json"]);
    let run = process::run(&mut command, LIMIT)?.success()?;
    let value: Value = serde_json::from_slice(&run.stdout).with_context(|| run.to_string())?;
    stacks(&value).with_context(|| run.to_string())
}

/// The same through a server: gdbserver, and `unspool-stub` as on a target.
fn through(server: &Path, pid: u32) -> Result<BTreeMap<u64, Backtrace>> {
    let (mut server, address) = serve(server, pid)?;
    let folder = tempfile::tempdir()?;
    let log = folder.path().join("log");
    let log_to = log.to_str().context("a plain path")?;
    let stacks = attached(&["--connect", &address, "--rsp-log", log_to])?;
    // It ends when its client has left, and detaches from the process.
    server.ends_well("the server", LIMIT)?;
    let session = std::fs::read_to_string(log)?;
    // A list contains all threads. One list for each thread would take quadratic time.
    let lists = session.matches("qXfer:threads:read::0,").count();
    ensure!((1..=2).contains(&lists), "{lists} lists of threads");
    Ok(stacks)
}

/// A server attached to a process, and its address.
pub(crate) fn serve(server: &Path, pid: u32) -> Result<(Background, String)> {
    let mut command = Command::new(server);
    command.args(["--once", "--attach", "127.0.0.1:0", &pid.to_string()]);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut server = Background(process::start(&mut command)?);
    let lines = BufReader::new(server.0.stderr.take().context("piped")?).lines();
    for line in lines {
        if let Some(number) = line?.strip_prefix("Listening on port ") {
            return Ok((server, format!("127.0.0.1:{number}")));
        }
    }
    bail!("the server does not listen")
}

/// Connects through two pseudoterminals that act as a serial line.
fn over_a_line(pid: u32) -> Result<BTreeMap<u64, Backtrace>> {
    let (ours, theirs) = (openpty(None, None)?, openpty(None, None)?);
    // Wait until both lines are raw, or the terminals echo forever.
    for end in [&ours, &theirs] {
        let mut settings = tcgetattr(&end.slave)?;
        cfmakeraw(&mut settings);
        tcsetattr(&end.slave, SetArg::TCSANOW, &settings)?;
    }
    let mut command = Command::new(workspace::stub()?);
    command.args(["--attach".as_ref(), ttyname(&theirs.slave)?.as_os_str()]);
    command.arg(pid.to_string());
    let mut server = Background(process::start(&mut command)?);
    let ends = [File::from(ours.master), File::from(theirs.master)];
    for (from, to) in [(0, 1), (1, 0)] {
        let (mut from, mut to) = (ends[from].try_clone()?, ends[to].try_clone()?);
        std::thread::spawn(move || std::io::copy(&mut from, &mut to));
    }
    let line = format!("{},115200", ttyname(&ours.slave)?.display());
    // Any number of times.
    attached(&["--connect", &line])?;
    let stacks = attached(&["--connect", &line])?;
    kill(Pid::from_raw(server.0.id().cast_signed()), Signal::SIGTERM)?;
    server.ends_well("the server", LIMIT)?;
    Ok(stacks)
}

/// The stacks that `inspect` adds to every thread (docs/reference/report-json.md).
fn stacks(value: &Value) -> Result<BTreeMap<u64, Backtrace>> {
    let threads = value["threads"].as_array().context("no threads")?;
    threads
        .iter()
        .map(|thread| {
            let tid = thread["tid"].as_u64().context("no tid")?;
            let frames = thread["stack"].as_array().context("no stack")?;
            let stack = frames.iter().map(frame).collect::<Result<Backtrace>>()?;
            Ok((tid, stack))
        })
        .collect()
}

fn frame(value: &Value) -> Result<Frame> {
    Ok(Frame {
        module: value["module"]
            .as_str()
            .map_or("?", |path| path.rsplit('/').next().unwrap_or(path))
            .to_owned(),
        svma: value["svma"].as_u64().unwrap_or(0),
        inlined: value["inlined"].as_bool().context("no inlined")?,
        function: value["function"].as_str().map(str::to_owned),
        source: None,
    })
}

fn text() -> Result<()> {
    with_python(|pid| {
        let mut command = report::unspool()?;
        command.args(["inspect", "--attach", &pid.to_string()]);
        let run = process::run(&mut command, LIMIT)?.success()?;
        for word in ["in python3", "start_thread", "5 threads"] {
            ensure!(
                word.split('|').any(|word| run.text().contains(word)),
                "{word}\n{run}"
            );
        }
        for line in run.text().lines() {
            ensure!(
                line.chars().count() <= 100,
                "longer than 100 columns: {line:?}"
            );
        }
        attached(&["--attach", &pid.to_string()])
    })
}

/// The return address of a signal handler has a name in every C library's programs, and never that
/// of the preceding function.
fn signal_handler() -> Result<()> {
    for command in [
        &["gcc", "-O1", "-pthread"][..],
        &["gcc", "-O1", "-pthread", "-static"],
        &["musl-gcc", "-O1", "-pthread"],
        &["musl-gcc", "-O1", "-pthread", "-static"],
    ] {
        let (_folder, program) = waiting::compile("handler.c", command)?;
        let mut program = Command::new(program);
        let mut child = Background(process::start(program.stdout(Stdio::piped()))?);
        let mut lines = BufReader::new(child.0.stdout.take().context("piped")?).lines();
        ensure!(lines.next().transpose()?.as_deref() == Some("ready"));
        let stacks = attached(&["--attach", &child.0.id().to_string()])?;
        let stack = &stacks[&child.0.id().into()];
        let name = |frame: &Frame| frame.function.clone().unwrap_or_default();
        let at = stack.iter().position(|frame| name(frame) == "on_signal");
        let trampoline = stack.get(at.context("no handler")? + 1);
        let trampoline = trampoline.map(name).unwrap_or_default();
        ensure!(
            ["__restore_rt", "<signal handler called>"].contains(&trampoline.as_str()),
            "{command:?}: {trampoline:?} in {stack:?}"
        );
    }
    Ok(())
}

/// A thread that waits in `openat` names the file: a FIFO that nothing writes to.
fn opens() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let fifo = folder.path().join("fifo");
    mkfifo(&fifo, Mode::S_IRWXU)?;
    let cat = Background(process::start(Command::new("cat").arg(&fifo))?);
    let pid = cat.0.id();
    let expected = format!("in the system call openat of {}", fifo.display());
    let mut shown = String::new();
    process::wait_until(&expected, LIMIT / 10, || {
        let mut command = report::unspool().expect("it was built");
        command.args(["inspect", "--attach", &pid.to_string()]);
        let run = process::run(&mut command, LIMIT);
        shown = run.map_or_else(|error| error.to_string(), |run| run.text());
        shown.contains(&expected)
    })
    .with_context(|| shown.clone())
}
