//! Compares unspool-image with binutils, elfutils and gdb, on Debian binaries and on programs
//! compiled here.

#[path = "image/corruption.rs"]
mod corruption;
#[path = "image/debug_files.rs"]
mod debug_files;
#[path = "image/demangling.rs"]
mod demangling;
#[path = "image/finding.rs"]
mod finding;
// Public for the fuzz targets.
#[allow(unreachable_pub)]
#[path = "../fuzz/src/lib.rs"]
mod harness;
#[path = "image/headers.rs"]
mod headers;
#[path = "image/lines.rs"]
mod lines;
#[path = "image/pointers.rs"]
mod pointers;
#[path = "image/replay.rs"]
mod replay;
#[path = "image/servers.rs"]
mod servers;
#[path = "image/symbols.rs"]
mod symbols;
#[path = "image/tools.rs"]
mod tools;
#[path = "image/variables.rs"]
mod variables;
