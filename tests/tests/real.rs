//! Tests stripped Debian programs: their output must not change, and their creation backtraces must
//! equal gdb's.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;

use unspool_tests::backtrace::{self, Depth};
use unspool_tests::process::{self, Background};
use unspool_tests::{elf, qemu, report, truth};

const LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for case in CASES {
        trials.push(crate::trial(format!("real::{}", case.name), || {
            native(case)
        }));
    }
    trials.push(crate::trial("real::python3", python));
    trials.push(crate::trial("real::pigz-armhf", pigz_armhf));
    trials
}

/// A compressor that reads a file and writes the compressed bytes to standard output.
struct Case {
    name: &'static str,
    arguments: &'static [&'static str],
    decompress: &'static [&'static str],
    threads: usize,
}

const CASES: &[Case] = &[
    Case {
        name: "xz",
        arguments: &["-T2", "-0", "--block-size=1MiB", "-c"],
        decompress: &["xz", "-dc"],
        threads: 2,
    },
    Case {
        name: "pigz",
        arguments: &["-p2", "-c"],
        decompress: &["gzip", "-dc"],
        threads: 3,
    },
    Case {
        name: "zstd",
        arguments: &["-T2", "-c"],
        decompress: &["zstd", "-dc"],
        threads: 4,
    },
];

/// Three megabytes of compressible data.
fn input(folder: &Path) -> Result<PathBuf> {
    let mut state = 7_u32;
    let mut text = Vec::with_capacity(3 << 20);
    while text.len() < 3 << 20 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        text.extend_from_slice(format!("line {:x} of the input\n", state >> 12).as_bytes());
    }
    let file = folder.join("input");
    std::fs::write(&file, text)?;
    Ok(file)
}

fn native(case: &Case) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let input = input(folder.path())?;
    let program = format!("/usr/bin/{}", case.name);
    let mut words = vec![program.as_str()];
    words.extend(case.arguments);
    words.push(input.to_str().expect("UTF-8"));

    let mut plain = Command::new(words[0]);
    plain.args(&words[1..]);
    let plain = process::run(&mut plain, LIMIT)?.success()?;

    let capture = folder.path().join("capture");
    let run = report::record(&capture, &["-q"], &words)?.success()?;
    ensure!(
        run.stdout == plain.stdout,
        "the output is not the same as without us"
    );
    decompresses(case.decompress, &run.stdout, &input)?;

    let report = report::report(&capture, &[])?;
    let created = report.created().count();
    ensure!(
        created == case.threads,
        "{created} threads, {} expected",
        case.threads
    );
    let truth = truth::native(Path::new(words[0]), &words[1..])?;
    backtrace::compare(&truth.creations, &report.creations(), Depth::Addresses)
}

fn decompresses(words: &[&str], compressed: &[u8], input: &Path) -> Result<()> {
    let mut decompress = Command::new(words[0]);
    decompress.args(&words[1..]);
    let run = process::run_with_input(&mut decompress, compressed, LIMIT)?;
    ensure!(
        run.success()?.stdout == std::fs::read(input)?,
        "it decompresses to something else"
    );
    Ok(())
}

/// Four threads of a pool, all needed at once, so that four are created.
const POOL: &str = "\
import concurrent.futures, threading
together = threading.Barrier(4)
def task(n):
    together.wait()
    return n * n
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    print(sum(pool.map(task, range(4))))
";

fn python() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let script = folder.path().join("pool.py");
    std::fs::write(&script, POOL)?;
    let words = ["/usr/bin/python3", "-S", script.to_str().expect("UTF-8")];
    let capture = folder.path().join("capture");
    let run = report::record(&capture, &["-q"], &words)?.success()?;
    ensure!(
        run.text() == "14\n",
        "the program's output is not its own\n{run}"
    );

    let report = report::report(&capture, &[])?;
    let created = report.created().count();
    ensure!(created == 4, "{created} threads, 4 expected");
    let truth = truth::native(Path::new(words[0]), &words[1..])?;
    backtrace::compare(&truth.creations, &report.creations(), Depth::Addresses)
}

/// Debian's pigz for armhf under qemu-arm, over TCP, with a sysroot.
fn pigz_armhf() -> Result<()> {
    let sysroot = qemu::sysroot()?;
    let program = sysroot.join("usr/bin/pigz");
    let folder = tempfile::tempdir()?;
    let input = input(folder.path())?;
    let arguments = ["-p2", "-c", input.to_str().expect("UTF-8")];

    let output = folder.path().join("output");
    let (mut emulator, port) = qemu_on_a_port(&program, &arguments, &output)?;
    let capture = folder.path().join("capture");
    let sysroot_option = ["--sysroot", sysroot.to_str().expect("UTF-8")];
    let mut options = vec!["-q", "--connect"];
    let address = format!("127.0.0.1:{port}");
    options.push(&address);
    options.extend(sysroot_option);
    let run = report::record(&capture, &options, &[])?.success()?;
    let ended = emulator.ends_well("pigz under qemu-arm", LIMIT);
    ended.with_context(|| run.to_string())?;
    decompresses(&["gzip", "-dc"], &std::fs::read(&output)?, &input)?;

    let report = report::report(&capture, &sysroot_option)?;
    let created = report.created().count();
    ensure!(created == 3, "{created} threads, 3 expected\n{run}");
    // gdb cannot unwind stripped T32 code and ends where Debian's pigz starts. So the expected
    // stack is gdb's frames, followed by frames up to the program's start.
    let truth = truth::arm(&program, &arguments)?;
    let shown = truth.creations.iter().map(Vec::len).max().unwrap_or(0);
    let mut beginnings = report.creations();
    let start = elf::entry(&program)?;
    for backtrace in &mut beginnings {
        let outermost = backtrace.last().context("an empty backtrace")?;
        ensure!(
            outermost.module == "pigz" && (start..start + 64).contains(&outermost.svma),
            "it ends before the program's entry {start:#x}: {backtrace:x?}"
        );
        ensure!(
            backtrace
                .iter()
                .filter(|frame| frame.module == "pigz")
                .count()
                >= 4,
            "frames are missing: {backtrace:x?}"
        );
        backtrace.truncate(shown);
    }
    backtrace::compare(&truth.creations, &beginnings, Depth::Addresses)
}

/// qemu-arm cannot choose a port, so this passes one that was just free.
fn qemu_on_a_port(program: &Path, arguments: &[&str], output: &Path) -> Result<(Background, u16)> {
    let port = std::net::TcpListener::bind("127.0.0.1:0")?
        .local_addr()?
        .port();
    let mut command = Command::new("qemu-arm");
    command
        .arg("-L")
        .arg(qemu::sysroot()?)
        .args(["-g", &port.to_string()])
        .arg(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(std::fs::File::create(output)?)
        .stderr(Stdio::null());
    let emulator = Background(process::start(&mut command)?);
    // A test connection would use up the only client it serves.
    let listening = format!(":{port:04X} 00000000:0000 0A");
    process::wait_until("qemu-arm listens", Duration::from_secs(20), || {
        std::fs::read_to_string("/proc/net/tcp").is_ok_and(|table| table.contains(&listening))
    })?;
    Ok((emulator, port))
}
