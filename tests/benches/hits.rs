//! Measures the overhead of a hit for the program: a tracepoint that records all general registers
//! and 2 KiB of stack.
//!
//! The peers are the kernel's uprobe with the same sample, and gdb with gdbserver, which stops and
//! prints the stack. `cargo bench -p unspool-tests --bench hits` measures on this machine, `--
//! board` on the emulated ARM boards (`-- board A64` on one of them). docs/internals/performance.md
//! contains the tables.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use unspool_tests::board::{self, Machine};
use unspool_tests::crowd::{min_median_max, release};
use unspool_tests::process;
use unspool_tests::truth;
use unspool_tests::wire::Wire;
use unspool_tests::workspace;

const FUNCTION: &str = "pthread_mutex_lock";
const LIMIT: Duration = Duration::from_secs(900);

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().collect();
    let says = |word: &str| words.iter().any(|other| other == word);
    if says("board") {
        let all = !["A32", "T32", "A64"].into_iter().any(says);
        for (name, machine, flag, function, sample) in [
            (
                "A32",
                Machine::Arm,
                "-marm",
                "lock_here",
                "R000000000200ffffMd,0,800",
            ),
            (
                "T32",
                Machine::Arm,
                "-mthumb",
                FUNCTION,
                "R000000000200ffffMd,0,800",
            ),
            (
                "A64",
                Machine::Arm64,
                "-O2",
                FUNCTION,
                "R00000003ffffffffM1f,0,800",
            ),
        ] {
            if all || says(name) {
                on_the_board(name, machine, flag, function, sample)?;
            }
        }
        return Ok(());
    }
    here()
}

/// Compiles the program statically, so that the function's address is known, and its offset in the
/// file matters only to the kernel.
fn build(compiler: &str, flags: &[&str], name: &str) -> Result<PathBuf> {
    let program = workspace::target_directory().join(name);
    let mut command = Command::new(compiler);
    command.args(["-g", "-O2", "-static", "-no-pie", "-pthread", "-o"]);
    command
        .arg(&program)
        .args(flags)
        .arg(workspace::file("benches/hits.c"));
    process::run(&mut command, Duration::from_secs(60))?.success()?;
    Ok(program)
}

fn address(nm: &str, program: &Path, function: &str) -> Result<u64> {
    let run = process::run(Command::new(nm).arg(program), Duration::from_secs(60))?.success()?;
    let text = run.text();
    let line = text
        .lines()
        .find(|line| line.ends_with(&format!(" {function}")));
    let digits = line.and_then(|line| line.split(' ').next());
    Ok(u64::from_str_radix(
        digits.with_context(|| format!("no {function}"))?,
        16,
    )?)
}

/// The program's output: nanoseconds for a round.
fn said(text: &str) -> Result<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("ns "));
    Ok(line
        .with_context(|| format!("the program says {text:?}"))?
        .trim()
        .parse()?)
}

/// Records every hit in a buffer that is overwritten, and runs the program to its end.
///
/// `fast` records without a stop; its value is the number of bytes that may be moved.
fn trace(
    port: u16,
    [at, end]: [u64; 2],
    kind: u32,
    sample: &str,
    hits: u64,
    fast: Option<u64>,
) -> Result<()> {
    let fast = fast.map_or(String::new(), |bytes| format!(":F{bytes:x}"));
    let mut wire = Wire::connect(port)?;
    for packet in [
        "QTinit".to_owned(),
        "QTBuffer:circular:1".to_owned(),
        "QTBuffer:size:100000".to_owned(),
        format!("QTDP:1:{at:x}:E:0:0{fast}-"),
        format!("QTDP:-1:{at:x}:{sample}"),
        "QTStart".to_owned(),
        format!("Z0,{:x},{kind}", end & !1),
    ] {
        let answer = wire.ask(&packet)?;
        ensure!(answer == "OK", "{packet}: {answer}");
    }
    if !fast.is_empty() {
        let places = wire.ask("qUnspoolPlaces")?;
        ensure!(places == "1;", "there is no jump: {places}");
    }
    if let Err(end) = wire.go_within("vCont;c", LIMIT)? {
        anyhow::bail!("it ends too early: {end}");
    }
    let status = wire.ask("qTStatus")?;
    let created = status
        .split(';')
        .find_map(|field| field.strip_prefix("tcreated:"))
        .context("qTStatus")?;
    ensure!(
        u64::from_str_radix(created, 16)? >= hits,
        "{hits} hits: {status}"
    );
    let Err(end) = wire.go("vCont;c")? else {
        anyhow::bail!("it stops once more");
    };
    ensure!(end.starts_with("W00"), "{end}");
    Ok(())
}

fn gdb_commands(gdb: &mut Command, program: &Path, port: u16, function: &str) {
    gdb.arg(program);
    for command in [
        "set height 0",
        &format!("target remote 127.0.0.1:{port}"),
        &format!("break {function}"),
        "python gdb.execute('commands 1\\nsilent\\nbt\\ncont\\nend')",
        "continue",
    ] {
        gdb.args(["-ex", command]);
    }
}

fn here() -> Result<()> {
    const HITS: u64 = 100_000;
    const FEW: u64 = 1000;
    const SAMPLE: &str = "R0000000000ffffffM7,0,800";
    // mov eax, [rdi + 16]; mov edx, eax
    const MOVABLE: u64 = 5;
    let program = build("gcc", &[], "hits-x86_64")?;
    let at = address("nm", &program, FUNCTION)?;
    let end = address("nm", &program, "the_end")?;
    let uprobe = workspace::target_directory().join("uprobe");
    let mut compiler = Command::new("gcc");
    compiler.args(["-O2", "-o"]).arg(&uprobe);
    compiler.arg(workspace::file("benches/uprobe.c"));
    process::run(&mut compiler, Duration::from_secs(60))?.success()?;
    let stub = release("unspool-stub")?;

    let many = HITS.to_string();
    let mut times = [const { Vec::new() }; 4];
    for _ in 0..5 {
        let bare = said(&process::run(Command::new(&program).arg(&many), LIMIT)?.text())?;
        // Segments start at the beginning of the file, at 0x400000.
        let mut kernel = Command::new(&uprobe);
        kernel.arg(&program).arg(format!("{:#x}", at - 0x40_0000));
        kernel.arg(&program).arg(&many);
        let run = process::run(&mut kernel, LIMIT)?.success()?;
        ensure!(
            run.stderr.contains(&format!("samples {HITS}"))
                || run.stderr.contains(&format!("samples {}", HITS + 1)),
            "{run}"
        );
        times[0].push(said(&run.text())? - bare);
        let mut served = Started::new(&stub, &["--once", "--budget", "none"], &program, &many)?;
        trace(served.port, [at, end], 1, SAMPLE, HITS, None)?;
        times[1].push(said(&served.finish()?)? - bare);
        let mut served = Started::new(&stub, &["--once", "--budget", "none"], &program, &many)?;
        trace(served.port, [at, end], 1, SAMPLE, HITS, Some(MOVABLE))?;
        times[3].push(said(&served.finish()?)? - bare);
        let mut served = Started::new(
            Path::new("/usr/bin/gdbserver"),
            &["--once"],
            &program,
            &FEW.to_string(),
        )?;
        let mut gdb = Command::new("gdb");
        gdb.args(["-nx", "-batch", "-x"])
            .arg(workspace::file("gdb/settings.gdb"));
        gdb_commands(&mut gdb, &program, served.port, FUNCTION);
        process::run(&mut gdb, LIMIT)?.success()?;
        times[2].push(said(&served.finish()?)? - bare);
    }
    println!("a hit of {FUNCTION} with registers and 2 KiB of stack; five rounds in turn");
    println!("{:34} {:>12} {:>28}", "", "us", "times the uprobe's");
    for (name, index) in [
        ("uprobe, perf_event_open", 0),
        ("unspool-stub, tracepoint", 1),
        ("unspool-stub, fast tracepoint", 3),
        ("gdbserver and gdb, break, bt", 2),
    ] {
        let ratios = times[index]
            .iter()
            .zip(&times[0])
            .map(|(one, kernel)| one / kernel);
        let [least, middle, most] = min_median_max(ratios.collect());
        let [_, time, _] = min_median_max(times[index].clone());
        println!(
            "{name:34} {:12.1} {middle:10.2} ({least:.2} to {most:.2})",
            time / 1e3
        );
    }
    for (name, index) in [("tracepoint", 1), ("fast tracepoint", 3)] {
        let ratios = times[2].iter().zip(&times[index]);
        let ratios = ratios.map(|(gdb, ours)| gdb / ours);
        let [least, middle, most] = min_median_max(ratios.collect());
        println!("gdb takes {middle:.0} times unspool-stub's {name} ({least:.0} to {most:.0})");
    }
    Ok(())
}

/// A server with the program.
struct Started {
    child: process::Background,
    port: u16,
    output: Option<std::thread::JoinHandle<String>>,
}

impl Started {
    fn new(server: &Path, options: &[&str], program: &Path, rounds: &str) -> Result<Started> {
        use std::io::{BufRead, BufReader, Read};
        use std::process::Stdio;
        let mut command = Command::new(server);
        command
            .args(options)
            .arg("127.0.0.1:0")
            .arg(program)
            .arg(rounds);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = process::Background(process::start(&mut command)?);
        let mut errors = BufReader::new(child.0.stderr.take().context("piped")?);
        let port = loop {
            let mut line = String::new();
            ensure!(errors.read_line(&mut line)? > 0, "the server ended");
            if let Some(port) = line.trim().strip_prefix("Listening on port ") {
                break port.parse()?;
            }
        };
        std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
        let mut stdout = child.0.stdout.take().context("piped")?;
        let output = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stdout.read_to_string(&mut text);
            text
        });
        Ok(Started {
            child,
            port,
            output: Some(output),
        })
    }

    fn finish(&mut self) -> Result<String> {
        self.child.0.wait()?;
        let output = self.output.take().context("not yet finished")?;
        output.join().ok().context("its output")
    }
}

fn on_the_board(
    name: &str,
    machine: Machine,
    flag: &str,
    function: &str,
    sample: &str,
) -> Result<()> {
    const HITS: u64 = 2000;
    const FEW: u64 = 50;
    // Whole instructions: push, movw in T32.
    let movable = if name == "T32" { 6 } else { 4 };
    let program = build(&machine.tool("gcc"), &[flag], &format!("hits-{name}"))?;
    // The first instruction of lock_here depends on its position.
    let skipped = if name == "A32" { 4 } else { 0 };
    let at = address(&machine.tool("nm"), &program, function)? + skipped;
    let end = address(&machine.tool("nm"), &program, "the_end")?;
    let kind = if flag == "-mthumb" { 2 } else { 4 };
    let board = board::get(machine)?;
    let there = board.put(&program, "/tmp")?;
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..3 {
        let bare = said(&board.shell(&format!("{there} {HITS}"))?)?;
        let stub = format!("unspool-stub --budget none --once 0.0.0.0:0 {there} {HITS}");
        let server = board.serve(&stub)?;
        trace(server.port, [at, end], kind, sample, HITS, None)?;
        times[0].push(said(&server.finish()?)? - bare);
        let server = board.serve(&stub)?;
        trace(server.port, [at, end], kind, sample, HITS, Some(movable))?;
        times[2].push(said(&server.finish()?)? - bare);
        let server = board.serve(&format!("gdbserver --once 0.0.0.0:0 {there} {FEW}"))?;
        let mut gdb = truth::multiarch(&machine.sysroot()?);
        gdb_commands(&mut gdb, &program, server.port, function);
        process::run(&mut gdb, LIMIT)?.success()?;
        times[1].push(said(&server.finish()?)? - bare);
    }
    let [_, gdb, _] = min_median_max(times[1].clone());
    for (what, ours) in [("tracepoint", &times[0]), ("fast tracepoint", &times[2])] {
        let ratios = times[1].iter().zip(ours).map(|(gdb, ours)| gdb / ours);
        let [least, middle, most] = min_median_max(ratios.collect());
        let [_, time, _] = min_median_max(ours.clone());
        println!(
            "{name}, {function}: unspool-stub's {what} {:.1} us a hit, gdbserver and gdb-multiarch {:.0} us: {middle:.0} times ({least:.0} to {most:.0})",
            time / 1e3,
            gdb / 1e3
        );
    }
    Ok(())
}
