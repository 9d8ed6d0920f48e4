//! The comparison of two sets of recordings: what changed, and the effect on the wall time.
//!
//! `run` takes the facts of one recording, and `join` finds what is the same in all recordings.
//! `spread` tells differences from noise, and `effects` ranks the causes. Views write the text.

mod effects;
mod join;
mod lock_waits;
mod run;
mod same_function;
mod spread;
#[cfg(test)]
mod tests;

pub use effects::{Cause, Effect, Subject};
pub use run::{Doubt, Run};
pub use spread::{Change, NOISE_NS, Spread};

use std::sync::Arc;

use join::{Identified, Joined, join};
use run::{FunctionFacts, ObjectFacts, ThreadFacts};

use super::backtrace::{Backtrace, Place};
use crate::primitives::Kind;

/// The part of the delays by other processes that the estimate may be wrong by.
const OTHERS_NOISE_SHARE: f64 = 0.20;

/// Two sets of recordings, compared.
#[derive(Clone, Debug, Default)]
pub struct Diff {
    /// The programs' names before and after.
    pub programs: (String, String),
    /// Numbers of recordings before and after.
    pub counts: (usize, usize),
    /// Length of the run.
    pub wall_ns: Change,
    /// Length of the run without the delays by the recorder and by other processes.
    pub net_ns: Change,
    /// Time in which the recorder had stopped the program.
    pub recorder_ns: Change,
    /// Time in which the program waited for processors that other processes had.
    pub others_ns: Change,
    /// Processor time that the host of a virtual machine took. At most so much of the run's length
    /// is due to it.
    pub stolen_ns: Change,
    /// Threads by identity, in the order of their appearance.
    pub threads: Vec<ThreadChange>,
    /// Synchronization objects by identity, in the order of their appearance.
    pub objects: Vec<ObjectChange>,
    /// Functions on the critical path; empty if a recording has no names.
    pub functions: Vec<FunctionChange>,
    /// What changed the length of the run, the largest effect first; noise comes last.
    pub effects: Vec<Effect>,
    /// What prevents a judgement, in any of the recordings.
    pub doubts: Vec<Doubt>,
}

/// The threads of one identity, or the processes that ran one program. Threads of several
/// identities with one function if work moves between them.
#[derive(Clone, Debug, Default)]
pub struct ThreadChange {
    /// True for the program's first thread.
    pub is_main: bool,
    /// The program of processes that the recorded program started; none for its own threads.
    pub program: Option<String>,
    /// The thread function.
    pub function: Option<Place>,
    /// The first thread's own name; empty if it is the program's.
    pub name: String,
    /// The stacks that created the first threads before and after.
    pub creation: (Option<Backtrace>, Option<Backtrace>),
    /// The identities' keys before and after.
    pub keys: (Option<super::Key>, Option<super::Key>),
    /// Number of identities that are compared as one, because work moves between their threads.
    pub identities: usize,
    /// Number of threads, or of processes.
    pub number: Change,
    /// Time on a processor.
    pub running_ns: Change,
    /// Time in which threads waited for a processor.
    pub runnable_ns: Change,
    /// Time in which threads were blocked.
    pub waiting_ns: Change,
    /// Part of the critical path, with the processor time that the threads took from it.
    pub path_ns: Change,
    /// Time that threads ran or waited for devices, on the path or not.
    pub work_ns: Change,
}

/// The objects of one identity.
#[derive(Clone, Debug, Default)]
pub struct ObjectChange {
    /// The kind of primitive.
    pub kind: Option<Kind>,
    /// The program of the processes that have it; none for the recorded program.
    pub program: Option<String>,
    /// The variable, or where it was made or first used.
    pub name: Option<Arc<str>>,
    /// Number of objects.
    pub number: Change,
    /// Number of waits.
    pub waits: Change,
    /// Their total length.
    pub waited_ns: Change,
    /// Number of acquisitions.
    pub taken: Change,
    /// Total length of the holds.
    pub held_ns: Change,
    /// Part of the critical path for which other threads waited at the object.
    pub path_ns: Change,
    /// By how much the run would be shorter without contention.
    pub saved_ns: Change,
}

/// A function on the critical path.
#[derive(Clone, Debug, Default)]
pub struct FunctionChange {
    /// The function.
    pub place: Place,
    /// Its part of the critical path.
    pub path_ns: Change,
    /// Time that threads ran in it or waited for devices, on the path or not.
    pub work_ns: Change,
}

/// Takes values of both sides from joined facts.
struct Sides {
    before: usize,
    noise_ns: u64,
}

impl Sides {
    fn change<T>(&self, runs: &[Option<T>], value: impl Fn(&T) -> u64) -> Change {
        let values = |runs: &[Option<T>]| {
            let values = runs.iter().map(|run| run.as_ref().map_or(0, &value));
            Spread::of(values)
        };
        let (before, after) = runs.split_at(self.before.min(runs.len()));
        Change {
            before: values(before),
            after: values(after),
            noise_ns: self.noise_ns,
        }
    }

    /// A fact of the first recording of each side that has the item.
    fn first<T, V>(
        &self,
        runs: &[Option<T>],
        fact: impl Fn(&T) -> Option<V>,
    ) -> (Option<V>, Option<V>) {
        let (before, after) = runs.split_at(self.before.min(runs.len()));
        let first = |runs: &[Option<T>]| runs.iter().flatten().next().and_then(&fact);
        (first(before), first(after))
    }
}

impl Diff {
    /// Compares the recordings of two sides.
    pub fn of(before: Vec<Run>, after: Vec<Run>) -> Diff {
        let mut sides = Sides {
            before: before.len(),
            noise_ns: 0,
        };
        let program = |runs: &[Run]| runs.first().map(|run| run.program.clone());
        let programs = (
            program(&before).unwrap_or_default(),
            program(&after).unwrap_or_default(),
        );
        let counts = (before.len(), after.len());
        let mut runs: Vec<Run> = before.into_iter().chain(after).collect();
        let doubts = doubts(&runs);
        let mut threads = Vec::new();
        let mut objects = Vec::new();
        let mut functions = Vec::new();
        let has_processes = !doubts.contains(&Doubt::UnlikeProcesses);
        for run in &mut runs {
            run.threads
                .retain(|facts| has_processes || facts.program.is_none());
            run.objects
                .retain(|facts| has_processes || facts.program.is_none());
            threads.push(std::mem::take(&mut run.threads));
            objects.push(std::mem::take(&mut run.objects));
            functions.push(std::mem::take(&mut run.functions));
        }
        // A run without symbols has no functions, which says nothing about the program.
        if functions.iter().any(Vec::is_empty) {
            functions.clear();
        }
        let runs: Vec<Option<Run>> = runs.into_iter().map(Some).collect();
        // The delays by other processes are an estimate, and those by a virtual machine's host are
        // unknown up to the time that it took. Threads that wait for each other in loops seem to
        // lose more time than they do, so one side may be wrong by all that it has lost more.
        let others = sides.change(&runs, |run| run.others_ns);
        let estimate_ns = (others.larger_median() as f64 * OTHERS_NOISE_SHARE) as u64;
        let stolen = sides.change(&runs, |run| run.stolen_ns).larger_median();
        let doubtful_ns = estimate_ns + others.delta().unsigned_abs() + stolen;
        sides.noise_ns = NOISE_NS.max(doubtful_ns);
        let net_ns = sides.change(&runs, Run::net_ns);
        let threads = same_function::changes(join(threads), &sides, &net_ns);
        let mut diff = Diff {
            programs,
            counts,
            wall_ns: sides.change(&runs, |run| run.wall_ns),
            net_ns,
            recorder_ns: sides.change(&runs, |run| run.recorder_ns),
            others_ns: sides.change(&runs, |run| run.others_ns),
            stolen_ns: sides.change(&runs, |run| run.stolen_ns),
            threads,
            objects: join(objects).iter().map(|one| sides.object(one)).collect(),
            functions: join(functions)
                .iter()
                .map(|one| sides.function(one))
                .collect(),
            effects: Vec::new(),
            doubts,
        };
        if diff.may_be_disturbed() {
            diff.doubts.push(Doubt::Disturbed);
        }
        diff.effects = effects::ranked(&diff);
        diff
    }

    /// True if equal programs may differ as much in the length of the run.
    pub fn is_noise(&self) -> bool {
        self.net_ns.is_noise()
    }

    /// True if the run takes half as long again or more, and only the times of other processes and
    /// of the machine's host make that noise.
    fn may_be_disturbed(&self) -> bool {
        let grows = self.net_ns.share().is_some_and(|share| share >= 0.5);
        let undisturbed = Change {
            noise_ns: NOISE_NS,
            ..self.net_ns
        };
        grows && self.is_noise() && !undisturbed.is_noise()
    }

    /// Whether the length of the run can be judged, and what determines it.
    pub fn can_judge(&self) -> bool {
        self.doubts.is_empty()
    }

    /// True if the run takes longer by more than `percent` and by more than noise.
    pub fn is_slower(&self, percent: f64) -> bool {
        let grows = self
            .net_ns
            .share()
            .is_some_and(|share| share * 100.0 > percent);
        grows && !self.is_noise()
    }

    /// The effects that make the run longer by more than `percent` of the item's earlier time.
    pub fn slower_items(&self, percent: f64) -> impl Iterator<Item = &Effect> {
        let effects = self.effects.iter();
        effects.filter(move |effect| {
            let allowed = effect.path_ns.before.median as f64 * percent / 100.0;
            !effect.is_noise && effect.effect_ns as f64 > allowed
        })
    }
}

fn doubts(runs: &[Run]) -> Vec<Doubt> {
    let mut doubts: Vec<Doubt> = runs.iter().flat_map(|run| run.doubts.clone()).collect();
    let differ = |of: fn(&Run) -> bool| runs.iter().any(|run| of(run) != of(&runs[0]));
    if differ(|run| run.sync_recorded) {
        doubts.push(Doubt::UnlikeRecordings);
    }
    if differ(|run| run.missed_processes) {
        doubts.push(Doubt::UnlikeProcesses);
    }
    doubts.sort_unstable();
    doubts.dedup();
    doubts
}

impl Sides {
    fn threads(&self, joined: &Joined<ThreadFacts>) -> ThreadChange {
        let runs = &joined.runs;
        let sample = joined.sample();
        ThreadChange {
            is_main: sample.is_some_and(|facts| facts.is_main),
            program: sample.and_then(|facts| facts.program.clone()),
            function: sample.and_then(|facts| facts.function.clone()),
            name: sample.map_or(String::new(), |facts| facts.name.clone()),
            creation: self.first(runs, |facts| facts.creation.clone()),
            keys: self.first(runs, |facts| facts.identity().key),
            identities: 1,
            number: self.change(runs, |facts| facts.number),
            running_ns: self.change(runs, |facts| facts.running_ns),
            runnable_ns: self.change(runs, |facts| facts.runnable_ns),
            waiting_ns: self.change(runs, |facts| facts.waiting_ns),
            path_ns: self.change(runs, |facts| facts.path_ns + facts.taken_ns),
            work_ns: self.change(runs, |facts| facts.work_ns),
        }
    }

    fn object(&self, joined: &Joined<ObjectFacts>) -> ObjectChange {
        let runs = &joined.runs;
        let sample = joined.sample();
        ObjectChange {
            kind: sample.and_then(|facts| facts.kind),
            program: sample.and_then(|facts| facts.program.clone()),
            name: sample.and_then(|facts| facts.name.clone()),
            number: self.change(runs, |facts| facts.number),
            waits: self.change(runs, |facts| facts.waits.count),
            waited_ns: self.change(runs, |facts| facts.waits.total_ns),
            taken: self.change(runs, |facts| facts.taken),
            held_ns: self.change(runs, |facts| facts.holds.total_ns),
            path_ns: self.change(runs, |facts| facts.path_ns),
            saved_ns: self.change(runs, |facts| facts.saved_ns),
        }
    }

    fn function(&self, joined: &Joined<FunctionFacts>) -> FunctionChange {
        let runs = &joined.runs;
        FunctionChange {
            place: joined
                .sample()
                .map_or_else(Place::default, |facts| facts.place.clone()),
            path_ns: self.change(runs, |facts| facts.path_ns),
            work_ns: self.change(runs, |facts| facts.work_ns),
        }
    }
}
