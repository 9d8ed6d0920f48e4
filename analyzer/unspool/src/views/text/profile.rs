//! The CPU profile: the functions in which threads spent processor time, in the columns of
//! gperftools' `pprof --text`.

pub mod annotated;

use std::collections::HashSet;
use std::io::{self, Write};

use super::line::{Ink, Line, Page, clean};
use super::{notes, tree};
use crate::model::profile::{Breakdown, CpuSample, FunctionIndex, Hits};
use crate::model::{Model, ThreadIndex, Topic};
use crate::views::groups::Forest;
use crate::views::{Style, names, wording};

/// Topics of the notes that this view shows.
const TOPICS: &[Topic] = &[Topic::Samples, Topic::Stacks];

/// Maximum number of functions in a table.
const MAX_ROWS: usize = 40;
/// Maximum number of functions in each thread's table.
const MAX_THREAD_ROWS: usize = 10;
/// Maximum number of callers and callees of a function.
const MAX_NEIGHBOURS: usize = 12;
/// Functions with less than the fraction `1 / MIN_SHARE_DIVISOR` of all samples are left out.
const MIN_SHARE_DIVISOR: u64 = 500;

/// The part of the profile to show.
#[derive(Clone, Copy, Debug, Default)]
pub struct Selection<'a> {
    /// Show the callers and callees of the functions with this name.
    pub focus: Option<&'a str>,
    /// Show each kind of thread separately.
    pub by_thread: bool,
}

/// Writes the CPU profile as text. Writes nothing and returns false if there is no function that
/// the selection names.
pub fn write(
    model: &Model,
    selection: Selection<'_>,
    out: &mut dyn Write,
    style: &Style,
) -> io::Result<bool> {
    let breakdown = Breakdown::of(&model.profile);
    let focused = selection.focus.map(|wanted| breakdown.named(wanted));
    let has_samples = !model.profile.samples.is_empty();
    if has_samples && focused.as_ref().is_some_and(Vec::is_empty) {
        return Ok(false);
    }
    let mut page = Page::new(out, style);
    let page = &mut page;
    notes::first(page, model)?;
    let lead = Line::new();
    page.paragraph(&lead, &lead, Ink::Plain, &summary(model))?;
    if !has_samples {
        notes::last(page, model, TOPICS)?;
        return Ok(true);
    }
    match focused {
        Some(functions) => {
            for function in functions {
                focus(page, model, &breakdown, function)?;
            }
        }
        None if selection.by_thread => by_thread(page, model, &breakdown)?,
        None => {
            page.blank()?;
            functions(page, model, &breakdown, &|_| true, MAX_ROWS)?;
        }
    }
    notes::last(page, model, TOPICS)?;
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
    if total == 0 {
        return format!(
            "{about}the kernel took no sample, because the threads used too little processor time.",
        );
    }
    let kernel = profile.count(|sample| sample.in_kernel);
    let in_kernel = match profile.has_kernel {
        true => format!(", {} of it in the kernel", percent(kernel, total)),
        false => String::new(),
    };
    let complete = profile.count(|one| profile.stack(one).truncated.is_none());
    let lost = match profile.lost {
        0 => "No sample was lost".to_owned(),
        lost => format!("{} lost", wording::count(lost as usize, "sample")),
    };
    format!(
        "{about}{} at {} Hz in {}: {} of processor time{in_kernel}. {lost}; {} of the stacks reach \
         the thread's start.",
        wording::count(total as usize, "CPU sample"),
        profile.hz(),
        wording::duration(to_ns.saturating_sub(from_ns)),
        wording::duration(profile.time_ns(total)),
        percent(complete, total),
    )
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
    model: &Model,
    breakdown: &Breakdown,
    is_counted: &dyn Fn(&CpuSample) -> bool,
    rows: usize,
) -> io::Result<()> {
    let profile = &model.profile;
    let total = profile.count(is_counted);
    let hits = breakdown.hits(profile, is_counted);
    head(page)?;
    let is_shown = |hits: &Hits| hits.cum * MIN_SHARE_DIVISOR >= total;
    let shown = hits.iter().filter(|(_, hits)| is_shown(hits)).take(rows);
    let mut sum = 0;
    let mut count = 0;
    for (index, hits) in shown {
        sum += hits.flat;
        count += 1;
        let mut line = figures(model, *hits, total, Some(sum));
        push_function(page, &mut line, breakdown, *index, Ink::Strong);
        page.line(&line)?;
    }
    let left = hits.len() - count;
    if left > 0 {
        let text = format!(
            "{:>9} {:>6} in {}",
            seconds(profile.time_ns(total - sum)),
            percent(total - sum, total),
            wording::count(left, "more function")
        );
        page.line(&Line::new().with(Ink::Faint, text))?;
    }
    Ok(())
}

/// The columns before the function.
fn figures(model: &Model, hits: Hits, total: u64, sum: Option<u64>) -> Line {
    let profile = &model.profile;
    Line::new().with(
        Ink::Plain,
        format!(
            "{:>9} {:>6} {:>6} {:>9} {:>6}  ",
            seconds(profile.time_ns(hits.flat)),
            percent(hits.flat, total),
            sum.map_or(String::new(), |sum| percent(sum, total)),
            seconds(profile.time_ns(hits.cum)),
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
fn by_thread(page: &mut Page<'_>, model: &Model, breakdown: &Breakdown) -> io::Result<()> {
    let profile = &model.profile;
    let forest = Forest::of(model);
    let mut kinds: Vec<(u64, String, HashSet<ThreadIndex>)> = Vec::new();
    for group in &forest.groups {
        let members: HashSet<ThreadIndex> = group.members.iter().copied().collect();
        let count = profile.count(|one| one.thread.is_some_and(|at| members.contains(&at)));
        let first = group.members.first().and_then(|first| model.thread(*first));
        if let Some(first) = first.filter(|_| count > 0) {
            let title = match members.len() {
                1 => wording::one(model, first, page.width / 2),
                several => format!(
                    "{several} × {}",
                    wording::title(model, first, page.width / 2)
                ),
            };
            kinds.push((count, title, members));
        }
    }
    let unknown = profile.count(|one| one.thread.is_none());
    if unknown > 0 {
        kinds.push((unknown, "unknown threads".to_owned(), HashSet::new()));
    }
    kinds.sort_by_key(|(count, ..)| std::cmp::Reverse(*count));
    let total = profile.samples.len() as u64;
    for (count, title, members) in kinds {
        page.blank()?;
        let share = format!(
            "  {} {}",
            seconds(profile.time_ns(count)),
            percent(count, total)
        );
        let line = Line::new().with(Ink::Strong, clean(&title));
        page.line(&line.with(Ink::Faint, share))?;
        let of_kind = |one: &CpuSample| match one.thread {
            Some(thread) => members.contains(&thread),
            None => members.is_empty(),
        };
        functions(page, model, breakdown, &of_kind, MAX_THREAD_ROWS)?;
    }
    Ok(())
}

/// A function between its callers and its callees.
fn focus(
    page: &mut Page<'_>,
    model: &Model,
    breakdown: &Breakdown,
    function: FunctionIndex,
) -> io::Result<()> {
    let profile = &model.profile;
    let total = profile.samples.len() as u64;
    let hits = breakdown.hits(profile, |_| true);
    let own = hits.iter().find(|(index, _)| *index == function);
    let own = own.map_or(Hits::default(), |(_, hits)| *hits);
    let near = breakdown.neighbours(profile, function, |_| true);
    page.blank()?;
    head(page)?;
    let edge = |page: &mut Page<'_>, other: Option<FunctionIndex>, count: u64| {
        let mut line = Line::new();
        line.pad(24);
        let figures = format!(
            "{:>9} {:>6}    ",
            seconds(profile.time_ns(count)),
            percent(count, total)
        );
        line.push(Ink::Faint, figures);
        match other {
            Some(other) => push_function(page, &mut line, breakdown, other, Ink::Function),
            None => line.push(Ink::Faint, "(start of the thread, or of the known stack)"),
        }
        page.line(&line)
    };
    for (caller, count) in near.callers.iter().take(MAX_NEIGHBOURS) {
        edge(page, *caller, *count)?;
    }
    let mut line = figures(model, own, total, None);
    push_function(page, &mut line, breakdown, function, Ink::Strong);
    page.line(&line)?;
    for (callee, count) in near.callees.iter().take(MAX_NEIGHBOURS) {
        edge(page, *callee, *count)?;
    }
    Ok(())
}

/// `1.25 s`; always seconds, so that the numbers in a column can be compared.
fn seconds(ns: u64) -> String {
    format!("{:.2} s", ns as f64 / 1e9)
}

/// `12.5%`
pub(super) fn percent(part: u64, whole: u64) -> String {
    format!("{:.1}%", part as f64 * 100.0 / whole.max(1) as f64)
}
