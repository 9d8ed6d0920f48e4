//! Stack unwinding from snapshots of registers and stack bytes.
//!
//! One [`Table`] per ELF image holds the unwind rules from every source: DWARF call frame
//! information, the ARM exception index, and the analysis of the machine code itself. A
//! [`ModuleMap`] says where the images are mapped. [`walk()`] takes a [`RegisterFile`] and a
//! [`StackMemory`]. It returns the frames, each with its [`Provenance`], and the reason why the
//! stack ended ([`StackEnd`]).
//!
//! Only [`Cache`], which keeps compiled tables on disk, does input or output: parsers take bytes,
//! and memory is a trait. Nothing depends on the host's architecture. No input causes a panic, an
//! endless loop or unbounded allocation.
//!
//! # Without `std`
//! With `default-features = false` the crate is `no_std` and depends only on the names of the
//! architectures. It needs `alloc`, and compare-and-swap of pointers. It cannot compile tables, but
//! it has everything that uses them: rows and rules, both tiers of stepping, and the walk with all
//! its checks. Tables come from bytes ([`Table::from_slice`]) that `Table::to_bytes` (feature
//! `cache`) wrote on another machine. The example `unwind_from_slice` does both.
//!
//! | feature | adds |
//! |---|---|
//! | `std` | compiling tables: CFI, exidx, code analysis; verification; sharing between threads |
//! | `cache` (default, with `std`) | compiled tables on disk |
//!
//! ```no_run
//! use std::sync::Arc;
//! use unspool_image::{Arch, Image};
//! use unspool_unwind::*;
//! # fn snapshot() -> (RegisterFile, SnapshotMemory) { unimplemented!() }
//! let image = Image::open("/lib/x86_64-linux-gnu/libc.so.6".as_ref())?;
//! let table = Arc::new(Table::compile(&image, &CompileOptions::default()));
//! let mut modules = ModuleMap::new(Arch::X86_64);
//! modules.add(Module { id: 1, name: "libc".into(), bias: 0x7f00_0000_0000, table });
//! let (registers, mut memory) = snapshot();
//! let stack = walk(&modules, &registers, &mut memory, &WalkOptions::default());
//! for frame in &stack.frames {
//!     println!("{:#x} {}", frame.pc, frame.provenance);
//! }
//! println!("{}", stack.end);
//! # Ok::<(), unspool_image::Error>(())
//! ```

#![cfg_attr(not(feature = "std"), no_std)]
// The code that packs rules is next to the code that unpacks them, and is used only with `std`.
#![cfg_attr(not(feature = "std"), allow(dead_code))]

extern crate alloc;

#[cfg(feature = "cache")]
mod cache;
#[cfg(feature = "std")]
mod cfi;
#[cfg(feature = "std")]
pub mod code;
mod cursor;
mod doubt;
#[cfg(feature = "std")]
pub mod exidx;
mod expression;
#[cfg(feature = "std")]
mod frame_pointer;
mod memory;
mod modules;
mod once;
mod registers;
mod rows;
mod rule;
mod table;
mod trace;
#[cfg(feature = "std")]
pub mod verify;
mod walk;

#[cfg(feature = "cache")]
pub use cache::Cache;
pub use memory::{MemoryGap, SnapshotMemory, StackMemory, StackSlice};
pub use modules::{Module, ModuleMap};
pub use registers::{RegisterFile, returns_to};
pub use rule::{Cfa, Expression, Place, Row, Rule, Source};
#[cfg(feature = "std")]
pub use table::CompileOptions;
pub use table::{Note, Table};
pub use trace::{Position, Stop, Tracer};
pub use walk::{Frame, Provenance, Stack, StackEnd, WalkOptions, walk, walk_watching};
