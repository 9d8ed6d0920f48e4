//! Classifies waits: contention, waiting for other threads, or waiting for work by design.
//!
//! The threads of a pool wait for work in the outermost of their loops: at a condition, a semaphore
//! or a bare futex word, with no lock held. Such a wait does not show how the program could be
//! faster. A wait inside a piece of work does.

use std::collections::HashMap;
use std::sync::Arc;

use super::objects::{Object, Use, Waiting};
use crate::model::backtrace::Backtrace;
use crate::model::origin::start_code;
use crate::primitives::{Kind, Operation};

/// Sets the meaning of waiting for every use.
pub(super) fn tell(objects: &[Object], uses: &mut [Use], paths: &[Arc<Backtrace>]) {
    let depth = |used: &Use| {
        let path = paths.get(used.path.0)?;
        let frames = path.physical().count();
        frames
            .checked_sub(start_code(path))
            .filter(|depth| *depth > 0)
    };
    let may_be_home = |used: &Use| {
        let object = &objects[used.object.0];
        used.operation == Operation::Wait
            && matches!(object.kind, Kind::Cond | Kind::Sem | Kind::Futex)
            && !object.is_lock()
            && used.waits.count > 0
            && used.of_created
            && !used.holding
    };
    // The wait nearest to a thread's function is the one between its pieces of work.
    let mut homes: HashMap<usize, usize> = HashMap::new();
    for used in uses.iter().filter(|used| may_be_home(used)) {
        let Some(depth) = depth(used) else { continue };
        for share in &used.shares {
            let home = homes.entry(share.identity).or_insert(depth);
            *home = depth.min(*home);
        }
    }
    for used in uses.iter_mut() {
        let object = &objects[used.object.0];
        used.waiting = match object.kind {
            Kind::Once => Waiting::Held,
            _ if object.is_lock() => Waiting::Held,
            _ if may_be_home(used)
                && used.waits.count > 1
                && depth(used).is_some_and(|depth| {
                    let mut shares = used.shares.iter();
                    shares.all(|share| homes.get(&share.identity) == Some(&depth))
                }) =>
            {
                Waiting::Idle
            }
            _ => Waiting::Others,
        };
    }
}
