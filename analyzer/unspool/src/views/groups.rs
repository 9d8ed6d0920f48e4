//! Groups threads of equal identity, and arranges the groups as a forest from creators to created
//! threads.

use std::collections::HashMap;

use crate::model::{Creation, Key, Model, ThreadIndex};

/// The threads with the same identity.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) members: Vec<ThreadIndex>,
    /// Indices of the groups that these threads created, in order of time.
    pub(super) children: Vec<usize>,
}

/// All groups. `roots` are the groups with unknown creators, the main thread's first.
#[derive(Debug)]
pub(super) struct Forest {
    pub(super) groups: Vec<Group>,
    pub(super) roots: Vec<usize>,
}

impl Forest {
    pub(super) fn of(model: &Model) -> Forest {
        let mut groups: Vec<Group> = Vec::new();
        let mut by_key: HashMap<Key, usize> = HashMap::new();
        for (index, thread) in model.threads.iter().enumerate() {
            let group = *by_key.entry(thread.key).or_insert(groups.len());
            if group == groups.len() {
                groups.push(Group {
                    members: Vec::new(),
                    children: Vec::new(),
                });
            }
            groups[group].members.push(ThreadIndex(index));
        }
        let mut roots = Vec::new();
        for group in 0..groups.len() {
            // Creators of equal threads have equal keys, because the creator is part of an
            // identity. If keys collided, a creator from a later group could form a cycle.
            let first = model.thread(groups[group].members[0]);
            let creator = first
                .and_then(|t| t.creator())
                .and_then(|c| model.thread(c));
            match creator.and_then(|creator| by_key.get(&creator.key)) {
                Some(&parent) if parent < group => groups[parent].children.push(group),
                _ => roots.push(group),
            }
        }
        let rank = |group: &usize| {
            let first = model.thread(groups[*group].members[0]);
            first.map_or(2, |thread| match thread.creation {
                Creation::Main => 0,
                Creation::Before => 1,
                _ => 2,
            })
        };
        roots.sort_by_key(rank);
        Forest { groups, roots }
    }
}
