//! Locks that a thread of the path takes again and again while others wait.

use super::*;

/// The worker sleeps three times with the lock. The other thread is woken each time, finds the lock
/// taken again, and at last gets it. Between 240 and 340, no thread waits.
#[test]
fn all_sleeps_of_a_holder_are_marked() {
    for holder in [None, Some(1)] {
        let mut built = Built::new();
        built.thread(
            None,
            0,
            &[
                (10, ran(0)),
                (500, RunState::Blocked),
                (502, woken(101)),
                (510, ran(0)),
            ],
        );
        let mut worker = vec![(12, woken(100))];
        for sleep in 0..4 {
            let from = 20 + 100 * sleep;
            worker.extend([(from, ran(1)), (from + 98, RunState::Blocked)]);
            worker.push((from + 99, TIMER));
        }
        worker.push((500, ran(1)));
        built.thread(Some(0), 10, &worker);
        let other = [
            (14, woken(100)),
            (15, ran(0)),
            (120, RunState::Blocked),
            (121, woken(101)),
            (122, ran(0)),
            (220, RunState::Blocked),
            (240, woken(101)),
            (340, ran(0)),
            (420, RunState::Blocked),
            (421, woken(101)),
            (430, ran(0)),
        ];
        built.thread(Some(0), 12, &other);
        let lock = built.object(Kind::Mutex, Waiting::Held);
        for (from, to) in [(15, 121), (122, 240), (340, 421)] {
            built.wait(2, lock, from, to, Some(1));
            built.waits.last_mut().unwrap().holder = holder.map(ThreadIndex);
        }
        let path = built.path();
        let marked: Vec<(u64, u64)> = path
            .segments
            .iter()
            .filter(|it| it.state == PathState::Blocked && it.object() == Some(ObjectIndex(0)))
            .map(|it| (it.from_ns / US, it.to_ns / US))
            .collect();
        assert_eq!(marked, [(20, 118), (122, 218), (340, 418)], "{path:#?}");
    }
}
