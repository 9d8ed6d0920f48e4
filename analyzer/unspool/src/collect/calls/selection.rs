//! Which calls a recording includes, as the user selects them.

use super::pattern::Pattern;

/// Which operations of mutexes and the like are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Sync {
    /// Waits only; costs nothing while no thread waits
    Contended,
    /// Every lock, unlock, wait, signal and post, within the budget
    All,
}

/// Which calls are recorded.
#[derive(Debug, Clone, Default)]
pub struct Instrumented {
    /// Operations of mutexes and the like.
    pub sync: Option<Sync>,
    /// Functions by name.
    pub functions: Vec<Pattern>,
    /// Calls of all functions that were compiled with `-finstrument-functions`.
    pub hooks: bool,
}

impl Instrumented {
    pub(super) fn is_empty(&self) -> bool {
        self.sync.is_none() && self.functions.is_empty() && !self.hooks
    }
}
