//! Decides what else to read of a program to explain its waits, based on gaps in the model.

use std::collections::HashSet;

use unspool_capture::Capture;

use crate::collect::{Inspection, MAX_LOOKS, Wanted};
use crate::model::{Model, Symbolizer};

/// The further reads that would clarify the findings of an inspection.
fn wanted(model: &Model) -> Wanted {
    let inspection = &model.inspection;
    // Only threads with findings are worth another stop. If the finding is that all threads wait,
    // read all of them.
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

/// The model of an inspection, after the further reads that clarify its findings.
pub(super) fn model_of(inspection: &mut Inspection, symbolizer: &mut Symbolizer) -> Model {
    let mut model = Model::build(&inspection.capture(), symbolizer);
    for _ in 0..MAX_LOOKS {
        let wanted = wanted(&model);
        if wanted.is_empty() {
            break;
        }
        inspection.read_more(&wanted);
        model.inspect_closer(&inspection.capture(), symbolizer);
    }
    model
}

/// Returns a function that finds the further reads after each inspection. Its model is kept between
/// calls.
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
