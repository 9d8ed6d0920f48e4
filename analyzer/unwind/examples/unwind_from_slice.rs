//! Unwinds a snapshot (for its format see `snapshot/text.rs`) with tables in byte slices, as on a
//! machine without files.
//!
//! The first half runs on a machine that has the ELF files, and writes the bytes. The second half,
//! [`device`], needs neither `std` nor any feature of this crate.

#[path = "snapshot/text.rs"]
mod text;

use std::path::Path;

use text::Snapshot;
use unspool_image::Image;
use unspool_unwind::{CompileOptions, Table};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut snapshot = Snapshot::read()?;
    let mut parts = Vec::new();
    for (bias, path) in &snapshot.modules {
        let image = Image::open(Path::new(path))?;
        let table = Table::compile(&image, &CompileOptions::default());
        // Requesting all rows analyses the code, so that the bytes contain its rows, too.
        let rows = table.rows_of_all().count();
        let bytes = table.to_bytes();
        println!("{path}: {rows} rows in {} bytes", bytes.len());
        let code = image.segments().iter().find(|part| part.is_executable());
        let code = code.and_then(|part| {
            let bytes = image.bytes_at(part.svma, usize::try_from(part.file_size).ok()?)?;
            Some((part.svma, bytes.to_vec()))
        });
        parts.push((*bias, bytes, code.ok_or("no code")?));
    }
    let parts = parts
        .iter()
        .map(|(bias, table, (svma, code))| device::Part {
            bias: *bias,
            table,
            code: (*svma, code),
        });
    let stack = device::unwind(
        snapshot.arch,
        parts,
        &snapshot.registers,
        &mut snapshot.memory,
    );
    text::print(&stack.ok_or("not a table")?);
    Ok(())
}

mod device {
    extern crate alloc;
    use alloc::string::String;
    use alloc::sync::Arc;

    use unspool_image::Arch;
    use unspool_unwind::{
        Module, ModuleMap, RegisterFile, Stack, StackMemory, Table, WalkOptions, walk,
    };

    /// A program or library.
    pub(crate) struct Part<'a> {
        /// The difference between its mapped addresses and those in the file.
        pub(crate) bias: u64,
        pub(crate) table: &'a [u8],
        /// Its code, and the code's svma.
        pub(crate) code: (u64, &'a [u8]),
    }

    pub(crate) fn unwind<'a>(
        arch: Arch,
        parts: impl Iterator<Item = Part<'a>>,
        registers: &RegisterFile,
        stack: &mut dyn StackMemory,
    ) -> Option<Stack> {
        let mut modules = ModuleMap::new(arch);
        for (id, part) in parts.enumerate() {
            let (svma, code) = part.code;
            let table = Table::from_slice(part.table)?.with_bytes(svma, code);
            modules.add(Module {
                id: id as u32,
                name: String::new(),
                bias: part.bias,
                table: Arc::new(table),
            });
        }
        Some(walk(&modules, registers, stack, &WalkOptions::default()))
    }
}
