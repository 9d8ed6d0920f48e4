//! A thread that waits for observers.

use std::time::Instant;

use super::role::Role;

/// Why a thread does not run.
pub(crate) struct Hold {
    /// For whom it waits.
    pub(crate) roles: Vec<Role>,
    pub(crate) since: Instant,
    pub(crate) until: Instant,
    /// The trap at which it stands, which it is still to be taken past.
    pub(crate) at: Option<u64>,
}
