//! Tests that the system calls of one lock call are one wait, and those of several calls are not.

use unspool_capture::{Gap, GapKind, ProbeKind};

use super::{A, Acting, B, COND, END, ONE, TWO, object, two_threads};
use crate::model::Model;
use crate::platform::layouts::Family;

const WAIT: u64 = 0x80;
const WAKE: u64 = 0x81;
const LOCK_PI: u64 = 0x86;
/// The word of a lock that one thread holds and another waits for.
const HELD: u64 = 2;
const ETIMEDOUT: u64 = -110_i64 as u64;
const EAGAIN: u64 = -11_i64 as u64;
const LOCK: &str = "libc.so.6!pthread_mutex_lock";

/// Events of the futex system calls of `one`, and the wakes of `two`. Times are milliseconds.
struct Futexes(Acting);

impl Futexes {
    fn new(family: Family) -> Futexes {
        let mut acting = two_threads();
        let stage = &mut acting.stage;
        stage.family = Some(family);
        stage.instrument(90, "libc.so.6!futex", ProbeKind::FutexWait);
        stage.instrument_end(91, ProbeKind::FutexReturn, &[90]);
        stage.instrument(92, "libc.so.6!__lll_lock_wake", ProbeKind::FutexWake);
        Futexes(acting)
    }

    /// Thread `one` waits from `from` to `to`, and then the other thread's wake ends it.
    fn wait(
        &mut self,
        (from, to): (u64, u64),
        function: &'static str,
        args: [u64; 3],
        result: u64,
    ) -> &mut Futexes {
        let path = ["libc.so.6!futex", function, "orders!one@orders.c:22"];
        let ns = |ms: u64| ms * 1_000_000;
        let stage = &mut self.0.stage;
        stage.enter(ONE, ns(from), 90, 0x7000, &args, &path);
        if result == 0 {
            self.wake(TWO, to, args[0]);
        }
        self.0.stage.leave(ONE, ns(to) + 1000, 91, 0x7000, result);
        self
    }

    fn lock(&mut self, from: u64, to: u64) -> &mut Futexes {
        self.wait((from, to), LOCK, [A, WAIT, HELD], 0)
    }

    fn wake(&mut self, tid: u64, at: u64, word: u64) -> &mut Futexes {
        let path = [
            "libc.so.6!__lll_lock_wake",
            "libc.so.6!pthread_mutex_unlock",
            "orders!two@orders.c:41",
            END[0],
        ];
        let args = [word, WAKE, 1];
        let stage = &mut self.0.stage;
        stage.enter(tid, at * 1_000_000, 92, tid << 20, &args, &path);
        self
    }

    fn gap(&mut self, at: u64, kind: GapKind) -> &mut Futexes {
        self.0.stage.add(Gap {
            probe: 92,
            kind: kind.into(),
            time_ns: at * 1_000_000,
        });
        self
    }

    fn model(&mut self) -> Model {
        self.0.stage.end(1000);
        self.0.stage.model()
    }

    /// Number of waits and the longest wait at an object, milliseconds.
    fn waits(&mut self, address: u64) -> (u64, u64) {
        let model = self.model();
        let waits = &object(&model.sync, address).waits;
        (waits.count, waits.max_ns / 1_000_000)
    }
}

fn glibc() -> Futexes {
    Futexes::new(Family::Glibc(Some(36)))
}

#[test]
fn a_thread_that_finds_the_lock_taken_again_waits_once() {
    let mut futexes = glibc();
    futexes
        .lock(100, 200)
        .lock(210, 300)
        .wait((310, 311), LOCK, [A, WAIT, HELD], EAGAIN)
        .lock(312, 400)
        .wake(ONE, 450, A)
        .lock(500, 550)
        .wake(ONE, 560, A);
    let model = futexes.model();
    let lock = object(&model.sync, A);
    let ms = |ns: u64| ns / 1_000_000;
    assert_eq!((lock.waits.count, ms(lock.waits.total_ns)), (2, 350));
    assert_eq!(ms(lock.waits.max_ns), 300);
    let used = lock.uses.iter().map(|used| &model.sync.uses[used.0]);
    let calls: Vec<u64> = used.map(|used| used.calls).collect();
    assert_eq!(calls, [2]);
    let [pair] = &lock.contention[..] else {
        panic!("{:?}", lock.contention);
    };
    assert_eq!((pair.count, ms(pair.total_ns)), (2, 350));
    let holder = model.thread(pair.longest.1).unwrap();
    assert_eq!(holder.tid, Some(TWO));
    let span = model.sync.slots.threads[1].iter();
    assert_eq!(ms(span.map(|slot| slot.waited_ns).sum()), 350);
}

#[test]
fn a_wait_that_lasts_to_the_end_began_with_the_lock_call() {
    let mut futexes = glibc();
    futexes.lock(100, 200);
    let path = ["libc.so.6!futex", LOCK, "orders!one@orders.c:22"];
    let stage = &mut futexes.0.stage;
    stage.enter(ONE, 201_000_000, 90, 0x7000, &[A, WAIT, HELD], &path);
    let model = futexes.model();
    let waits = &object(&model.sync, A).waits;
    assert_eq!((waits.count, waits.max_ns), (1, 900_000_000));
    // It was woken meanwhile, so it has not been stuck all the time.
    let [wait] = &model.sync.final_waits[..] else {
        panic!("{:?}", model.sync.final_waits);
    };
    assert!(
        (799_000_000..=800_000_000).contains(&wait.ns),
        "{}",
        wait.ns
    );
}

/// Between the waits, the thread had the lock, or gave up waiting for it.
#[test]
fn waits_of_several_calls_stay_apart() {
    let two = (2, 100);
    assert_eq!(
        glibc()
            .lock(100, 200)
            .wake(ONE, 205, A)
            .lock(210, 250)
            .waits(A),
        two,
        "a wake of its own"
    );
    assert_eq!(
        glibc()
            .wait((100, 200), LOCK, [A, WAIT, HELD], ETIMEDOUT)
            .lock(210, 250)
            .waits(A),
        two,
        "a timeout"
    );
    let mut other = glibc();
    other
        .lock(100, 200)
        .wait((203, 206), LOCK, [B, WAIT, HELD], 0)
        .lock(210, 250);
    assert_eq!(other.waits(A), two, "another lock");
    let mut paused = glibc();
    paused
        .lock(100, 200)
        .gap(203, GapKind::Paused)
        .gap(206, GapKind::Resumed)
        .lock(210, 250);
    assert_eq!(paused.waits(A), two, "missing wakes");
    let mut paused = glibc();
    paused
        .gap(50, GapKind::Paused)
        .lock(100, 200)
        .lock(210, 250);
    assert_eq!(paused.waits(A), two, "wakes are still missing");
    let mut musl = Futexes::new(Family::Musl);
    musl.wait((100, 200), LOCK, [A + 4, WAIT, HELD], 0);
    musl.wait((210, 250), LOCK, [A + 4, WAIT, HELD], 0);
    assert_eq!(musl.waits(A), two, "musl");
    let mut pi = glibc();
    pi.wait((100, 200), LOCK, [A, LOCK_PI, 0], 0);
    pi.wait((210, 250), LOCK, [A, LOCK_PI, 0], 0);
    assert_eq!(pi.waits(A), two, "the kernel hands the lock over");
    let wait = "libc.so.6!pthread_cond_wait";
    let mut cond = glibc();
    cond.wait((100, 200), wait, [COND + 0x28, WAIT, 0], 0);
    cond.wait((210, 250), wait, [COND + 0x28, WAIT, 0], 0);
    assert_eq!(cond.waits(COND), two, "a condition");
}

/// If the end of the last system call is missing, the wait counts up to the one before.
#[test]
fn the_seen_part_of_a_wait_counts() {
    let mut futexes = glibc();
    futexes.lock(100, 200).lock(210, 300);
    let path = ["libc.so.6!futex", LOCK, "orders!one@orders.c:22"];
    let stage = &mut futexes.0.stage;
    stage.enter(ONE, 310_000_000, 90, 0x7000, &[A, WAIT, HELD], &path);
    stage.add(Gap {
        probe: 91,
        kind: GapKind::Dropped.into(),
        time_ns: 320_000_000,
    });
    // The thread goes on elsewhere.
    stage.enter(ONE, 400_000_000, 90, 0x7000, &[B, WAIT, HELD], &path);
    assert_eq!(futexes.waits(A), (1, 200));
}
