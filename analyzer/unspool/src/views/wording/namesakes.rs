//! Tells threads of one name apart.

use super::identity;
use crate::model::Model;

/// The name of the threads with an identity. If other threads have the same name, it has the id of
/// the thread, or of the first one.
pub(in crate::views) fn told_apart(model: &Model, index: usize, room: usize) -> String {
    let name = identity(model, index, usize::MAX);
    let mut others = (0..model.sync.identities.len()).filter(|other| *other != index);
    let first = model.sync.identities.get(index);
    let tid = first.and_then(|(_, first, _)| model.thread(*first)?.tid);
    match tid {
        Some(tid) if others.any(|other| identity(model, other, usize::MAX) == name) => {
            let id = format!(" (TID {tid})");
            identity(model, index, room.saturating_sub(id.len())) + &id
        }
        _ => identity(model, index, room),
    }
}

#[cfg(test)]
mod tests {
    use crate::model::fixture::{PID, Stage};
    use crate::views::call_waits::Threads;
    use crate::views::wording::threads;

    #[test]
    fn threads_of_one_name_have_their_ids() {
        let mut stage = Stage::new();
        for (tid, function, line) in [
            (7, "shop!work@shop.c:3", "shop!main@shop.c:9"),
            (8, "shop!work@shop.c:3", "shop!main@shop.c:10"),
            (9, "shop!wait@shop.c:5", "shop!main@shop.c:11"),
        ] {
            stage.spawn(PID, tid, 0, function, &[line]);
        }
        let model = stage.model();
        let of = |tid| {
            let index = model.threads.iter().position(|one| one.tid == Some(tid));
            let of_all = Threads {
                identity: model.sync.identity_of[index.expect("the thread")],
                one: None,
            };
            threads(&model, of_all, 80)
        };
        assert_eq!([7, 8, 9].map(of), ["work (TID 7)", "work (TID 8)", "wait"]);
    }
}
