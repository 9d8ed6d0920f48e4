//! Compares the unwinder with other sources: gdb, readelf, and compilers' own CFI.

#[path = "it/code.rs"]
mod code;
#[path = "it/damage.rs"]
mod damage;
#[path = "it/exidx.rs"]
mod exidx;
#[path = "../benches/peers/framehop_module.rs"]
mod framehop_module;
#[path = "it/generated.rs"]
mod generated;
#[path = "it/gimli.rs"]
mod gimli;
// Public for the fuzz targets.
#[allow(unreachable_pub)]
#[path = "../fuzz/src/lib.rs"]
mod harness;
#[path = "it/judge.rs"]
mod judge;
#[path = "it/live.rs"]
mod live;
#[path = "it/peers.rs"]
mod peers;
#[path = "samples/perf.rs"]
mod perf;
#[path = "it/property.rs"]
mod property;
#[path = "it/readelf.rs"]
mod readelf;
#[path = "it/replay.rs"]
mod replay;
#[path = "it/robust.rs"]
mod robust;
#[path = "it/samples.rs"]
mod samples;
#[path = "it/single_steps.rs"]
mod single_steps;
#[path = "it/tools.rs"]
mod tools;
