//! Inspects several processes, and finds the hangs of their threads together.
//!
//! Separate from `inspect`, because a recording does the same when it ends.

pub(super) mod calls;
mod waits;

use std::cell::RefCell;
use std::collections::BTreeSet;

use anyhow::Context;

use crate::collect::{LocalProcess, SharedNames};
use crate::model::{Model, Note};

use super::terminal;
use waits::Inspected;

/// Maximum number of processes that the user did not name.
const MAX_PROCESSES: usize = 8;

/// Processes that were inspected one after the other.
#[derive(Default)]
pub(super) struct Group {
    all: Vec<Inspected>,
    models: Vec<Model>,
    known: BTreeSet<u32>,
    names: SharedNames,
    /// The processes for which threads wait, and that are not in the group.
    awaited: BTreeSet<u32>,
}

impl Group {
    /// A group that does not look for these processes.
    pub(super) fn that_knows(pids: &[u32]) -> Group {
        Group {
            known: pids.iter().copied().collect(),
            ..Group::default()
        }
    }

    /// Makes the group not look for these processes.
    pub(super) fn expect(&mut self, pids: &[u32]) {
        self.known.extend(pids);
    }

    /// Adds a process, and finds the holders of its shared objects. If `follow`, finds the
    /// processes for which its threads wait.
    pub(super) fn add(&mut self, pid: u32, mut model: Model, follow: bool) {
        self.known.insert(pid);
        let one = Inspected::of(&mut model, LocalProcess::new(pid), &mut self.names);
        if follow {
            self.awaited.extend(one.awaited(&model, &self.known));
        }
        self.all.push(one);
        self.models.push(model);
    }

    /// Number of processes.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// A process for which threads wait. It is returned once.
    pub(super) fn next(&mut self) -> Option<u32> {
        let pid = self.awaited.pop_first()?;
        self.known.insert(pid);
        Some(pid)
    }

    /// The model of the first process, with the others and the deadlocks of several, and the
    /// threads that may be part of one and have waited since they were inspected. The user named
    /// the first `named` of the other processes.
    pub(super) fn join(mut self, named: usize) -> Option<(Model, BTreeSet<u64>)> {
        let others = self.models.split_off(self.models.len().min(1));
        let mut model = self.models.pop()?;
        let stood = RefCell::new(BTreeSet::new());
        if !others.is_empty() || self.all[0].waits_for_processes() {
            model.add_others(others, named, |tids| {
                let unchanged = waits::unchanged(&self.all, tids);
                stood.borrow_mut().extend(&unchanged);
                unchanged
            });
        }
        Some((model, stood.into_inner()))
    }
}

/// Inspects the `named` processes of this machine one after the other. If `follow`, also inspects
/// the processes for which their threads wait, directly or through further ones. Finds the holders
/// of what the processes share. `inspect` inspects one process; its last argument is true for a
/// named one.
///
/// # Errors
/// Returns an error if no named process can be inspected. Otherwise the model has notes on the
/// processes that were not inspected.
pub(super) fn inspect_all(
    named: &[u32],
    follow: bool,
    mut inspect: impl FnMut(u32, &LocalProcess, bool) -> anyhow::Result<Model>,
) -> anyhow::Result<Model> {
    let mut group = Group::that_knows(named);
    let mut errors: Vec<anyhow::Error> = Vec::new();
    let mut notes: Vec<Note> = Vec::new();
    let mut first = named.iter();
    let mut inspected = 0;
    loop {
        let next = first.next().map(|pid| (*pid, true));
        let Some((pid, is_named)) = next.or_else(|| Some((group.next()?, false))) else {
            break;
        };
        if !is_named && group.all.len() - inspected == MAX_PROCESSES {
            notes.push(Note::info(format!(
                "The threads wait for more than {MAX_PROCESSES} other processes. The rest was not \
                 inspected, so a deadlock of more processes may be missed."
            )));
            break;
        }
        match inspect(pid, &LocalProcess::new(pid), is_named) {
            Ok(model) => {
                group.add(pid, model, follow);
                inspected += usize::from(is_named);
            }
            Err(error) if is_named => errors.push(error),
            Err(error) => notes.push(Note::warning(format!(
                "Process {pid}, for which threads wait, was not inspected: {error:#}"
            ))),
        }
    }
    let Some(model) = group.models.first_mut() else {
        let last = errors.pop().context("no process is named")?;
        errors.iter().for_each(terminal::print_error);
        return Err(last);
    };
    model.inspection.is_incomplete = !errors.is_empty();
    let missing = errors.iter();
    let missing =
        missing.map(|error| Note::error(format!("A named process was not inspected: {error:#}.")));
    model.notes.extend(missing.chain(notes));
    group
        .join(inspected - 1)
        .map(|(model, _)| model)
        .context("no process was inspected")
}
