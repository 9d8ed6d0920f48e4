//! Tests the graph of the lock order, of locks that it has to show as one.

use anyhow::{Context, Result, ensure};
use serde_json::json;

use unspool_tests::browser::Browser;
use unspool_tests::{report, waiting};

use super::{no_errors, opened, text};

/// Too many equal locks for a graph are one box, with an arrow to itself.
pub(super) fn many_equal(browser: &mut Browser) -> Result<()> {
    let compiler = ["gcc", "-g", "-O1", "-pthread"];
    let (folder, program) = waiting::compile_in(".", "accounts.c", &compiler)?;
    let page = folder.path().join("accounts.html");
    let html = page.to_str().context("a path in UTF-8")?;
    let program = program.to_str().context("a path in UTF-8")?;
    let capture = folder.path().join("accounts.unspool");
    report::record(&capture, &["-q", "--sync=all", "--html", html], &[program])?.success()?;
    opened(browser, &page, "#view=sync")?;
    let order = text(browser, ".lock-order")?;
    ensure!(order.contains("locks of equal identity as one"), "{order}");
    let graph = "const graph = document.querySelector('svg.orders'); \
         return [graph.querySelectorAll('[data-lock]').length, \
                 graph.querySelectorAll('[data-edge]').length, \
                 ...['width', 'height'].map((side) => Number(graph.getAttribute(side)) > 0), \
                 /NaN|undefined/.test(graph.outerHTML)]";
    let seen = browser.run(graph, json!([]))?;
    let wanted = json!([1, 1, true, true, false]);
    ensure!(seen == wanted, "{seen}");
    no_errors(browser)
}
