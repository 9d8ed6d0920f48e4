//! Compares Unspool's unwinder with its peers: `cargo bench -p unspool-unwind --bench peers`, or
//! parts of it: `.. -- hot cold arm compile`.
//!
//! This is not criterion's harness, because the requirements are ratios, and other programs run on
//! the machine. So all contenders take turns, round by round, and the fastest round of each counts.
//! Times are processor time. They exclude the other contenders' turns, but not what those did to
//! the caches. All contenders use the same stacks, memory and way to read it, and their frames are
//! compared before the measurement.

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
    // `cargo test` also starts benches, to see that they run.
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

/// The measurements and the requirements.
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

    /// Requires `ratio` to be at least `at_least`.
    pub(crate) fn ratio(&mut self, what: &str, ratio: f64, at_least: f64) {
        self.judge(what, ratio, "at least", at_least, ratio >= at_least);
    }

    /// Requires `ratio` to be at most `at_most`.
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

/// The shortest time of each contender over `rounds` rounds in which they take turns.
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

/// The processor time of this thread.
fn on_processor() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    Duration::from(time.expect("the thread's clock"))
}

/// Nanoseconds for each of `count` operations.
pub(crate) fn each(time: Duration, count: usize) -> f64 {
    time.as_nanos() as f64 / count as f64
}
