//! Measures the code analysis: `cargo bench -p unspool-unwind --bench code [-- ELF...]`.
//!
//! Without files it analyses the amd64 libraries of Debian for which `docs/internals/unwinding.md`
//! gives figures.
//!
//! Separate from `peers`, because no peer does this. The time is this thread's processor time,
//! including system calls and page faults, because other programs run on the machine. The fastest
//! round counts. A library's text is all of its executable sections.

use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::time::{ClockId, clock_gettime};
use unspool_image::Image;
use unspool_unwind::code::analyze_by;

const ROUNDS: usize = 5;
/// Required speed in megabytes of text per second.
const PROMISED: f64 = 20.0;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test` also starts benches, to see that they run.
    if arguments.iter().any(|argument| argument == "--test") {
        return;
    }
    let mut files: Vec<String> = arguments
        .into_iter()
        .filter(|argument| !argument.starts_with("--"))
        .collect();
    if files.is_empty() {
        let debian = [
            "/lib/x86_64-linux-gnu/libc.so.6",
            "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
            "/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
            "/usr/bin/python3.11",
            "/bin/bash",
        ];
        files.extend(debian.map(String::from));
    }
    for file in files {
        let image = Image::open(Path::new(&file)).expect("an ELF file");
        // Reading symbols is not measured.
        black_box(image.symbols());
        let text: u64 = image.text_ranges().iter().map(|r| r.end - r.start).sum();
        for symbols in [true, false] {
            measure(&file, &image, text, symbols);
        }
    }
    let peak = usage().max_rss() / 1024;
    println!("at most {peak} MB of memory for all");
}

fn measure(file: &str, image: &Image, text: u64, symbols: bool) {
    let mut alone = Duration::MAX;
    // Wall-clock time with one thread and with two.
    let mut clock = [Duration::MAX; 2];
    let mut functions = 0;
    for _ in 0..ROUNDS {
        for (threads, best) in (1..).zip(&mut clock) {
            let (start, began) = (processor_time(), Instant::now());
            functions = black_box(analyze_by(image, symbols, threads)).functions();
            *best = began.elapsed().min(*best);
            if threads == 1 {
                alone = alone.min(processor_time() - start);
            }
        }
    }
    let speed = |time: Duration| text as f64 / time.as_secs_f64() / 1e6;
    let verdict = if speed(alone).max(speed(clock[1])) < PROMISED {
        "   MISSED"
    } else {
        ""
    };
    let without = if symbols { "" } else { " without symbols" };
    println!(
        "{file}{without}: {:.2} MB, {functions} functions, {alone:.1?} of processor time: {:.1} MB/s; in wall time: \
         one thread {:.1} MB/s, two threads {:.1} MB/s{verdict}",
        text as f64 / 1e6,
        speed(alone),
        speed(clock[0]),
        speed(clock[1]),
    );
}

fn usage() -> Usage {
    getrusage(UsageWho::RUSAGE_SELF).expect("getrusage(2)")
}

fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .expect("clock_gettime(2)")
        .into()
}
