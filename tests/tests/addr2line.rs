//! Compares `unspool addr2line` with binutils' addr2line, byte for byte, at random addresses; and
//! checks what only Unspool can look up.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use tempfile::TempDir;

use unspool_tests::process::{self, Run};
use unspool_tests::{report, waiting, workspace};

/// Number of random addresses per file.
const ADDRESSES: usize = 10_000;
const LIMIT: Duration = Duration::from_secs(300);

/// Libraries with debug packages, and one without.
const LIBRARIES: [&str; 5] = [
    "libc.so.6",
    "libm.so.6",
    "ld-linux-x86-64.so.2",
    "libthread_db.so.1",
    "libstdc++.so.6",
];

/// Compiler and options of each build of `addresses.cpp`.
const BUILDS: [(&str, &[&str]); 12] = [
    ("gcc-O2", &["g++", "-O2", "-g"]),
    ("gcc-O0", &["g++", "-O0", "-g"]),
    ("gcc-O2-dwarf4", &["g++", "-O2", "-gdwarf-4"]),
    ("gcc-O2-compressed", &["g++", "-O2", "-g", "-gz"]),
    ("gcc-O1-g1", &["g++", "-O1", "-g1"]),
    ("gcc-O2-static", &["g++", "-O2", "-g", "-static"]),
    ("gcc-O2-fixed", &["g++", "-O2", "-g", "-fno-pie", "-no-pie"]),
    ("gcc-O2-bare", &["g++", "-O2"]),
    ("gcc-O2-stripped", &["g++", "-O2", "-s", "-rdynamic"]),
    ("clang-O2", &["clang++", "-O2", "-g"]),
    ("clang-O1-lines", &["clang++", "-O1", "-gline-tables-only"]),
    ("clang-O0", &["clang++", "-O0", "-g"]),
];

/// The same for object files, whose sections all begin at address 0.
const OBJECTS: [(&str, &str, &[&str]); 6] = [
    ("gcc", "addr2line", &["g++", "-O2", "-g"]),
    ("gcc-compressed", "addr2line", &["g++", "-O2", "-g", "-gz"]),
    (
        "gcc-sections",
        "addr2line",
        &["g++", "-O2", "-g", "-ffunction-sections"],
    ),
    ("gcc-bare", "addr2line", &["g++", "-O2"]),
    ("clang", "addr2line", &["clang++", "-O2", "-g"]),
    (
        "arm",
        "arm-linux-gnueabihf-addr2line",
        &["arm-linux-gnueabihf-g++", "-O2", "-g", "-Wno-psabi"],
    ),
];

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for library in LIBRARIES {
        let check = move || {
            let path = Path::new("/lib/x86_64-linux-gnu").join(library);
            let path = match path.exists() {
                true => path,
                false => Path::new("/usr/lib/x86_64-linux-gnu").join(library),
            };
            agrees("addr2line", &path, &["-f", "-i"])
        };
        trials.push(crate::trial(format!("addr2line::{library}"), check));
    }
    for (name, command) in BUILDS {
        let check = move || {
            let (_folder, program) = waiting::compile_in(".", "addresses.cpp", command)?;
            agrees("addr2line", &program, &["-f", "-i"])
        };
        trials.push(crate::trial(format!("addr2line::{name}"), check));
    }
    for (name, binutils, command) in OBJECTS {
        let check = move || {
            let command = [command, &["-c"]].concat();
            let (_folder, file) = waiting::compile_in(".", "addresses.cpp", &command)?;
            agrees(binutils, &file, &["-a", "-f", "-i"])
        };
        trials.push(crate::trial(format!("addr2line::object::{name}"), check));
    }
    for mode in ["-mthumb", "-marm"] {
        let check = move || {
            let command = ["arm-linux-gnueabihf-g++", "-O2", "-g", "-Wno-psabi", mode];
            let (_folder, program) = waiting::compile_in(".", "addresses.cpp", &command)?;
            agrees(
                "arm-linux-gnueabihf-addr2line",
                &program,
                &["-a", "-f", "-i"],
            )
        };
        trials.push(crate::trial(format!("addr2line::arm{mode}"), check));
    }
    for (name, check) in [
        ("options", options as fn() -> Result<()>),
        ("aliases", aliases),
        ("styles-and-version", styles_and_version),
        ("names-and-modules", names_and_modules),
        ("sizes", sizes),
        ("fixed-addresses", fixed_addresses),
        ("kernel-module", kernel_module),
        ("process", process_and_log),
        ("included", included),
        ("untouched", untouched),
        ("errors", errors),
    ] {
        trials.push(crate::trial(format!("addr2line::{name}"), check));
    }
    trials
}

/// Compares both programs at random addresses in the file's segments, and at some outside.
fn agrees(binutils: &str, file: &Path, options: &[&str]) -> Result<()> {
    let addresses = random_addresses(file)?;
    let theirs = lookup(Command::new(binutils), file, options, &addresses)?;
    let ours = lookup(ours()?, file, options, &addresses)?;
    let differences = theirs.lines().zip(ours.lines()).filter(|(a, b)| a != b);
    let shown: Vec<String> = differences
        .take(5)
        .map(|(theirs, ours)| format!("- {theirs}\n+ {ours}"))
        .collect();
    ensure!(theirs == ours, "{}:\n{}", file.display(), shown.join("\n"));
    let known = theirs
        .lines()
        .filter(|line| !line.starts_with("??"))
        .count();
    ensure!(known > ADDRESSES / 10, "only {known} lines are known");
    Ok(())
}

fn ours() -> Result<Command> {
    let mut command = report::unspool()?;
    command.arg("addr2line");
    Ok(command)
}

fn lookup(mut program: Command, file: &Path, options: &[&str], input: &str) -> Result<String> {
    program.args(options).arg("-e").arg(file);
    let run = process::run_with_input(&mut program, input.as_bytes(), LIMIT)?.success()?;
    Ok(String::from_utf8_lossy(&run.stdout).into_owned())
}

fn random_addresses(file: &Path) -> Result<String> {
    let mut command = Command::new("readelf");
    let run = process::run(command.arg("-lW").arg(file), LIMIT)?.success()?;
    let text = run.text();
    let hex = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16);
    let mut segments = Vec::new();
    for line in text
        .lines()
        .filter(|line| line.trim_start().starts_with("LOAD"))
    {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (start, size) = (
            words.get(2).context("an address")?,
            words.get(5).context("a size")?,
        );
        segments.push((hex(start)?, hex(size)?));
    }
    if segments.is_empty() {
        // An object file, of which no section is larger.
        segments.push((0, 0x2000));
    }
    let total: u64 = segments.iter().map(|(_, size)| size).sum();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut text = String::new();
    for _ in 0..ADDRESSES {
        let mut skip = random() % total;
        let inside = segments.iter().find_map(|(start, size)| {
            let here = (skip < *size).then_some(start + skip);
            skip = skip.saturating_sub(*size);
            here
        });
        let outside = (random() % 50 == 0).then(|| random() >> 30);
        let address = outside.or(inside).context("an address")?;
        text.push_str(&format!("{address:#x}\n"));
    }
    Ok(text)
}

fn debuggable(source: &str) -> Result<(TempDir, PathBuf)> {
    waiting::compile_in(".", source, &[compiler(source), "-O1", "-g", "-rdynamic"])
}

fn compiler(source: &str) -> &'static str {
    if source.ends_with(".c") { "gcc" } else { "g++" }
}

/// All forms of options, with addresses as arguments.
fn options() -> Result<()> {
    let (folder, program) = debuggable("backtrace.c")?;
    let symbol = address_of(&program, "middle")?;
    let text = format!("{symbol:x}");
    let arguments = folder.path().join("arguments");
    fs::write(&arguments, format!("-f '{text}' \"0x{text}\""))?;
    let from_file = format!("@{}", arguments.display());
    for words in [
        vec!["-f", &text],
        vec!["-fip", &text, "0"],
        vec!["-aps", &text],
        vec!["-apf", "0x10", "junk", "-s"],
        vec![
            "--functions",
            "--inlines",
            "--pretty-print",
            "--addresses",
            &text,
        ],
        vec!["--basenames", "--demangle", &text],
        vec!["--demangle=gnu-v3", "--func", &text],
        vec!["-f", "-j", ".text", "0", "10"],
        vec!["--section=.text", "-a", "20"],
        vec!["-b", "elf64-x86-64", &text],
        vec!["-b", "x86_64-linux-gnu", &text],
        vec!["-C", "-R", "-r", "-f", &text],
        vec![&from_file],
    ] {
        let run = |mut command: Command| -> Result<Run> {
            command.arg("-e").arg(&program).args(&words);
            process::run(&mut command, LIMIT)?.success()
        };
        let theirs = run(Command::new("addr2line"))?;
        let ours = run(ours()?)?;
        ensure!(
            theirs.stdout == ours.stdout,
            "{words:?}:\n{}{}",
            theirs.text(),
            ours.text()
        );
    }
    Ok(())
}

/// Of several symbols at an address, both programs name the same one.
fn aliases() -> Result<()> {
    let command = ["gcc", "-nostdlib", "-shared"];
    let (_folder, program) = waiting::compile_in(".", "aliases.s", &command)?;
    let each: String = (0..0x2000)
        .map(|address| format!("{address:#x}\n"))
        .collect();
    let theirs = lookup(Command::new("addr2line"), &program, &["-a", "-f"], &each)?;
    let ours = lookup(ours()?, &program, &["-a", "-f"], &each)?;
    let mut answers = theirs.lines().zip(ours.lines());
    let difference = answers.find(|(theirs, ours)| theirs != ours);
    ensure!(theirs == ours, "{difference:?}");
    for name in ["sized", "sized_first", "sized_local", "outer"] {
        ensure!(ours.lines().any(|line| line == name), "no {name}:\n{ours}");
    }
    Ok(())
}

/// `--demangle=none` leaves names mangled, and each form of the version's option prints it.
fn styles_and_version() -> Result<()> {
    let (_folder, program) = waiting::compile_in(".", "addresses.cpp", &["g++", "-O1", "-g"])?;
    let addresses = random_addresses(&program)?;
    for style in ["none", "auto"] {
        let option = format!("--demangle={style}");
        let options = ["-f", option.as_str()];
        let ours = lookup(ours()?, &program, &options, &addresses)?;
        let is_mangled = !ours.lines().any(|line| line.starts_with("std::"));
        ensure!(is_mangled == (style == "none"), "{style}:\n{ours}");
        if is_mangled {
            let theirs = lookup(Command::new("addr2line"), &program, &options, &addresses)?;
            ensure!(theirs == ours, "{style} differs");
        }
    }
    for option in ["-v", "-V", "--version"] {
        let run = process::run(ours()?.arg(option), LIMIT)?.success()?;
        ensure!(run.text().starts_with("unspool"), "{option}: {run}");
    }
    Ok(())
}

/// The address of a function by nm.
fn address_of(program: &Path, function: &str) -> Result<u64> {
    let run = process::run(Command::new("nm").arg(program), LIMIT)?.success()?;
    let text = run.text();
    let line = text
        .lines()
        .find(|line| line.ends_with(&format!(" T {function}")));
    let digits = line
        .context("the symbol")?
        .split(' ')
        .next()
        .context("digits")?;
    Ok(u64::from_str_radix(digits, 16)?)
}

/// `function+0xoff/0xsize` and `file+0xoff` give what the address gives.
fn names_and_modules() -> Result<()> {
    let (_folder, program) = debuggable("backtrace.c")?;
    let address = address_of(&program, "middle")? + 4;
    let expected = lookup(ours()?, &program, &["-f"], &format!("{address:x}"))?;
    ensure!(expected.starts_with("middle\n"), "{expected}");
    let name = program
        .file_name()
        .context("a name")?
        .to_string_lossy()
        .into_owned();
    let module = format!("{name}+{address:#x}");
    for text in ["middle+0x4", module.as_str()] {
        let found = lookup(ours()?, &program, &["-f"], text)?;
        ensure!(found == expected, "{text}: {found}");
    }
    let wrong_size = lookup(ours()?, &program, &["-f"], "middle+0x4/0x9999")?;
    ensure!(wrong_size == "??\n??:0\n", "{wrong_size}");
    Ok(())
}

/// Of several functions with one name, the size selects one; another size selects none.
fn sizes() -> Result<()> {
    let other = workspace::file("programs/same_name_other.c");
    let other = other.to_string_lossy();
    let command = ["gcc", "-O1", "-g", &other];
    let (_folder, program) = waiting::compile_in(".", "same_name.c", &command)?;
    let run = process::run(Command::new("nm").arg("-S").arg(&program), LIMIT)?.success()?;
    let text = run.text();
    let named = text.lines().filter(|line| line.ends_with(" t same"));
    let words = named.filter_map(|line| line.split(' ').nth(1));
    let mut sizes: Vec<&str> = words.map(|digits| digits.trim_start_matches('0')).collect();
    sizes.sort_by_key(|digits| (digits.len(), *digits));
    ensure!(sizes.len() == 2 && sizes[0] != sizes[1], "{text}");
    let log = |place: &str| -> Result<Run> {
        let mut command = report::unspool()?;
        command.arg("symbolize").arg("-e").arg(&program);
        process::run_with_input(&mut command, place.as_bytes(), LIMIT)?.success()
    };
    for (size, file) in sizes.iter().zip(["same_name.c:", "same_name_other.c:"]) {
        let place = format!("same+0x2/0x{size}");
        let found = lookup(ours()?, &program, &["-f"], &place)?;
        ensure!(found.contains(file), "{place}: {found}");
        let found = log(&place)?;
        ensure!(found.text().contains(file), "{place}: {found}");
    }
    for (place, problem) in [
        (
            "same+0x2/0x1",
            "none of 2 functions named same has size 0x1",
        ),
        ("main+0x2/0x1", "main has size 0x"),
        ("same+0x2", "2 functions are named same;"),
    ] {
        let mut command = ours()?;
        command.arg("-e").arg(&program).arg(place);
        let run = process::run(&mut command, LIMIT)?.success()?;
        ensure!(
            run.stdout == b"??:0\n" && run.stderr.contains(problem),
            "{run}"
        );
        let run = log(place)?;
        ensure!(
            run.stdout == place.as_bytes() && run.stderr.contains(problem),
            "{run}"
        );
    }
    Ok(())
}

/// Addresses of a running process, and its backtrace through `unspool symbolize`.
fn process_and_log() -> Result<()> {
    let (_folder, program) = debuggable("backtrace.c")?;
    let mut child = Command::new(&program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut log = String::new();
    {
        use std::io::{BufRead, BufReader};
        let mut out = BufReader::new(child.stdout.take().context("its output")?);
        while !log.contains("after") {
            ensure!(out.read_line(&mut log)? > 0, "the program ended: {log}");
        }
    }
    let line = log
        .lines()
        .find(|line| line.contains("(middle+"))
        .context("a frame")?;
    let (_, address) = line.rsplit_once("[0x").context("an address")?;
    let address = u64::from_str_radix(address.trim_end_matches(']'), 16)? - 1;
    let mut command = ours()?;
    command.args([
        "--pid",
        &child.id().to_string(),
        "-fs",
        &format!("{address:x}"),
    ]);
    let live = process::run(&mut command, LIMIT);
    let mut symbolize = report::unspool()?;
    let symbolized =
        process::run_with_input(symbolize.arg("symbolize"), log.as_bytes(), LIMIT)?.success()?;
    drop(child.stdin.take());
    child.wait()?;
    let source = include_str!("../programs/backtrace.c");
    let line_of = |comment: &str| source.lines().position(|line| line.ends_with(comment));
    let live = live?.success()?.text();
    let expected = line_of("// middle").context("the line")? + 1;
    ensure!(
        live.contains(&format!("middle\nbacktrace.c:{expected}\n")),
        "{live}"
    );
    let text = symbolized.text();
    for function in ["innermost", "middle", "main"] {
        // The address after the call of backtrace() is on the line before the comment.
        let line = line_of(&format!("// {function}")).context("the line")? + 1;
        let line = line - usize::from(function == "innermost");
        let place = format!("backtrace.c:{line})");
        let found = text
            .lines()
            .any(|text| text.contains(&format!("({function} at ")) && text.contains(&place));
        ensure!(found, "{function} {place}:\n{text}");
    }
    Ok(())
}

/// The first function of a unit comes from another file. binutils 2.40 names the unit's main file.
fn included() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (main, header) = (folder.path().join("main.c"), folder.path().join("part.h"));
    fs::write(&header, "\n\nint part(int n) {\n    return n + 1;\n}\n")?;
    fs::write(
        &main,
        "#include \"part.h\"\nint main(void) { return part(0); }\n",
    )?;
    let program = folder.path().join("main");
    let mut compile = Command::new("gcc");
    compile.args(["-g", "-O0", "-o"]).arg(&program).arg(&main);
    process::run(&mut compile, LIMIT)?.success()?;
    let mut command = report::unspool()?;
    command.arg("symbolize").arg("-e").arg(&program);
    let run = process::run_with_input(&mut command, b"at part+0x4", LIMIT)?.success()?;
    let text = run.text();
    ensure!(text.contains("part.h:3"), "{text}");
    ensure!(!text.contains("main.c"), "{text}");
    Ok(())
}

/// The backtrace of a program without PIE states only addresses.
fn fixed_addresses() -> Result<()> {
    let command = ["gcc", "-O1", "-g", "-no-pie", "-fno-pie"];
    let (_folder, program) = waiting::compile_in(".", "backtrace.c", &command)?;
    let run = process::run_with_input(&mut Command::new(&program), b"", LIMIT)?.success()?;
    let short = run.text();
    let name = program.to_string_lossy();
    ensure!(short.contains(&format!("{name}[0x")), "{short}");
    // As backtrace_symbols(3) writes it.
    let long = short.replace(&format!("{name}["), &format!("{name}() ["));
    let source = include_str!("../programs/backtrace.c");
    let line = source.lines().position(|line| line.ends_with("// middle"));
    let line = line.context("the line")? + 1;
    for (log, before) in [(short, "["), (long, "(")] {
        let mut symbolize = report::unspool()?;
        symbolize.arg("symbolize");
        let run = process::run_with_input(&mut symbolize, log.as_bytes(), LIMIT)?.success()?;
        let text = run.text();
        let start = format!("{name}{before}middle at ");
        let end = format!("backtrace.c:{line}");
        let found = |text: &str| text.starts_with(&start) && text.contains(&end);
        ensure!(text.lines().any(found), "{start}{end}:\n{text}");
    }
    Ok(())
}

/// `symbolize` passes all bytes on, whatever they are.
fn untouched() -> Result<()> {
    let mut bytes: Vec<u8> = Vec::new();
    for round in 0..2000_u32 {
        bytes.extend(round.wrapping_mul(2_654_435_761).to_le_bytes());
        bytes.extend(b"+0x12/0x34 [<c0101010>] f+0x ((+0x1) [<\n"[..(round % 41) as usize].iter());
    }
    bytes.extend([b'x'; 200_000]);
    let run = process::run_with_input(report::unspool()?.arg("symbolize"), &bytes, LIMIT)?;
    let run = run.success()?;
    ensure!(
        run.stdout == bytes,
        "{} of {} bytes",
        run.stdout.len(),
        bytes.len()
    );
    Ok(())
}

/// A module has its DWARF in another file, and a log names its functions.
fn kernel_module() -> Result<()> {
    let build = ["g++", "-O2", "-g", "-ffunction-sections", "-c"];
    let (folder, file) = waiting::compile_in(".", "addresses.cpp", &build)?;
    let debug = folder.path().join("module.debug");
    let mut copy = Command::new("objcopy");
    copy.arg("--only-keep-debug").args([&file, &debug]);
    process::run(&mut copy, LIMIT)?.success()?;
    let mut link = Command::new("objcopy");
    link.arg(format!("--add-gnu-debuglink={}", debug.display()));
    process::run(link.arg("--strip-debug").arg(&file), LIMIT)?.success()?;
    agrees("addr2line", &file, &["-f", "-i"])?;
    let mut symbolize = report::unspool()?;
    symbolize.args(["symbolize", "-e"]).arg(&file);
    let run = process::run_with_input(&mut symbolize, b"main+0x4 [module]", LIMIT)?.success()?;
    ensure!(run.text().contains("addresses.cpp:"), "{run}");
    Ok(())
}

/// One sentence for each mistake.
fn errors() -> Result<()> {
    let (_folder, program) = debuggable("backtrace.c")?;
    let program = program.to_string_lossy();
    for (words, expected) in [
        (
            &["-e", "/nowhere/file", "0"][..],
            "cannot read /nowhere/file",
        ),
        (&["-e", "/", "0"], "is a directory"),
        (&["-e", "/etc/passwd", "0"], "ELF"),
        (
            &["-e", &program, "-j", ".nothing", "0"],
            "has no section .nothing",
        ),
        (&["-e", &program, "--unknown"], "--unknown"),
        (&["-e", &program, "-b", "nosuch", "0"], "no format is named"),
        (&["-e", &program, "--demangle=nosuch", "0"], "no style"),
        (&["--pid", "4000000", "0"], "4000000"),
        (
            &["-e", &program, "--debug-dir", "/nowhere", "0"],
            "/nowhere",
        ),
    ] {
        let run = process::run(ours()?.args(words), LIMIT)?;
        ensure!(run.code()? != 0, "{words:?} succeeded: {run}");
        let text = &run.stderr;
        ensure!(text.contains(expected), "{words:?}: {text}");
        ensure!(!text.contains("panicked"), "{words:?}: {text}");
    }
    Ok(())
}
