//! `unspool symbolize`: a text with functions and lines instead of offsets.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use unspool_image::{BinutilsFrame, BuildId, Wanted};

use super::addr2line::demangled;
use super::addresses::{Files, Frames};
use super::symbols::Symbols;
use super::terminal;

mod places;

use places::{Kind, Place};

/// Replace code addresses in a log with functions and source lines
///
/// Copies standard input to standard output, and replaces the addresses in it. It knows
/// `function+0xOFFSET/0xSIZE` and `[<ADDRESS>]` of the kernel, `PROGRAM(function+0xOFFSET)` and
/// `PROGRAM[0xADDRESS]` of backtrace_symbols(3), and `(FILE+0xOFFSET)` of the sanitizers. It leaves
/// all other text unchanged, and also addresses that it cannot look up. Inlined functions come
/// first: `inner at a.c:3 (inlined by) f at a.c:9`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Cmd {
    /// File with the functions: vmlinux, or an unstripped copy of a program (repeatable)
    ///
    /// `symbolize` finds files that the log names by path even without this option.
    #[arg(short, long = "exe", value_name = "FILE")]
    exe: Vec<PathBuf>,

    #[command(flatten)]
    symbols: Symbols,
}

const EXAMPLES: &str = "\
Examples:
  dmesg | unspool symbolize -e vmlinux
  unspool symbolize --sysroot ~/board-rootfs < crash.log
  ./server 2>&1 | unspool symbolize";

/// Maximum length of a line. Longer ones are processed in parts.
const MAX_LINE: u64 = 64 << 10;

impl Cmd {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let mut files = Files::new(&self.symbols, false)?;
        let named = self.exe.iter().map(|path| files.open(path));
        let named = named.collect::<anyhow::Result<Vec<usize>>>()?;
        let mut lookup = Lookup {
            files,
            named,
            frames: Frames::new(),
        };
        terminal::to_stdout(|out| {
            terminal::answer_lines(MAX_LINE, out, |line, out| lookup.write(line, out))
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

struct Lookup {
    files: Files,
    /// The files that the user named.
    named: Vec<usize>,
    frames: Frames,
}

impl Lookup {
    fn write(&mut self, line: &[u8], out: &mut dyn Write) -> io::Result<()> {
        let mut from = 0;
        for place in places::all(line) {
            if self.find(&place) {
                out.write_all(&line[from..place.range.start])?;
                write_frames(&self.frames, out)?;
                from = place.range.end;
            }
        }
        out.write_all(&line[from..])
    }

    /// Looks a place up. False if its line is unknown.
    fn find(&mut self, place: &Place<'_>) -> bool {
        let found = match place.kind {
            Kind::Offset { name, offset, size } => {
                match self
                    .module(name, place.build_id.as_ref())
                    .filter(|_| size.is_none())
                {
                    Some(file) => Some((file, offset)),
                    None => self.files.in_function(&self.named, name, offset, size),
                }
            }
            Kind::InModule {
                module,
                function,
                offset,
            } => self.module(module, None).and_then(|file| match function {
                "" => Some((file, offset)),
                function => self.files.in_function(&[file], function, offset, None),
            }),
            // Only there an address in memory is an address in the file.
            Kind::InProgram { module, address } => self
                .module(module, None)
                .filter(|file| self.files.is_fixed(*file))
                .map(|file| (file, address)),
            Kind::Address { address, .. } => match self.named.as_slice() {
                [file] => Some((*file, address)),
                _ => None,
            },
        };
        let Some((file, svma)) = found else {
            return false;
        };
        // The instruction after a call can belong to another line or function.
        let svma = svma.wrapping_sub(u64::from(place.is_return_address));
        let frames = &mut self.frames;
        if !self.files.locator(file).find(svma, None, true, frames) {
            return false;
        }
        if let Kind::Address {
            function: Some(function),
            ..
        } = place.kind
            && !frames
                .iter()
                .any(|frame| frame.function == Some(function.as_bytes()))
        {
            return false;
        }
        frames
            .iter()
            .any(|frame| frame.file.is_some() && frame.line != 0)
    }

    /// The file of a module: one that the user named, or the file at the path.
    fn module(&mut self, name: &str, build_id: Option<&BuildId>) -> Option<usize> {
        if let Some(file) = self.files.named(&self.named, name) {
            return self.files.is_build(file, build_id).then_some(file);
        }
        if !name.contains('/') {
            return None;
        }
        let wanted = Wanted {
            path: name,
            build_id,
            local: true,
        };
        self.files.find(&wanted)
    }
}

fn write_frames(frames: &[BinutilsFrame<'_>], out: &mut dyn Write) -> io::Result<()> {
    for (depth, frame) in frames.iter().enumerate() {
        if depth > 0 {
            out.write_all(b" (inlined by) ")?;
        }
        let name = frame.function.filter(|name| !name.is_empty());
        out.write_all(&demangled(name.unwrap_or(b"??")))?;
        out.write_all(b" at ")?;
        out.write_all(frame.file.as_deref().unwrap_or(b"??"))?;
        match frame.line {
            0 => out.write_all(b":?")?,
            line => write!(out, ":{line}")?,
        }
    }
    Ok(())
}
