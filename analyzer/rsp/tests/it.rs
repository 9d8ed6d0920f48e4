//! Sessions as a whole: against misbehaving peers, live servers, and stored transcripts.

#[path = "it/bad_peers.rs"]
mod bad_peers;
#[path = "it/dialogue.rs"]
mod dialogue;
#[path = "it/fallbacks.rs"]
mod fallbacks;
#[path = "it/gdbserver.rs"]
mod gdbserver;
#[path = "it/qemu.rs"]
mod qemu;
#[path = "it/recorded.rs"]
mod recorded;
#[path = "it/target.rs"]
mod target;
