//! Limits of what clients may do, set on the command line.

use crate::tracepoint::budget::Share;

use super::files::Permission;

/// The limits for every client.
#[derive(Debug)]
pub(crate) struct Limits {
    /// Permissions for files.
    pub(crate) files: Permission,
    /// Ids of the only processes that clients may attach to. `None` means all.
    pub(crate) attachable: Option<Vec<i32>>,
    /// Do not stop threads in calls that a stop would end early or with an error.
    pub(crate) leaves_asleep: bool,
    /// The share of a processor that tracing may use. `None` means no limit.
    pub(crate) budget: Option<Share>,
    /// The command line names the budget, so no client gets more.
    pub(crate) budget_is_given: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            files: Permission::default(),
            attachable: None,
            leaves_asleep: false,
            budget: Some(Share::USUAL),
            budget_is_given: false,
        }
    }
}
