//! A `std::sync::Mutex` that one thread holds while others wait, and a channel whose receivers wait
//! for work.

use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

static SETTINGS: Mutex<u32> = Mutex::new(0);

fn save(both: &Barrier) {
    let mut settings = SETTINGS.lock().unwrap();
    both.wait();
    thread::sleep(Duration::from_millis(100));
    *settings += 1;
}

fn look(both: &Barrier) {
    both.wait();
    *SETTINGS.lock().unwrap() += 1;
}

fn main() {
    let both = Arc::new(Barrier::new(2));
    let (one, two) = (both.clone(), both);
    let saving = thread::spawn(move || save(&one));
    let looking = thread::spawn(move || look(&two));
    saving.join().unwrap();
    looking.join().unwrap();
    let (sender, jobs) = channel::<u32>();
    let worker = thread::spawn(move || jobs.iter().sum::<u32>());
    for job in 0..20 {
        thread::sleep(Duration::from_millis(1));
        sender.send(job).unwrap();
    }
    drop(sender);
    assert_eq!(worker.join().unwrap(), 190);
    assert_eq!(*SETTINGS.lock().unwrap(), 2);
}
