//! Tests the page of a call graph.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use unspool_tests::browser::Browser;
use unspool_tests::memo::Memo;
use unspool_tests::{process, report, waiting};

use super::super::export::{calls, export};
use super::{LIMIT, no_errors, opened, text};

/// A page and the numbers of calls by caller and callee.
struct Graph {
    page: PathBuf,
    edges: calls::Edges,
    _folder: TempDir,
}

fn recorded() -> Result<Graph> {
    let options = ["g++", "-g", "-O0", "-pthread", "-finstrument-functions"];
    let (folder, program) = waiting::compile_in(".", "instrumented.cpp", &options)?;
    let capture = folder.path().join("capture");
    let program = program.to_str().context("a path in UTF-8")?;
    report::record(&capture, &["-q", "--calls"], &[program])?.success()?;
    let page = folder.path().join("calls.html");
    export(&capture, "html", &page, &[])?.success()?;
    Ok(Graph {
        page,
        edges: calls::edges(&calls::graph(&capture, &[], folder.path())?)?,
        _folder: folder,
    })
}

static RECORDED: Memo<(), Graph> = Memo::new();

/// The callers, or the callees, that an opened row shows, with the numbers of calls.
const ENDS: &str = "
    const row = document.querySelector(`[data-row='calls-${arguments[0]}']`).nextElementSibling;
    const lists = row.querySelectorAll('.pair > div');
    return Array.from(lists[arguments[1]].querySelectorAll('li'), (item) =>
        [Number(item.dataset.end), Number(item.querySelector('data').value)]);";

/// An opened row shows the callers and the callees that the graph of `--format dot` has, with its
/// numbers. A link opens the row of another function.
pub(super) fn numbers(browser: &mut Browser) -> Result<()> {
    let graph = RECORDED.get((), recorded)?;
    opened(browser, &graph.page, "")?;
    let names = "return unspool.calls.functions.map((one) => one.name)";
    let names: Vec<String> = serde_json::from_value(browser.run(names, json!([]))?)?;
    let mut seen = calls::Edges::new();
    for at in 0..names.len() {
        let toggle = "document.getElementById(`row-calls-${arguments[0]}`).click()";
        browser.run(toggle, json!([at]))?;
        browser.wait(&format!(
            "return document.querySelector('#row-calls-{at}').ariaExpanded === 'true'"
        ))?;
        for (side, is_callee) in [(0, false), (1, true)] {
            let ends = browser.run(ENDS, json!([at, side]))?;
            for end in ends.as_array().context("ends")? {
                let count = end[1].as_u64().context("a number")?;
                // A caller may be code that is not recorded.
                let Some(other) = end[0].as_u64() else {
                    continue;
                };
                let (here, other) = (names[at].clone(), names[other as usize].clone());
                let edge = if is_callee {
                    (here, other)
                } else {
                    (other, here)
                };
                let before = seen.insert(edge.clone(), count);
                ensure!(before.is_none_or(|before| before == count), "{edge:?}");
            }
        }
    }
    ensure!(
        seen == graph.edges,
        "{seen:#?} in the page, not {:#?}",
        graph.edges
    );
    let times = "return unspool.calls.functions.every(({sums}) =>
        sums.self_ns <= sums.total_ns && sums.total_ns <= unspool.calls.total_ns)";
    ensure!(browser.run(times, json!([]))? == true);

    // In the other theme, and from a caller to its callee.
    browser.run("document.querySelector('.theme').click()", json!([]))?;
    opened(browser, &graph.page, "#q=catcher")?;
    follow(browser, ".pair li a[href*=open]")?;
    browser.wait("return document.querySelectorAll('.opened').length === 2")?;
    browser.wait("return document.activeElement.classList.contains('toggle')")?;
    no_errors(browser)
}

/// Opens the first row and follows a link in it.
fn follow(browser: &mut Browser, link: &str) -> Result<()> {
    for selector in [".toggle", link] {
        browser.wait(&format!(
            "const found = document.querySelector('{selector}'); found?.click(); return found"
        ))?;
    }
    Ok(())
}

/// A page of 5,000 functions opens fast and finds each of them.
pub(super) fn many(browser: &mut Browser) -> Result<()> {
    const FUNCTIONS: usize = 5000;
    static MANY: Memo<(), Graph> = Memo::new();
    let graph = MANY.get((), || traced(FUNCTIONS))?;
    opened(browser, &graph.page, "")?;
    let ready = browser.run("return unspool.ready_ms", json!([]))?;
    let ready = ready.as_f64().context("milliseconds")?;
    ensure!(ready < 10_000.0, "{ready} ms until the page is ready");
    let status = text(browser, "[role=status]")?;
    ensure!(status == "5,001 functions", "{status}");
    browser.keys(&["/"])?;
    browser.wait("return document.activeElement.type === 'search'")?;
    browser.keys(&["f", "4", "3", "2", "1"])?;
    browser.wait("return document.querySelectorAll('.toggle').length === 1")?;
    let row = text(browser, ".toggle .function")?;
    ensure!(row == "f4321", "{row}");
    // Its callee is in no drawn row without the filter.
    follow(browser, ".pair > div:last-child li a")?;
    browser.wait("return document.activeElement.textContent.includes('f4320')")?;
    let hidden = "return [unspool.page.table.selected().length, location.hash.includes('q=')]";
    ensure!(browser.run(hidden, json!([]))? == json!([FUNCTIONS + 1, false]));
    // A limit leaves the functions with a larger share.
    browser.run("location.hash = '#least=50'", json!([]))?;
    browser.wait("return document.querySelectorAll('.toggle').length === 0")?;
    browser.run("location.hash = '#least=0.001'", json!([]))?;
    browser.wait("return document.querySelectorAll('.toggle').length > 100")?;
    let seen: Value = browser.run("return unspool.calls.edges.length", json!([]))?;
    // With the beginning of `main`.
    ensure!(seen == 2 * FUNCTIONS + 1, "{seen} edges");
    no_errors(browser)
}

/// A trace in which `main` calls each function, and each function calls the one before it.
fn traced(functions: usize) -> Result<Graph> {
    let folder = tempfile::tempdir()?;
    let file = |name: &str| folder.path().join(name);
    let mut source = String::new();
    for at in 0..functions {
        writeln!(source, "void f{at}(void) {{}}")?;
    }
    source += "int main(void) { return 0; }";
    fs::write(file("many.c"), source)?;
    let mut compiler = Command::new("gcc");
    compiler.args(["-O0", "-no-pie", "-o"]).arg(file("many"));
    process::run(compiler.arg(file("many.c")), LIMIT)?.success()?;
    let names = process::run(Command::new("nm").arg(file("many")), LIMIT)?.success()?;
    let names = names.text();
    let address = |name: &str| {
        let mut symbols = names.lines().filter_map(|line| line.split_once(" T "));
        let found = symbols.find(|(_, symbol)| *symbol == name);
        Ok::<_, anyhow::Error>(found.with_context(|| name.to_owned())?.0)
    };
    let mut trace = format!("E0x{}\n", address("main")?);
    let addresses = (0..functions).map(|at| address(&format!("f{at}")));
    let addresses: Vec<&str> = addresses.collect::<Result<_>>()?;
    for at in 0..functions {
        writeln!(trace, "E0x{}", addresses[at])?;
        let before = addresses[at.checked_sub(1).unwrap_or(functions - 1)];
        writeln!(trace, "E0x{before}\nX0x{before}")?;
        writeln!(trace, "X0x{}", addresses[at])?;
    }
    fs::write(file("trace.txt"), trace)?;
    let program = file("many");
    let program = program.to_str().context("a path in UTF-8")?;
    let page = file("many.html");
    let options = ["--from", "pvtrace", "--exec", program];
    export(&file("trace.txt"), "html", &page, &options)?.success()?;
    Ok(Graph {
        page,
        edges: calls::Edges::new(),
        _folder: folder,
    })
}
