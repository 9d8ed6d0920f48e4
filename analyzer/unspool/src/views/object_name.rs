//! Names synchronization objects, one at a time or all that share a name.

use super::names::shorten_object;
use super::text::line::clean;
use crate::model::sync::{ObjectIndex, Sync};

/// Names one object: `mutex lock`, `mutex made in new_node (node.c:12) #2`. The kind comes first.
/// The kind, and the number that tells namesakes apart, are never cut.
pub(super) fn one(sync: &Sync, index: ObjectIndex, room: usize) -> String {
    let number = sync.object(index).number;
    let number = number.map_or(String::new(), |number| format!(" #{number}"));
    shared(sync, index, room.saturating_sub(number.len())) + &number
}

/// Like [`one`], for all objects that share the name.
pub(super) fn shared(sync: &Sync, sample: ObjectIndex, room: usize) -> String {
    let object = sync.object(sample);
    let noun = object.kind.noun();
    let name = match sync.name(object) {
        Some(name) => clean(&name),
        None => format!("{:#x}", object.address),
    };
    let room = room.saturating_sub(noun.len() + 1).max(12);
    format!("{noun} {}", shorten_object(&name, room))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::snapshot_tests::shop;

    #[test]
    fn a_number_tells_one_of_several_namesakes() {
        let mut sync = shop().sync;
        let index = ObjectIndex(0);
        assert_eq!(one(&sync, index, 80), shared(&sync, index, 80));
        sync.objects[0].number = Some(12);
        assert_eq!(one(&sync, index, 80), shared(&sync, index, 80) + " #12");
        let short = one(&sync, index, 4);
        assert!(short.ends_with(" #12"), "{short}");
    }
}
