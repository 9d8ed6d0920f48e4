//! The facts of locks of which only the waits are known.
//!
//! Separate from recorded objects, whose calls tell where they were made and which thread used
//! them.

use std::collections::BTreeMap;

use super::join::label;
use super::run::{Names, ObjectFacts, is_own};
use crate::model::backtrace::base_name;
use crate::model::critical_path::Item;
use crate::model::sync::{Histogram, place_text};
use crate::model::{LockWaits, Model};

/// The locks by their program, kind, and variable. Those without a variable have the function that
/// takes them instead.
pub(super) fn objects(model: &Model, names: &Names<'_>) -> Vec<ObjectFacts> {
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    let mut all: Vec<ObjectFacts> = Vec::new();
    let mut places = Vec::with_capacity(model.lock_waits.len());
    for waits in &model.lock_waits {
        let facts = facts(model, names, waits);
        let at = *known
            .entry(facts.identity.full.clone())
            .or_insert(all.len());
        places.push(at);
        if at == all.len() {
            all.push(facts);
        } else {
            all[at].waits.merge(&facts.waits);
            all[at].number += 1;
        }
    }
    if let Some(path) = &model.critical_path {
        for segment in path.segments.iter().filter(|it| is_own(it.state)) {
            if let Some(at) = segment.lock_waits().and_then(|index| places.get(index)) {
                all[*at].path_ns += segment.length_ns();
            }
        }
        for impact in &path.impacts {
            if let Item::LockWaits(index) = impact.item
                && let Some(at) = places.get(index)
            {
                all[*at].saved_ns += impact.saved_ns;
            }
        }
    }
    for facts in &mut all {
        facts.identity.size = (facts.number, facts.waits.total_ns);
    }
    all
}

fn facts(model: &Model, names: &Names<'_>, waits: &LockWaits) -> ObjectFacts {
    let process = waits.process.map(|index| &model.processes.all[index.0]);
    let program = process.map(|process| model.processes.program_name(process).to_owned());
    let executable = program.as_deref().unwrap_or(names.executable);
    let kind = waits.object.kind;
    let mut identity = names.identity();
    identity.full = format!(
        "{} of {} ",
        kind.as_str(),
        program.as_deref().unwrap_or_default()
    );
    identity.bare = identity.full.clone();
    let name = match (&waits.object.name, &waits.caller) {
        (Some(name), _) => {
            let module = waits.module.as_deref().map(base_name);
            let other = module.filter(|module| *module != executable);
            identity.full += &format!("{}!{name}", other.unwrap_or_default());
            Some(name.clone())
        }
        (None, caller) => {
            identity.full.push_str("taken in ");
            identity.is_named = label(caller.as_ref(), executable, &mut identity.full);
            let place = caller.as_ref();
            if let Some(address) = place
                .filter(|it| it.function.is_none())
                .and_then(|it| it.svma)
            {
                // Equal in each run of a build, and in another order in no build.
                identity.full += &format!("+{address:#x}");
                identity.order.push(address);
                identity.build = None;
            }
            place.map(|place| match &place.function {
                Some(function) => format!("taken in {function}").into(),
                None => format!("taken in {}", place_text(place)).into(),
            })
        }
    };
    ObjectFacts {
        identity,
        kind: Some(kind),
        program,
        name,
        number: 1,
        waits: Histogram {
            count: waits.count,
            total_ns: waits.total_ns,
            max_ns: waits.longest_ns,
            ..Histogram::default()
        },
        ..ObjectFacts::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Diff, Run};
    use super::*;
    use crate::model::fixture::Stage;
    use crate::model::{ObjectName, Place};
    use crate::primitives::Kind;

    const MS: u64 = 1_000_000;

    /// A run of a program with these locks: name or caller, address, and milliseconds of waits.
    fn run(locks: &[(Option<&str>, &str, u64, u64)]) -> Run {
        let mut model = Stage::new().model();
        let waits = locks.iter().map(|(name, caller, address, ms)| LockWaits {
            process: None,
            processes: 1,
            object: ObjectName {
                kind: Kind::Mutex,
                address: *address,
                name: name.map(Into::into),
            },
            module: Some("/lib/libshop.so".into()),
            is_internal: false,
            functions: vec!["pthread_mutex_lock".into()],
            calls: Vec::new(),
            caller: Some(Place {
                function: Some((*caller).into()),
                ..Place::default()
            }),
            count: 1,
            total_ns: ms * MS,
            longest_ns: ms * MS,
            unended: 0,
            unended_ns: 0,
            waiters: Vec::new(),
            holders: Vec::new(),
            runnable_ns: 0,
        });
        model.lock_waits = waits.collect();
        Run::of(&model)
    }

    #[test]
    fn locks_are_joined_by_name_at_any_address() {
        let before = run(&[
            (Some("door"), "open", 0x1000, 10),
            (None, "fill", 0x2000, 20),
            (None, "fill", 0x3000, 30),
        ]);
        let after = run(&[
            (None, "drain", 0x1000, 40),
            (None, "fill", 0x7000, 50),
            (Some("door"), "close", 0x8000, 60),
        ]);
        let diff = Diff::of(vec![before], vec![after]);
        let objects = diff.objects.iter().map(|object| {
            let waited = object.waited_ns;
            let [before, after] = [waited.before, waited.after].map(|it| it.median / MS);
            (object.name.as_deref(), before, after)
        });
        let expected = [
            (Some("door"), 10, 60),
            (Some("taken in fill"), 50, 50),
            (Some("taken in drain"), 0, 40),
        ];
        assert_eq!(objects.collect::<Vec<_>>(), expected);
    }
}
