//! The profile: the functions in which threads spent processor time, or in which they were blocked,
//! in the columns of gperftools' `pprof --text`.

pub mod annotated;
mod off_cpu;

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};

use super::line::{Ink, Line, Page, clean};
use super::{notes, tree};
use crate::model::profile::{Breakdown, FunctionIndex, Hits, Sampled, StackTime};
use crate::model::{Model, Module, ThreadIndex, Topic, base_name};
use crate::views::groups::Forest;
use crate::views::{Style, names, wording};

/// Topics of the notes that this view shows.
const TOPICS: &[Topic] = &[Topic::Samples, Topic::Stacks];
/// Topics of the notes with `--off-cpu`.
const BLOCKED_TOPICS: &[Topic] = &[Topic::Samples, Topic::Stacks, Topic::Times];

/// Maximum number of functions in a table.
const MAX_ROWS: usize = 40;
/// Maximum number of functions in each thread's table.
const MAX_THREAD_ROWS: usize = 10;
/// Maximum number of callers and callees of a function.
const MAX_NEIGHBOURS: usize = 12;
/// Functions with less than the fraction `1 / MIN_SHARE_DIVISOR` of all time are left out.
const MIN_SHARE_DIVISOR: u64 = 500;

/// Says how to get complete stacks of a Java program.
const JAVA_HINT: &str = "Some stacks end in code that Java generated. Start the program with \
                         `java -XX:+PreserveFramePointer` to get all callers.";

/// The part of the profile to show.
#[derive(Clone, Copy, Debug, Default)]
pub struct Selection<'a> {
    /// Show the callers and callees of the functions with this name.
    pub focus: Option<&'a str>,
    /// Show each kind of thread separately.
    pub by_thread: bool,
    /// Show the time in which threads were blocked, not their processor time.
    pub off_cpu: bool,
}

/// Times with the functions of their stacks.
struct Table<'m> {
    model: &'m Model,
    breakdown: Breakdown,
    times: Vec<StackTime>,
}

impl Table<'_> {
    /// The time of each stack.
    fn weights(&self) -> Vec<u64> {
        self.breakdown.weights(self.times.iter())
    }
}

/// The functions that a name selects, which may be a name that a table shortened.
pub fn named(breakdown: &Breakdown, wanted: &str) -> Vec<FunctionIndex> {
    let named = breakdown.named(wanted);
    if !named.is_empty() {
        return named;
    }
    let is_match = |name: &str| names::is_shortened(wanted, &clean(name));
    let all = breakdown.functions.iter().enumerate();
    all.filter(|(_, function)| is_match(&function.name))
        .map(|(index, _)| FunctionIndex(index))
        .collect()
}

/// Writes the profile as text. Writes nothing and returns false if there is no function that the
/// selection names.
pub fn write(
    model: &Model,
    selection: Selection<'_>,
    out: &mut dyn Write,
    style: &Style,
) -> io::Result<bool> {
    let table = Table {
        model,
        breakdown: Breakdown::of(&model.profile),
        times: match selection.off_cpu {
            false => model.profile.stack_times(),
            true => off_cpu::times(model),
        },
    };
    let weights = table.weights();
    let focused = selection.focus.map(|wanted| {
        let hits: HashMap<_, _> = table.breakdown.hits(&weights).into_iter().collect();
        let named = named(&table.breakdown, wanted).into_iter();
        let found = named.filter_map(|function| Some((function, *hits.get(&function)?)));
        found.collect::<Vec<_>>()
    });
    if !table.times.is_empty() && focused.as_ref().is_some_and(Vec::is_empty) {
        return Ok(false);
    }
    let mut page = Page::new(out, style);
    let page = &mut page;
    notes::first(page, model)?;
    let lead = Line::new();
    let summary = match selection.off_cpu {
        false => summary(model),
        true => off_cpu::summary(model),
    };
    page.paragraph(&lead, &lead, Ink::Plain, &summary)?;
    if ends_in_java_code(model, &table.times) {
        page.paragraph(&lead, &lead, Ink::Plain, JAVA_HINT)?;
    }
    let topics = match selection.off_cpu {
        false => TOPICS,
        true => BLOCKED_TOPICS,
    };
    if table.times.is_empty() {
        notes::last(page, model, topics)?;
        return Ok(true);
    }
    match focused {
        Some(functions) => {
            for (function, own) in functions {
                focus(page, &table, &weights, function, own)?;
            }
        }
        None if selection.by_thread => by_thread(page, &table)?,
        None => {
            page.blank()?;
            functions(page, &table, &weights, MAX_ROWS)?;
            if selection.off_cpu {
                off_cpu::stacks(page, model)?;
            }
        }
    }
    notes::last(page, model, topics)?;
    Ok(true)
}

/// The first sentence: `burn (pid 7, x86_64): 398 CPU samples at 199 Hz in 1.1 s: 2 s of processor
/// time, ...`
fn summary(model: &Model) -> String {
    let profile = &model.profile;
    let about = tree::about(model);
    if !profile.is_known() {
        return format!("{about}no CPU samples were taken; use `unspool record --cpu`.");
    }
    let total = profile.samples.len() as u64;
    let (from_ns, to_ns) = profile.span_ns.unwrap_or_default();
    if total == 0 && profile.lost > 0 {
        let lost = wording::count(profile.lost as usize, "CPU sample");
        return format!("{about}{lost} missing, and none taken.");
    }
    if total == 0 {
        let ran = exact_ns(model).filter(|ns| *ns > 0).map(wording::duration);
        let ran = ran.map_or(String::new(), |ran| format!(" in {ran} of processor time"));
        return format!(
            "{about}no CPU sample was taken{ran}, because each thread ran too briefly.",
        );
    }
    let kernel = profile.count(|sample| sample.in_kernel);
    let in_kernel = match profile.sampled {
        Sampled::Running => format!(", {} of it in the kernel", percent(kernel, total)),
        Sampled::InUserMode | Sampled::ByTimer => String::new(),
    };
    let complete = profile.count(|one| profile.stack(one).reaches_start());
    let sampled_ns = profile.time_ns(total);
    let time = match exact_ns(model).filter(|ns| sampled_ns < ns - ns / 10) {
        None => wording::duration(sampled_ns),
        Some(ns) => format!(
            "{} of the {}",
            wording::duration(sampled_ns),
            wording::duration(ns)
        ),
    };
    let lost = match profile.lost {
        0 => "No sample is missing".to_owned(),
        lost => format!("{} missing", wording::count(lost as usize, "sample")),
    };
    format!(
        "{about}{} at {} Hz in {}: {} of processor time{in_kernel}. {lost}; {} of the stacks reach \
         the thread's start.",
        wording::count(total as usize, "CPU sample"),
        profile.hz(),
        wording::duration(to_ns.saturating_sub(from_ns)),
        time,
        percent(complete, total),
    )
}

/// True if Java's virtual machine is mapped, and a stack ends early in code without a file.
fn ends_in_java_code(model: &Model, times: &[StackTime]) -> bool {
    let is_java = |module: &Module| base_name(&module.path) == "libjvm.so";
    let ends = |time: &StackTime| {
        let stack = model.profile.stacks.get(time.stack);
        stack.is_some_and(|stack| {
            let last = stack.frames.last();
            !stack.reaches_start() && last.is_some_and(|frame| frame.place.module.is_none())
        })
    };
    model.modules.iter().any(is_java) && times.iter().any(ends)
}

/// The processor time of the program's threads by the kernel's schedule, if the samples have all of
/// it.
fn exact_ns(model: &Model) -> Option<u64> {
    let is_comparable = model.schedule.is_known() && model.profile.sampled != Sampled::InUserMode;
    let threads = (0..model.threads.len()).map(ThreadIndex);
    let times = threads.map(|thread| model.schedule.times(thread).running_ns);
    is_comparable.then(|| sum(times))
}

fn head(page: &mut Page<'_>) -> io::Result<()> {
    let head = format!(
        "{:>9} {:>6} {:>6} {:>9} {:>6}  function",
        "flat", "flat%", "sum%", "cum", "cum%"
    );
    page.line(&Line::new().with(Ink::Faint, head))
}

/// A table of functions, most time first.
fn functions(
    page: &mut Page<'_>,
    table: &Table<'_>,
    weights: &[u64],
    rows: usize,
) -> io::Result<()> {
    let total = sum(weights.iter().copied());
    let hits = table.breakdown.hits(weights);
    head(page)?;
    let is_shown = |hits: &Hits| hits.cum >= total / MIN_SHARE_DIVISOR;
    let shown = hits.iter().filter(|(_, hits)| is_shown(hits)).take(rows);
    let mut above = 0u64;
    let mut count = 0;
    for (index, hits) in shown {
        above = above.saturating_add(hits.flat);
        count += 1;
        let mut line = figures(*hits, total, Some(above));
        push_function(page, &mut line, &table.breakdown, *index, Ink::Strong);
        page.line(&line)?;
    }
    let left = hits.len() - count;
    if left > 0 {
        let text = format!(
            "{:>9} {:>6} in {}",
            seconds(total.saturating_sub(above)),
            percent(total.saturating_sub(above), total),
            wording::count(left, "more function")
        );
        page.line(&Line::new().with(Ink::Faint, text))?;
    }
    Ok(())
}

/// The columns before the function.
fn figures(hits: Hits, total: u64, sum: Option<u64>) -> Line {
    Line::new().with(
        Ink::Plain,
        format!(
            "{:>9} {:>6} {:>6} {:>9} {:>6}  ",
            seconds(hits.flat),
            percent(hits.flat, total),
            sum.map_or(String::new(), |sum| percent(sum, total)),
            seconds(hits.cum),
            percent(hits.cum, total),
        ),
    )
}

fn push_function(
    page: &Page<'_>,
    line: &mut Line,
    breakdown: &Breakdown,
    index: FunctionIndex,
    ink: Ink,
) {
    let function = &breakdown.functions[index.0];
    let module = function.module.as_deref().map(clean);
    let module = module
        .filter(|module| !function.name.starts_with('[') && !module.is_empty())
        .map_or(String::new(), |module| format!("  {module}"));
    let room = page.width.saturating_sub(line.width());
    let for_name = room.saturating_sub(module.chars().count()).max(room / 2);
    line.push(ink, names::shorten(&clean(&function.name), for_name));
    line.push(Ink::Faint, module);
}

/// A table for each kind of thread, the busiest first.
fn by_thread(page: &mut Page<'_>, table: &Table<'_>) -> io::Result<()> {
    let model = table.model;
    let forest = Forest::of(model);
    let mut kinds: Vec<(u64, String, HashSet<ThreadIndex>)> = Vec::new();
    let sum_of = |is_counted: &dyn Fn(&StackTime) -> bool| {
        let counted = table.times.iter().filter(|time| is_counted(time));
        sum(counted.map(|time| time.ns))
    };
    for group in &forest.groups {
        let members: HashSet<ThreadIndex> = group.members.iter().copied().collect();
        let ns = sum_of(&|one| one.thread.is_some_and(|at| members.contains(&at)));
        let first = group.members.first().and_then(|first| model.thread(*first));
        if let Some(first) = first.filter(|_| ns > 0) {
            let title = match members.len() {
                1 => wording::one(model, first, page.width / 2),
                several => format!(
                    "{several} × {}",
                    wording::title(model, first, page.width / 2)
                ),
            };
            kinds.push((ns, title, members));
        }
    }
    let unknown = sum_of(&|one| one.thread.is_none());
    if unknown > 0 {
        kinds.push((unknown, "unknown threads".to_owned(), HashSet::new()));
    }
    kinds.sort_by_key(|(ns, ..)| std::cmp::Reverse(*ns));
    let total = sum_of(&|_| true);
    let mut titles: HashMap<String, usize> = HashMap::new();
    for (_, title, _) in &kinds {
        *titles.entry(title.clone()).or_default() += 1;
    }
    for (ns, title, members) in kinds {
        page.blank()?;
        let share = format!("  {} {}", seconds(ns), percent(ns, total));
        let mut line = Line::new().with(Ink::Strong, clean(&title));
        if titles[&title] > 1 {
            let mut threads: Vec<&ThreadIndex> = members.iter().collect();
            threads.sort_unstable();
            let threads = threads.into_iter().filter_map(|at| model.thread(*at));
            let ids = wording::tids(threads.map(|thread| thread.tid).collect());
            line = line.with(Ink::Faint, format!("  {ids}"));
        }
        page.line(&line.with(Ink::Faint, share))?;
        let of_kind = |one: &&StackTime| match one.thread {
            Some(thread) => members.contains(&thread),
            None => members.is_empty(),
        };
        let weights = table.breakdown.weights(table.times.iter().filter(of_kind));
        functions(page, table, &weights, MAX_THREAD_ROWS)?;
    }
    Ok(())
}

/// A function between its callers and its callees.
fn focus(
    page: &mut Page<'_>,
    table: &Table<'_>,
    weights: &[u64],
    function: FunctionIndex,
    own: Hits,
) -> io::Result<()> {
    let breakdown = &table.breakdown;
    let total = sum(weights.iter().copied());
    let near = breakdown.neighbours(function, weights);
    page.blank()?;
    head(page)?;
    let edge = |page: &mut Page<'_>, other: Option<FunctionIndex>, ns: u64| {
        let mut line = Line::new();
        line.pad(24);
        let figures = format!("{:>9} {:>6}    ", seconds(ns), percent(ns, total));
        line.push(Ink::Faint, figures);
        match other {
            Some(other) => push_function(page, &mut line, breakdown, other, Ink::Function),
            None => line.push(Ink::Faint, "(start of the thread, or of the known stack)"),
        }
        page.line(&line)
    };
    for (caller, ns) in near.callers.iter().take(MAX_NEIGHBOURS) {
        edge(page, *caller, *ns)?;
    }
    let mut line = figures(own, total, None);
    push_function(page, &mut line, breakdown, function, Ink::Strong);
    page.line(&line)?;
    for (callee, ns) in near.callees.iter().take(MAX_NEIGHBOURS) {
        edge(page, *callee, *ns)?;
    }
    Ok(())
}

/// The sum, or the maximum if it is larger.
fn sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

/// `1.25 s`; always seconds, so that the numbers in a column can be compared.
fn seconds(ns: u64) -> String {
    format!("{:.2} s", ns as f64 / 1e9)
}

/// `12.5%`
pub(super) fn percent(part: u64, whole: u64) -> String {
    format!("{:.1}%", part as f64 * 100.0 / whole.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use unspool_capture::ScheduleKind as Kind;
    use unspool_unwind::Provenance;

    use super::*;
    use crate::model::fixture::{PID, Stage, schedule_begins, scheduled};
    use crate::model::profile::{CpuSample, Profile};
    use crate::model::{Backtrace, NamedFrame, Place};

    /// The summary of a program that ran for this time, and had so many samples of one millisecond.
    fn summary_of(ran_us: u64, samples: usize) -> String {
        let mut stage = Stage::new();
        stage.add(schedule_begins());
        stage.add(scheduled(&[
            (1000, Kind::Runs, PID, 0),
            (1000 + ran_us, Kind::Blocks, PID, 0),
        ]));
        stage.end(20);
        let mut model = stage.model();
        let stack = |provenance| {
            let frame = |provenance| NamedFrame {
                place: Place::default(),
                inlined: false,
                provenance,
                called: None,
            };
            Arc::new(Backtrace {
                frames: vec![frame(Provenance::Registers), frame(provenance)],
                truncated: None,
            })
        };
        let sample = |stack| CpuSample {
            time_ns: 2_000_000,
            tid: PID,
            thread: Some(ThreadIndex(0)),
            cpu: 0,
            stack,
            in_kernel: false,
            is_cut: false,
        };
        model.profile = Profile {
            period_ns: 1_000_000,
            span_ns: Some((0, 20_000_000)),
            sampled: Sampled::Running,
            samples: (0..samples).map(|at| sample(at % 2)).collect(),
            stacks: vec![stack(Provenance::FramePointer), stack(Provenance::Scan)],
            ..Profile::default()
        };
        summary(&model)
    }

    #[test]
    fn a_guessed_frame_does_not_lead_to_the_start() {
        let text = summary_of(2000, 2);
        assert!(text.contains("50.0% of the stacks reach"), "{text}");
    }

    #[test]
    fn samples_of_short_threads_are_too_few() {
        let text = summary_of(2000, 2);
        assert!(text.contains(": 2.00 ms of processor time"), "{text}");
        let text = summary_of(8000, 0);
        let expected = "no CPU sample was taken in 8.00 ms of processor time";
        assert!(text.contains(expected), "{text}");
        let text = summary_of(8000, 2);
        assert!(
            text.contains(": 2.00 ms of the 8.00 ms of processor"),
            "{text}"
        );
    }

    #[test]
    fn stacks_that_end_in_code_of_java_give_a_hint() {
        let mut stage = Stage::new();
        stage.end(20);
        let mut model = stage.model();
        let frame = |module: Option<&str>| NamedFrame {
            place: Place {
                module: module.map(Arc::from),
                ..Place::default()
            },
            inlined: false,
            provenance: Provenance::Registers,
            called: None,
        };
        let stack = |module| Backtrace {
            frames: vec![frame(Some("/lib/x.so")), frame(module)],
            truncated: Some("the stack ends".to_owned()),
        };
        let stacks = [stack(None), stack(Some("/lib/libjvm.so"))];
        model.profile.stacks = stacks.map(Arc::new).into();
        let time = |stack| StackTime {
            thread: None,
            stack,
            ns: 1,
        };
        assert!(!ends_in_java_code(&model, &[time(0)]));
        model.modules.push(Module {
            path: "/lib/libjvm.so".to_owned(),
            ..Module::default()
        });
        assert!(ends_in_java_code(&model, &[time(0)]));
        assert!(!ends_in_java_code(&model, &[time(1)]));
    }
}
