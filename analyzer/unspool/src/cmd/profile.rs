//! The source and the instructions of functions in a CPU profile: finds the files that
//! `views::text::profile` shows.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use unspool_image::Wanted;

use super::{page, terminal};
use crate::model::profile::{Breakdown, FunctionIndex};
use crate::model::{Model, Module, disassembly};
use crate::store::Store;
use crate::views::Style;
use crate::views::html;
use crate::views::text::profile::{self, annotated};

/// Maximum size of a source file, in bytes.
const MAX_SOURCE_BYTES: u64 = 64 << 20;

/// The functions with samples that a name selects.
fn named(model: &Model, breakdown: &Breakdown, wanted: &str) -> anyhow::Result<Vec<FunctionIndex>> {
    ensure!(
        !model.profile.samples.is_empty(),
        "the recording has no CPU samples; `unspool record --cpu` takes them"
    );
    match profile::named(breakdown, wanted) {
        none if none.is_empty() => bail!("no CPU sample has a function {wanted}"),
        functions => Ok(functions),
    }
}

/// Shows the source of a function, with the samples on each line.
pub(super) fn source(
    model: &Model,
    wanted: &str,
    output: Option<&Path>,
    style: &Style,
) -> anyhow::Result<()> {
    let breakdown = Breakdown::of(&model.profile);
    let functions = named(model, &breakdown, wanted)?;
    let files = breakdown.lines(&model.profile, &functions);
    ensure!(
        !files.is_empty(),
        "{wanted} has no source lines, because no debug information was found; try --disasm"
    );
    let own: BTreeSet<String> = html::source_paths(model).into_iter().collect();
    terminal::to_output(output, |out: &mut dyn Write| {
        for (file, lines) in &files {
            let path = Path::new(&**file);
            // Debug information may name any file, also one that never ends.
            let is_own = own.contains(&**file);
            let is_usual = is_own
                && fs::metadata(path)
                    .is_ok_and(|facts| facts.is_file() && facts.len() <= MAX_SOURCE_BYTES);
            let text = is_usual.then(|| fs::read(path).ok()).flatten();
            let text = text.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            let (text, profile) = (text.as_deref(), &model.profile);
            let is_changed = text.is_some() && page::is_younger(path, model);
            let doubt = match is_own {
                true => is_changed.then_some(page::CHANGED),
                false => Some(page::FROM_SERVER),
            };
            annotated::source(profile, file, lines, text, doubt, out, style)?;
        }
        Ok(())
    })
}

/// Shows the instructions of a function, with the samples at each.
pub(super) fn disassembly(
    model: &Model,
    store: &Store,
    local: bool,
    wanted: &str,
    output: Option<&Path>,
    style: &Style,
) -> anyhow::Result<()> {
    let breakdown = Breakdown::of(&model.profile);
    let functions = named(model, &breakdown, wanted)?;
    let modules = breakdown.addresses(&model.profile, &functions);
    let mut shown = Vec::new();
    for (path, addresses) in &modules {
        let hottest = addresses.iter().max_by_key(|(_, hits)| hits.cum);
        let Some((address, _)) = hottest else {
            continue;
        };
        let module = model.modules.iter().find(|module| module.path == **path);
        let id = module.and_then(Module::id);
        let file = Wanted {
            path,
            build_id: id.as_ref(),
            local,
        };
        let opened = store
            .find(&file, None)
            .with_context(|| format!("the file of {path} could not be used"))?;
        let code = disassembly::disassemble(&opened.image, &format!("{address:x}"), true)?;
        let name = code.name.as_deref().map(unspool_image::demangle);
        let name = name.map_or(wanted.to_owned(), |name| name.to_string());
        shown.push((name, code, addresses));
    }
    ensure!(
        !shown.is_empty(),
        "{wanted} is inlined everywhere, so it has no instructions of its own; try --source"
    );
    terminal::to_output(output, |out: &mut dyn Write| {
        for (name, code, addresses) in &shown {
            annotated::disassembly(&model.profile, name, code, addresses, out, style)?;
        }
        Ok(())
    })
}
