//! `unspool demo`: records a small bundled program and shows the report.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::Args;
use unspool_capture::Capture;
use unspool_unwind::Cache;

use super::{page, terminal};
use crate::collect::{self, Source};
use crate::model::{Detail, Model, Severity, Symbolizer};
use crate::store::Store;
use crate::views;
use crate::views::html::SourceFile;

/// Record a small bundled program and show the report
///
/// The program is demo/orders.c in the sources. It has two pools that share a worker function, a
/// thread that creates threads, a detached thread, and many threads that live a few milliseconds.
#[derive(Debug, Args)]
pub(super) struct Cmd {
    /// Also record what the threads wait for, and write the report as an HTML page
    ///
    /// The default of FILE is unspool-demo.html.
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "unspool-demo.html"
    )]
    html: Option<PathBuf>,
}

/// The demo program, built by `build.rs`. Empty if there was no C compiler.
const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/orders"));

/// The source of [`PROGRAM`].
const SOURCE: &str = include_str!("../../demo/orders.c");

impl Cmd {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        ensure!(
            !PROGRAM.is_empty(),
            "this unspool was built without a C compiler, so it has no program to show; \
             install one (gcc or clang) and build again, or try `unspool record PROG`"
        );
        let directory = tempfile::tempdir().context("cannot make a temporary directory")?;
        let program = directory.path().join("orders");
        fs::write(&program, PROGRAM)
            .and_then(|()| fs::set_permissions(&program, fs::Permissions::from_mode(0o755)))
            .with_context(|| format!("cannot write the program to {}", program.display()))?;
        let file = directory.path().join("demo.unspool");

        let store = Store::default().caching(Cache::of_user());
        let outcome = collect::record(
            collect::Options {
                source: Source::Launch {
                    program: program.into(),
                    args: Vec::new(),
                },
                exec: None,
                store: store.clone(),
                rsp_log: None,
                architecture: None,
                calls: collect::Instrumented {
                    sync: self.html.is_some().then_some(collect::Sync::All),
                    ..collect::Instrumented::default()
                },
                probes: collect::ProbeKinds::default(),
                kernel: Default::default(),
                budget: self.html.is_some().then(|| "none".to_owned()),
                analysis: None,
                stop: None,
                command: std::env::args().collect(),
            },
            || fs::File::create_new(&file),
        )?;
        if let Some(failure) = outcome.failure {
            return Err(failure.into());
        }
        let capture = Capture::read(&file)?;
        let detail = Detail {
            journal: self.html.is_some(),
            ..Detail::default()
        };
        let mut model = Model::build_for(&capture, &mut Symbolizer::new(store), detail);
        if let Some(path) = &self.html {
            let source = SourceFile {
                path: "demo/orders.c".to_owned(),
                text: SOURCE.to_owned(),
                changed: false,
            };
            page::write_file(&model, vec![source], path)?;
            terminal::say(&format!("open {} in a browser", path.display()));
        }
        // The demo keeps no recording, so a hint at `unspool report` would lead to none.
        model.findings.clear();
        model.notes.retain(|note| note.severity == Severity::Error);
        terminal::to_stdout(|out| {
            writeln!(
                out,
                "The threads of demo/orders.c, a small C program that Unspool has just run:\n"
            )?;
            views::text::tree::write(&model, out, &terminal::style_for_stdout())?;
            writeln!(out, "\nTry your own program: unspool record PROG")
        })?;
        Ok(ExitCode::SUCCESS)
    }
}
