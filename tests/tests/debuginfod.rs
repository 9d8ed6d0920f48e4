//! Debug files from servers: Debian's debuginfod, and servers that send nothing or something wrong.

mod server;

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use unspool_tests::process::{self, Run};
use unspool_tests::{elf, report, waiting};

use server::{Answer, Server};

const LIMIT: Duration = Duration::from_secs(120);

/// The time limit for a server, in seconds. A good server may be slow on a busy machine.
const TIMEOUT: &str = "60";

/// The time limit for a server that never answers, in seconds.
const SHORT_TIMEOUT: &str = "2";

/// Longest time for a command that waits for one server, even on a busy machine.
const LONGEST: Duration = Duration::from_secs(30);

pub(crate) fn trials() -> Vec<Trial> {
    [
        ("served", served as fn() -> Result<()>),
        ("shared-cache", shared_cache),
        ("no-cache", no_cache),
        ("no-room", no_room),
        ("executable", executable),
        ("off-unless-set", off_unless_set),
        ("misses-are-kept", misses_are_kept),
        ("asked-once", asked_once),
        ("announced", announced),
        ("interrupted", interrupted),
        ("interrupted-record", interrupted_record),
    ]
    .into_iter()
    .chain([
        ("refused", refused as fn() -> Result<()>),
        ("silent", || {
            bad(Answer::Silence, "did not answer within 2 seconds")
        }),
        ("missing", || bad(Answer::Status(404), "")),
        ("status", || {
            bad(Answer::Status(500), "answered a request with status 500")
        }),
        ("half", || bad(Answer::Half, "ended an answer too early")),
        ("stalls", || {
            bad(Answer::Stall, "sent less than 100 KB within 2 seconds")
        }),
        ("html", || bad(Answer::Html, "it is not a usable ELF file")),
        ("garbage", || {
            bad(Answer::Garbage, "does not answer as an HTTP server does")
        }),
        ("other-build", || {
            bad(Answer::OtherBuild, "expected build-id ")
        }),
        ("cut-off", || {
            bad(Answer::CutOff, "it is cut off or damaged")
        }),
        ("endless", || {
            bad(Answer::Endless, "the limit (DEBUGINFOD_MAXSIZE)")
        }),
        ("redirects", || {
            bad(Answer::Redirect, "redirected a request too often")
        }),
    ])
    .map(|(name, check)| crate::trial(format!("debuginfod::{name}"), check))
    .collect()
}

/// A stripped program, and its debug file in another directory.
struct Program {
    folder: TempDir,
    stripped: PathBuf,
    /// The directory that a server serves.
    served: PathBuf,
    id: String,
    /// The address of `worker`.
    address: String,
}

impl Program {
    fn build() -> Result<Program> {
        let command = ["gcc", "-O1", "-g", "-pthread", "-Wl,--build-id"];
        let (folder, whole) = waiting::compile_in(".", "pool.c", &command)?;
        let served = folder.path().join("served");
        fs::create_dir(&served)?;
        let stripped = folder.path().join("stripped");
        let id = elf::build_id(&whole)?.context("no build-id")?;
        let symbols = run(Command::new("nm").arg(&whole))?.success()?.text();
        let line = symbols.lines().find(|line| line.ends_with(" t worker"));
        let address = line.and_then(|line| line.split(' ').next());
        let address = address.context("no symbol")?.to_owned();
        let debug = served.join("pool.debug");
        run(Command::new("objcopy")
            .arg("--only-keep-debug")
            .args([&whole, &debug]))?
        .success()?;
        run(Command::new("strip").arg("-o").args([&stripped, &whole]))?.success()?;
        fs::remove_file(whole)?;
        Ok(Program {
            folder,
            stripped,
            served,
            id,
            address,
        })
    }

    fn cache(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    /// The file in the cache.
    fn cached(&self) -> PathBuf {
        self.cache().join(&self.id).join("debuginfo")
    }

    /// `unspool addr2line` for the address of `worker`, with these servers.
    fn addr2line(&self, urls: &str) -> Result<Command> {
        let mut command = report::unspool()?;
        self.set(&mut command, urls);
        command.arg("addr2line").arg("-e").arg(&self.stripped);
        command.args(["-f", &self.address]);
        Ok(command)
    }

    fn set(&self, command: &mut Command, urls: &str) {
        command
            .env("DEBUGINFOD_URLS", urls)
            .env("DEBUGINFOD_CACHE_PATH", self.cache())
            .env("DEBUGINFOD_TIMEOUT", TIMEOUT)
            .env("DEBUGINFOD_MAXSIZE", "1000000")
            .env_remove("DEBUGINFOD_MAXTIME")
            .env("no_proxy", "127.0.0.1");
    }

    fn start(&self, answer: Answer) -> Result<Server> {
        Server::start(answer, &self.served, &self.id)
    }

    fn record(&self, urls: &str) -> Result<(PathBuf, Command)> {
        let capture = self.folder.path().join("capture");
        let mut command = report::unspool()?;
        self.set(&mut command, urls);
        command.arg("record").arg("-o").arg(&capture);
        command.args(["--budget", "none", "--"]).arg(&self.stripped);
        Ok((capture, command))
    }
}

fn run(command: &mut Command) -> Result<Run> {
    process::run(command, LIMIT)
}

fn is_named(text: &str) -> bool {
    text.starts_with("worker\n") && text.contains("pool.c:")
}

/// Runs Debian's server in a network of its own, because it listens on all interfaces.
fn served() -> Result<()> {
    const SCRIPT: &str = r#"
set -eu
ip link set lo up
# It would ask itself for what it does not have.
env -u DEBUGINFOD_URLS debuginfod -F -p 8002 -d :memory: "$served" > server.log 2>&1 &
trap 'kill $! || true' EXIT
until DEBUGINFOD_CACHE_PATH=probe debuginfod-find debuginfo "$id" > /dev/null 2>&1; do
    rm -rf probe
    sleep 0.1
done
"$unspool" addr2line -e stripped -f "$address" > addr2line.txt
rm -r "$DEBUGINFOD_CACHE_PATH"
"$unspool" report capture > report.txt
kill $!
debuginfod-find debuginfo "$id" > found.txt
"$unspool" addr2line -e stripped -f "$address" > cached.txt
"#;
    let program = Program::build()?;
    let (capture, mut record) = program.record("")?;
    run(&mut record)?.success()?;
    let without = run(report::unspool()?.arg("report").arg(&capture))?.success()?;
    ensure!(!without.text().contains("pool.c"), "{without}");
    let mut command = Command::new("unshare");
    program.set(&mut command, "http://127.0.0.1:8002");
    command
        .args(["--map-root-user", "--net", "sh", "-c", SCRIPT])
        .current_dir(program.folder.path())
        .env("served", &program.served)
        .env("id", &program.id)
        .env("address", &program.address)
        .env("DEBUGINFOD_TIMEOUT", "60")
        .env("unspool", report::unspool()?.get_program());
    let script = run(&mut command)?.success()?;
    let text = |name| fs::read_to_string(program.folder.path().join(name));
    ensure!(is_named(&text("addr2line.txt")?), "{script}");
    ensure!(text("report.txt")?.contains("pool.c:"), "{script}");
    let found = text("found.txt")?;
    ensure!(Path::new(found.trim()) == program.cached(), "{found}");
    ensure!(is_named(&text("cached.txt")?), "{script}");
    Ok(())
}

/// elfutils and Unspool read what the other has downloaded, when the server is gone.
fn shared_cache() -> Result<()> {
    let program = Program::build()?;
    let find = |urls: &str| {
        let mut find = Command::new("debuginfod-find");
        program.set(&mut find, urls);
        run(find.args(["debuginfo", &program.id]))
    };
    let server = program.start(Answer::Files)?;
    let url = server.url();
    let own = run(&mut program.addr2line(&url)?)?.success()?;
    ensure!(is_named(&own.text()) && own.stderr.is_empty(), "{own}");
    drop(server);
    let cached = find(&url)?.success()?;
    ensure!(
        Path::new(cached.text().trim()) == program.cached(),
        "{cached}"
    );
    let served = fs::read(program.served.join("pool.debug"))?;
    ensure!(fs::read(program.cached())? == served, "another file");

    fs::remove_dir_all(program.cache())?;
    let server = program.start(Answer::Files)?;
    let url = server.url();
    find(&url)?.success()?;
    drop(server);
    let cached = run(&mut program.addr2line(&url)?)?.success()?;
    ensure!(
        is_named(&cached.text()) && cached.stderr.is_empty(),
        "{cached}"
    );

    // A damaged file in the cache is not used. It belongs to all programs, so it stays.
    fs::remove_file(program.cached())?;
    fs::write(program.cached(), "no ELF file")?;
    let server = program.start(Answer::Files)?;
    let again = run(&mut program.addr2line(&server.url())?)?.success()?;
    ensure!(is_named(&again.text()), "{again}");
    let sentence = "/debuginfo is not used: it is not a usable ELF file";
    ensure!(again.stderr.contains(sentence), "{again}");
    ensure!(fs::read(program.cached())? == b"no ELF file", "it is gone");

    // A file of another build is replaced.
    let other = report::unspool()?.get_program().to_owned();
    fs::copy(other, program.cached())?;
    let again = run(&mut program.addr2line(&server.url())?)?.success()?;
    ensure!(is_named(&again.text()), "{again}");
    ensure!(fs::read(program.cached())? == served, "another file");
    Ok(())
}

/// A downloaded file is used even if the cache does not take it.
fn no_cache() -> Result<()> {
    let program = Program::build()?;
    fs::write(program.cache(), "no directory")?;
    let server = program.start(Answer::Files)?;
    let own = run(&mut program.addr2line(&server.url())?)?.success()?;
    ensure!(is_named(&own.text()) && own.stderr.is_empty(), "{own}");

    // Outside the cache there is room only for smaller files.
    let server = program.start(Answer::Endless)?;
    let mut endless = program.addr2line(&server.url())?;
    let endless = run(endless.env("DEBUGINFOD_MAXSIZE", "1000000000"))?.success()?;
    let sentence = "sent a file of more than 67108864 bytes, for which the cache has no room";
    ensure!(endless.stderr.contains(sentence), "{endless}");
    Ok(())
}

/// A file system that is nearly full takes no downloads.
fn no_room() -> Result<()> {
    let program = Program::build()?;
    let server = program.start(Answer::Files)?;
    fs::create_dir(program.cache())?;
    let addr2line = program.addr2line(&server.url())?;
    let mut command = Command::new("unshare");
    program.set(&mut command, &server.url());
    let mount = "mount -t tmpfs -o size=60m none \"$DEBUGINFOD_CACHE_PATH\" && exec \"$@\"";
    command.args(["--map-root-user", "--mount", "sh", "-c", mount, "sh"]);
    command
        .arg(addr2line.get_program())
        .args(addr2line.get_args());
    let run = run(&mut command)?.success()?;
    let sentence = "sent a file of more than 0 bytes, for which the cache has no room";
    ensure!(run.stderr.contains(sentence), "{run}");
    ensure!(!is_named(&run.text()), "{run}");
    Ok(())
}

/// A program that is gone, too, comes from the server.
fn executable() -> Result<()> {
    let program = Program::build()?;
    let (capture, mut record) = program.record("")?;
    run(&mut record)?.success()?;
    fs::rename(&program.stripped, program.served.join("executable"))?;
    let server = program.start(Answer::Files)?;
    let mut command = report::unspool()?;
    program.set(&mut command, &server.url());
    command.arg("report").arg(&capture);
    let report = run(&mut command)?.success()?;
    ensure!(report.text().contains("pool.c:"), "{report}");
    let source = run(command.args(["--view", "source", "pool.c"]))?.success()?;
    let sentence = "Only a debug file from a server names this file";
    ensure!(source.text().contains(sentence), "{source}");
    ensure!(!source.text().contains("pthread_create("), "{source}");
    ensure!(
        server
            .paths()
            .iter()
            .any(|path| path.ends_with("/executable"))
    );
    Ok(())
}

/// Without servers there is no network. Here the server would answer.
fn off_unless_set() -> Result<()> {
    let program = Program::build()?;
    let server = program.start(Answer::Files)?;
    for urls in ["", " ", "ima:enforcing"] {
        let run = run(&mut program.addr2line(urls)?)?.success()?;
        ensure!(
            !run.text().contains("pool.c") && run.stderr.is_empty(),
            "{run}"
        );
    }
    ensure!(server.paths().is_empty(), "{:?}", server.paths());
    ensure!(!program.cache().exists(), "a cache");
    Ok(())
}

/// Elfutils and Unspool request a missing file once in ten minutes.
fn misses_are_kept() -> Result<()> {
    let program = Program::build()?;
    let server = program.start(Answer::Status(404))?;
    for _ in 0..2 {
        run(&mut program.addr2line(&server.url())?)?.success()?;
    }
    let mut find = Command::new("debuginfod-find");
    program.set(&mut find, &server.url());
    let find = run(find.args(["debuginfo", &program.id]))?;
    ensure!(!find.status.success(), "{find}");
    ensure!(server.paths().len() == 1, "{:?}", server.paths());

    fs::write(program.cache().join("cache_miss_s"), "0")?;
    run(&mut program.addr2line(&server.url())?)?.success()?;
    ensure!(server.paths().len() == 2, "{:?}", server.paths());
    Ok(())
}

/// A report asks a silent server once, and another server at the same time.
fn asked_once() -> Result<()> {
    let program = Program::build()?;
    let (capture, mut record) = program.record("")?;
    run(&mut record)?.success()?;
    let (silent, good) = (
        program.start(Answer::Silence)?,
        program.start(Answer::Files)?,
    );
    let mut command = report::unspool()?;
    program.set(&mut command, &format!("{} {}/", silent.url(), good.url()));
    command.arg("report").arg(&capture);
    command.env("DEBUGINFOD_TIMEOUT", SHORT_TIMEOUT);
    let report = run(&mut command)?.success()?;
    ensure!(report.text().contains("pool.c:"), "{report}");
    ensure!(report.took < LONGEST, "{report}");

    // No other server answers for the program or its libraries.
    fs::remove_dir_all(program.cache())?;
    command.env("DEBUGINFOD_URLS", silent.url()).arg("--notes");
    let report = run(&mut command)?.success()?;
    let sentences = report.text().matches("did not answer within").count();
    ensure!(sentences == 1 && report.took < LONGEST, "{report}");
    Ok(())
}

/// In a terminal, a long wait is explained once.
fn announced() -> Result<()> {
    let program = Program::build()?;
    let server = program.start(Answer::Silence)?;
    let unspool = report::unspool()?
        .get_program()
        .to_string_lossy()
        .into_owned();
    let line = format!("{unspool} addr2line -e stripped {}", program.address);
    let mut script = Command::new("script");
    program.set(&mut script, &server.url());
    script
        .args(["-qec", &line, "/dev/null"])
        .env("DEBUGINFOD_TIMEOUT", "4")
        .current_dir(program.folder.path());
    let run = run(&mut script)?.success()?;
    let told = run.text().matches("downloading debug files").count();
    ensure!(told == 1, "{run}");
    Ok(())
}

/// A signal ends a command that waits for a server, and no file is left. Not SIGINT, which shells
/// make their background commands ignore.
fn interrupted() -> Result<()> {
    let program = Program::build()?;
    let server = program.start(Answer::Stall)?;
    let mut command = program.addr2line(&server.url())?;
    command
        .env("DEBUGINFOD_TIMEOUT", "100")
        .stdout(Stdio::null());
    let mut child = process::start(&mut command)?;
    process::wait_until("a request", LIMIT, || !server.paths().is_empty())?;
    let begun = Instant::now();
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM)?;
    let status = child.wait()?;
    ensure!(begun.elapsed() < LONGEST && !status.success(), "{status}");
    let left = program
        .cached()
        .parent()
        .map(fs::read_dir)
        .context("a folder")??;
    ensure!(left.count() == 0, "a file is left");
    Ok(())
}

/// Ctrl-C ends only the downloads at the end of a recording.
fn interrupted_record() -> Result<()> {
    let program = Program::build()?;
    let server = program.start(Answer::Silence)?;
    let (capture, mut command) = program.record(&server.url())?;
    command
        .env("DEBUGINFOD_TIMEOUT", "100")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = process::start(&mut command)?;
    process::wait_until("a request", LIMIT, || !server.paths().is_empty())?;
    let begun = Instant::now();
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT)?;
    let status = child.wait()?;
    ensure!(begun.elapsed() < LONGEST && status.success(), "{status}");
    ensure!(report::report(&capture, &[])?.created().count() == 8);
    Ok(())
}

fn refused() -> Result<()> {
    let program = Program::build()?;
    let url = {
        let free = TcpListener::bind("127.0.0.1:0")?;
        format!("http://user:secret@{}", free.local_addr()?)
    };
    let run = fails(&program, &url, TIMEOUT, "refused the connection")?;
    ensure!(!run.stderr.contains("secret"), "{run}");
    Ok(())
}

/// A server that sends no usable file: one sentence, in time, and the same answer as without it.
fn bad(answer: Answer, sentence: &str) -> Result<()> {
    let program = Program::build()?;
    let server = program.start(answer)?;
    let timeout = match answer {
        Answer::Silence | Answer::Stall => SHORT_TIMEOUT,
        _ => TIMEOUT,
    };
    fails(&program, &server.url(), timeout, sentence)?;
    ensure!(!server.paths().is_empty(), "no request");
    Ok(())
}

fn fails(program: &Program, url: &str, timeout: &str, sentence: &str) -> Result<Run> {
    let without = run(&mut program.addr2line("")?)?.success()?;
    let with = run(program.addr2line(url)?.env("DEBUGINFOD_TIMEOUT", timeout))?;
    ensure!(
        with.status == without.status && with.stdout == without.stdout,
        "{with}"
    );
    let lines: Vec<&str> = with.stderr.lines().collect();
    match lines[..] {
        [] => ensure!(sentence.is_empty(), "{with}"),
        [line] => ensure!(
            line.starts_with("unspool: debuginfod server http://127.0.0.1:")
                && !sentence.is_empty()
                && line.contains(sentence)
                && !line.contains(server::TEXT),
            "{with}"
        ),
        _ => anyhow::bail!("more than one line: {with}"),
    }
    ensure!(with.took < LONGEST, "{with}");
    let cached = fs::metadata(program.cached()).map_or(0, |file| file.len());
    ensure!(cached == 0, "{cached} bytes are cached");
    Ok(with)
}
