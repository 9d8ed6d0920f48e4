//! Finds circles in a graph of numbers: of waits, and of the order of locks. What the numbers stand
//! for does not matter here.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Returns the circles, sorted.
///
/// Each circle begins with its smallest number and follows the edges. If circles share numbers,
/// each edge is in the shortest circle that contains it, and no circle is returned twice.
pub(super) fn circles(edges: &[(usize, usize)]) -> Vec<Vec<usize>> {
    let targets = targets(edges.iter().copied());
    let mut found = BTreeSet::new();
    for group in components(&targets) {
        let inside: BTreeSet<usize> = group.iter().copied().collect();
        let next = |node: usize| {
            let all = targets.get(&node).into_iter().flatten().copied();
            all.filter(|next| inside.contains(next))
        };
        // A plain circle is the only one with its edges.
        let plain = group.iter().all(|node| next(*node).count() == 1);
        for from in group.iter().take(if plain { 1 } else { group.len() }) {
            for to in next(*from) {
                found.insert(shortest(*from, to, &next));
            }
        }
    }
    found.into_iter().collect()
}

/// The targets of each number, sorted. A number without an edge from it has an empty list.
pub(super) fn targets(
    edges: impl IntoIterator<Item = (usize, usize)>,
) -> BTreeMap<usize, Vec<usize>> {
    let mut targets: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (from, to) in edges {
        targets.entry(from).or_default().push(to);
        targets.entry(to).or_default();
    }
    for list in targets.values_mut() {
        list.sort_unstable();
        list.dedup();
    }
    targets
}

/// The shortest circle with an edge between two members of one group, from its smallest number on.
fn shortest<I: Iterator<Item = usize>>(
    from: usize,
    to: usize,
    next: &impl Fn(usize) -> I,
) -> Vec<usize> {
    let mut before: BTreeMap<usize, usize> = BTreeMap::new();
    let mut ahead = VecDeque::from([to]);
    while !before.contains_key(&from) && to != from {
        let Some(node) = ahead.pop_front() else { break };
        for next in next(node) {
            if next != to && !before.contains_key(&next) {
                before.insert(next, node);
                ahead.push_back(next);
            }
        }
    }
    let mut circle = vec![from];
    let mut at = from;
    while let Some(node) = before.get(&at) {
        circle.push(*node);
        at = *node;
    }
    circle.reverse();
    let smallest = circle.iter().enumerate().min_by_key(|(_, node)| **node);
    let first = smallest.map_or(0, |(at, _)| at);
    circle.rotate_left(first);
    circle
}

/// The strongly connected components, by Tarjan's algorithm. Each target is a key, too. Not
/// recursive, because a chain as long as there are threads or locks could exhaust the stack.
pub(super) fn components(targets: &BTreeMap<usize, Vec<usize>>) -> Vec<Vec<usize>> {
    #[derive(Clone, Copy)]
    struct Mark {
        index: usize,
        low: usize,
        open: bool,
    }
    let mut marks: BTreeMap<usize, Mark> = BTreeMap::new();
    let mut open = Vec::new();
    let mut found = Vec::new();
    for root in targets.keys() {
        if marks.contains_key(root) {
            continue;
        }
        // (number, how many of its edges have been followed)
        let mut path = vec![(*root, 0)];
        while let Some((node, followed)) = path.pop() {
            if followed == 0 {
                let index = marks.len();
                marks.insert(
                    node,
                    Mark {
                        index,
                        low: index,
                        open: true,
                    },
                );
                open.push(node);
            } else {
                // Return from the previous edge.
                let child = marks[&targets[&node][followed - 1]];
                let mark = marks.entry(node).or_insert(child);
                if child.open {
                    mark.low = mark.low.min(child.low);
                }
            }
            if let Some(next) = targets[&node].get(followed) {
                path.push((node, followed + 1));
                match marks.get(next) {
                    // Its `low` is that of its index, or lower, when the walk comes back here.
                    Some(_) => {}
                    None => path.push((*next, 0)),
                }
                continue;
            }
            let mark = marks[&node];
            if mark.low == mark.index {
                let mut group = Vec::new();
                while let Some(member) = open.pop() {
                    if let Some(mark) = marks.get_mut(&member) {
                        mark.open = false;
                    }
                    group.push(member);
                    if member == node {
                        break;
                    }
                }
                found.push(group);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circles_of_all_sizes() {
        assert_eq!(circles(&[]), Vec::<Vec<usize>>::new());
        assert_eq!(circles(&[(1, 2), (2, 3)]), Vec::<Vec<usize>>::new());
        assert_eq!(circles(&[(1, 1)]), [[1]]);
        assert_eq!(circles(&[(2, 1), (1, 2)]), [[1, 2]]);
        assert_eq!(circles(&[(3, 1), (1, 2), (2, 3), (9, 1)]), [[1, 2, 3]]);
        assert_eq!(
            circles(&[(1, 3), (3, 2), (2, 1), (7, 6), (6, 7), (4, 6)]),
            [vec![1, 3, 2], vec![6, 7]]
        );
    }

    #[test]
    fn circles_with_a_common_thread_are_told_apart() {
        assert_eq!(circles(&[(1, 2), (2, 1), (2, 3), (3, 2)]), [[1, 2], [2, 3]]);
        // A longer way around is a circle of its own only if it has an edge that no other circle
        // has.
        let edges = [(1, 2), (2, 3), (3, 1), (2, 1), (1, 1)];
        assert_eq!(circles(&edges), [vec![1], vec![1, 2], vec![1, 2, 3]]);
    }

    #[test]
    fn a_long_chain_is_no_circle_until_it_is_closed() {
        let mut edges: Vec<(usize, usize)> = (0..100_000).map(|n| (n, n + 1)).collect();
        assert!(circles(&edges).is_empty());
        edges.push((100_000, 50_000));
        let found = circles(&edges);
        assert_eq!((found.len(), found[0].len()), (1, 50_001));
    }

    #[test]
    fn against_reachability_in_random_graphs() {
        let mut seed = 12345u64;
        let mut random = |below: u64| {
            seed = seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (seed >> 33) % below
        };
        for _ in 0..500 {
            let count = 1 + random(8) as usize;
            let edges: Vec<(usize, usize)> = (0..random(14))
                .map(|_| (random(count as u64) as usize, random(count as u64) as usize))
                .collect();
            let mut reach = vec![vec![false; count]; count];
            for (a, b) in &edges {
                reach[*a][*b] = true;
            }
            for middle in 0..count {
                for a in 0..count {
                    for b in 0..count {
                        reach[a][b] |= reach[a][middle] && reach[middle][b];
                    }
                }
            }
            let mut expected: Vec<usize> = (0..count).filter(|n| reach[*n][*n]).collect();
            let found = circles(&edges);
            let mut seen: Vec<usize> = found.iter().flatten().copied().collect();
            expected.sort_unstable();
            seen.sort_unstable();
            seen.dedup();
            for circle in found {
                let last = circle[circle.len() - 1];
                for pair in [&[last][..], &circle].concat().windows(2) {
                    assert!(
                        edges.contains(&(pair[0], pair[1])),
                        "{circle:?} of {edges:?}"
                    );
                }
            }
            assert_eq!(seen, expected, "{edges:?}");
        }
    }
}
