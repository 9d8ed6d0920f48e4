//! The CPU samples as columns; `page/flame.js` sums them.

use super::encode::Column;
use crate::model::Model;

/// The samples as named columns, in the order of their times.
pub(super) fn columns(model: &Model) -> Vec<(&'static str, Vec<u8>)> {
    let [mut count, mut step, mut stack] = [const { Column::new() }; 3];
    let samples = &model.profile.samples;
    count.push(samples.len() as u64);
    let mut last_ns = 0;
    for sample in samples {
        step.push(sample.time_ns - last_ns);
        last_ns = sample.time_ns;
        stack.push(sample.stack as u64);
    }
    vec![
        ("sample.count", count.into_bytes()),
        ("sample.step", step.into_bytes()),
        ("sample.stack", stack.into_bytes()),
    ]
}
