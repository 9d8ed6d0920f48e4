//! Unwinds a snapshot in a text file (for its format see `snapshot/text.rs`). The ELF files that it
//! names must be present.

#[path = "snapshot/text.rs"]
mod text;

use std::path::Path;
use std::sync::Arc;

use text::Snapshot;
use unspool_image::Image;
use unspool_unwind::{CompileOptions, Module, ModuleMap, Table, WalkOptions, walk};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut snapshot = Snapshot::read()?;
    let mut modules = ModuleMap::new(snapshot.arch);
    for (id, (bias, path)) in snapshot.modules.into_iter().enumerate() {
        let image = Image::open(Path::new(&path))?;
        let table = Arc::new(Table::compile(&image, &CompileOptions::default()));
        modules.add(Module {
            id: id as u32,
            name: path,
            bias,
            table,
        });
    }
    let options = WalkOptions::default();
    let stack = walk(
        &modules,
        &snapshot.registers,
        &mut snapshot.memory,
        &options,
    );
    text::print(&stack);
    Ok(())
}
