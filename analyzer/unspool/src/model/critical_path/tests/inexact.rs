//! Waits whose ends are not what they seem.

use super::*;

/// A thread that waits with a time limit until another one is done needs no more time than that
/// one.
#[test]
fn a_wait_repeated_after_its_time_limit() {
    let mut built = Built::new();
    let main = [
        (10, ran(0)),
        (310, RunState::Blocked),
        (311, TIMER),
        (313, ran(0)),
        (613, RunState::Blocked),
        (614, TIMER),
        (616, ran(0)),
        (1000, RunState::Blocked),
        (1002, woken(101)),
        (1010, ran(0)),
    ];
    built.thread(None, 0, &main);
    let worker = [(6, woken(100)), (1001, ran(1))];
    built.thread(Some(0), 5, &worker);
    let used = built.object(Kind::Cond, Waiting::Idle);
    built.wait(0, used, 10, 311, None);
    built.wait(0, used, 313, 614, None);
    built.wait(0, used, 616, 1002, Some(1));
    let all = built.replayed(2, 0, Change::Nothing);
    assert!((990..=1010).contains(&all), "{all}");
    let faster = built.replayed(2, 0, Change::Threads(1));
    assert!((500..=520).contains(&faster), "{faster}");
}

/// Two threads seem to have ended each other's wait.
#[test]
fn wake_ups_in_a_circle() {
    let mut built = Built::new();
    for (creator, from, waker) in [(None, 0, 101), (Some(0), 5, 100)] {
        let states = [
            (100, ran(0)),
            (500, RunState::Blocked),
            (501, woken(waker)),
            (900, ran(0)),
        ];
        built.thread(creator, from, &states);
    }
    let all = built.replayed(2, 0, Change::Nothing);
    assert!((490..=900).contains(&all), "{all}");
}

/// Another process ends the program, whose first thread waits at a futex or for a pipe. It may have
/// written to the pipe, and so ended the wait.
#[test]
fn the_end_of_the_program_ends_a_wait_at_a_futex() {
    for (name, expected) in [("futex", Unknown), ("read", PathState::Outside)] {
        let mut built = Built::new();
        let (recorder, stranger) = (8, 9);
        built.schedule.recorder_tid = Some(recorder);
        let states = [
            (100, ran(0)),
            (500, RunState::Blocked),
            (510, woken(stranger)),
            (511, ran(0)),
        ];
        built.thread(None, 0, &states);
        built.schedule.calls.push(BlockedCall {
            name,
            file: String::new(),
            is_futex: name == "futex",
            waits_for: None,
        });
        built.schedule.threads[0][1].call = Some(CallIndex(0));
        let state_at_100 = built.walked()[1].2;
        assert_eq!(state_at_100, expected);
    }
}
