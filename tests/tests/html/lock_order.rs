//! Tests the graph and the table of the lock order.

use anyhow::{Result, ensure};
use serde_json::json;

use unspool_tests::browser::Browser;
use unspool_tests::{process, report, waiting};

use super::{LIMIT, no_errors, opened, select, text};

/// The widths of windows in which the graph is drawn: a telephone's and a screen's.
const WINDOW_WIDTHS: [u64; 2] = [420, 1400];

/// Records a program of this folder and opens the page's view of synchronization.
fn record(
    browser: &mut Browser,
    (folder, source): (&str, &str),
    budget: &str,
    arguments: &[&str],
) -> Result<()> {
    let compiler = ["gcc", "-g", "-O1", "-pthread"];
    let (folder, program) = waiting::compile_in(folder, source, &compiler)?;
    let page = folder.path().join("recorded.html");
    let mut command = report::unspool()?;
    command.args(["record", "-q", "--sync=all", "--budget", budget, "--html"]);
    command
        .arg(&page)
        .arg("-o")
        .arg(folder.path().join("capture"));
    command.arg("--").arg(&program).args(arguments);
    process::run(&mut command, LIMIT)?.success()?;
    opened(browser, &page, "#view=sync")
}

/// A script that lists misplaced parts of the graph: a box or an arrow outside its drawing, boxes
/// that overlap, a text wider than its box, an arrow through a box.
const MISPLACED: &str = "const wrong = [];
const inside = (a, b) => a.x < b.x + b.width && b.x < a.x + a.width \
    && a.y < b.y + b.height && b.y < a.y + a.height;
for (const graph of document.querySelectorAll('.order-graphs svg')) {
  const [wide, high] = ['width', 'height'].map((side) => Number(graph.getAttribute(side)));
  for (const part of graph.querySelectorAll('.line, rect, text')) {
    const {x, y, width, height} = part.getBBox();
    if (!(x >= 0 && y >= 0 && x + width <= wide && y + height <= high)) wrong.push(part.outerHTML);
  }
  const boxes = [...graph.querySelectorAll('.lock')].map((lock) => {
    const box = lock.querySelector('rect').getBBox();
    if (lock.querySelector('text').getBBox().width > box.width) wrong.push(lock.textContent);
    return box;
  });
  boxes.forEach((box, at) => {
    if (boxes.slice(at + 1).some((other) => inside(box, other))) wrong.push('two boxes');
  });
  for (const line of graph.querySelectorAll('.order .line')) {
    const end = line.getTotalLength() - 6;
    for (let at = 6; at < end; at += 4) {
      const {x, y} = line.getPointAtLength(at);
      if (boxes.some((box) => inside({x: x - 1, y: y - 1, width: 2, height: 2}, box))) {
        wrong.push(`${line.parentNode.getAttribute('aria-label')} crosses a box`);
        break;
      }
    }
  }
}
return wrong;";

/// Each part of the order is drawn for itself, and circles with a finding, circles without one and
/// other pairs differ.
pub(super) fn parts(browser: &mut Browser) -> Result<()> {
    record(browser, (".", "lock_orders.c"), "none", &[])?;
    for width in WINDOW_WIDTHS {
        browser.resize(width, 900)?;
        // Another view, and back: the view is drawn for the new width.
        select(browser, "#view=threads")?;
        select(browser, "#view=sync")?;
        let misplaced = browser.run(MISPLACED, json!([]))?;
        ensure!(misplaced == json!([]), "{width}: {misplaced}");
    }
    let graphs = "return [...document.querySelectorAll('.order-graphs svg')].map((graph) => \
         ['finding', 'circle', 'plain'].map((kind) => \
             graph.querySelectorAll(`.order.${kind}`).length))";
    let seen = browser.run(graphs, json!([]))?;
    let wanted = json!([[5, 0, 0], [0, 2, 2], [0, 0, 29], [0, 0, 1]]);
    ensure!(seen == wanted, "{seen}");
    let rows = "return [...document.querySelectorAll('[data-order]')].slice(0, 7).map((row) => \
         [...row.querySelectorAll('td')].slice(-2).map((cell) => cell.textContent))";
    let found = json!(["Finding 1 (proved)", "in a circle"]);
    let gated = json!(["", "in a circle: threads hold mutex gate.lock meanwhile"]);
    let seen = browser.run(rows, json!([]))?;
    let wanted = [vec![found; 5], vec![gated; 2]].concat();
    ensure!(seen == json!(wanted), "{seen}");
    // Two locks of one name differ by their numbers.
    let twins = "const texts = [...document.querySelectorAll('.orders .lock text')]; \
         return new Set(texts.map((text) => text.textContent)).size === texts.length";
    ensure!(browser.run(twins, json!([]))? == true, "equal labels");
    no_errors(browser)
}

/// The view says that lock calls were missed.
pub(super) fn missed(browser: &mut Browser) -> Result<()> {
    record(browser, ("waits", "traffic.c"), "0.1%", &["part"])?;
    let note = text(browser, ".lock-order .warn")?;
    ensure!(note.contains("ircles may be missing"), "{note}");
    no_errors(browser)
}

/// Too many equal locks for a graph are one box, with an arrow to itself.
pub(super) fn many_equal(browser: &mut Browser) -> Result<()> {
    record(browser, (".", "accounts.c"), "none", &[])?;
    let order = text(browser, ".lock-order")?;
    ensure!(order.contains("locks of equal identity as one"), "{order}");
    let graph = "const graph = document.querySelector('.order-graphs svg'); \
         return [graph.querySelectorAll('[data-lock]').length, \
                 graph.querySelectorAll('[data-edge]').length, \
                 ...['width', 'height'].map((side) => Number(graph.getAttribute(side)) > 0), \
                 /NaN|undefined/.test(graph.outerHTML)]";
    let seen = browser.run(graph, json!([]))?;
    let wanted = json!([1, 1, true, true, false]);
    ensure!(seen == wanted, "{seen}");
    no_errors(browser)
}
