//! Threads that can never go on: deadlocks, locks whose holder is gone, wake-ups that cannot come.

use std::collections::BTreeMap;

use super::Words;
use crate::model::circles;
use crate::model::finding::{Evidence, Finding, FindingKind};
use crate::model::sync::holds::Held;
use crate::model::sync::misuse::StillWaiting;
use crate::model::sync::objects::{ObjectIndex, UseIndex};
use crate::model::sync::replay::Replay;
use crate::model::tasks::{runs_task, why_hung};
use crate::model::{Creation, ProgramEnd, Thread, ThreadIndex};
use crate::primitives::{Kind, Operation};

/// A call that began this shortly before the end may just not have returned yet.
const JUST_BEGUN: u64 = 50_000_000;

/// A wait for what somebody perhaps holds is worth telling if it lasted.
const LASTING: u64 = 500_000_000;

/// Waits in a sentence.
const MOST_NAMED: usize = 6;

/// One thread waits for another.
#[derive(Clone, Copy)]
struct Edge {
    waiting: StillWaiting,
    holder: ThreadIndex,
    /// Where the holder took it.
    taken: Option<UseIndex>,
    sure: bool,
}

/// Adds findings, and gives the threads of those that hold whatever other threads do.
pub(super) fn find(
    words: &Words<'_>,
    replay: &Replay<'_>,
    findings: &mut Vec<Finding>,
) -> Vec<ThreadIndex> {
    let mut alone = Vec::new();
    // A thread is in one call at a time; the outermost says what it waits for.
    let mut still: Vec<StillWaiting> = Vec::new();
    let mut all = replay.misuse.still.clone();
    all.sort_by_key(|waiting| (waiting.thread, waiting.since_ns));
    for waiting in all {
        if still
            .last()
            .is_none_or(|last| last.thread != waiting.thread)
        {
            still.push(waiting);
        }
    }
    let edges: Vec<Edge> = still
        .iter()
        .flat_map(|waiting| edges(words, replay, waiting))
        .filter(|edge| edge.sure || lasted(words, &edge.waiting, LASTING))
        .collect();
    let mut circles = circles(&edges);
    circles.retain(|circle| is_possible(words, circle));
    for circle in &circles {
        findings.push(deadlock(words, circle));
    }
    abandoned(words, &edges, findings);
    if circles.is_empty() {
        let forsaken = forsaken(words, &still, &edges);
        if forsaken.is_none() {
            let mut partial = hung_pools(words, &still);
            partial.extend(among_themselves(words, &still, &edges));
            alone.extend(partial.iter().flat_map(|finding| &finding.threads));
            findings.extend(partial);
        }
        findings.extend(forsaken);
    }
    alone
}

/// Whom a thread waits for.
fn edges(words: &Words<'_>, replay: &Replay<'_>, waiting: &StillWaiting) -> Vec<Edge> {
    let object = &words.objects[waiting.object.0];
    let sure = waiting.sure && !waiting.timed && words.lossless();
    match waiting.operation {
        Operation::Join => {
            let threads = &words.model.threads;
            let called = threads
                .iter()
                .position(|thread| thread.joiner == Some(waiting.thread) && alive(words, thread));
            let there =
                |joined: &ThreadIndex| threads.get(joined.0).is_some_and(|t| alive(words, t));
            let joined = called.map(ThreadIndex);
            let edge = joined.or(waiting.owner.filter(there)).map(|joined| Edge {
                waiting: *waiting,
                holder: joined,
                taken: None,
                sure,
            });
            edge.into_iter().collect()
        }
        Operation::Lock | Operation::ReadLock | Operation::WriteLock => {
            if let Some(owner) = waiting.owner {
                // What the memory said when the wait began may have changed since.
                return vec![Edge {
                    waiting: *waiting,
                    holder: owner,
                    taken: None,
                    sure: false,
                }];
            }
            let shared = waiting.operation == Operation::ReadLock;
            let holders = replay.holds.holders(waiting.object).iter();
            holders
                .filter_map(|holder| {
                    let held = held(replay, *holder, waiting.object)?;
                    // Better no circle than one of holds that were given up unseen.
                    if !words.model.recording.is_certain_between_gaps()
                        || replay.gaps.may_be_free(object.kind, held.stamp)
                    {
                        return None;
                    }
                    let itself = *holder == waiting.thread;
                    // Readers do not keep each other out, nor does a reader itself.
                    (!(shared && held.shared)).then_some(Edge {
                        waiting: *waiting,
                        holder: *holder,
                        taken: Some(held.taken),
                        // A recursive lock is had again at once.
                        sure: sure
                            && !object.doubtful
                            && (!itself || lasted(words, waiting, JUST_BEGUN)),
                    })
                })
                .collect()
        }
        _ => Vec::new(),
    }
}

fn held(replay: &Replay<'_>, thread: ThreadIndex, object: ObjectIndex) -> Option<Held> {
    let all = replay.holds.of(thread);
    all.iter().find(|held| held.object == object).copied()
}

fn lasted(words: &Words<'_>, waiting: &StillWaiting, ns: u64) -> bool {
    let end = words.model.recording.duration_ns;
    end.saturating_sub(waiting.since_ns) >= ns
}

/// It did not end before the program did.
fn alive(words: &Words<'_>, thread: &Thread) -> bool {
    let recording = &words.model.recording;
    let slack = match recording.program_end {
        Some(ProgramEnd::Signal(_)) => recording.slack_ns(),
        _ => JUST_BEGUN,
    };
    recording.was_there_at_the_end(thread, slack)
}

/// Circles of waiting, each once.
fn circles(edges: &[Edge]) -> Vec<Vec<Edge>> {
    let ends = |edge: &Edge| (edge.waiting.thread.0, edge.holder.0);
    let pairs: Vec<(usize, usize)> = edges.iter().map(ends).collect();
    let of_circle = |circle: Vec<usize>| {
        let next = circle.iter().cycle().skip(1);
        let steps = circle.iter().zip(next);
        steps
            .filter_map(|(from, to)| edges.iter().find(|edge| ends(edge) == (*from, *to)))
            .copied()
            .collect()
    };
    circles::circles(&pairs)
        .into_iter()
        .map(of_circle)
        .collect()
}

/// What was read at different moments may contradict itself: in a circle each thread has another holder, and a mutex has one.
fn is_possible(words: &Words<'_>, circle: &[Edge]) -> bool {
    let mut mutexes: Vec<ObjectIndex> = circle
        .iter()
        .map(|edge| edge.waiting.object)
        .filter(|object| words.objects[object.0].kind == Kind::Mutex)
        .collect();
    let all = mutexes.len();
    mutexes.sort_unstable();
    mutexes.dedup();
    mutexes.len() == all
}

fn deadlock(words: &Words<'_>, circle: &[Edge]) -> Finding {
    let proved = circle.iter().all(|edge| edge.sure);
    let mut evidence: Vec<Evidence> = Vec::new();
    let mut clauses = Vec::new();
    for (at, edge) in circle.iter().enumerate() {
        let waiting = &edge.waiting;
        let thread = words.thread(waiting.thread);
        let object = words.object(waiting.object);
        let for_whom = words.thread(edge.holder);
        clauses.push(match waiting.operation {
            Operation::Join => {
                format!(
                    "{thread} waits for the end of {for_whom}{}",
                    words.at(waiting.used)
                )
            }
            _ if edge.holder == waiting.thread => {
                let where_taken = edge
                    .taken
                    .map(|taken| format!(", taken{}", words.at(taken)));
                format!(
                    "{thread} waits{} for {object}, which it holds itself{}",
                    words.at(waiting.used),
                    where_taken.unwrap_or_default()
                )
            }
            _ => {
                let where_taken = edge.taken.map_or(String::new(), |taken| words.at(taken));
                format!(
                    "{thread} waits{} for {object}, which {for_whom} holds{}{where_taken}",
                    words.at(waiting.used),
                    if where_taken.is_empty() {
                        ""
                    } else {
                        ", taken"
                    },
                )
            }
        });
        // What it holds itself, which the one before it in the circle waits for.
        let before = &circle[(at + circle.len() - 1) % circle.len()];
        if let Some(taken) = before.taken {
            evidence.push(words.evidence(
                waiting.thread,
                taken,
                format!("took {}", words.object(before.waiting.object)),
            ));
        }
        let what = match waiting.operation {
            Operation::Join => format!("waits for the end of {for_whom}"),
            _ => format!("waits for {object}"),
        };
        evidence.push(words.evidence(waiting.thread, waiting.used, what));
    }
    let timed = circle.iter().any(|edge| edge.waiting.timed);
    let (kind, beginning) = match circle.len() {
        1 => (FindingKind::SelfDeadlock, "A thread waits for itself"),
        _ if timed => (
            FindingKind::Deadlock,
            "These threads wait for each other in a circle",
        ),
        _ => (
            FindingKind::Deadlock,
            "These threads wait for each other in a circle, and none can go on",
        ),
    };
    let doubt = if proved {
        ""
    } else if timed {
        " Some of them wait for a limited time, after which they may go on."
    } else {
        " Events are missing or memory was read only once, so this is an inference."
    };
    let mut objects: Vec<ObjectIndex> = circle
        .iter()
        .filter(|edge| edge.waiting.operation != Operation::Join)
        .map(|edge| edge.waiting.object)
        .collect();
    objects.dedup();
    Finding {
        kind,
        proved,
        threads: circle.iter().map(|edge| edge.waiting.thread).collect(),
        circle: true,
        objects: objects.into_iter().map(|o| words.named(o)).collect(),
        text: format!("{beginning}: {}.{doubt}", clauses.join("; ")),
        evidence,
    }
}

/// Locks whose holder has ended.
fn abandoned(words: &Words<'_>, edges: &[Edge], findings: &mut Vec<Finding>) {
    let mut objects: Vec<ObjectIndex> = edges
        .iter()
        .filter(|edge| {
            let holder = words.model.threads.get(edge.holder.0);
            edge.waiting.operation != Operation::Join
                && holder.is_some_and(|holder| !alive(words, holder))
        })
        .map(|edge| edge.waiting.object)
        .collect();
    objects.sort_unstable();
    objects.dedup();
    for object in objects {
        let on_it: Vec<&Edge> = edges
            .iter()
            .filter(|e| e.waiting.object == object)
            .collect();
        let Some(first) = on_it.first() else { continue };
        let mut evidence: Vec<Evidence> = first
            .taken
            .map(|taken| {
                words.evidence(
                    first.holder,
                    taken,
                    format!("took {} and ended", words.object(object)),
                )
            })
            .into_iter()
            .collect();
        evidence.extend(on_it.iter().take(4).map(|edge| {
            words.evidence(
                edge.waiting.thread,
                edge.waiting.used,
                format!("waits for {}", words.object(object)),
            )
        }));
        let waiting: Vec<ThreadIndex> = on_it.iter().map(|edge| edge.waiting.thread).collect();
        let who = match waiting[..] {
            [one] => format!("{} waits", words.thread(one)),
            _ => format!("{} threads wait", waiting.len()),
        };
        findings.push(Finding {
            kind: FindingKind::AbandonedLock,
            proved: on_it.iter().all(|edge| edge.sure),
            threads: std::iter::once(first.holder).chain(waiting).collect(),
            circle: false,
            objects: vec![words.named(object)],
            text: format!(
                "{who} for {}, whose holder {} has ended without giving it up.",
                words.object(object),
                words.thread(first.holder)
            ),
            evidence,
        });
    }
}

/// Nobody does anything but wait: what threads wait for can never come.
fn forsaken(words: &Words<'_>, still: &[StillWaiting], edges: &[Edge]) -> Option<Finding> {
    // A program that ends by itself has a thread that could have woken the others.
    if matches!(
        words.model.recording.program_end,
        Some(ProgramEnd::Exited(_))
    ) {
        return None;
    }
    let threads = words.model.threads.iter().enumerate();
    let living =
        threads.filter(|(_, thread)| alive(words, thread) || thread.creation == Creation::Main);
    let waits = |thread: usize| {
        let mut of_thread = still.iter().filter(|waiting| waiting.thread.0 == thread);
        of_thread.any(|w| !w.timed && w.sure && lasted(words, w, JUST_BEGUN))
    };
    if !living.clone().all(|(index, _)| waits(index)) {
        return None;
    }
    // Who waits for a thread that waits, waits for what that one does.
    let for_another = |waiting: &StillWaiting| {
        waiting.operation == Operation::Join
            || (edges.iter()).any(|edge| edge.waiting.thread == waiting.thread)
    };
    let rest: Vec<&StillWaiting> = still.iter().filter(|w| !for_another(w)).collect();
    if rest.is_empty() {
        return None;
    }
    let mut objects: Vec<ObjectIndex> = rest.iter().map(|waiting| waiting.object).collect();
    objects.sort_unstable();
    objects.dedup();
    let locks = objects
        .iter()
        .all(|object| matches!(words.objects[object.0].kind, Kind::Mutex | Kind::Rwlock));
    let (kind, text) = match locks {
        true => (
            FindingKind::Deadlock,
            format!(
                "{}. {}, so nobody is left to give up a lock: only a signal's handler or another process could.",
                waits_for_locks(words, &rest),
                match living.count() {
                    1 => "No other thread is there",
                    2 => "Both threads of the program wait",
                    _ => "All threads of the program wait",
                }
            ),
        ),
        false => (
            FindingKind::LostWakeup,
            wait_in_vain(words, &rest, &objects),
        ),
    };
    let evidence = rest.iter().take(8).map(|waiting| {
        let what = format!(
            "waits {} {}",
            if locks { "for" } else { "at" },
            words.object(waiting.object)
        );
        words.evidence(waiting.thread, waiting.used, what)
    });
    Some(Finding {
        kind,
        proved: false,
        threads: rest.iter().map(|waiting| waiting.thread).collect(),
        circle: false,
        objects: objects.iter().map(|o| words.named(*o)).collect(),
        text,
        evidence: evidence.collect(),
    })
}

/// Threads wait for several locks whose holders are not recorded, and no other thread that lives was seen
/// to use these locks: most likely each of them has what another one waits for.
fn among_themselves(words: &Words<'_>, still: &[StillWaiting], edges: &[Edge]) -> Option<Finding> {
    if matches!(
        words.model.recording.program_end,
        Some(ProgramEnd::Exited(_))
    ) {
        return None;
    }
    let locks = still.iter().filter(|waiting| {
        let lock = matches!(
            waiting.operation,
            Operation::Lock | Operation::ReadLock | Operation::WriteLock
        );
        let known = |edge: &Edge| edge.waiting.thread == waiting.thread;
        lock && !waiting.timed
            && waiting.sure
            && lasted(words, waiting, LASTING)
            && !edges.iter().any(known)
    });
    let mut waiting: Vec<&StillWaiting> = locks.collect();
    // A lock that others use may be theirs.
    let inside = |waiting: &[&StillWaiting], object: ObjectIndex| {
        let is_member = |thread: usize| waiting.iter().any(|w| w.thread.0 == thread);
        let uses = words.objects[object.0].uses.iter();
        let mut shares = uses.flat_map(|used| &words.uses[used.0].shares);
        shares.all(|share| {
            let threads = words.model.threads.iter().enumerate();
            let mut users = threads.filter(|(index, thread)| {
                words.identity_of.get(*index) == Some(&share.identity) && alive(words, thread)
            });
            users.all(|(index, _)| is_member(index))
        })
    };
    // To leave one out may leave out others.
    loop {
        let kept: Vec<&StillWaiting> = waiting
            .iter()
            .filter(|one| inside(&waiting, one.object))
            .copied()
            .collect();
        if kept.len() == waiting.len() {
            break;
        }
        waiting = kept;
    }
    let mut objects: Vec<ObjectIndex> = waiting.iter().map(|one| one.object).collect();
    objects.sort_unstable();
    objects.dedup();
    if objects.len() < 2 || waiting.len() < 2 {
        return None;
    }
    let evidence = waiting.iter().take(8).map(|waiting| {
        let what = format!("waits for {}", words.object(waiting.object));
        words.evidence(waiting.thread, waiting.used, what)
    });
    Some(Finding {
        kind: FindingKind::Deadlock,
        proved: false,
        threads: waiting.iter().map(|waiting| waiting.thread).collect(),
        circle: false,
        objects: objects.iter().map(|object| words.named(*object)).collect(),
        text: format!(
            "{}. Who holds these locks is not recorded. No other thread was seen to use them, so each of \
             these threads most likely holds what another one waits for.",
            waits_for_locks(words, &waiting)
        ),
        evidence: evidence.collect(),
    })
}

/// Threads of one function, all of which wait for futures that they alone could provide.
fn hung_pools(words: &Words<'_>, still: &[StillWaiting]) -> Vec<Finding> {
    let hangs = |index: usize| {
        let waiting = still.iter().find(|waiting| waiting.thread.0 == index)?;
        let path = words.paths.get(words.uses[waiting.used.0].path.0)?;
        let hangs = words.objects[waiting.object.0].kind == Kind::Future
            && !waiting.timed
            && waiting.sure
            && lasted(words, waiting, LASTING)
            && runs_task(path);
        hangs.then_some(waiting)
    };
    let mut pools: BTreeMap<&str, Vec<Option<&StillWaiting>>> = BTreeMap::new();
    for (index, thread) in words.model.threads.iter().enumerate() {
        let function = thread.function.as_ref();
        if let Some(function) = function.and_then(|place| place.function.as_deref())
            && alive(words, thread)
        {
            pools.entry(function).or_default().push(hangs(index));
        }
    }
    let finding = |(function, threads): (&str, Vec<Option<&StillWaiting>>)| {
        let waiting: Vec<&StillWaiting> = threads.into_iter().collect::<Option<_>>()?;
        let evidence = waiting.iter().take(8).map(|waiting| {
            let what = format!("waits for {}", words.object(waiting.object));
            words.evidence(waiting.thread, waiting.used, what)
        });
        Some(Finding {
            kind: FindingKind::LostWakeup,
            proved: false,
            threads: waiting.iter().map(|waiting| waiting.thread).collect(),
            circle: false,
            objects: waiting.iter().map(|w| words.named(w.object)).collect(),
            text: why_hung(waiting.len(), function),
            evidence: evidence.collect(),
        })
    };
    pools.into_iter().filter_map(finding).collect()
}

/// `main waits in add (pool.c:3) for mutex a; worker (TID 7) waits in take (pool.c:9) for mutex b`
fn waits_for_locks(words: &Words<'_>, waiting: &[&StillWaiting]) -> String {
    let clauses = waiting.iter().take(MOST_NAMED).map(|waiting| {
        format!(
            "{} waits{} for {}",
            words.thread(waiting.thread),
            words.at(waiting.used),
            words.object(waiting.object)
        )
    });
    let text = clauses.collect::<Vec<String>>().join("; ");
    match waiting.len().saturating_sub(MOST_NAMED) {
        0 => text,
        more => format!("{text}; and so on, {more} more"),
    }
}

fn wait_in_vain(words: &Words<'_>, waiting: &[&StillWaiting], objects: &[ObjectIndex]) -> String {
    // Many objects may be made in one place.
    let mut names: Vec<String> = Vec::new();
    for name in objects.iter().map(|object| words.object(*object)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let more = names.len().saturating_sub(MOST_NAMED);
    names.truncate(MOST_NAMED);
    if more > 0 {
        names.push(format!("{more} more"));
    }
    let who = match waiting {
        [one] => format!("{} waits", words.thread(one.thread)),
        _ => format!("{} threads wait", waiting.len()),
    };
    format!(
        "{who} at {} for a wake-up that cannot come: all other threads of the program wait, too. Only a \
         signal or another process could help.",
        names.join(" and ")
    )
}
