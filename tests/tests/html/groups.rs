//! Tests how the page names groups of threads, and what it says of threads that do not end.

use anyhow::{Context, Result, ensure};
use serde_json::json;

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
