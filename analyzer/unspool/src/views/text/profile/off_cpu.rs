//! Where threads were blocked: the summary, and the stacks with the reason and the wakers of their
//! waits.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::Arc;

use super::{MIN_SHARE_DIVISOR, percent, seconds, sum};
use crate::model::profile::{BlockedSum, StackTime};
use crate::model::schedule::{CallIndex, CallWake};
use crate::model::sync::ObjectIndex;
use crate::model::{Backtrace, Key, Model, ThreadIndex};
use crate::views::call_waits::{self, Threads};
use crate::views::text::frames::{self, Sources};
use crate::views::text::line::{Ink, Line, Page, clean};
use crate::views::text::tree;
use crate::views::{Style, object_name, off_cpu, wording};

/// Maximum number of stacks, and of wakers for each.
const MAX_STACKS: usize = 10;
const MAX_WAKERS: usize = 3;

/// The times of all stacks.
pub(super) fn times(model: &Model) -> Vec<StackTime> {
    let off_cpu = model.profile.off_cpu.as_ref();
    off_cpu.map_or_else(
        |_| Vec::new(),
        |off_cpu| off_cpu.stack_times(&model.profile),
    )
}

/// The first sentence: `shop (pid 7, x86_64): in 1.1 s, threads were blocked 84 times, for 3.1 s in
/// total. ...`
pub(super) fn summary(model: &Model) -> String {
    let about = tree::about(model);
    let profile = &model.profile;
    let off_cpu = match &profile.off_cpu {
        Ok(off_cpu) => off_cpu,
        Err(reason) => return format!("{about}{}.", off_cpu::missing(reason)),
    };
    let (count, ns) = off_cpu.total(|_| true);
    let (from_ns, to_ns) = off_cpu.span_ns;
    let span = wording::duration(to_ns.saturating_sub(from_ns));
    if count == 0 {
        return format!("{about}no thread was blocked in {span}.");
    }
    let (without, without_ns) = off_cpu.total(|key| key.stack.is_none());
    let (_, complete_ns) = off_cpu.total(|key| {
        let stack = key.stack.and_then(|stack| profile.stacks.get(stack));
        stack.is_some_and(|stack| stack.reaches_start())
    });
    let without = match without {
        0 => "All waits have a stack".to_owned(),
        _ => format!(
            "{} of the waits, with {} of the time, have no stack",
            percent(without, count),
            percent(without_ns, ns)
        ),
    };
    format!(
        "{about}in {span}, threads were blocked {}, for {} in total. {without}; stacks with {} of \
         the time reach the thread's start.",
        wording::times(count),
        wording::duration(ns),
        percent(complete_ns, ns),
    )
}

/// Waits with the same stack, reason and kind of thread, and what ended them.
struct Waits<'m> {
    first: &'m BlockedSum,
    /// The system calls; calls of different files are different calls.
    calls: BTreeSet<CallIndex>,
    /// The thread, unless there are several.
    one: Option<ThreadIndex>,
    count: u64,
    ns: u64,
    longest_ns: u64,
    wakes: Vec<CallWake>,
}

/// The identity of a thread, the first stack that is printed alike, and the object or the name of
/// the system call.
type WaitsKey = (
    Option<Key>,
    Option<usize>,
    Option<ObjectIndex>,
    Option<&'static str>,
);

/// The first of the stacks that are printed alike, for each stack: stacks may differ only in
/// addresses on the same lines.
fn printed_alike(stacks: &[Arc<Backtrace>], sources: &Sources) -> io::Result<Vec<usize>> {
    let style = Style {
        width: usize::from(u16::MAX),
        ..Style::default()
    };
    let mut firsts: HashMap<Vec<u8>, usize> = HashMap::new();
    let mut alike = Vec::with_capacity(stacks.len());
    for (index, stack) in stacks.iter().enumerate() {
        let mut text = Vec::new();
        let mut page = Page::new(&mut text, &style);
        frames::write(&mut page, &Line::new(), "", stack, sources, false)?;
        alike.push(*firsts.entry(text).or_insert(index));
    }
    Ok(alike)
}

/// Writes the stacks with the longest sums.
pub(super) fn stacks(page: &mut Page<'_>, model: &Model) -> io::Result<()> {
    let Ok(off_cpu) = &model.profile.off_cpu else {
        return Ok(());
    };
    let mut all: Vec<Waits<'_>> = Vec::new();
    let mut known: HashMap<WaitsKey, usize> = HashMap::new();
    let stacks = &model.profile.stacks;
    let frames = stacks.iter().flat_map(|stack| &stack.frames);
    let sources = Sources::of(frames, &model.target.executable);
    let alike = printed_alike(stacks, &sources)?;
    for sum in &off_cpu.sums {
        let identity = model.thread(sum.key.thread).map(|thread| thread.key);
        let call = sum.key.call.and_then(|call| model.schedule.call(call));
        let call = call.filter(|_| sum.key.object.is_none());
        let key = (
            identity,
            sum.key.stack.and_then(|stack| alike.get(stack).copied()),
            sum.key.object,
            call.map(|call| call.name),
        );
        let at = *known.entry(key).or_insert(all.len());
        if at == all.len() {
            all.push(Waits {
                first: sum,
                calls: BTreeSet::new(),
                one: Some(sum.key.thread),
                count: 0,
                ns: 0,
                longest_ns: 0,
                wakes: Vec::new(),
            });
        }
        let waits = &mut all[at];
        waits.calls.extend(sum.key.call);
        waits.one = waits.one.filter(|one| *one == sum.key.thread);
        waits.count = waits.count.saturating_add(sum.count);
        waits.ns = waits.ns.saturating_add(sum.ns);
        waits.longest_ns = waits.longest_ns.max(sum.longest_ns);
        waits.wakes.extend(sum.key.waker.map(|waker| CallWake {
            waker,
            count: sum.count,
            blocked_ns: sum.ns,
        }));
    }
    all.sort_by_key(|waits| std::cmp::Reverse(waits.ns));
    let (_, total_ns) = off_cpu.total(|_| true);
    page.blank()?;
    page.line(&Line::new().with(Ink::Strong, "Longest sums by stack"))?;
    let is_shown = |waits: &&Waits<'_>| waits.ns >= total_ns / MIN_SHARE_DIVISOR;
    let shown = all.iter().take(MAX_STACKS).take_while(is_shown).count();
    for waits in &all[..shown] {
        page.blank()?;
        write(page, model, waits, total_ns, &sources)?;
    }
    let others = &all[shown..];
    if !others.is_empty() {
        let ns = sum(others.iter().map(|waits| waits.ns));
        let count = wording::count(others.len(), "more stack");
        page.blank()?;
        let text = format!("{:>9} {:>6} in {count}", seconds(ns), percent(ns, total_ns));
        page.line(&Line::new().with(Ink::Faint, text))?;
    }
    Ok(())
}

/// The files of a system call, after its name. The name of an unknown file is empty.
fn of_files(mut files: BTreeSet<&str>) -> String {
    let has_unknown = files.remove("");
    let known = match files.len() {
        0 => return String::new(),
        1 => files.into_iter().collect(),
        count => wording::count(count, "file"),
    };
    match has_unknown {
        true => format!(" of {known} and of an unknown file"),
        false => format!(" of {known}"),
    }
}

fn write(
    page: &mut Page<'_>,
    model: &Model,
    waits: &Waits<'_>,
    total_ns: u64,
    sources: &Sources,
) -> io::Result<()> {
    let key = &waits.first.key;
    let figures = format!(
        "{:>9} {:>6}  ",
        seconds(waits.ns),
        percent(waits.ns, total_ns)
    );
    let mut line = Line::new().with(Ink::Plain, figures);
    let identity = model.sync.identity_of.get(key.thread.0);
    let threads = Threads {
        identity: identity.copied().unwrap_or(0),
        one: waits.one,
    };
    let named = wording::threads(model, threads, page.width / 2);
    line.push(Ink::Strong, clean(&named));
    let count = match waits.count {
        1 => ", once".to_owned(),
        _ => format!(
            ", {}, longest {}",
            wording::times(waits.count),
            wording::duration(waits.longest_ns)
        ),
    };
    line.push(Ink::Plain, count);
    page.line(&line)?;
    let mut indent = Line::new();
    indent.pad(18);
    let call = key.call.and_then(|call| model.schedule.call(call));
    let reason = match (key.object, call) {
        (Some(object), _) => Some(object_name::one(&model.sync, object, usize::MAX)),
        (None, Some(call)) => {
            let calls = waits.calls.iter();
            let calls = calls.filter_map(|call| model.schedule.call(*call));
            let files: BTreeSet<&str> = calls.map(|call| call.file.as_str()).collect();
            Some(format!("{}(){}", call.name, of_files(files)))
        }
        (None, None) => None,
    };
    let reason = reason.map_or("unknown reason".to_owned(), |reason| clean(&reason));
    let woken = call_waits::by_identity(model, &waits.wakes);
    let named = woken.iter().take(MAX_WAKERS).map(|one| {
        let name = clean(&wording::waker(model, one, threads, page.width / 2));
        match one.blocked.ns >= waits.ns - waits.ns / 1000 {
            true => name,
            false => format!("{name} ({})", percent(one.blocked.ns, waits.ns)),
        }
    });
    let mut wakers = named.collect::<Vec<_>>().join(", ");
    if woken.len() > MAX_WAKERS {
        wakers.push_str(" and others");
    }
    let text = match wakers.is_empty() {
        true => reason,
        false => format!("{reason}, woken by {wakers}"),
    };
    page.paragraph(&indent, &indent, Ink::Name, &text)?;
    match key.stack.and_then(|stack| model.profile.stacks.get(stack)) {
        Some(stack) => frames::write(page, &indent, "", stack, sources, false),
        None => page.line(&indent.clone().with(Ink::Faint, "no stack")),
    }
}

#[cfg(test)]
mod tests {
    use unspool_unwind::Provenance;

    use super::*;
    use crate::model::{NamedFrame, Place};

    #[test]
    fn stacks_that_look_alike_are_one() {
        let stack = |offset: u64, line: u32| {
            let place = Place {
                function: Some("read_all".into()),
                file: Some("/src/reader.c".into()),
                line: Some(line),
                offset,
                avma: 0x1000 + offset,
                ..Place::default()
            };
            let frame = NamedFrame {
                place,
                inlined: false,
                provenance: Provenance::Cfi,
                called: None,
            };
            Arc::new(Backtrace {
                frames: vec![frame],
                truncated: None,
            })
        };
        let stacks = [stack(1, 7), stack(2, 7), stack(3, 8), stack(9, 7)];
        let frames = stacks.iter().flat_map(|stack| &stack.frames);
        let sources = Sources::of(frames, "reader");
        assert_eq!(printed_alike(&stacks, &sources).unwrap(), [0, 0, 2, 0]);
    }

    #[test]
    fn an_unknown_file_is_not_counted() {
        let text = |files: &[&'static str]| of_files(files.iter().copied().collect());
        assert_eq!(text(&[""]), "");
        assert_eq!(text(&["/a"]), " of /a");
        assert_eq!(text(&["/a", "/b"]), " of 2 files");
        assert_eq!(text(&["", "/a"]), " of /a and of an unknown file");
        let several = " of 2 files and of an unknown file";
        assert_eq!(text(&["/a", "", "/b"]), several);
    }
}
