//! Tests the page of `unspool diff --format html` in real browsers: each section renders with the
//! numbers of the JSON, links lead to rows, and the target's text stays text.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::html::{RECORDED, no_errors, opened, recorded, same, text};
use super::{diff, html};
use unspool_tests::browser::{Browser, Kind};
use unspool_tests::memo::Memo;

/// The steps of a trial in a browser.
type Check = fn(&mut Browser) -> Result<()>;

pub(crate) fn trials() -> Vec<Trial> {
    let checks: [(&str, Check); 3] = [
        ("numbers", numbers),
        ("rows", rows),
        ("text_stays_text", text_stays_text),
    ];
    let mut trials = vec![crate::trial("diff_page::commands", commands)];
    for kind in Kind::ALL {
        for (name, check) in checks {
            let name = format!("diff_page::{}::{name}", kind.name());
            trials.push(crate::trial(name, move || {
                check(&mut Browser::start(kind)?)
            }));
        }
    }
    trials
}

/// A comparison as a page, as JSON and as text.
struct Compared {
    folder: TempDir,
    captures: [PathBuf; 2],
    page: PathBuf,
    json: Value,
    text: String,
}

/// Compares `programs/page.c`, whose names try to be HTML, with a program that has other threads.
fn compared() -> Result<Compared> {
    let before = RECORDED.get((), recorded)?.capture.clone();
    let (folder, program) = diff::build("-DPOOL", false)?;
    let after = folder.path().join("after");
    diff::record(&program, &after)?;
    let page = folder.path().join("page.html");
    let output = page.to_str().context("a path in UTF-8")?;
    let run = |options: &[&str]| diff::diff(&[&before, &after], options)?.success();
    let written = run(&["--format", "html", "-o", output])?;
    ensure!(written.stdout.is_empty(), "{written}");
    let json = serde_json::from_slice(&run(&["--format", "json"])?.stdout)?;
    let text = run(&[])?.text();
    Ok(Compared {
        folder,
        captures: [before, after],
        page,
        json,
        text,
    })
}

/// All trials look at one comparison.
static COMPARED: Memo<(), Compared> = Memo::new();

/// The values that the cells of a row have for scripts.
fn row_values(browser: &mut Browser, row: &str) -> Result<Value> {
    let script = "return Array.from(
        document.querySelectorAll(`[data-row='${arguments[0]}'] > td data`),
        (cell) => Number(cell.value))";
    browser.run(script, json!([row]))
}

fn medians(item: &Value, names: &[&str]) -> Value {
    let sides = names
        .iter()
        .flat_map(|name| ["before", "after"].map(|side| item[*name][side]["median"].clone()));
    sides.collect()
}

fn items<'a>(diff: &'a Value, name: &str) -> Result<&'a Vec<Value>> {
    diff[name].as_array().with_context(|| name.to_owned())
}

/// The page has the document of the JSON, and its tables show these numbers.
fn numbers(browser: &mut Browser) -> Result<()> {
    let compared = COMPARED.get((), compared)?;
    let diff = &compared.json;
    opened(browser, &compared.page, "#noise=show")?;
    let seen = browser.run("return JSON.stringify(unspool.diff)", json!([]))?;
    let seen: Value = serde_json::from_str(seen.as_str().context("text")?)?;
    same("", &seen, diff)?;
    let headline = text(browser, "h1")?;
    let headline = headline.trim_start_matches(['▲', '▼', ' ']);
    let words: Vec<&str> = compared.text.split_whitespace().collect();
    ensure!(
        words.join(" ").contains(headline.trim()),
        "{headline} is not the headline of\n{}",
        compared.text
    );
    for (at, effect) in items(diff, "effects")?.iter().enumerate() {
        let seen = row_values(browser, &format!("effects-{at}"))?;
        let mut wanted = medians(effect, &["value_ns"]);
        if let Some(values) = wanted.as_array_mut() {
            values.insert(0, effect["effect_ns"].clone());
        }
        same(&format!("effect {at}"), &seen, &wanted)?;
    }
    let threads = ["number", "running_ns", "runnable_ns", "waiting_ns"];
    let objects = ["waits", "waited_ns", "taken", "held_ns"];
    for (name, fields) in [("threads", threads), ("objects", objects)] {
        for (at, item) in items(diff, name)?.iter().enumerate() {
            let seen = row_values(browser, &format!("{name}-{at}"))?;
            same(&format!("{name} {at}"), &seen, &medians(item, &fields))?;
        }
        let rows = format!("return document.querySelectorAll('[data-row^={name}-]').length");
        let rows = browser.run(&rows, json!([]))?;
        ensure!(rows == items(diff, name)?.len(), "{rows} rows of {name}");
    }
    for (kind, name) in [
        ("threads", "threads"),
        ("lock", "objects"),
        ("function", "functions"),
    ] {
        for (at, item) in items(diff, name)?.iter().enumerate() {
            let path = &item["path_ns"];
            if path["before"]["max"] != 0 || path["after"]["max"] != 0 {
                let seen = row_values(browser, &format!("path-{kind}.{at}"))?;
                same(
                    &format!("path of {kind} {at}"),
                    &seen,
                    &medians(item, &["path_ns"]),
                )?;
            }
        }
    }
    let bars = "return document.querySelectorAll('#section-path .wallbar .part').length";
    ensure!(browser.run(bars, json!([]))?.as_u64() > Some(1), "no bars");
    let lengths = "return ['.headline .sides strong', '#section-path .sides > .number'].map(
        (sides) => Array.from(document.querySelectorAll(sides), (it) => it.textContent))";
    let lengths = browser.run(lengths, json!([]))?;
    ensure!(lengths[0] == lengths[1], "lengths of the run: {lengths}");
    sections_are_marked(browser)?;
    no_errors(browser)
}

/// The first section is marked at the top of the page, and the last one at its end.
fn sections_are_marked(browser: &mut Browser) -> Result<()> {
    let marked = "return document.querySelector('.tabs [aria-current]').id";
    let first = browser.run(marked, json!([]))?;
    ensure!(first == "tab-effects", "{first} at the top");
    let scroll = "const view = document.getElementById('view'); view.scrollTop = view.scrollHeight";
    browser.run(scroll, json!([]))?;
    browser.wait(&format!("{marked} === 'tab-path'"))?;
    Ok(())
}

/// Rows open, sort and filter by mouse, keyboard and link.
fn rows(browser: &mut Browser) -> Result<()> {
    let compared = COMPARED.get((), compared)?;
    opened(browser, &compared.page, "#view=threads&open=threads-0")?;
    ensure!(
        text(browser, ".opened")?.contains("On the critical path"),
        "an open row"
    );
    let focused = "return document.activeElement.id";
    ensure!(
        browser.run(focused, json!([]))? == "row-threads-0",
        "the row of the link has the focus"
    );
    // The keyboard alone: the next row, open it, close all.
    browser.run(
        "document.querySelector('#table-threads .toggle').focus()",
        json!([]),
    )?;
    browser.keys(&["\u{E015}"])?;
    let next = browser.run(focused, json!([]))?;
    browser.keys(&["\u{E007}"])?;
    browser.wait("return document.querySelectorAll('.opened').length === 2")?;
    ensure!(browser.run(focused, json!([]))? == next, "the focus stays");
    browser.keys(&["\u{E00C}"])?;
    browser.wait("return document.querySelectorAll('.opened').length === 0")?;
    browser.run("history.back()", json!([]))?;
    browser.wait("return document.querySelectorAll('.opened').length === 2")?;
    browser.keys(&["4"])?;
    browser.wait("return location.hash.includes('view=path')")?;
    // Sort by what changed most, and in reverse.
    let order = "return Array.from(document.querySelectorAll('#table-threads [data-row]'),
        (row) => Math.abs(unspool.diff.threads[row.dataset.row.split('-')[1]].waiting_ns.delta))";
    let click = "document.getElementById('sort-threads-waiting').click()";
    for falling in [true, false] {
        let arrow = if falling { "↓" } else { "↑" };
        browser.run(click, json!([]))?;
        browser.wait(&format!(
            "return document.getElementById('sort-threads-waiting').textContent.includes('{arrow}')"
        ))?;
        let seen = browser.run(order, json!([]))?;
        let seen: Vec<u64> = serde_json::from_value(seen)?;
        let sorted = seen.is_sorted_by(|a, b| if falling { a >= b } else { a <= b });
        ensure!(sorted, "{seen:?}");
    }
    // Filter all tables.
    browser.keys(&["/"])?;
    browser.wait("return document.activeElement.type === 'search'")?;
    browser.keys(&["a", "u", "d", "i", "t"])?;
    browser.wait("return document.querySelectorAll('#table-threads [data-row]').length === 1")?;
    browser.keys(&["\u{E00C}"])?;
    browser.wait("return document.querySelectorAll('#table-threads [data-row]').length > 1")?;
    // Other effects.
    let effects = "return document.querySelectorAll('#table-effects [data-row]').length";
    let before = browser.run(effects, json!([]))?;
    browser.run("document.getElementById('show-noise').click()", json!([]))?;
    browser.wait(&format!("{effects} > {before}"))?;
    browser.run("document.getElementById('only-lock').click()", json!([]))?;
    browser.wait("return location.hash.includes('only=lock')")?;
    browser.run("document.querySelector('.theme').click()", json!([]))?;
    // Nonsense in a link is ignored.
    let nonsense = "#view=nothing&open=threads-999_x&sort=threads-x_y&only=toString&noise=1";
    opened(browser, &compared.page, nonsense)?;
    ensure!(text(browser, "#table-threads")?.len() > 40, "blank");
    no_errors(browser)
}

fn text_stays_text(browser: &mut Browser) -> Result<()> {
    let compared = COMPARED.get((), compared)?;
    let page = fs::read_to_string(&compared.page)?;
    ensure!(page.matches("<img").count() == 0, "an element in the page");
    ensure!(page.matches("<script").count() == 2, "a script of its own");
    let rows = (0..items(&compared.json, "threads")?.len()).map(|at| format!("threads-{at}"));
    let open = rows.collect::<Vec<_>>().join("_");
    opened(browser, &compared.page, &format!("#noise=show&open={open}"))?;
    let seen = "return [document.querySelectorAll('img, b').length, window.hit ?? null]";
    let seen = browser.run(seen, json!([]))?;
    ensure!(seen == json!([0, null]), "{seen}");
    let shown = text(browser, "#table-threads")?;
    for name in ["<img src=x>", "</script><b>", "onerror=window.hit=1>.c"] {
        ensure!(shown.contains(name), "{name} is not in {shown}");
    }
    no_errors(browser)?;
    html::network_is_refused(browser)
}

/// Where the page goes, and what is refused.
fn commands() -> Result<()> {
    let compared = COMPARED.get((), compared)?;
    let captures = compared.captures.each_ref().map(PathBuf::as_path);
    let written = diff::diff(&captures, &["--format", "html"])?
        .success()?
        .text();
    ensure!(written.starts_with("<!DOCTYPE html>"), "to standard output");
    for (format, start) in [("text", "What changed the run"), ("json", "{")] {
        let file: PathBuf = compared.folder.path().join(format);
        let output = file.to_str().context("a path in UTF-8")?;
        diff::diff(&captures, &["--format", format, "-o", output])?.success()?;
        let written = fs::read_to_string(&file)?;
        ensure!(written.contains(start), "{written}");
    }
    let nowhere = ["--format", "html", "-o", "/nowhere/diff.html"];
    let refused = diff::diff(&captures, &nowhere)?;
    ensure!(refused.code()? == 1, "{refused}");
    ensure!(
        refused.stderr.contains("cannot write /nowhere/diff.html"),
        "{refused}"
    );
    ensure!(!Path::new("/nowhere").exists(), "a folder was made");
    Ok(())
}
