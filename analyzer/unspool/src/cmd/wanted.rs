//! What more has to be read of a program before its waits are understood, by what the model lacks.

use std::collections::HashSet;

use unspool_capture::Capture;

use crate::collect::Wanted;
use crate::model::{Model, Symbolizer};

/// What would tell more about the findings of a look.
pub(super) fn wanted(model: &Model) -> Wanted {
    let inspection = &model.inspection;
    // Only what would be said to be wrong is worth another stop; if that is that all wait, of all.
    let concerned = model.findings.iter().flat_map(|finding| &finding.threads);
    let concerned: HashSet<u64> = concerned
        .filter_map(|thread| model.thread(*thread)?.tid)
        .collect();
    let all = inspection.all_wait && !concerned.is_empty();
    let doubtful = inspection.doubtful.iter().copied();
    let threads: Vec<u64> = doubtful
        .filter(|tid| all || concerned.contains(tid))
        .collect();
    let mut memory = match threads.is_empty() {
        true => Vec::new(),
        false => inspection.doubtful_words.clone(),
    };
    memory.extend(inspection.wanted.iter().cloned());
    Wanted { threads, memory }
}

/// Tells the recorder what it lacks of one look, again and again.
pub(super) fn ask(mut symbolizer: Symbolizer) -> impl FnMut(&Capture) -> Wanted {
    let mut known: Option<Model> = None;
    move |capture| {
        let model = match known.take() {
            Some(mut model) => {
                model.inspect_closer(capture, &mut symbolizer);
                model
            }
            None => Model::build(capture, &mut symbolizer),
        };
        let wanted = wanted(&model);
        known = Some(model);
        wanted
    }
}
