//! The unwinder against what others know: gdb, readelf, and compilers' own CFI.

#[path = "it/code.rs"]
mod code;
#[path = "it/damage.rs"]
mod damage;
#[path = "it/exidx.rs"]
mod exidx;
#[path = "it/gimli.rs"]
mod gimli;
#[path = "it/live.rs"]
mod live;
#[path = "it/readelf.rs"]
mod readelf;
#[path = "it/robust.rs"]
mod robust;
#[path = "it/tools.rs"]
mod tools;
