//! Threads of Rust's standard library: unnamed, named (one name longer than the kernel keeps),
//! scoped, and one created by another.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

static RAN: AtomicU32 = AtomicU32::new(0);

fn work() {
    RAN.fetch_add(1, Ordering::SeqCst);
}

fn named(name: &str) -> thread::JoinHandle<()> {
    thread::Builder::new().name(name.to_owned()).spawn(work).expect("a thread")
}

fn chain() {
    work();
    thread::spawn(work).join().expect("the inner thread");
}

fn main() {
    let unnamed: Vec<_> = (0..2).map(|_| thread::spawn(work)).collect();
    let named = [named("io"), named("a-name-longer-than-fifteen")];
    for handle in unnamed.into_iter().chain(named) {
        handle.join().expect("a worker");
    }
    thread::scope(|scope| {
        scope.spawn(work);
        scope.spawn(work);
    });
    thread::spawn(chain).join().expect("the chain");

    let ran = RAN.load(Ordering::SeqCst);
    println!("rust: {ran} threads");
    std::process::exit(if ran == 8 { 0 } else { 1 });
}
