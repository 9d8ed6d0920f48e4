//! A traced program, stopped at its first instruction, in which tests execute code on the real
//! processor.

use std::ffi::CString;

use nix::sys::signal::SigSet;

use crate::sys::launch::{Launch, launch};
use crate::sys::memory::Memory;
use crate::sys::{Tid, ptrace};

/// Starts a traced program, which stops at its first instruction.
pub(super) fn start(path: &str) -> Tid {
    let file = CString::new(path).expect("a path");
    let launched = launch(&Launch {
        arguments: vec![file.clone()],
        file,
        environment: Vec::new(),
        directory: None,
        fixed_addresses: true,
        detached_stdio: true,
        default_keys: true,
        extra_execs: 0,
        mask: SigSet::empty(),
    });
    launched.expect("a program").0
}

/// The program counter and the stack pointer.
pub(super) fn pc_and_sp(tid: Tid) -> (u64, u64) {
    let value = |number: usize| {
        let place = super::layout().register(number).expect("a register").place;
        let set = &super::SETS[place.set];
        let bytes = ptrace::register_set(tid, set.note, set.capacity).expect("registers");
        let mut value = [0; 8];
        value[..place.size].copy_from_slice(&bytes[place.offset..place.offset + place.size]);
        u64::from_le_bytes(value)
    };
    (value(super::PC), value(super::SP))
}

/// The program's memory, as its instructions see it.
pub(super) struct Words<'a>(pub(super) &'a Memory);

impl super::Memory for Words<'_> {
    fn load(&self, address: u64, into: &mut [u8]) -> bool {
        self.0.read(address, into) == Ok(into.len())
    }

    fn store(&self, address: u64, bytes: &[u8]) -> bool {
        self.0.store(address, bytes)
    }
}
