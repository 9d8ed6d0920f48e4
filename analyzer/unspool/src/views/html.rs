//! The report, the comparison of recordings, and the call graph: each is one HTML page that needs
//! no server, no network and no other file.
//!
//! The page's own code is in `html/page/`: CSS and JavaScript modules, joined by [`page`]. The
//! recording is compressed data in the page ([`data`]), so no text of the target becomes HTML. The
//! data is the JSON report, in which each stack is stored once, and the states of each thread.

pub(super) mod calls;
mod data;
pub mod diff;
mod encode;
mod page;
mod path;
mod processes;
mod samples;
mod states;

use std::collections::{BTreeSet, HashSet};
use std::io::{self, Write};

use crate::model::{Backtrace, Model, Place};

/// A source file that the page shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Its path in the debug information.
    pub path: String,
    /// Its text.
    pub text: String,
    /// The file was changed after the recording began.
    pub changed: bool,
}

/// Writes the page.
///
/// The model needs a [journal](crate::model::sync::Journal) to show single waits.
pub fn write(model: &Model, sources: &[SourceFile], out: &mut dyn Write) -> io::Result<()> {
    let data = data::compressed(model, sources)?;
    page::write(&page::REPORT, &model.target.name, &data, out)
}

/// The paths of all source files that the recording's stacks name, sorted.
///
/// Without those that only downloaded debug files name: a hostile server could name the user's
/// private files, whose text would then be in the report.
pub fn source_paths(model: &Model) -> Vec<String> {
    let creations = model.threads.iter().filter_map(|t| t.creation_stack());
    let paths = model.sync.paths.iter().map(|path| &**path);
    let evidence = (model.findings.iter().flat_map(|finding| &finding.evidence))
        .filter_map(|evidence| evidence.stack.as_deref());
    let sampled = model.profile.stacks.iter().map(|stack| &**stack);
    let stacks = creations.chain(paths).chain(evidence).chain(sampled);
    let frames = stacks.flat_map(|stack: &Backtrace| &stack.frames);
    let places = frames.map(|frame| &frame.place);
    let functions = model.threads.iter().filter_map(|t| t.function.as_ref());
    let modules = model.modules.iter().filter(|module| module.downloaded);
    let downloaded: HashSet<&str> = modules.map(|module| module.path.as_str()).collect();
    let is_own = |place: &&Place| match place.module.as_deref() {
        Some(module) => !downloaded.contains(module),
        None => true,
    };
    let callers = model.lock_waits.iter().filter_map(|it| it.caller.as_ref());
    let files: BTreeSet<&str> = places
        .chain(functions)
        .chain(callers)
        .filter(is_own)
        .filter_map(|place| place.file.as_deref())
        .collect();
    files.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Module;
    use crate::model::fixture::{PID, Stage};

    #[test]
    fn sources_that_only_a_server_names_are_left_out() {
        let mut stage = Stage::new();
        let served = "served!work@/home/ann/.ssh/id_rsa:1";
        let stack = ["served!inlined@/src/both.c:7", "orders!main@/src/both.c:9"];
        stage.spawn(PID, PID + 1, 1, served, &stack);
        stage.spawn(PID, PID + 2, 2, "orders!worker@/src/own.c:3", &[]);
        let mut model = stage.model();
        let private = "/home/ann/.ssh/id_rsa";
        assert_eq!(source_paths(&model), [private, "/src/both.c", "/src/own.c"]);
        let served = |module: &&mut Module| module.path == "/lib/served";
        let served = model.modules.iter_mut().find(served).expect("a module");
        served.downloaded = true;
        assert_eq!(source_paths(&model), ["/src/both.c", "/src/own.c"]);
    }
}
