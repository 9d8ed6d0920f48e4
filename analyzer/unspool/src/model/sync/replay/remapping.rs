//! Forgets the objects in unmapped memory. Separate from the replay, because every part of its
//! state that knows addresses takes part.

use std::collections::HashSet;

use super::Replay;
use crate::model::sync::objects::ObjectIndex;
use crate::model::sync::remapping::{Change, Remapping};

impl Replay<'_> {
    /// Applies the changes of the mapped memory until `ns`.
    pub(super) fn remap_until(&mut self, ns: u64) {
        let is_due = |remapping: &mut Remapping| remapping.at_ns <= ns;
        while let Some(remapping) = self.remappings.pop_front_if(is_due) {
            let (range, file, last_event) = match remapping.change {
                Change::Exec(last_event) => (0..u64::MAX, None, last_event),
                Change::Unloaded(range, file, last_event) => (range, Some(file), last_event),
                Change::Reloaded(file) => {
                    self.objects.map_again(file);
                    continue;
                }
            };
            self.end_attempts();
            let gone = self.objects.unmap(&range, file, last_event);
            for object in &gone {
                self.holds.forget(*object);
                self.tenures.forget_object(*object);
                self.semaphores.forget_object(*object);
            }
            let gone: HashSet<ObjectIndex> = gone.into_iter().collect();
            (self.refused).retain(|_, refused| !gone.contains(&refused.object));
            self.by_caller.retain(|(_, code), object| {
                !range.contains(code) && object.is_none_or(|object| !gone.contains(&object))
            });
            self.stale_waits.unmap(&range);
            self.wakes.unmap(&range);
        }
    }
}
