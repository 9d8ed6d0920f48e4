//! Tests how the page names groups of threads, and what it says of threads that do not end.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use unspool_tests::browser::Browser;
use unspool_tests::{report, waiting};

use super::{no_errors, opened, select, text};

/// Two groups of one function are called by their threads' names. A process that still lives has no
/// end.
pub(super) fn labels(browser: &mut Browser) -> Result<()> {
    let compiler = ["gcc", "-g", "-O1", "-pthread"];
    let (folder, program) = waiting::compile_in(".", "labels.c", &compiler)?;
    let page = folder.path().join("labels.html");
    let html = page.to_str().context("a path in UTF-8")?;
    let program = program.to_str().context("a path in UTF-8")?;
    let capture = folder.path().join("labels.unspool");
    report::record(&capture, &["-q", "--sync=all", "--html", html], &[program])?.success()?;
    opened(browser, &page, "")?;
    let labels = "return unspool.rec.groups.list.map((group) => group.label)";
    let labels = browser.run(labels, json!([]))?;
    let wanted = json!(["main thread", "reader", "writer"]);
    ensure!(labels == wanted, "{labels}");
    select(browser, "#view=sync")?;
    let heads = text(browser, ".matrix thead")?;
    ensure!(
        heads.contains("reader") && heads.contains("writer"),
        "{heads}"
    );
    select(browser, "#view=threads")?;
    let rows = "return [...document.querySelectorAll('.lived')].map((cell) => cell.textContent)";
    let rows = browser.run(rows, json!([]))?;
    let words = rows[3].as_str().unwrap_or_default();
    let is_alive = words.starts_with("from ") && words.ends_with(", alive at the end");
    ensure!(is_alive, "the process after the threads: {rows}");
    no_errors(browser)
}

/// Threads of a stripped program are called by the addresses of their functions. The main thread
/// has no creator.
pub(super) fn stripped(browser: &mut Browser) -> Result<()> {
    let compiler = ["gcc", "-s", "-O1", "-pthread"];
    let (folder, program) = waiting::compile_in(".", "accounts.c", &compiler)?;
    let page = folder.path().join("stripped.html");
    let html = page.to_str().context("a path in UTF-8")?;
    let program = program.to_str().context("a path in UTF-8")?;
    let capture = folder.path().join("stripped.unspool");
    report::record(&capture, &["-q", "--html", html], &[program])?.success()?;
    opened(browser, &page, "")?;
    let titles = "return unspool.rec.groups.list.map((group) => group.title)";
    let titles = browser.run(titles, json!([]))?;
    let titles: Vec<&str> = (titles.as_array().into_iter().flatten())
        .filter_map(Value::as_str)
        .collect();
    let are_addresses = titles.len() > 1
        && titles[0] == "main thread"
        && titles[1..].iter().all(|it| it.starts_with("accounts+0x"));
    ensure!(are_addresses, "{titles:?}");
    select(browser, "#view=threads&thread=1")?;
    let details = text(browser, ".details")?;
    ensure!(details.contains(titles[1]), "{details}");
    ensure!(!details.contains("??"), "{details}");
    select(browser, "#view=threads&thread=0")?;
    let row = "return document.querySelector('tbody tr td').textContent";
    let row = browser.run(row, json!([]))?;
    ensure!(row == json!("–"), "the creator of the main thread: {row}");
    let details = text(browser, ".details")?;
    ensure!(!details.contains("Creator"), "{details}");
    ensure!(!details.contains("Created at"), "{details}");
    no_errors(browser)
}

/// Short names of C++ threads keep what names the callable.
pub(super) fn lambdas(browser: &mut Browser) -> Result<()> {
    let compiler = ["g++", "-std=c++20", "-g", "-O1", "-pthread"];
    let (folder, program) = waiting::compile_in(".", "callables.cpp", &compiler)?;
    let page = folder.path().join("callables.html");
    let html = page.to_str().context("a path in UTF-8")?;
    let program = program.to_str().context("a path in UTF-8")?;
    let capture = folder.path().join("callables.unspool");
    report::record(&capture, &["-q", "--html", html], &[program])?.success()?;
    opened(browser, &page, "")?;
    let titles = "return unspool.rec.groups.list.map((group) => group.title)";
    let titles = browser.run(titles, json!([]))?;
    for wanted in [
        "plain",
        "Job",
        "main::<lambda()>",
        "std::thread",
        "std::async",
    ] {
        let has = (titles.as_array().into_iter().flatten()).any(|title| title == wanted);
        ensure!(has, "no {wanted}: {titles}");
    }
    no_errors(browser)
}

/// Two instances of one template have two names.
pub(super) fn templates(browser: &mut Browser) -> Result<()> {
    let compiler = ["g++", "-std=c++20", "-g", "-O1", "-pthread"];
    let (folder, program) = waiting::compile_in(".", "instances.cpp", &compiler)?;
    let page = folder.path().join("instances.html");
    let html = page.to_str().context("a path in UTF-8")?;
    let program = program.to_str().context("a path in UTF-8")?;
    let capture = folder.path().join("instances.unspool");
    report::record(&capture, &["-q", "--html", html], &[program])?.success()?;
    opened(browser, &page, "")?;
    let titles = "return unspool.rec.groups.list.map((group) => group.title).sort()";
    let titles = browser.run(titles, json!([]))?;
    let wanted = json!(["main thread", "only", "work<Box<…> >", "work<int>"]);
    ensure!(titles == wanted, "{titles}");
    no_errors(browser)
}
