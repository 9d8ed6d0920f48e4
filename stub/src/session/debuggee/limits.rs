//! What clients may do beyond debugging. The command line sets it.

use crate::tracepoint::budget::Share;

use super::files::Permission;

/// The limits of every client.
#[derive(Debug)]
pub(crate) struct Limits {
    /// What they may do with files.
    pub(crate) files: Permission,
    /// The only processes they may attach to; `None`: all.
    pub(crate) attachable: Option<Vec<i32>>,
    /// The share of a processor that tracing may use; `None`: no limit.
    pub(crate) budget: Option<Share>,
    /// The command line names the budget, so no client gets more.
    pub(crate) budget_is_given: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            files: Permission::default(),
            attachable: None,
            budget: Some(Share::USUAL),
            budget_is_given: false,
        }
    }
}
