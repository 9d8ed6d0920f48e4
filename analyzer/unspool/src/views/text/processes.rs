//! The processes that the program started: their place in the tree, and a sentence about those that
//! were not recorded.

use std::collections::HashMap;

use super::line::clean;
use crate::model::{Key, Model, Process, Thread, ThreadIndex};
use crate::views::groups::Forest;
use crate::views::wording;

/// Maximum number of programs named.
const MAX_NAMES: usize = 6;

/// Processes of the same program that the same threads or the same processes started.
#[derive(Debug)]
pub(super) struct Node<'a> {
    /// The program; empty if it is not known.
    program: &'a str,
    members: Vec<&'a Process>,
    /// The nodes of processes that these started.
    pub(super) children: Vec<usize>,
    /// The threads that their first threads created, in [`ProcessTree::threads`].
    pub(super) threads: Vec<usize>,
}

/// Threads of these processes with the same identity.
#[derive(Debug, Default)]
pub(super) struct Created {
    pub(super) members: Vec<ThreadIndex>,
    /// The threads that these created, in [`ProcessTree::threads`].
    pub(super) children: Vec<usize>,
}

/// The recorded processes, from those that started others to those that were started.
#[derive(Debug, Default)]
pub(super) struct ProcessTree<'a> {
    pub(super) nodes: Vec<Node<'a>>,
    /// Per group of the program's threads, the nodes of processes that these started.
    pub(super) of_group: Vec<Vec<usize>>,
    /// Nodes of processes that an unknown thread started.
    pub(super) roots: Vec<usize>,
    /// The threads of all nodes whose creation was recorded.
    pub(super) threads: Vec<Created>,
}

/// What started a process.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Parent {
    Group(usize),
    Node(usize),
    Unknown,
}

impl<'a> ProcessTree<'a> {
    pub(super) fn of(model: &'a Model, forest: &Forest) -> ProcessTree<'a> {
        let mut group_of = vec![0; model.threads.len()];
        for (group, threads) in forest.groups.iter().enumerate() {
            for member in &threads.members {
                group_of[member.0] = group;
            }
        }
        let mut tree = ProcessTree {
            of_group: vec![Vec::new(); forest.groups.len()],
            ..ProcessTree::default()
        };
        let all = &model.processes;
        let mut known: HashMap<(Parent, &str), usize> = HashMap::new();
        let mut node_of = vec![None; all.all.len()];
        for (index, process) in all.all.iter().enumerate() {
            if !process.is_recorded() || process.is_apart {
                continue;
            }
            let parent = match process.creator {
                None => Parent::Unknown,
                Some(creator) => match model.process(creator) {
                    Some((other, _)) => node_of[other.0].map_or(Parent::Unknown, Parent::Node),
                    None => group_of
                        .get(creator.0)
                        .map_or(Parent::Unknown, |group| Parent::Group(*group)),
                },
            };
            let program = all.program_name(process);
            let node = *known.entry((parent, program)).or_insert(tree.nodes.len());
            if node == tree.nodes.len() {
                tree.nodes.push(Node {
                    program,
                    members: Vec::new(),
                    children: Vec::new(),
                    threads: Vec::new(),
                });
                match parent {
                    Parent::Group(group) => tree.of_group[group].push(node),
                    Parent::Node(parent) => tree.nodes[parent].children.push(node),
                    Parent::Unknown => tree.roots.push(node),
                }
            }
            tree.nodes[node].members.push(process);
            node_of[index] = Some(node);
        }
        tree.add_threads(model, &node_of);
        tree
    }

    fn add_threads(&mut self, model: &Model, node_of: &[Option<usize>]) {
        let all = &model.processes;
        let mut known: HashMap<(usize, Key), usize> = HashMap::new();
        for (other, thread) in all.threads.iter().enumerate() {
            let node = node_of[all.process_of[other].0];
            let (Some(node), Some(creator)) = (node, thread.creator()) else {
                continue;
            };
            let next = self.threads.len();
            let group = *known.entry((node, thread.key)).or_insert(next);
            if group == next {
                self.threads.push(Created::default());
                let creator = model.any_thread(creator);
                let creator = creator.and_then(|creator| known.get(&(node, creator.key)));
                match creator {
                    Some(creator) => self.threads[*creator].children.push(group),
                    None => self.nodes[node].threads.push(group),
                }
            }
            let index = ThreadIndex(model.threads.len() + other);
            self.threads[group].members.push(index);
        }
    }
}

impl Node<'_> {
    /// `3 × process cc1`
    pub(super) fn headline(&self, room: usize) -> String {
        wording::program_of(self.program, self.members.len(), room)
    }

    /// Number of threads whose creation was not recorded, although those of others were.
    fn unseen_creations(&self, model: &Model) -> usize {
        let all = &model.processes;
        let is_seen = |thread: &Thread| thread.creation_stack().is_some();
        if !all.threads.iter().any(is_seen) {
            return 0;
        }
        let created = all.created_in(self.members.iter().copied());
        created.filter(|thread| !is_seen(thread)).count()
    }

    /// Ids, times, threads and states.
    pub(super) fn facts(&self, model: &Model) -> Vec<String> {
        let all = &model.processes;
        let mut facts = Vec::new();
        if let [one] = self.members[..] {
            facts.push(format!("pid {}", one.pid));
        }
        let threads: Vec<&Thread> = self
            .members
            .iter()
            .filter_map(|process| all.threads.get(process.first_thread))
            .collect();
        facts.extend(wording::life(&threads));
        let count: usize = self.members.iter().map(|process| process.threads).sum();
        if count > self.members.len() {
            facts.push(format!("{count} threads"));
        }
        let unseen = self.unseen_creations(model);
        if unseen > 0 {
            facts.push(match unseen {
                1 => "1 creation was not seen".to_owned(),
                many => format!("{many} creations were not seen"),
            });
        }
        let [mut ran, mut waited, mut blocked] = [0; 3];
        for process in &self.members {
            let times = all.times(process);
            ran = u64::saturating_add(ran, times.running_ns);
            waited = u64::saturating_add(waited, times.runnable_ns);
            blocked = u64::saturating_add(blocked, times.blocked_ns);
        }
        let parts = [
            (ran, "ran ", ""),
            (waited, "waited ", " for a processor"),
            (blocked, "blocked ", ""),
        ];
        let parts = parts.into_iter().filter(|(ns, ..)| *ns > 0);
        facts.extend(
            parts.map(|(ns, before, after)| format!("{before}{}{after}", wording::duration(ns))),
        );
        facts
    }
}

/// `It started 3 processes: ls (2 times), grep.` Says it if they were not recorded.
pub(in crate::views) fn started(model: &Model) -> Option<String> {
    let all = model.processes.all.iter();
    let (recorded, others): (Vec<&Process>, Vec<&Process>) =
        (all.filter(|process| !process.is_apart)).partition(|process| process.is_recorded());
    let mut text = String::new();
    if !recorded.is_empty() {
        let it = match recorded.iter().all(|process| {
            let creator = process.creator;
            creator.is_none_or(|creator| model.process(creator).is_none())
        }) {
            true => "It started",
            false => "It and its descendants started",
        };
        let count = wording::processes(recorded.len());
        text = format!("{it} {count}: {}.", programs(model, &recorded));
        match model.processes.created_in(recorded.iter().copied()).count() {
            0 => {}
            1 => text.push_str(" 1 thread was created there."),
            threads => text.push_str(&format!(" {threads} threads were created there.")),
        }
    }
    if !others.is_empty() {
        let count = match (others.len(), recorded.is_empty()) {
            (1, true) => "It started another process, which was not recorded".to_owned(),
            (count, true) => {
                format!("It started {count} other processes, which were not recorded")
            }
            (1, false) => " Another one was not recorded".to_owned(),
            (count, false) => format!(" {count} others were not recorded"),
        };
        text.push_str(&format!("{count}: {}.", programs(model, &others)));
    }
    (!text.is_empty()).then_some(text)
}

fn programs(model: &Model, processes: &[&Process]) -> String {
    let mut counts: Vec<(usize, usize)> = Vec::new();
    let mut known: HashMap<usize, usize> = HashMap::new();
    let mut unnamed = 0;
    for process in processes {
        let Some(program) = process.program else {
            unnamed += 1;
            continue;
        };
        let index = *known.entry(program).or_insert_with(|| {
            counts.push((program, 0));
            counts.len() - 1
        });
        counts[index].1 += 1;
    }
    let names = &model.processes.programs;
    let named = counts
        .iter()
        .map(|(program, count)| (names[*program].0.as_str(), *count));
    list(named.collect(), unnamed)
}

fn list(counts: Vec<(&str, usize)>, unnamed: usize) -> String {
    let others: usize = counts.iter().skip(MAX_NAMES).map(|(_, count)| count).sum();
    let mut parts: Vec<String> = counts
        .into_iter()
        .take(MAX_NAMES)
        .map(|(name, count)| match count {
            1 => clean(name),
            count => format!("{} ({count} times)", clean(name)),
        })
        .collect();
    if others > 0 {
        parts.push(format!("{others} of other programs"));
    }
    if unnamed > 0 && parts.is_empty() {
        let they = if unnamed == 1 { "it" } else { "they" };
        return format!("Unspool does not know which program {they} ran, if any");
    }
    if unnamed > 0 {
        parts.push(format!("{unnamed} whose program is not known"));
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_programs_are_counted() {
        let text = list(vec![("ls", 2), ("true", 1)], 1);
        assert_eq!(text, "ls (2 times), true, 1 whose program is not known");
    }

    #[test]
    fn few_programs_are_named() {
        let names = ["a", "b", "c", "d", "e", "f"].map(|name| (name, 1));
        let text = list([&names[..], &[("g", 2), ("h", 1)]].concat(), 0);
        assert_eq!(text, "a, b, c, d, e, f, 3 of other programs");
    }

    #[test]
    fn no_program_is_known() {
        assert_eq!(
            list(Vec::new(), 1),
            "Unspool does not know which program it ran, if any"
        );
        assert_eq!(
            list(Vec::new(), 2),
            "Unspool does not know which program they ran, if any"
        );
    }
}
