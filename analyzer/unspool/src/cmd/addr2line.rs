//! `unspool addr2line`: the options and the output of binutils' `addr2line`.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::ensure;
use clap::{ArgAction, Args};
use unspool_image::{BinutilsFrame, is_binutils_target};

use super::addresses::{self, Files, Frames, Mapping, Written};
use super::symbols::Symbols;
use super::terminal;

/// Print the function and source line of addresses, with the options of binutils' addr2line
///
/// Addresses are hexadecimal, with or without 0x. They are addresses in the ELF file, or in the
/// address space of the running or recorded process. FUNCTION+0xOFFSET[/0xSIZE], as the kernel
/// prints it, and FILE+0xOFFSET work too. Without ADDRESS arguments, addr2line reads addresses from
/// standard input, one per line. @FILE reads further options and addresses from FILE.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_override_self = true, infer_long_args = true, version,
          disable_version_flag = true)]
pub(super) struct Cmd {
    /// The ELF file, or a recording of unspool
    #[arg(short, long = "exe", value_name = "FILE", default_value = "a.out")]
    exe: PathBuf,

    /// Look up addresses of the running process PID
    #[arg(long, value_name = "PID", conflicts_with_all = ["exe", "section"],
          value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,

    /// Print the address before each answer
    #[arg(short, long)]
    addresses: bool,

    /// Print the function's name, too
    #[arg(short, long)]
    functions: bool,

    /// Print the callers of an inlined function, too
    #[arg(short, long)]
    inlines: bool,

    /// Print each answer on one line
    #[arg(short, long)]
    pretty_print: bool,

    /// Print only the last part of file names
    #[arg(short = 's', long)]
    basenames: bool,

    /// Demangle C++ and Rust names; `none` leaves them as they are
    #[arg(short = 'C', long, value_name = "STYLE", num_args = 0..=1, require_equals = true,
          default_missing_value = "auto")]
    demangle: Option<String>,

    /// Take addresses as offsets in this section
    #[arg(short = 'j', long, value_name = "NAME")]
    section: Option<String>,

    /// The format of the file, by binutils' name. Checked, but not needed: files are always ELF
    #[arg(short = 'b', long, value_name = "FORMAT")]
    target: Option<String>,

    /// Ignored: names of any depth are demangled within fixed limits
    #[arg(short = 'r', long, visible_alias = "no-recursion-limit", hide = true)]
    no_recurse_limit: bool,

    /// Ignored, as above
    #[arg(short = 'R', long, visible_alias = "recursion-limit", hide = true)]
    recurse_limit: bool,

    /// Print the version
    #[arg(short = 'v', long, visible_short_alias = 'V', action = ArgAction::Version)]
    version: Option<bool>,

    /// The addresses
    #[arg(value_name = "ADDRESS")]
    given: Vec<OsString>,

    #[command(flatten)]
    symbols: Symbols,
}

const EXAMPLES: &str = "\
Examples:
  unspool addr2line -e ./server -fip 0x4011d6
  unspool addr2line -e vmlinux -fi schedule+0x5a/0xb0
  unspool addr2line --pid 1234 -fC 0x7f1f3a62b3d0
  unspool addr2line -e libfoo.so.debug -f < addresses.txt";

/// Styles of demangling that C++ and Rust programs need. All but `none` have the same effect.
const STYLES: [&str; 4] = ["auto", "gnu-v3", "rust", "none"];

/// Where addresses are looked up.
enum Space {
    File(usize),
    Memory(Vec<Mapping>),
}

impl Cmd {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        if let Some(target) = &self.target {
            ensure!(
                is_binutils_target(target),
                "--target: no format is named {target:?}"
            );
        }
        if let Some(style) = &self.demangle {
            ensure!(
                STYLES.contains(&style.as_str()),
                "--demangle: no style {style:?}; the styles are {}",
                STYLES.join(", ")
            );
        }
        let mappings = match self.pid {
            Some(pid) => Some(addresses::of_process(pid)?),
            None => addresses::of_recording(&self.exe)?,
        };
        // Processes and recordings are beyond binutils.
        let mut files = Files::new(&self.symbols, mappings.is_none())?;
        let space = match mappings {
            Some(mappings) => Space::Memory(mappings),
            None => Space::File(files.open(&self.exe)?),
        };
        if let Some(section) = &self.section {
            let Space::File(file) = space else {
                anyhow::bail!("--section needs an ELF file, not a recording");
            };
            ensure!(
                files.locator(file).has_section(section),
                "{} has no section {section}",
                self.exe.display()
            );
        }
        let mut lookup = Lookup {
            options: &self,
            files,
            space,
            frames: Frames::new(),
        };
        terminal::to_stdout(|out| {
            if !self.given.is_empty() {
                for address in &self.given {
                    lookup.write(&address.to_string_lossy(), out)?;
                }
                return Ok(());
            }
            terminal::answer_lines(u64::MAX, out, |line, out| {
                lookup.write(&String::from_utf8_lossy(line), out)
            })
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

struct Lookup<'o> {
    options: &'o Cmd,
    files: Files,
    space: Space,
    frames: Frames,
}

impl Lookup<'_> {
    /// Writes the answer for one address.
    fn write(&mut self, text: &str, out: &mut dyn Write) -> io::Result<()> {
        let options = self.options;
        let (shown, place) = self.place(&Written::parse(text));
        if options.addresses {
            let is_32_bit = match (&self.space, &place) {
                (&Space::File(file), _) | (_, &Some((file, _))) => {
                    self.files.arch(file).address_size() == 4
                }
                _ => false,
            };
            let width = if is_32_bit { 8 } else { 16 };
            let end = if options.pretty_print { ": " } else { "\n" };
            write!(out, "0x{shown:0width$x}{end}")?;
        }
        let section = options.section.as_deref();
        let frames = &mut self.frames;
        let found = place.is_some_and(|(file, places)| {
            let locator = self.files.locator(file);
            let mut places = places.into_iter();
            places.any(|svma| locator.find(svma, section, options.inlines, frames))
        });
        if !found {
            let function = match (options.functions, options.pretty_print) {
                (true, true) => "?? ",
                (true, false) => "??\n",
                (false, _) => "",
            };
            return writeln!(out, "{function}??:0");
        }
        for (depth, frame) in self.frames.iter().enumerate() {
            if depth > 0 && options.pretty_print {
                out.write_all(b" (inlined by) ")?;
            }
            options.write_frame(frame, out)?;
        }
        Ok(())
    }

    /// The address to show, and the file and the addresses to look up until one is known.
    fn place(&mut self, written: &Written<'_>) -> (u64, Option<(usize, Vec<u64>)>) {
        let (shown, place) = self.one_place(written);
        let place = place.map(|(file, svma)| match (written, &self.options.section) {
            (Written::Plain(_), None) => (file, self.files.locator(file).addresses(svma)),
            _ => (file, vec![svma]),
        });
        (shown, place)
    }

    fn one_place(&mut self, written: &Written<'_>) -> (u64, Option<(usize, u64)>) {
        match (written, &self.space) {
            (&Written::Plain(address), &Space::File(file)) => {
                let address = match self.files.arch(file).address_size() {
                    4 => address & u64::from(u32::MAX),
                    _ => address,
                };
                let svma = match &self.options.section {
                    Some(section) => {
                        let locator = self.files.locator(file);
                        locator.address_in_section(section, address)
                    }
                    None => Some(address),
                };
                (address, svma.map(|svma| (file, svma)))
            }
            (&Written::Plain(address), Space::Memory(mappings)) => {
                (address, self.files.in_memory(mappings, address))
            }
            (&Written::Named { name, offset, size }, space) => {
                let files = match space {
                    Space::File(file) => vec![*file],
                    Space::Memory(mappings) => {
                        let all = addresses::files_of(&mut self.files, mappings, name);
                        match all {
                            Ok(file) => return (offset, Some((file, offset))),
                            Err(all) => all,
                        }
                    }
                };
                let module = self.files.named(&files, name).filter(|_| size.is_none());
                let place = match module {
                    Some(file) => Some((file, offset)),
                    None => self.files.in_function(&files, name, offset, size),
                };
                (place.map_or(0, |(_, svma)| svma), place)
            }
        }
    }
}

impl Cmd {
    fn write_frame(&self, frame: &BinutilsFrame<'_>, out: &mut dyn Write) -> io::Result<()> {
        if self.functions {
            let name = frame.function.filter(|name| !name.is_empty());
            let name = name.unwrap_or(b"??");
            match self.demangle.as_deref() {
                None | Some("none") => out.write_all(name)?,
                Some(_) => out.write_all(&demangled(name))?,
            }
            out.write_all(if self.pretty_print { b" at " } else { b"\n" })?;
        }
        let file = frame.file.as_deref().unwrap_or(b"??");
        let base = file.iter().rposition(|&byte| byte == b'/');
        let from = base.filter(|_| self.basenames).map_or(0, |slash| slash + 1);
        out.write_all(&file[from..])?;
        match (frame.line, frame.discriminator) {
            (0, _) => out.write_all(b":?\n"),
            (line, 0) => writeln!(out, ":{line}"),
            (line, discriminator) => writeln!(out, ":{line} (discriminator {discriminator})"),
        }
    }
}

/// The demangled name, as `c++filt` prints it. Leading dots and version suffixes stay.
pub(super) fn demangled(name: &[u8]) -> Cow<'_, [u8]> {
    let Ok(text) = std::str::from_utf8(name) else {
        return Cow::Borrowed(name);
    };
    let bare = text.trim_start_matches(['.', '$']);
    let (bare, suffix) = bare.split_at(bare.find('@').unwrap_or(bare.len()));
    let plain = unspool_image::demangle(bare);
    if plain == bare {
        return Cow::Borrowed(name);
    }
    let prefix = &text[..text.len() - bare.len() - suffix.len()];
    Cow::Owned(format!("{prefix}{plain}{suffix}").into_bytes())
}

/// Replaces each argument `@FILE` with the words in FILE, as all programs of binutils do. Words are
/// separated by blanks; quotes and backslashes keep blanks. An argument stays if there is no FILE.
pub(super) fn expanded(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut out: Vec<OsString> = Vec::new();
    let mut pending: Vec<OsString> = args.into_iter().collect();
    if pending.get(1).is_none_or(|command| command != "addr2line") {
        return pending;
    }
    pending.reverse();
    // A file that names itself would never end.
    let mut left = 2000;
    while let Some(arg) = pending.pop() {
        let file = arg.as_bytes().strip_prefix(b"@").filter(|_| left > 0);
        match file.and_then(|file| std::fs::read(OsStr::from_bytes(file)).ok()) {
            Some(text) => {
                left -= 1;
                pending.extend(words(&text).into_iter().rev());
            }
            None => out.push(arg),
        }
    }
    out
}

fn words(text: &[u8]) -> Vec<OsString> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut quote = None;
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        match (byte, quote) {
            (b'\\', _) => word.get_or_insert_default().extend(bytes.next()),
            (byte, Some(open)) if byte == open => quote = None,
            (byte, Some(_)) => word.get_or_insert_default().push(byte),
            (b'\'' | b'"', None) => {
                quote = Some(byte);
                word.get_or_insert_default();
            }
            (byte, None) if byte.is_ascii_whitespace() || byte == b'\x0b' => {
                words.extend(word.take().map(OsString::from_vec));
            }
            (byte, None) => word.get_or_insert_default().push(byte),
        }
    }
    words.extend(word.map(OsString::from_vec));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_backslashes_keep_blanks() {
        let text = b"-e 'a b' \"c d\"e f\\ g\n\t'' -i";
        let expected = ["-e", "a b", "c de", "f g", "", "-i"];
        assert_eq!(words(text), expected.map(OsString::from));
    }

    #[test]
    fn files_of_arguments_are_read_for_addr2line_only() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "-f 10").expect("written");
        let at = format!("@{}", file.path().display());
        let args = |command: &str| ["unspool", command, &at, "@/nowhere"].map(OsString::from);
        let expected = ["unspool", "addr2line", "-f", "10", "@/nowhere"].map(OsString::from);
        assert_eq!(expanded(args("addr2line")), expected);
        assert_eq!(expanded(args("report")), args("report"));
    }
}
