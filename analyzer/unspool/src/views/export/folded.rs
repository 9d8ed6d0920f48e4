//! Folded stacks for flame graphs: one line a stack, outermost frame first, and a number.
//!
//! The first frame is the thread's identity, the last one the awaited object or the created thread.
//! CPU samples end with the function that ran, off-CPU samples with the reason of the wait and the
//! thread that ended it.

use std::collections::BTreeMap;
use std::io::Write;

use super::exporter::{Choice, Error, Exporter, Options, Stacks};
use super::tracks;
use crate::model::schedule::Waker;
use crate::model::{Backtrace, Model, Thread, ThreadIndex};
use crate::views::text::line::clean;
use crate::views::{off_cpu as reasons, wording};

#[derive(Debug)]
pub(super) struct Folded;

impl Exporter for Folded {
    fn name(&self) -> &'static str {
        "folded"
    }

    fn about(&self) -> &'static str {
        "One line per stack, with a number: for flame graphs and speedscope"
    }

    fn choices(&self) -> &'static [Choice] {
        &[Choice::Stacks]
    }

    fn write(&self, model: &Model, options: &Options, out: &mut dyn Write) -> Result<(), Error> {
        // Different paths may have the same names.
        let mut lines: BTreeMap<String, u64> = BTreeMap::new();
        match options.stacks {
            Stacks::Waits => waits(model, &mut lines)?,
            Stacks::Creations => creations(model, &mut lines)?,
            Stacks::Cpu => samples(model, &mut lines)?,
            Stacks::OffCpu => off_cpu(model, &mut lines)?,
        }
        for (stack, number) in lines {
            writeln!(out, "{stack} {number}")?;
        }
        Ok(())
    }
}

fn waits(model: &Model, lines: &mut BTreeMap<String, u64>) -> Result<(), Error> {
    let sync = &model.sync;
    for used in &sync.uses {
        let object = tracks::object(model, used.object);
        for share in used.shares.iter().filter(|share| share.waited_ns > 0) {
            let identity = sync.identities.get(share.identity);
            let thread = identity.and_then(|(_, first, _)| model.thread(*first));
            let thread = thread.map_or(String::new(), |thread| {
                wording::title(model, thread, usize::MAX)
            });
            let line = folded(&thread, sync.path(used), Some(&object));
            *lines.entry(line).or_default() += share.waited_ns;
        }
    }
    let text = match sync.recorded {
        true => "no thread waited in a recorded call",
        false => {
            "the recording has no waits; `unspool record --sync` records them, and `--stacks` \
             selects other stacks"
        }
    };
    some(lines, text)
}

/// An error with this text if there are no lines.
fn some(lines: &BTreeMap<String, u64>, text: &str) -> Result<(), Error> {
    match lines.is_empty() {
        true => Err(Error::Missing(text.to_owned())),
        false => Ok(()),
    }
}

fn creations(model: &Model, lines: &mut BTreeMap<String, u64>) -> Result<(), Error> {
    let named = |index: ThreadIndex, thread: &Thread| match model.process(index) {
        Some(_) => wording::of_other(model, index),
        None => wording::title(model, thread, usize::MAX),
    };
    for (index, thread) in model.any_threads().enumerate() {
        let Some(stack) = thread.creation_stack() else {
            continue;
        };
        let creator = thread.creator();
        let creator = creator.and_then(|index| Some(named(index, model.any_thread(index)?)));
        let creator = creator.unwrap_or_else(|| "unknown thread".to_owned());
        let created = format!("creates {}", named(ThreadIndex(index), thread));
        *lines
            .entry(folded(&creator, stack, Some(&created)))
            .or_default() += 1;
    }
    some(
        lines,
        "the recording has no stacks at which threads were created",
    )
}

/// The processor time of each stack, by the kernel's samples.
fn samples(model: &Model, lines: &mut BTreeMap<String, u64>) -> Result<(), Error> {
    let profile = &model.profile;
    if profile.samples.is_empty() {
        let text = "the recording has no CPU samples; `unspool record --cpu` takes them";
        return Err(Error::Missing(text.to_owned()));
    }
    for time in profile.stack_times() {
        let thread = time.thread.and_then(|thread| model.thread(thread));
        let thread = thread.map_or("unknown thread".to_owned(), |thread| {
            wording::title(model, thread, usize::MAX)
        });
        let line = folded(&thread, &profile.stacks[time.stack], None);
        *lines.entry(line).or_default() += time.ns;
    }
    Ok(())
}

/// The blocked time of each stack, by the kernel's samples.
fn off_cpu(model: &Model, lines: &mut BTreeMap<String, u64>) -> Result<(), Error> {
    let off_cpu = match &model.profile.off_cpu {
        Ok(off_cpu) => off_cpu,
        Err(reason) => return Err(Error::Missing(reasons::missing(reason))),
    };
    let unknown = Backtrace::default();
    for sum in &off_cpu.sums {
        let thread = model.thread(sum.key.thread);
        let thread = thread.map_or("unknown thread".to_owned(), |thread| {
            wording::title(model, thread, usize::MAX)
        });
        let stack = sum.key.stack.and_then(|at| model.profile.stacks.get(at));
        let missing = stack.is_none().then(|| "[no stack]".to_owned());
        let reason = reasons::reason(model, &sum.key);
        // An interrupt says no more than the reason.
        let waker = sum.key.waker.filter(|waker| *waker != Waker::Interrupt);
        let waker = waker.map(|waker| format!("woken by {}", reasons::waker(model, waker)));
        let mut line = folded(&thread, stack.map_or(&unknown, |stack| stack), None);
        for last in [missing, reason, waker].into_iter().flatten() {
            line.push(';');
            line.push_str(&frame(&last));
        }
        let ns: &mut u64 = lines.entry(line).or_default();
        *ns = ns.saturating_add(sum.ns);
    }
    Ok(())
}

fn folded(first: &str, stack: &Backtrace, last: Option<&str>) -> String {
    let mut line = frame(first);
    let mut outer = String::new();
    for named in stack.frames.iter().rev() {
        let name = tracks::function(&named.place);
        // A compiler may inline a part of a function into the rest of it, as in glibc's `read`.
        if !named.inlined || name != outer {
            line.push(';');
            line.push_str(&frame(&name));
        }
        outer = name;
    }
    if let Some(last) = last {
        line.push(';');
        line.push_str(&frame(last));
    }
    line
}

/// A name without the separators of the format. A space may stand in a name, but not a semicolon.
fn frame(name: &str) -> String {
    clean(name).replace(';', ":")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fixture::{PID, Stage};

    #[test]
    fn creations_are_counted_by_their_stacks() {
        let mut stage = Stage::new();
        let stack = ["orders!start@orders.c:9", "orders!main@orders.c:12"];
        for tid in 11..14 {
            stage.spawn(PID, tid, tid - 10, "orders!work@orders.c:20", &stack);
        }
        stage.end(10);
        let options = Options {
            stacks: Stacks::Creations,
            ..Options::default()
        };
        let mut out = Vec::new();
        Folded.write(&stage.model(), &options, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "main;main;start;creates work 3\n");
    }

    #[test]
    fn a_function_inlined_into_itself_is_one_frame() {
        let mut stage = Stage::new();
        let stack = [
            "~libc!read@read.c:26",
            "libc!read@read.c:24",
            "libc!read@read.c:9",
        ];
        stage.spawn(PID, 11, 1, "orders!work@orders.c:20", &stack);
        stage.end(10);
        let mut lines = BTreeMap::new();
        creations(&stage.model(), &mut lines).unwrap();
        let lines: Vec<String> = lines.into_keys().collect();
        assert_eq!(lines, ["main;read;read;creates work"]);
    }

    #[test]
    fn nothing_is_written_if_there_is_nothing_to_count() {
        let model = Stage::new().model();
        for stacks in [
            Stacks::Waits,
            Stacks::Creations,
            Stacks::Cpu,
            Stacks::OffCpu,
        ] {
            let options = Options {
                stacks,
                ..Options::default()
            };
            let error = Folded.write(&model, &options, &mut Vec::new());
            assert!(matches!(error, Err(Error::Missing(_))), "{error:?}");
        }
    }

    #[test]
    fn separators_in_names_separate_nothing() {
        assert_eq!(
            folded("a;b", &Backtrace::default(), Some("c\nd"))
                .split(';')
                .count(),
            2
        );
        assert_eq!(
            folded("a;b", &Backtrace::default(), Some("c\nd"))
                .lines()
                .count(),
            1
        );
    }
}
