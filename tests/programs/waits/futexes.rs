//! Threads that wait 50 times for 20 ms with one of Rust's own primitives each. Each prints its id
//! and the system call in which it waits.

use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, RwLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const ROUNDS: u32 = 50;

fn waiter(wait: impl Fn() + Send + 'static) -> JoinHandle<()> {
    thread::spawn(move || {
        let link = std::fs::read_link("/proc/thread-self").expect("a thread");
        let tid = link.file_name().expect("its id").to_string_lossy();
        println!("blocked {tid} futex ");
        for _ in 0..ROUNDS {
            wait();
        }
    })
}

fn main() {
    let mutex = Arc::new(Mutex::new(()));
    let lock = Arc::new(RwLock::new(()));
    let round = Arc::new((Mutex::new(0), Condvar::new()));
    let (sender, receiver) = channel();
    let (mine, other, turn) = (mutex.clone(), lock.clone(), round.clone());
    let threads = [
        waiter(thread::park),
        waiter(move || {
            let (number, changed) = &*turn;
            let number = number.lock().unwrap();
            let before = *number;
            drop(changed.wait_while(number, |now| *now == before && before < ROUNDS));
        }),
        waiter(move || receiver.recv().unwrap()),
        // After each 20 ms, the main thread does not have the locks for 0.5 ms.
        waiter(move || {
            drop(mine.lock().unwrap());
            thread::sleep(Duration::from_micros(1000));
        }),
        waiter(move || {
            drop(other.read().unwrap());
            thread::sleep(Duration::from_micros(1000));
        }),
    ];
    for _ in 0..ROUNDS {
        let held = (mutex.lock().unwrap(), lock.write().unwrap());
        thread::sleep(Duration::from_millis(20));
        drop(held);
        threads[0].thread().unpark();
        *round.0.lock().unwrap() += 1;
        round.1.notify_all();
        sender.send(()).unwrap();
        thread::sleep(Duration::from_micros(500));
    }
    for thread in threads {
        thread.thread().unpark();
        thread.join().unwrap();
    }
}
