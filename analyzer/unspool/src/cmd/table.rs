//! `unspool table`: the unwind rules of a file.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, ValueEnum};
use unspool_image::Image;
use unspool_unwind::verify::verify;
use unspool_unwind::{CompileOptions, Source, Table};

use super::prefer::Prefer;
use super::report::Format;
use super::terminal;
use crate::model::disassembly;
use crate::views;
use crate::views::table::Selection;

/// Show the unwind rules of an ELF file: how to get from each address to its caller
///
/// The rules come from call frame information (.eh_frame, .debug_frame), from ARM's exception
/// index and from an analysis of the machine code. Addresses are as in the file, before it is
/// loaded.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Cmd {
    /// The file
    #[arg(value_name = "ELF")]
    file: PathBuf,

    /// Source of the rules to show; `all` shows the best rule for each address
    #[arg(long, value_enum, default_value_t = From::All)]
    source: From,

    /// Output format; docs/internals/unwinding.md describes the JSON
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,

    /// Compare the analysis of the code with the call frame information, at every instruction
    ///
    /// Prints the number of rules that agree, differ or are missing, and the functions with the
    /// most differences.
    #[arg(long)]
    verify: bool,

    /// Disassemble a function, with the unwind rule before each instruction
    ///
    /// FUNCTION is a symbol's name, or an address inside the function. On ARM, bit 0 of the
    /// address selects T32.
    #[arg(long, value_name = "FUNCTION", conflicts_with = "verify")]
    disasm: Option<String>,

    /// The file's separate debug file
    #[arg(long, value_name = "FILE")]
    debug_file: Option<PathBuf>,

    /// Analyse the code as if the file were stripped
    #[arg(long)]
    no_symbols: bool,

    #[command(flatten)]
    prefer: Prefer,
}

const EXAMPLES: &str = "\
Examples:
  unspool table /usr/bin/python3
  unspool table libfoo.so --source exidx --format json
  unspool table libc.so.6 --disasm pthread_create
  unspool table --verify libc.so.6 --debug-file libc.so.6.debug";

/// `--source`.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum From {
    /// Call frame information
    Cfi,
    /// ARM's exception index
    Exidx,
    /// Analysis of the machine code
    Code,
    /// Frame pointers
    Fp,
    /// The best rule for each address
    All,
}

impl Cmd {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let analysed = Image::open(&self.file)?;
        let image = match &self.debug_file {
            Some(path) => analysed
                .clone()
                .with_debug_file(self.debug(&analysed, path)?),
            None => analysed.clone(),
        };
        let mut options = CompileOptions::default();
        options.symbols = !self.no_symbols;
        options.prefer = self.prefer.sources();
        let table = Table::compile(&image, &options);
        if self.verify {
            let agreement = verify(&analysed, &image, &table, options.symbols);
            anyhow::ensure!(
                agreement.total() > 0,
                "{} has no call frame information to compare with; name its debug file with --debug-file",
                self.file.display()
            );
            terminal::to_stdout(|out| match self.format {
                Format::Text => views::agreement::write_text(&agreement, &image, out),
                Format::Json => views::agreement::write_json(&agreement, &image, out),
            })?;
            return Ok(ExitCode::SUCCESS);
        }
        let selection = match self.source {
            From::Cfi => Selection::Of(Source::Cfi),
            From::Exidx => Selection::Of(Source::Exidx),
            From::Code => Selection::Of(Source::Code),
            From::Fp => Selection::FramePointer,
            From::All => Selection::All,
        };
        if let Some(function) = &self.disasm {
            let code = disassembly::disassemble(&image, function, options.symbols)?;
            terminal::to_stdout(|out| match self.format {
                Format::Text => views::disassembly::write_text(&code, &table, selection, out),
                Format::Json => views::disassembly::write_json(&code, &table, selection, out),
            })?;
            return Ok(ExitCode::SUCCESS);
        }
        terminal::to_stdout(|out| match self.format {
            Format::Text => views::table::write_text(&table, selection, out),
            Format::Json => views::table::write_json(&table, selection, out),
        })?;
        Ok(ExitCode::SUCCESS)
    }

    fn debug(&self, image: &Image, path: &Path) -> anyhow::Result<Image> {
        let debug = Image::open(path).context("the debug file cannot be used")?;
        if let (Some(expected), Some(seen)) = (image.build_id(), debug.build_id()) {
            anyhow::ensure!(
                expected == seen,
                "{} is not the debug file of {}: expected build-id {expected}, found {seen}",
                path.display(),
                self.file.display()
            );
        }
        Ok(debug)
    }
}
