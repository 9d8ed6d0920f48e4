//! Builds the test programs with different compilers, options and targets.
//!
//! Each build is made once and stored in the target directory, in a folder named after all its
//! inputs.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::memo::Memo;
use crate::process;
use crate::program::{Language, Program};
use crate::workspace;

/// One way to build one program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Build {
    /// Name of the program.
    pub program: &'static str,
    /// The compiler for C and C++; Rust has only one.
    pub compiler: Compiler,
    /// The machine it runs on.
    pub target: Target,
    /// Optimization level, as in `-O2`.
    pub level: u8,
    /// The kind of linking.
    pub link: Link,
    /// The kind of unwind tables.
    pub tables: Tables,
}

/// A C and C++ compiler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Compiler {
    /// GCC.
    Gcc,
    /// Clang.
    Clang,
}

/// The machine and instruction set a build runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// This machine.
    X86_64,
    /// ARMv7 in A32 state.
    A32,
    /// ARMv7 in T32 (Thumb-2) state.
    T32,
    /// ARMv8 in AArch64 state.
    A64,
}

/// How a program is linked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Link {
    /// Dynamically, position independent.
    Pie,
    /// Dynamically, at a fixed address.
    Fixed,
    /// Statically, at a fixed address (Rust: position independent).
    Static,
}

/// The unwind tables that the compiler writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tables {
    /// The compiler's default: on x86-64 `.eh_frame`.
    Default,
    /// `-funwind-tables`: `.ARM.exidx` also for C.
    Unwind,
    /// None. When stripped, only the code is left.
    None,
}

/// A finished build.
#[derive(Debug)]
pub struct Built {
    /// The program, with symbols and debug information.
    pub program: PathBuf,
    /// The same program without symbols and debug information.
    pub stripped: PathBuf,
}

impl Build {
    /// The name of the build within its program: `gcc-O2-pie`.
    pub fn name(&self) -> String {
        let compiler = match (self.compiler, self.target) {
            (Compiler::Gcc, Target::X86_64) => "gcc",
            (Compiler::Clang, _) => "clang",
            (Compiler::Gcc, Target::A32) => "a32",
            (Compiler::Gcc, Target::T32) => "t32",
            (Compiler::Gcc, Target::A64) => "a64",
        };
        let link = match self.link {
            Link::Pie => "pie",
            Link::Fixed => "fixed",
            Link::Static => "static",
        };
        let tables = match self.tables {
            Tables::Default => "",
            Tables::Unwind => "-exidx",
            Tables::None => "-bare",
        };
        format!("{compiler}-O{}-{link}{tables}", self.level)
    }

    /// Builds it, unless the build exists.
    pub fn built(&self, program: &'static Program) -> Result<Arc<Built>> {
        static BUILT: Memo<Build, Built> = Memo::new();
        ensure!(
            self.program == program.name,
            "a build of {}, not of {}",
            self.program,
            program.name
        );
        BUILT
            .get(*self, || self.make(program))
            .with_context(|| format!("building {} {}", program.name, self.name()))
    }

    fn make(&self, program: &Program) -> Result<Built> {
        let commands = self.commands(program);
        let mut hasher = DefaultHasher::new();
        for command in &commands {
            command.hash(&mut hasher);
            compiler_version(&command[0])?.hash(&mut hasher);
        }
        for source in sources(program) {
            std::fs::read(&source)
                .with_context(|| source.display().to_string())?
                .hash(&mut hasher);
        }
        let parent = workspace::target_directory()
            .join("programs")
            .join(program.name);
        let folder = parent.join(format!("{}-{:016x}", self.name(), hasher.finish()));
        if !folder.is_dir() {
            std::fs::create_dir_all(&parent)?;
            let fresh = tempfile::tempdir_in(&parent)?;
            std::fs::create_dir(fresh.path().join("stripped"))?;
            for command in &commands {
                let mut compiler = Command::new(&command[0]);
                compiler.args(&command[1..]).current_dir(fresh.path());
                process::run(&mut compiler, Duration::from_secs(120))?.success()?;
            }
            let files = program
                .libraries
                .iter()
                .map(|(file, _, _)| *file)
                .chain([program.name]);
            for file in files {
                let mut strip = Command::new(self.strip());
                strip
                    .args(["-o", &format!("stripped/{file}"), file])
                    .current_dir(fresh.path());
                process::run(&mut strip, Duration::from_secs(60))?.success()?;
            }
            // Another process may have finished first; then its folder has the same files.
            if let Err(error) = std::fs::rename(fresh.keep(), &folder) {
                ensure!(
                    folder.is_dir(),
                    "cannot move the build to {}: {error}",
                    folder.display()
                );
            }
        }
        Ok(Built {
            program: folder.join(program.name),
            stripped: folder.join("stripped").join(program.name),
        })
    }

    fn strip(&self) -> &'static str {
        match self.target {
            Target::X86_64 => "strip",
            Target::A32 | Target::T32 => "arm-linux-gnueabihf-strip",
            Target::A64 => "aarch64-linux-gnu-strip",
        }
    }

    fn commands(&self, program: &Program) -> Vec<Vec<String>> {
        if program.language == Language::Rust {
            return vec![self.rustc(program)];
        }
        let mut commands: Vec<Vec<String>> = program
            .libraries
            .iter()
            .map(|(file, source, _)| {
                let mut command = self.compile(source, file);
                command.extend(["-shared", "-fPIC"].map(str::to_owned));
                command
            })
            .collect();
        let mut command = self.compile(
            &format!("{}.{}", program.name, program.language.extension()),
            program.name,
        );
        let link: &[&str] = match self.link {
            Link::Pie => &["-fPIE", "-pie"],
            Link::Fixed => &["-fno-PIE", "-no-pie"],
            Link::Static => &["-static"],
        };
        command.extend(link.iter().map(|word| (*word).to_owned()));
        if !program.libraries.is_empty() {
            command.extend(["-L.", "-Wl,-rpath,$ORIGIN", "-ldl"].map(str::to_owned));
        }
        for (file, _, linked) in program.libraries {
            if *linked {
                command.push(format!("-l:{file}"));
            }
        }
        commands.push(command);
        commands
    }

    fn compile(&self, source: &str, output: &str) -> Vec<String> {
        let cxx = source.ends_with(".cpp");
        let compiler = match (self.compiler, self.target, cxx) {
            (Compiler::Gcc, Target::X86_64, false) => "gcc",
            (Compiler::Gcc, Target::X86_64, true) => "g++",
            (Compiler::Clang, _, false) => "clang",
            (Compiler::Clang, _, true) => "clang++",
            (Compiler::Gcc, Target::A32 | Target::T32, false) => "arm-linux-gnueabihf-gcc",
            (Compiler::Gcc, Target::A32 | Target::T32, true) => "arm-linux-gnueabihf-g++",
            (Compiler::Gcc, Target::A64, false) => "aarch64-linux-gnu-gcc",
            (Compiler::Gcc, Target::A64, true) => "aarch64-linux-gnu-g++",
        };
        let source = workspace::file("programs")
            .join(source)
            .display()
            .to_string();
        let level = format!("-O{}", self.level);
        let mut command: Vec<String> = [
            compiler, "-g", &level, "-Wall", "-Werror", "-pthread", "-o", output, &source,
        ]
        .map(str::to_owned)
        .into();
        let state: &[&str] = match self.target {
            Target::X86_64 | Target::A64 => &[],
            Target::A32 => &["-marm"],
            Target::T32 => &["-mthumb"],
        };
        let tables: &[&str] = match self.tables {
            Tables::Default => &[],
            Tables::Unwind => &["-funwind-tables"],
            Tables::None => &["-fno-unwind-tables", "-fno-asynchronous-unwind-tables"],
        };
        command.extend(state.iter().chain(tables).map(|word| (*word).to_owned()));
        command
    }

    fn rustc(&self, program: &Program) -> Vec<String> {
        let source = workspace::file("programs").join(format!("{}.rs", program.name));
        let mut command = vec!["rustc".to_owned(), "--edition=2024".into(), "-g".into()];
        command.push(format!("-Copt-level={}", self.level));
        if self.link == Link::Static {
            command.push("-Ctarget-feature=+crt-static".into());
        }
        let foreign = match self.target {
            Target::X86_64 => None,
            Target::A32 | Target::T32 => {
                Some(("armv7-unknown-linux-gnueabihf", "arm-linux-gnueabihf-gcc"))
            }
            Target::A64 => Some(("aarch64-unknown-linux-gnu", "aarch64-linux-gnu-gcc")),
        };
        if let Some((target, linker)) = foreign {
            command.push(format!("--target={target}"));
            command.push(format!("-Clinker={linker}"));
        }
        command.extend([
            "-o".into(),
            program.name.to_owned(),
            source.display().to_string(),
        ]);
        command
    }
}

fn sources(program: &Program) -> Vec<PathBuf> {
    let folder = workspace::file("programs");
    let own = folder.join(format!("{}.{}", program.name, program.language.extension()));
    let libraries = program
        .libraries
        .iter()
        .map(|(_, source, _)| folder.join(Path::new(source)));
    libraries.chain([own]).collect()
}

fn compiler_version(compiler: &str) -> Result<Arc<String>> {
    static VERSIONS: Memo<String, String> = Memo::new();
    VERSIONS.get(compiler.to_owned(), || {
        let run = process::run(
            Command::new(compiler).arg("--version"),
            Duration::from_secs(20),
        )?;
        Ok(run.success()?.text())
    })
}
