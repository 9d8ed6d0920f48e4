//! Unspool's unwinder against its peers, in one run on one machine: `cargo bench -p unspool-unwind --bench peers`,
//! or parts of it: `.. -- hot cold arm compile`.
//!
//! A harness of its own rather than criterion's: what is promised are ratios, on a machine that others use too, so
//! every measurement takes turns with its peers, round by round, and the fastest round of each counts, in time on the
//! processor: what others' turns took is not in it, though what they did to the caches is. The
//! stacks, the memory and the way to read it are the same for all, and the frames are compared before
//! anything is timed.

mod peers {
    pub(crate) mod arm;
    pub(crate) mod cold;
    pub(crate) mod compile;
    pub(crate) mod framehop_module;
    pub(crate) mod hot;
    pub(crate) mod libunwind;
    pub(crate) mod process;
    pub(crate) mod search;
    pub(crate) mod stack;
}

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

fn main() {
    // `cargo test` starts benches too, to see that they run.
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--test") {
        return;
    }
    let parts: [(&str, Part); 4] = [
        ("hot", peers::hot::run),
        ("cold", peers::cold::run),
        ("arm", peers::arm::run),
        ("compile", peers::compile::run),
    ];
    let named = |part: &str| arguments.iter().any(|argument| argument == part);
    let all = !parts.iter().any(|part| named(part.0));
    let mut report = Report::default();
    for (name, run) in parts {
        if all || named(name) {
            run(&mut report);
        }
    }
    report.print();
}

type Part = fn(&mut Report);

/// What was measured, and what was promised.
#[derive(Default)]
pub(crate) struct Report {
    lines: Vec<String>,
    missed: Vec<String>,
}

impl Report {
    pub(crate) fn say(&mut self, line: String) {
        println!("{line}");
        self.lines.push(line);
    }

    /// `ratio` is to be `at_least`.
    pub(crate) fn ratio(&mut self, what: &str, ratio: f64, at_least: f64) {
        self.judge(what, ratio, "at least", at_least, ratio >= at_least);
    }

    /// `ratio` is to be `at_most`.
    pub(crate) fn at_most(&mut self, what: &str, ratio: f64, at_most: f64) {
        self.judge(what, ratio, "at most", at_most, ratio <= at_most);
    }

    fn judge(&mut self, what: &str, ratio: f64, sense: &str, bound: f64, met: bool) {
        let verdict = if met { "" } else { "   MISSED" };
        let line = format!("  {what}: {ratio:.2} ({sense} {bound}){verdict}");
        if !met {
            self.missed.push(line.clone());
        }
        self.say(line);
    }

    fn print(&self) {
        println!("\n{} of the promises missed", self.missed.len());
        for line in &self.missed {
            println!("{line}");
        }
    }
}

/// The shortest time of each contender, over so many rounds in which they take turns.
pub(crate) fn take_turns<const N: usize>(
    rounds: usize,
    mut contenders: [&mut dyn FnMut(); N],
) -> [Duration; N] {
    let mut best = [Duration::MAX; N];
    for _ in 0..rounds {
        for (contender, best) in contenders.iter_mut().zip(&mut best) {
            let start = on_processor();
            contender();
            *best = (on_processor() - start).min(*best);
        }
    }
    best
}

/// How long this thread has run.
fn on_processor() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    Duration::from(time.expect("the thread's clock"))
}

/// Nanoseconds for one of `count`.
pub(crate) fn each(time: Duration, count: usize) -> f64 {
    time.as_nanos() as f64 / count as f64
}
