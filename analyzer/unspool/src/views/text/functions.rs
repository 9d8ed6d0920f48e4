//! Instrumented functions: number and duration of their calls, and their callers.

use std::io::{self, Write};

use super::line::{Ink, Line, Page, clean, width};
use super::objects::place;
use super::{findings, notes, tree};
use crate::model::{Model, Topic};
use crate::views::{Style, names, wording};

/// Topics of the notes that this view shows.
const TOPICS: &[Topic] = &[Topic::Calls, Topic::Times, Topic::Stacks];

/// Maximum number of callers shown per function.
const MAX_CALLERS: usize = 4;

/// Writes all instrumented functions as text.
pub fn write(model: &Model, out: &mut dyn Write, style: &Style) -> io::Result<()> {
    let mut page = Page::new(out, style);
    let page = &mut page;
    notes::first(page, model)?;
    let functions = &model.sync.functions;
    let calls: u64 = functions.iter().map(|function| function.calls).sum();
    let about = tree::about(model);
    let summary = match functions.len() {
        0 if model.recording.traces_functions => {
            format!("{about}no function that `--trace` names was called.")
        }
        0 if model.recording.has_hook_calls => format!(
            "{about}`unspool export --graph calls` shows the calls that `--calls` recorded."
        ),
        0 if model.sync.recorded => format!(
            "{about}no traced function was called. `--sync` alone records waits and not \
             functions; see `--view waits`."
        ),
        0 => format!(
            "{about}no calls were recorded; use `unspool record --sync=all` or `--trace 'name*'`."
        ),
        count => format!(
            "{about}{} called {} in total. Times are from entry to return and include the cost \
             of recording.",
            wording::count(count, "function"),
            wording::times(calls)
        ),
    };
    page.paragraph(&Line::new(), &Line::new(), Ink::Plain, &summary)?;
    if functions.is_empty() {
        return notes::last(page, model, TOPICS);
    }
    let sources = findings::sources(model);
    page.blank()?;
    let head = format!(
        "{:>9} {:>8} {:>8} {:>8} {:>8} {:>7}  function",
        "calls", "total", "own", "mean", "max", "threads"
    );
    page.line(&Line::new().with(Ink::Faint, head))?;
    for function in functions {
        // Some calls have no recorded end because threads do not wait in them. Their time is
        // unknown.
        let taken = |ns: u64| match ns {
            0 => "–".to_owned(),
            ns => wording::duration(ns),
        };
        let mut line = Line::new().with(
            Ink::Plain,
            format!(
                "{:>9} {:>8} {:>8} {:>8} {:>8} {:>7}  ",
                wording::often(function.calls),
                taken(function.total_ns),
                taken(function.own_ns),
                taken(function.times.mean_ns()),
                taken(function.times.max_ns),
                function.threads,
            ),
        );
        let room = page.width.saturating_sub(line.width());
        let name = unspool_image::demangle(&function.name);
        line.push(Ink::Strong, names::shorten(&clean(&name), room));
        page.line(&line)?;
        for caller in function.callers.iter().take(MAX_CALLERS) {
            let figures = format!(
                "{:>9} {:>8}",
                wording::often(caller.calls),
                taken(caller.total_ns)
            );
            let mut line = Line::new().with(Ink::Faint, figures);
            line.pad(20);
            line.push(Ink::Faint, "from ");
            let room = page.width.saturating_sub(width("  from ") + 20);
            line.push(Ink::Function, place(model, caller.path.0, &sources, room));
            page.line(&line)?;
        }
        if function.callers.len() > MAX_CALLERS {
            let more = wording::count(function.callers.len() - MAX_CALLERS, "more place");
            let mut line = Line::new();
            line.pad(20);
            line.push(Ink::Faint, more);
            page.line(&line)?;
        }
    }
    notes::last(page, model, TOPICS)
}

#[cfg(test)]
mod tests {
    use unspool_capture::{Probe, ProbeKind};

    use super::*;
    use crate::model::fixture::Stage;

    #[test]
    fn names_the_view_of_hook_calls() {
        let text = |stage: &mut Stage| {
            stage.end(1);
            let mut out = Vec::new();
            let wide = Style {
                width: 1000,
                ..Style::default()
            };
            write(&stage.model(), &mut out, &wide).unwrap();
            String::from_utf8(out).unwrap()
        };
        let mut stage = Stage::new();
        stage.add(Probe {
            id: 50,
            function: "__cyg_profile_func_enter".into(),
            kind: ProbeKind::Hook.into(),
            ..Probe::default()
        });
        let hooked = text(&mut stage);
        assert!(hooked.contains("unspool export --graph calls"), "{hooked}");
        let none = text(&mut Stage::new());
        assert!(none.contains("no calls were recorded"), "{none}");
    }
}
