//! Tests programs that cannot be run and processes that cannot be attached to.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{Case, DEFAULT_BUILD, complains, fails};
use unspool_tests::finding::C;
use unspool_tests::process::{self, Background};
use unspool_tests::program::program;
use unspool_tests::{report, waiting, workspace};

pub(super) const TRIALS: &[Case] = &[
    ("no_such_program", no_such_program),
    ("no_such_program_for_the_stub", no_such_program_for_the_stub),
    ("not_executable", not_executable),
    ("a_directory", a_directory),
    ("not_a_program", not_a_program),
    ("wrong_architecture", wrong_architecture),
    ("truncated_program", truncated_program),
    ("pid_gone", pid_gone),
    ("one_of_several_gone", one_of_several_gone),
    ("no_such_name", no_such_name),
    ("several_to_record", several_to_record),
    ("several_by_a_server", several_by_a_server),
    ("not_ours", not_ours),
    ("attached_already", attached_already),
    ("in_vfork", in_vfork),
];

fn record(words: &[&Path]) -> Result<(Command, tempfile::TempDir)> {
    let folder = tempfile::tempdir()?;
    let mut command = report::unspool()?;
    command
        .args(["record", "-o"])
        .arg(folder.path().join("capture"))
        .arg("--")
        .args(words);
    Ok((command, folder))
}

/// A failed recording leaves no file that looks like a recording.
fn leaves_nothing(folder: &tempfile::TempDir) -> Result<()> {
    ensure!(
        !folder.path().join("capture").exists(),
        "a capture is left behind"
    );
    Ok(())
}

fn no_such_program() -> Result<()> {
    for name in ["/nonexistent/program", "no-such-program-anywhere"] {
        let (mut command, folder) = record(&[Path::new(name)])?;
        fails(&mut command, &[name, "no such|not found|does not exist"])?;
        leaves_nothing(&folder)?;
    }
    Ok(())
}

fn no_such_program_for_the_stub() -> Result<()> {
    let mut stub = Command::new(workspace::stub()?);
    stub.args(["127.0.0.1:0", "/nonexistent/program"]);
    fails(&mut stub, &["/nonexistent/program", "no such|not found"])?;
    Ok(())
}

fn file_with(bytes: &[u8], mode: u32) -> Result<(tempfile::TempDir, std::path::PathBuf)> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("program");
    let source = folder.path().join("bytes");
    std::fs::write(&source, bytes)?;
    process::install(&source, &file, mode)?;
    Ok((folder, file))
}

fn ordinary() -> Result<Vec<u8>> {
    Ok(std::fs::read(
        &DEFAULT_BUILD.built(program("pool"))?.program,
    )?)
}

fn not_executable() -> Result<()> {
    let (_folder, file) = file_with(&ordinary()?, 0o644)?;
    let (mut command, folder) = record(&[&file])?;
    fails(&mut command, &["program", "executable|permission", "chmod"])?;
    leaves_nothing(&folder)
}

fn a_directory() -> Result<()> {
    let (mut command, folder) = record(&[Path::new("/usr")])?;
    fails(
        &mut command,
        &["/usr", "directory|permission|not a program|executable"],
    )?;
    leaves_nothing(&folder)
}

fn not_a_program() -> Result<()> {
    let (_folder, file) = file_with(b"neither ELF nor script\n", 0o755)?;
    let (mut command, folder) = record(&[&file])?;
    fails(&mut command, &["program", "format|not a program|ELF"])?;
    leaves_nothing(&folder)
}

fn wrong_architecture() -> Result<()> {
    // e_machine: S/390, which no test machine runs, natively or through binfmt_misc.
    let mut bytes = ordinary()?;
    bytes[18..20].copy_from_slice(&22_u16.to_le_bytes());
    let (_folder, file) = file_with(&bytes, 0o755)?;
    let (mut command, folder) = record(&[&file])?;
    fails(&mut command, &["program", "architecture|machine|format"])?;
    leaves_nothing(&folder)
}

fn truncated_program() -> Result<()> {
    let (_folder, file) = file_with(&ordinary()?[..300], 0o755)?;
    let (mut command, folder) = record(&[&file])?;
    fails(&mut command, &["program"])?;
    leaves_nothing(&folder)
}

fn attach(command: &str, pid: u32) -> Result<Command> {
    let mut attach = report::unspool()?;
    attach.arg(command).args(["--attach", &pid.to_string()]);
    Ok(attach)
}

fn pid_gone() -> Result<()> {
    let mut child = Command::new("true").spawn()?;
    let pid = child.id();
    child.wait()?;
    let folder = tempfile::tempdir()?;
    fails(
        attach("inspect", pid)?.current_dir(&folder),
        &[&pid.to_string(), "no process|no such"],
    )?;
    fails(
        attach("record", pid)?.current_dir(&folder),
        &[&pid.to_string(), "no process|no such"],
    )?;
    let mut stub = Command::new(workspace::stub()?);
    stub.args(["--attach", "127.0.0.1:0", &pid.to_string()]);
    fails(&mut stub, &[&pid.to_string(), "no process|no such"])?;
    Ok(())
}

fn sleeper() -> Result<Background> {
    let mut sleep = Command::new("sleep");
    sleep.arg("60").stdin(Stdio::null()).stdout(Stdio::null());
    Ok(Background(process::start(&mut sleep)?))
}

/// The other process is shown. A script learns that nothing is known of the first.
fn one_of_several_gone() -> Result<()> {
    let mut child = Command::new("true").spawn()?;
    let gone = child.id();
    child.wait()?;
    let target = sleeper()?;
    let pid = target.0.id();
    let words = format!("{gone},{pid}");
    let inspect = || -> Result<Command> {
        let mut inspect = report::unspool()?;
        inspect.args(["inspect", "--attach", &words]);
        Ok(inspect)
    };
    let limit = Duration::from_secs(20);
    let shown = process::run(&mut inspect()?, limit)?.success()?;
    for words in [
        format!("was not inspected: there is no process {gone}"),
        format!("sleep (pid {pid}, "),
    ] {
        ensure!(
            shown.text().contains(&words),
            "{words:?} is missing:\n{shown}"
        );
    }
    let run = process::run(inspect()?.args(["--fail-on", "deadlock"]), limit)?;
    ensure!(run.code()? == 4, "{run}");
    complains(&run, &["failing: a process was not inspected"])?;
    let mut both_gone = report::unspool()?;
    both_gone.args(["inspect", "--attach", &format!("{gone},{gone}")]);
    fails(&mut both_gone, &[&format!("no process {gone}")])?;
    unharmed(pid)
}

fn no_such_name() -> Result<()> {
    for command in ["inspect", "record"] {
        let mut named = report::unspool()?;
        // The command's own arguments do not match.
        named.args([command, "--attach-name", "no-such-process*"]);
        let run = fails(
            &mut named,
            &["no process, program or script is named no-such-process*"],
        )?;
        ensure!(run.code()? == 1, "{run}");
    }
    Ok(())
}

/// If one of several processes cannot be recorded, none is.
fn several_to_record() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let [target, traced] = [sleeper()?, sleeper()?].map(|one| (one.0.id(), one));
    let mut tracer = attach("record", traced.0)?;
    tracer.args(["-q", "-o", "/dev/null"]);
    let tracer = Background(process::start(&mut tracer)?);
    process::wait_until("the recorder comes", Duration::from_secs(30), || {
        !process::is_untraced(traced.0)
    })?;
    let mut ended = Command::new("true").spawn()?;
    let gone = ended.id();
    ended.wait()?;
    let is_own = |tid: &u64| *tid != u64::from(std::process::id());
    let thread = process::calls(std::process::id()).into_keys().find(is_own);
    for (pid, words) in [
        (gone.into(), "there is no process"),
        (
            thread.context("a trial runs on a thread")?,
            "it is a thread of",
        ),
        (traced.0.into(), "records or inspects it already"),
    ] {
        let mut record = report::unspool()?;
        let both = format!("{},{pid}", target.0);
        record.args(["record", "-o", "capture", "--attach", &both]);
        fails(record.current_dir(&folder), &[words, &pid.to_string()])?;
        leaves_nothing(&folder)?;
        unharmed(target.0)?;
    }
    drop(tracer);
    Ok(())
}

/// A server has one program, so the message lists the processes that are named.
fn several_by_a_server() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut record = report::unspool()?;
    record.args(["record", "-o", "capture", "--connect", ":1"]);
    record.args(["--attach", "7,8"]);
    fails(
        record.current_dir(&folder),
        &["take one process", "7, 8", "--attach PID"],
    )?;
    leaves_nothing(&folder)
}

/// A thread that cannot be stopped for an unknown time: an inspection shows its stack. A recording
/// is refused, because a trap would kill the child that runs in the same memory. The process is not
/// affected.
fn in_vfork() -> Result<()> {
    let (_folder, file) = waiting::compile("lender.c", C)?;
    let mut program = Command::new(file);
    program.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = Background(process::start(&mut program)?);
    let mut said = String::new();
    BufReader::new(program.0.stdout.take().context("piped")?).read_line(&mut said)?;
    ensure!(said == "ready\n", "{said}");
    let pid = program.0.id();
    let folder = tempfile::tempdir()?;
    let shown = process::run(&mut attach("inspect", pid)?, Duration::from_secs(30))?.success()?;
    for words in ["in the system call vfork until process ", "\n    main "] {
        ensure!(
            shown.text().contains(words),
            "{words:?} is missing:\n{shown}"
        );
    }
    fails(
        attach("record", pid)?.current_dir(&folder),
        &["vfork", "same memory", "again"],
    )?;
    // The kernel detaches from the thread when it has ended the recording's stub.
    let is_released = || {
        process::wait_until("the thread is untraced", Duration::from_secs(10), || {
            process::is_untraced(pid)
        })
    };
    is_released()?;
    // It passes all checks, so the recording of the first process has already begun.
    let other = sleeper()?;
    let mut several = report::unspool()?;
    several.args(["record", "-o", "capture", "--attach"]);
    several.arg(format!("{},{pid}", other.0.id()));
    fails(several.current_dir(&folder), &["vfork", "same memory"])?;
    leaves_nothing(&folder)?;
    unharmed(other.0.id())?;
    is_released()?;
    // The first look leaves the thread traced until it can be detached.
    let (_stub, address) = crate::looks::multi()?;
    for _ in 0..2 {
        let text = crate::looks::look(&address, &["--attach", &pid.to_string()])?;
        ensure!(text.contains("in the system call vfork"), "{text}");
    }
    drop(program.0.stdin.take());
    let ended = program.0.wait()?;
    ensure!(ended.code() == Some(3), "{ended}");
    Ok(())
}

/// Checks that the process is alive, not stopped, and not traced.
fn unharmed(pid: u32) -> Result<()> {
    let status =
        std::fs::read_to_string(format!("/proc/{pid}/status")).context("the target is gone")?;
    let field = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap_or("")
            .trim()
            .to_owned()
    };
    ensure!(
        field("State:").starts_with('S'),
        "the target's state is {}",
        field("State:")
    );
    ensure!(
        field("TracerPid:") == "0",
        "the target is traced by {}",
        field("TracerPid:")
    );
    Ok(())
}

/// Another user's process. As root, switches to another user to attach to root's; else attaches to
/// init.
fn not_ours() -> Result<()> {
    let folder = tempfile::tempdir()?;
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777))?;
    if !nix::unistd::geteuid().is_root() {
        fails(
            attach("inspect", 1)?.current_dir(&folder),
            &["1", "permi|not be traced", "root|sudo|user"],
        )?;
        return Ok(());
    }
    let target = sleeper()?;
    let pid = target.0.id();
    // Other users may have no access to the target directory.
    let command = folder.path().join("unspool");
    process::install(&workspace::unspool()?, &command, 0o755)?;
    for subcommand in ["inspect", "record"] {
        let mut unprivileged = Command::new("setpriv");
        unprivileged
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(&command)
            .args([subcommand, "--attach", &pid.to_string()])
            .current_dir(&folder);
        fails(
            &mut unprivileged,
            &[&pid.to_string(), "permi|not be traced", "root|sudo|user"],
        )?;
        unharmed(pid)?;
    }
    Ok(())
}

/// A process that another tracer already traces: only one can.
fn attached_already() -> Result<()> {
    let target = sleeper()?;
    let pid = target.0.id();
    let mut strace = Command::new(workspace::stub()?);
    strace
        .args(["--attach", "127.0.0.1:0", &pid.to_string()])
        .stderr(Stdio::null());
    let first = Background(process::start(&mut strace)?);
    process::wait_until("the stub attaches", Duration::from_secs(10), || {
        std::fs::read_to_string(format!("/proc/{pid}/status"))
            .is_ok_and(|status| !status.contains("TracerPid:\t0"))
    })?;
    fails(
        &mut attach("inspect", pid)?,
        &[&pid.to_string(), "traced|debug|attached|tracer"],
    )?;
    drop(first);
    process::wait_until("the target goes on", Duration::from_secs(5), || {
        unharmed(pid).is_ok()
    })
}
