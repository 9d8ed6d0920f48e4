//! The handler for `SIGTRAP` that keeps the program running if the stub dies. It does not exist for
//! AArch64 yet (docs/decisions/0004).

/// `rt_sigaction`
pub(crate) const SIGACTION: u64 = 134;
/// Empty, so that the stub installs nothing.
pub(crate) const HANDLER: &[u8] = &[];
pub(crate) const SYSTEM_CALL: u64 = 0;
pub(crate) const ACTION_SIZE: usize = 32;

pub(crate) fn action(_start: u64, _former: &[u8]) -> Vec<u8> {
    Vec::new()
}

pub(crate) fn handler_of(_action: &[u8]) -> u64 {
    0
}

pub(crate) fn copy(_code: &[u8], _at: u64, _to: u64, _kind: usize) -> Option<Vec<u8>> {
    None
}
