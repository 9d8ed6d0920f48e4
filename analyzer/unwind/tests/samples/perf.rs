//! Samples the registers of programs with `perf record`, and sorts the samples by file.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use unspool_image::{Arch, Image};
use unspool_unwind::RegisterFile;

/// Registers by file, each with its pc as svma.
pub(crate) type Samples = BTreeMap<PathBuf, Vec<(u64, RegisterFile)>>;

const REGISTERS: &str = "ax,bx,cx,dx,si,di,bp,sp,ip,r8,r9,r10,r11,r12,r13,r14,r15";

/// Runs a program, which must succeed, and samples it `frequency` times per second of processor
/// time.
pub(crate) fn sample(program: &[String], frequency: u32, folder: &Path) -> Result<Samples, String> {
    let data = folder.join("perf.data");
    let mut record = Command::new("perf");
    record.args([
        "record",
        "-q",
        "-e",
        "cpu-clock:u",
        "-F",
        &frequency.to_string(),
    ]);
    record.arg(format!("--user-regs={REGISTERS}"));
    record.arg("-o").arg(&data).arg("--").args(program);
    record
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let ran = record.output().map_err(|error| format!("perf: {error}"))?;
    if !ran.status.success() {
        return Err(format!(
            "{program:?}: {}",
            String::from_utf8_lossy(&ran.stderr)
        ));
    }
    let mut script = Command::new("perf");
    script.arg("script").arg("-i").arg(&data);
    script.args([
        "-F",
        "pid,ip,uregs",
        "--show-mmap-events",
        "--show-task-events",
    ]);
    let printed = script.output().map_err(|error| format!("perf: {error}"))?;
    Ok(parse(&String::from_utf8_lossy(&printed.stdout)))
}

/// A mapped file.
#[derive(Clone)]
struct Mapped {
    start: u64,
    end: u64,
    offset: u64,
    path: PathBuf,
}

/// Parses the output of `perf script`.
fn parse(text: &str) -> Samples {
    let mut processes: HashMap<u64, Vec<Mapped>> = HashMap::new();
    let mut segments: HashMap<PathBuf, Vec<(u64, u64, u64)>> = HashMap::new();
    let mut samples = Samples::new();
    for line in text.lines() {
        if let Some((_, event)) = line.split_once("PERF_RECORD_FORK(") {
            let ids: Vec<u64> = event
                .split(|c: char| !c.is_ascii_digit())
                .flat_map(str::parse)
                .collect();
            if let [child, _, parent, ..] = ids[..]
                && child != parent
            {
                let maps = processes.get(&parent).cloned().unwrap_or_default();
                processes.insert(child, maps);
            }
        } else if let Some((_, event)) = line.split_once("PERF_RECORD_MMAP2 ") {
            if let Some((pid, mapped)) = mapping(event) {
                processes.entry(pid).or_default().push(mapped);
            }
        } else if let Some((head, registers)) = line.split_once(" ABI:") {
            let Some((pid, pc)) = head.trim().split_once(char::is_whitespace) else {
                continue;
            };
            let pc = u64::from_str_radix(pc.trim(), 16);
            let (Ok(pid), Ok(pc)) = (pid.parse(), pc) else {
                continue;
            };
            let maps: &[Mapped] = processes.get(&pid).map_or(&[], |maps| maps);
            let mapped = maps
                .iter()
                .rev()
                .find(|map| (map.start..map.end).contains(&pc));
            let Some(mapped) = mapped else {
                continue;
            };
            let at = pc - mapped.start + mapped.offset;
            let known = segments.entry(mapped.path.clone());
            let known = known.or_insert_with(|| of_file(&mapped.path));
            let svma = known
                .iter()
                .find(|(offset, size, _)| (*offset..offset + size).contains(&at));
            if let Some((offset, _, svma)) = svma {
                let sample = (at - offset + svma, registers_of(registers));
                samples.entry(mapped.path.clone()).or_default().push(sample);
            }
        }
    }
    samples
}

/// `7/7: [0x7f00(0x2000) @ 0x1000 fe:00 25 0]: r-xp /usr/lib/libc.so.6`
fn mapping(event: &str) -> Option<(u64, Mapped)> {
    let (pid, rest) = event.split_once('/')?;
    let (_, rest) = rest.split_once('[')?;
    let (range, rest) = rest.split_once(") @ ")?;
    let (start, len) = range.split_once('(')?;
    let (offset, rest) = rest.split_once(' ')?;
    let (_, file) = rest.split_once("]: ")?;
    let (_, path) = file.split_once(' ')?;
    let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    let start = hex(start)?;
    let mapped = Mapped {
        start,
        end: start + hex(len)?,
        offset: hex(offset)?,
        path: path.into(),
    };
    Some((pid.trim().parse().ok()?, mapped))
}

/// The segments of a file: offset, size, address.
fn of_file(path: &Path) -> Vec<(u64, u64, u64)> {
    let image = Image::open(path)
        .ok()
        .filter(|image| image.arch() == Arch::X86_64);
    let segments = image.iter().flat_map(|image| image.segments());
    segments
        .map(|one| (one.file_offset, one.file_size, one.svma))
        .collect()
}

/// `2    AX:0x0    BX:0x5 ...`
fn registers_of(text: &str) -> RegisterFile {
    let values: HashMap<String, u64> = text
        .split_whitespace()
        .filter_map(|word| {
            let (name, value) = word.split_once(":0x")?;
            let name = name.to_ascii_lowercase();
            let name = if name.starts_with('r') {
                name
            } else {
                format!("r{name}")
            };
            Some((name, u64::from_str_radix(value, 16).ok()?))
        })
        .collect();
    RegisterFile::new(Arch::X86_64, |name| values.get(name).copied())
}
