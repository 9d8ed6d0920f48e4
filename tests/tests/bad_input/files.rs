//! Tests program files and libraries that are wrong, damaged, missing or without symbols. The
//! program itself runs; the recording must fail, or must not.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{Case, DEFAULT_BUILD, fails};
use unspool_tests::backtrace::{self, Depth};
use unspool_tests::build::{Build, Link, Tables, Target};
use unspool_tests::process::{self, Background};
use unspool_tests::program::program;
use unspool_tests::{elf, qemu, report, truth};

pub(super) const TRIALS: &[Case] = &[
    ("sysroot_with_wrong_build_id", sysroot_with_wrong_build_id),
    ("missing_library", missing_library),
    ("corrupt_library", corrupt_library),
    ("missing_plugin", missing_plugin),
    ("corrupt_plugin", corrupt_plugin),
    ("no_such_sysroot", no_such_sysroot),
    ("damaged_section_headers", damaged_section_headers),
    ("static_without_symbols", static_without_symbols),
];

/// Libraries at a path that only the sysroot has: `/private/lib`.
struct PrivateLibrary {
    folder: tempfile::TempDir,
    program: PathBuf,
}

impl PrivateLibrary {
    /// A root for qemu-arm, and a sysroot for Unspool with one other library. `change` turns the
    /// right bytes into the wrong ones, or into no file. No file of this machine has the right
    /// library's build-id.
    fn new(library: &str, change: impl Fn(Vec<u8>) -> Option<Vec<u8>>) -> Result<Self> {
        let build = Build {
            program: "library",
            target: Target::T32,
            tables: Tables::Unwind,
            ..DEFAULT_BUILD
        };
        let built = build.built(program("library"))?;
        let folder = tempfile::tempdir()?;
        let from = qemu::sysroot()?.join("lib");
        let beside = built.program.parent().context("a program is in a folder")?;
        for root in ["right", "wrong"] {
            let root = folder.path().join(root);
            std::fs::create_dir_all(root.join("private/lib"))?;
            std::fs::create_dir_all(root.join("lib"))?;
            std::fs::copy(
                from.join("ld-linux-armhf.so.3"),
                root.join("lib/ld-linux-armhf.so.3"),
            )?;
            for (file, from) in [
                ("libc.so.6", &*from.join("arm-linux-gnueabihf")),
                ("libconstructor.so", beside),
                ("libplugin.so", beside),
            ] {
                let right = foreign(&from.join(file))?;
                let bytes = match (root.ends_with("wrong"), file == library) {
                    (true, true) => change(right),
                    _ => Some(right),
                };
                if let Some(bytes) = bytes {
                    std::fs::write(root.join("private/lib").join(file), bytes)?;
                }
            }
        }
        // The program is apart from its linked libraries, which its RUNPATH finds.
        let program = folder.path().join("library");
        std::fs::copy(&built.program, &program)?;
        Ok(Self { program, folder })
    }

    /// Records the program under qemu-arm with the wrong sysroot. The recording must fail with
    /// these words, and the program must end as without recording.
    fn fails(&self, words: &[&str]) -> Result<()> {
        let socket = self.folder.path().join("gdb");
        let output = self.folder.path().join("output");
        let mut emulator = Command::new("qemu-arm");
        emulator
            .arg("-L")
            .arg(self.folder.path().join("right"))
            .args(["-E", "LD_LIBRARY_PATH=/private/lib", "-g"])
            .arg(&socket)
            .arg(&self.program)
            .stdout(std::fs::File::create(&output)?)
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        let mut emulator = Background(process::start(&mut emulator)?);
        qemu::listens(&socket)?;

        let mut command = report::unspool()?;
        command
            .args(["record", "-q", "-o"])
            .arg(self.folder.path().join("capture"))
            .arg("--sysroot")
            .arg(self.folder.path().join("wrong"))
            .args(["--connect", &format!("unix:{}", socket.display())]);
        let run = fails(&mut command, words)?;

        let mut status = None;
        process::wait_until("the program ends", Duration::from_secs(20), || {
            status = emulator.0.try_wait().ok().flatten();
            status.is_some()
        })
        .with_context(|| run.to_string())?;
        ensure!(
            status.is_some_and(|status| status.success()),
            "the program: {status:?}\n{run}"
        );
        let text = std::fs::read_to_string(&output)?;
        ensure!(
            text == "library: 1 from the constructor, 3 from the plugin\n",
            "the program wrote {text:?}\n{run}"
        );
        Ok(())
    }
}

/// The file's bytes with another build-id.
fn foreign(file: &Path) -> Result<Vec<u8>> {
    let mut bytes = std::fs::read(file)?;
    let id = build_id(file)?;
    let mut places = 0;
    for at in 0..bytes.len().saturating_sub(id.len()) {
        if bytes[at..].starts_with(&id) {
            bytes[at] ^= 0xff;
            places += 1;
        }
    }
    ensure!(
        places == 1,
        "{}: its build-id stands {places} times",
        file.display()
    );
    Ok(bytes)
}

fn build_id(file: &Path) -> Result<Vec<u8>> {
    let id = elf::build_id(file)?.with_context(|| format!("{} has no build-id", file.display()))?;
    let digits = (0..id.len() / 2).map(|n| u8::from_str_radix(&id[2 * n..2 * n + 2], 16));
    Ok(digits.collect::<Result<_, _>>()?)
}

fn sysroot_with_wrong_build_id() -> Result<()> {
    let libc = qemu::sysroot()?.join("lib/arm-linux-gnueabihf/libc.so.6");
    let original = std::fs::read(&libc)?;
    let id = elf::build_id(&libc)?.context("Debian's libc has a build-id")?;
    PrivateLibrary::new("libc.so.6", |_| Some(original.clone()))?.fails(&[
        "libc.so.6",
        "build-id",
        &id,
        &id[2..],
        "--sysroot|sysroot",
    ])
}

fn missing_library() -> Result<()> {
    PrivateLibrary::new("libc.so.6", |_| None)?
        .fails(&["/private/lib/libc.so.6", "--sysroot|sysroot"])
}

fn corrupt_library() -> Result<()> {
    PrivateLibrary::new("libc.so.6", |libc| Some(libc[..1000].to_vec()))?.fails(&["libc.so.6"])
}

/// The library is needed for stacks through it, but not to find creations.
fn missing_plugin() -> Result<()> {
    PrivateLibrary::new("libplugin.so", |_| None)?
        .fails(&["/private/lib/libplugin.so", "--sysroot|sysroot"])
}

fn corrupt_plugin() -> Result<()> {
    PrivateLibrary::new("libplugin.so", |mut bytes| {
        bytes[0x40..].reverse();
        Some(bytes)
    })?
    .fails(&["libplugin.so"])
}

fn no_such_sysroot() -> Result<()> {
    let mut command = report::unspool()?;
    command.args(["record", "--sysroot", "/nonexistent/root", "--", "true"]);
    fails(&mut command, &["--sysroot", "/nonexistent/root"])?;
    Ok(())
}

/// The kernel does not read section headers. So such a program runs, and its creation backtraces do
/// not need them.
fn damaged_section_headers() -> Result<()> {
    let built = DEFAULT_BUILD.built(program("pool"))?;
    let folder = tempfile::tempdir()?;
    let damaged = folder.path().join("pool");
    let mut bytes = std::fs::read(&built.program)?;
    bytes[40..48].copy_from_slice(&0x7fff_ffff_ffff_0000_u64.to_le_bytes()); // e_shoff
    let file = folder.path().join("bytes");
    std::fs::write(&file, bytes)?;
    process::install(&file, &damaged, 0o755)?;

    let capture = folder.path().join("capture");
    let run = report::record(&capture, &["-q"], &[&damaged.display().to_string()])?.success()?;
    ensure!(run.text() == "pool: 8 workers, sum 31996000\n", "{run}");
    let truth = truth::native(&built.program, &[])?;
    let report = report::report(&capture, &[])?;
    backtrace::compare(&truth.creations, &report.creations(), Depth::Addresses)?;

    // A part that was missing in the damaged file is not missing in the good one with the same
    // build-id.
    report::record(&capture, &["-q"], &[&built.program.display().to_string()])?.success()?;
    let report = report::report(&capture, &[])?;
    backtrace::compare(&truth.creations, &report.creations(), Depth::Source)
}

/// Only the kernel shows where threads are created. A note says what would show the rest.
fn static_without_symbols() -> Result<()> {
    let built = Build {
        link: Link::Static,
        ..DEFAULT_BUILD
    }
    .built(program("pool"))?;
    let folder = tempfile::tempdir()?;
    let capture = folder.path().join("capture");
    let run = report::record(&capture, &["-q"], &[shown(&built.stripped)])?.success()?;
    ensure!(run.text() == "pool: 8 workers, sum 31996000\n", "{run}");
    let notes = report::report(&capture, &[])?.notes;
    let advice = notes.iter().any(|note| {
        let text = note.to_string();
        text.contains("no symbols") && text.contains("--debug-dir")
    });
    ensure!(advice, "{notes:?}");
    Ok(())
}

fn shown(path: &Path) -> &str {
    path.to_str().expect("the tests' own paths are UTF-8")
}
