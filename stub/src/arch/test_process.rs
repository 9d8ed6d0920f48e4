//! What trials on real processors share: a program that stands at its first instruction and lends itself, and its memory.

use std::collections::BTreeMap;

use nix::sys::signal::SigSet;

use crate::ptrace::wait_queue::WaitQueue;
use crate::sys::memory::Memory;
use crate::tracee::{Program, Tracee};

/// Starts a program; it stands at its first instruction.
pub(crate) fn start(path: &str) -> Tracee {
    let program = Program {
        words: vec![path.into()],
        wrapper: Vec::new(),
        environment: BTreeMap::default(),
        directory: None,
        fixed_addresses: true,
        detached_stdio: true,
        default_keys: true,
        mask: SigSet::empty(),
    };
    Tracee::start(&program, WaitQueue::default()).expect("a program")
}

/// Its memory, as its instructions see it.
pub(super) struct Words<'a>(pub(super) &'a Memory);

impl super::Memory for Words<'_> {
    fn load(&self, address: u64, into: &mut [u8]) -> bool {
        self.0.read(address, into) == Ok(into.len())
    }

    fn store(&self, address: u64, bytes: &[u8]) -> bool {
        self.0.store(address, bytes)
    }
}
