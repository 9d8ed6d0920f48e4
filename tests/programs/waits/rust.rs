//! Rust's own primitives: two threads take two `std::sync::Mutex` in opposite orders, while the
//! main thread waits for one of them. Such a mutex does not record its holder, but all threads only
//! wait.

use std::fs;
use std::sync::{Barrier, Mutex};
use std::thread;

static FIRST: Mutex<u32> = Mutex::new(0);
static SECOND: Mutex<u32> = Mutex::new(0);

fn tid() -> u32 {
    let link = fs::read_link("/proc/thread-self").unwrap();
    link.file_name().unwrap().to_str().unwrap().parse().unwrap()
}

fn take(one: &'static Mutex<u32>, two: &'static Mutex<u32>, both: &Barrier) -> u32 {
    let held = one.lock().unwrap();
    both.wait();
    println!(
        "wait {} mutex {:#x}",
        tid(),
        std::ptr::from_ref(two) as usize
    );
    *held + *two.lock().unwrap()
}

fn main() {
    let both: &'static Barrier = Box::leak(Box::new(Barrier::new(2)));
    let ahead = thread::Builder::new().name("ahead".into());
    let ahead = ahead.spawn(move || take(&FIRST, &SECOND, both)).unwrap();
    let back = thread::Builder::new().name("back".into());
    back.spawn(move || take(&SECOND, &FIRST, both)).unwrap();
    println!("finding deadlock proved\nwaits 2\nready");
    println!("{}", ahead.join().unwrap());
}
