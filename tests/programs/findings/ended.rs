//! A wait at each of Rust's own primitives, and the thread that ended it. Prints "ended KIND
//! ADDRESS WAITER ENDER LEAST MOST", as described in ended.h.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, RwLock};
use std::thread;
use std::time::{Duration, Instant};

static LOCK: Mutex<u32> = Mutex::new(0);
static TABLE: RwLock<u32> = RwLock::new(0);
static GUARD: Mutex<bool> = Mutex::new(false);
static CHANGED: Condvar = Condvar::new();
static GO: AtomicBool = AtomicBool::new(false);

fn tid() -> u32 {
    let link = fs::read_link("/proc/thread-self").unwrap();
    link.file_name().unwrap().to_str().unwrap().parse().unwrap()
}

fn way<T>(kind: &str, object: Option<&T>, wait: fn(), end: impl FnOnce(&thread::Thread)) {
    static WAITER: AtomicU32 = AtomicU32::new(0);
    WAITER.store(0, SeqCst);
    let thread = thread::spawn(move || {
        WAITER.store(tid(), SeqCst);
        let from = Instant::now();
        wait();
        from.elapsed()
    });
    // ARM has another one for 64-bit time.
    let futexes: &[&str] = match std::env::consts::ARCH {
        "x86_64" => &["202 "],
        "aarch64" => &["98 "],
        _ => &["240 ", "422 "],
    };
    loop {
        thread::sleep(Duration::from_millis(1));
        let path = format!("/proc/self/task/{}/syscall", WAITER.load(SeqCst));
        let call = fs::read_to_string(path).unwrap_or_default();
        if futexes.iter().any(|futex| call.starts_with(futex)) {
            break;
        }
    }
    let since = Instant::now();
    thread::sleep(Duration::from_millis(20));
    let least = since.elapsed();
    end(thread.thread());
    let most = thread.join().unwrap();
    let address = object.map_or(0, |object| std::ptr::from_ref(object) as usize);
    let (waiter, ender) = (WAITER.load(SeqCst), tid());
    println!(
        "ended {kind} {address} {waiter} {ender} {} {}",
        least.as_nanos(),
        most.as_nanos()
    );
}

fn main() {
    let held = LOCK.lock().unwrap();
    way(
        "mutex",
        Some(&LOCK),
        || drop(LOCK.lock().unwrap()),
        |_| drop(held),
    );
    let held = TABLE.write().unwrap();
    way(
        "rwlock",
        Some(&TABLE),
        || drop(TABLE.read().unwrap()),
        |_| drop(held),
    );
    let held = TABLE.read().unwrap();
    way(
        "rwlock",
        Some(&TABLE),
        || drop(TABLE.write().unwrap()),
        |_| drop(held),
    );
    let wait = || {
        let mut changed = GUARD.lock().unwrap();
        while !*changed {
            changed = CHANGED.wait(changed).unwrap();
        }
    };
    way("cond", Some(&CHANGED), wait, |_| {
        *GUARD.lock().unwrap() = true;
        CHANGED.notify_one();
    });
    // The standard library keeps its address private.
    let wait = || {
        while !GO.load(SeqCst) {
            thread::park();
        }
    };
    way("futex", None::<&()>, wait, |thread| {
        GO.store(true, SeqCst);
        thread.unpark();
    });
}
