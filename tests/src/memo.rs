//! Values that several trials need and that are computed once: a build, gdb's backtraces, sections.
//!
//! Trials run in parallel, so the second one waits for the first.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, OnceLock};

use anyhow::{Result, anyhow};

type Slot<V> = Arc<OnceLock<Result<Arc<V>, String>>>;

/// At most one computation for each key. Its error is returned to every caller.
pub struct Memo<K, V>(OnceLock<Mutex<HashMap<K, Slot<V>>>>);

impl<K: Eq + Hash, V> Memo<K, V> {
    /// An empty memo, usable in a `static`.
    #[allow(clippy::new_without_default, reason = "Default cannot be const")]
    pub const fn new() -> Self {
        Memo(OnceLock::new())
    }

    /// The value of `key`, computed on first use.
    pub fn get(&self, key: K, compute: impl FnOnce() -> Result<V>) -> Result<Arc<V>> {
        let slot = {
            let mut slots = self
                .0
                .get_or_init(Mutex::default)
                .lock()
                .expect("nothing panics under the lock");
            slots.entry(key).or_default().clone()
        };
        slot.get_or_init(|| {
            compute()
                .map(Arc::new)
                .map_err(|error| format!("{error:#}"))
        })
        .clone()
        .map_err(|error| anyhow!(error))
    }
}
