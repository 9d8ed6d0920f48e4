//! The segments of the critical path as columns; `page/path.js` draws them.

use super::encode::Column;
use crate::model::Model;

/// The segments as named columns, the earliest first. They have no gaps between them.
pub(super) fn columns(model: &Model) -> Vec<(&'static str, Vec<u8>)> {
    let segments = model.critical_path.iter().flat_map(|path| &path.segments);
    let [mut thread, mut length, mut state] = [const { Column::new() }; 3];
    for segment in segments {
        thread.push(segment.thread.0 as u64);
        length.push(segment.length_ns());
        state.push(segment.state as u64);
    }
    let mut count = Column::new();
    count.push(
        model
            .critical_path
            .as_ref()
            .map_or(0, |path| path.segments.len() as u64),
    );
    vec![
        ("path.count", count.into_bytes()),
        ("path.thread", thread.into_bytes()),
        ("path.length", length.into_bytes()),
        ("path.state", state.into_bytes()),
    ]
}
