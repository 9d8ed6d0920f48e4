//! The memory to which the arguments of `pthread_create` point.
//!
//! Separate from `hits` because the actions of tracepoints need the sizes, too.

use unspool_capture::{Read, ReadRole};
use unspool_rsp::Client;

use super::modules::Modules;
use crate::platform::abi::Abi;

/// Bytes recorded of a `pthread_attr_t`. They cover it in every known C library.
pub(super) const ATTR: usize = 64;
/// Bytes recorded of libstdc++'s thread state, which names the function that the thread calls. They
/// cover the state with some arguments.
pub(super) const STATE: usize = 128;

/// Reads the attributes that a creation's second argument points to.
pub(super) fn attributes(client: &mut Client, args: &[u64]) -> Option<Read> {
    let address = *args.get(1)?;
    let bytes = plausible(address).then(|| client.read_memory(address, ATTR).ok())??;
    Some(Read {
        role: ReadRole::Attr.into(),
        address,
        bytes,
    })
}

/// The address of libstdc++'s thread state, which is the argument of its own start routine. `None`
/// for other start routines.
pub(super) fn state_at(modules: &Modules, abi: &Abi, args: &[u64]) -> Option<u64> {
    let [_, _, routine, argument] = *args else {
        return None;
    };
    let begins = modules.begins_cxx_threads(abi.code_address(routine));
    begins.then_some(argument)
}

/// True if `attr` may point to attributes.
pub(super) fn plausible(attr: u64) -> bool {
    attr >= 0x1000 && attr.checked_add(0x1000).is_some()
}
