//! Tests whole sessions: misbehaving peers, real servers, and stored transcripts.

#[path = "it/bad_peers.rs"]
mod bad_peers;
#[path = "it/dialogue.rs"]
mod dialogue;
#[path = "it/fallbacks.rs"]
mod fallbacks;
#[path = "it/gdbserver.rs"]
mod gdbserver;
// Public for the fuzz targets.
#[allow(unreachable_pub)]
#[path = "../fuzz/src/lib.rs"]
mod harness;
#[path = "it/qemu.rs"]
mod qemu;
#[path = "it/recorded.rs"]
mod recorded;
#[path = "it/replay.rs"]
mod replay;
#[path = "it/target.rs"]
mod target;
