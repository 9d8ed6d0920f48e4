//! Tests the HTML report in real browsers: each view renders with the JSON report's numbers, links
//! lead to their targets, and the target's text stays text.

mod calls;
mod groups;
mod lock_order;
mod lock_waits;
mod processes;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use tempfile::TempDir;

use unspool_tests::browser::{Browser, Kind};
use unspool_tests::memo::Memo;
use unspool_tests::{process, report, waiting};

const LIMIT: Duration = Duration::from_secs(120);

const VIEWS: &[&str] = &[
    "overview", "threads", "timeline", "sync", "stacks", "source", "findings",
];

/// The steps of a trial in a browser.
type Check = fn(&mut Browser) -> Result<()>;

pub(crate) fn trials() -> Vec<Trial> {
    let checks: [(&str, Check); 20] = [
        ("views", views),
        ("numbers", numbers),
        ("links", links),
        ("timeline", timeline),
        ("labels", groups::labels),
        ("stripped", groups::stripped),
        ("lambdas", groups::lambdas),
        ("templates", groups::templates),
        ("processes", processes::shown),
        ("processes_not_recorded", processes::not_recorded),
        ("processes_recorded_together", processes::recorded_together),
        ("calls", calls::numbers),
        ("calls_many", calls::many),
        ("lock_order_many_equal", lock_order::many_equal),
        ("lock_order_missed", lock_order::missed),
        ("lock_order_parts", lock_order::parts),
        ("lock_waits", lock_waits::own),
        ("lock_waits_of_processes", lock_waits::of_started_process),
        ("text_stays_text", text_stays_text),
        ("bad_recordings", bad_recordings),
    ];
    let mut trials = Vec::new();
    for kind in Kind::ALL {
        for (name, check) in checks {
            trials.push(crate::trial(
                format!("html::{}::{name}", kind.name()),
                move || check(&mut Browser::start(kind)?),
            ));
        }
    }
    trials.push(crate::trial("html::commands", commands));
    trials
}

/// A recording of `programs/page.c` and its page. The program's path tries to be HTML, too.
pub(super) struct Recorded {
    folder: TempDir,
    pub(super) capture: PathBuf,
    page: PathBuf,
}

pub(super) fn recorded() -> Result<Recorded> {
    let (folder, program) = waiting::compile_in(".", "page.c", &["gcc", "-g", "-O1", "-pthread"])?;
    let odd = folder.path().join("<");
    fs::create_dir(&odd)?;
    let odd = odd.join("script><img src=x onerror=window.hit=1>");
    fs::rename(&program, &odd)?;
    symlink(&odd, &program)?;
    let capture = folder.path().join("page.unspool");
    let page = folder.path().join("page.html");
    let html = page.to_str().context("a path in UTF-8")?;
    let odd = odd.to_str().context("a path in UTF-8")?;
    report::record(&capture, &["-q", "--sync=all", "--html", html], &[odd])?.success()?;
    Ok(Recorded {
        folder,
        capture,
        page,
    })
}

/// All trials look at one recording.
pub(super) static RECORDED: Memo<(), Recorded> = Memo::new();

pub(super) fn opened(browser: &mut Browser, page: &Path, fragment: &str) -> Result<()> {
    browser.open(page, fragment)?;
    browser.wait("return window.unspool !== undefined")?;
    Ok(())
}

/// No error was seen by the page or by the browser.
pub(super) fn no_errors(browser: &mut Browser) -> Result<()> {
    let problems = browser.run("return window.unspool.problems", json!([]))?;
    ensure!(problems == json!([]), "problems in the page: {problems}");
    let console = browser.console()?;
    ensure!(console.is_empty(), "in the console: {console:?}");
    Ok(())
}

/// Selects by the fragment, and waits until the view is drawn.
fn select(browser: &mut Browser, fragment: &str) -> Result<()> {
    let script = "location.hash = arguments[0]; return true";
    browser.run(script, json!([fragment]))?;
    let view = fragment.split(['=', '&']).nth(1).unwrap_or_default();
    browser.wait(&format!(
        "return document.querySelector('main')?.className === '{view}' \
         && location.hash.includes('view={view}')"
    ))?;
    Ok(())
}

pub(super) fn text(browser: &mut Browser, selector: &str) -> Result<String> {
    let script = "return document.querySelector(arguments[0])?.textContent ?? null";
    let text = browser.run(script, json!([selector]))?;
    Ok(text.as_str().context(selector.to_owned())?.to_owned())
}

fn views(browser: &mut Browser) -> Result<()> {
    let recorded = RECORDED.get((), recorded)?;
    opened(browser, &recorded.page, "")?;
    for view in VIEWS {
        select(browser, &format!("#view={view}"))?;
        let current = text(browser, ".tabs [aria-current=page]")?;
        ensure!(
            current.to_lowercase().starts_with(view),
            "{current} is not {view}"
        );
        let shown = text(browser, "main")?;
        ensure!(shown.len() > 40, "the view {view} shows only {shown:?}");
    }
    select(browser, "#view=threads")?;
    let rows = "return document.querySelectorAll('.tree tbody tr').length";
    ensure!(
        browser.run(rows, json!([]))? == 4,
        "main, workers, opener, queuers"
    );
    select(browser, "#view=sync")?;
    let objects = "return document.querySelectorAll('.objects tbody tr').length \
                   === Math.min(200, unspool.rec.objects.length)";
    ensure!(
        browser.run(objects, json!([]))? == true,
        "a row for each object"
    );
    select(browser, "#view=stacks&flame=creations")?;
    let boxes = "return document.querySelectorAll('.flame .box').length";
    let boxes = browser.run(boxes, json!([]))?.as_u64();
    ensure!(boxes.is_some_and(|boxes| boxes > 6), "{boxes:?} boxes");
    // In the other theme, too.
    browser.run("document.querySelector('.theme').click()", json!([]))?;
    for view in VIEWS {
        select(browser, &format!("#view={view}"))?;
    }
    // The keyboard alone.
    select(browser, "#view=overview")?;
    browser.keys(&["3"])?;
    browser.wait("return document.querySelector('main').className === 'timeline'")?;
    browser.keys(&["/"])?;
    browser.wait("return document.activeElement.type === 'search'")?;
    browser.keys(&["o", "p", "e", "n", "_"])?;
    browser.wait("return document.querySelectorAll('.hits a').length > 0")?;
    browser.keys(&["\u{E007}"])?;
    browser.wait("return location.hash.includes('group=')")?;
    no_errors(browser)
}

/// The fields of the report that the page has, in the shape of the JSON report.
const REBUILD: &str = "
    const {rec} = window.unspool;
    const whole = (value) => {
        if (Array.isArray(value)) return value.map(whole);
        if (value === null || typeof value !== 'object') return value;
        const fields = Object.entries(value).map(([name, field]) => [name,
            ['creation', 'frames', 'stack'].includes(name) && typeof field === 'number'
                ? rec.stackOf(field) : whole(field)]);
        return Object.fromEntries(fields);
    };
    const fields = arguments[0].filter((name) => name in rec).map((name) => [name, whole(rec[name])]);
    return JSON.stringify(Object.fromEntries(fields));";

/// Each number of the JSON report is in the page, and what the page computes agrees with it.
/// The running times in the tree of threads add up to those of the kernel's schedule.
fn running_times(browser: &mut Browser, wanted: &Value) -> Result<()> {
    select(browser, "#view=threads")?;
    let shown = "
        const units = {ns: 1e-6, µs: 1e-3, ms: 1, s: 1e3};
        const cells = Array.from(document.querySelectorAll('.tree [data-running]'));
        return cells.reduce((sum, cell) => {
            const [number, unit] = cell.textContent.split(/\\s/);
            return sum + Number(number) * (units[unit] ?? 0);
        }, 0);";
    let shown_ms = browser.run(shown, json!([]))?;
    let shown_ms = shown_ms.as_f64().context("not all cells are times")?;
    let threads = wanted["threads"].as_array().into_iter().flatten();
    let running = threads.map(|thread| thread["schedule"]["running_ns"].as_f64());
    let running_ms: f64 = running.flatten().sum::<f64>() / 1e6;
    // Short waits that are not in the schedule count as waits in the page.
    ensure!(
        (shown_ms - running_ms).abs() <= running_ms / 5.0 + 20.0,
        "the tree has {shown_ms} ms, the schedule {running_ms} ms"
    );
    Ok(())
}

fn numbers(browser: &mut Browser) -> Result<()> {
    let recorded = RECORDED.get((), recorded)?;
    let mut wanted = report::json(&recorded.capture, &[])?;
    for thread in wanted["threads"].as_array_mut().context("threads")? {
        if let Some(times) = thread["times"].as_object_mut() {
            times.remove("waits");
        }
    }
    let path = wanted["critical_path"].as_object_mut();
    let segments = path.and_then(|path| path.remove("segments"));
    opened(browser, &recorded.page, "")?;
    let names: Vec<&String> = wanted.as_object().context("an object")?.keys().collect();
    let seen = browser.run(REBUILD, json!([names]))?;
    let seen: Value = serde_json::from_str(seen.as_str().context("text")?)?;
    same("", &seen, &wanted)?;
    let drawn = "
        const {path} = window.unspool.rec;
        return Array.from(path.thread, (thread, at) => [thread, path.from[at], path.from[at + 1]]);";
    let segments = segments.as_ref().and_then(Value::as_array).into_iter();
    let segments = segments.flatten().map(|segment| {
        let field = |name: &str| segment[name].clone();
        json!([field("thread"), field("from_ns"), field("to_ns")])
    });
    let drawn = browser.run(drawn, json!([]))?;
    same("critical path", &drawn, &segments.collect())?;
    let most = "
        const {life} = window.unspool.rec;
        const alive = (ns) => life.filter((one) => one && one[0] <= ns && ns < one[1]).length;
        const most = Math.max(...life.map((one) => (one ? alive(one[0]) : 0)));
        const axis = Number(document.querySelector('.chart .axis').textContent);
        return [axis, most];";
    let most = browser.run(most, json!([]))?;
    ensure!(most[0].as_u64() <= most[1].as_u64(), "{most}");
    // Waits of single spans add up to the sums of each thread and of each object.
    let sums = "
        const {rec} = window.unspool;
        const threads = rec.threads.map(() => ({held_ns: 0, others_ns: 0, idle_ns: 0}));
        const objects = rec.objects.map(() => ({count: 0, total_ns: 0, max_ns: 0}));
        const names = {2: 'held_ns', 3: 'others_ns', 4: 'idle_ns'};
        for (let thread = 0; thread < rec.threads.length; thread += 1) {
            for (let at = rec.spans.first[thread]; at < rec.spans.first[thread + 1]; at += 1) {
                const use = rec.useOf(rec.spans.use[at]);
                if (!use) continue;
                const ns = rec.spans.to[at] - rec.spans.from[at];
                threads[thread][names[rec.spans.kind[at]]] += ns;
                const sum = objects[use.object];
                sum.count += 1;
                sum.total_ns += ns;
                sum.max_ns = Math.max(sum.max_ns, ns);
            }
        }
        return {threads, objects};";
    let sums = browser.run(sums, json!([]))?;
    let all = |name: &str| wanted[name].as_array().cloned().unwrap_or_default();
    for (index, thread) in all("threads").iter().enumerate() {
        for name in ["held_ns", "others_ns", "idle_ns"] {
            let sum = &sums["threads"][index][name];
            let number = &thread["times"][name];
            same(&format!("waits of thread {index}, {name}"), sum, number)?;
        }
    }
    for (index, object) in all("objects").iter().enumerate() {
        for name in ["count", "total_ns", "max_ns"] {
            let sum = &sums["objects"][index][name];
            let number = &object["waits"][name];
            same(&format!("waits for object {index}, {name}"), sum, number)?;
        }
    }
    running_times(browser, &wanted)?;
    // What the tables print.
    select(browser, "#view=sync")?;
    let orders = all("lock_order");
    ensure!(!orders.is_empty(), "no lock order");
    for (index, order) in orders.iter().enumerate().take(100) {
        for (column, name) in [(3, "count"), (4, "threads")] {
            let cell = format!("[data-order='{index}'] td:nth-child({column})");
            let shown = text(browser, &cell)?.replace(',', "");
            ensure!(
                shown.parse::<u64>().ok() == order[name].as_u64(),
                "lock order {index}: {shown} is not {}",
                order[name]
            );
        }
    }
    select(browser, "#view=sync&order=0")?;
    let card = text(browser, ".order-card")?;
    ensure!(card.contains("Held since"), "{card}");
    browser.run(
        "document.querySelector('[data-lock]').dispatchEvent(\
                 new MouseEvent('click', {bubbles: true, cancelable: true}))",
        json!([]),
    )?;
    browser.wait("return /object=\\d/.test(location.hash) && !location.hash.includes('order=')")?;
    select(browser, "#view=sync")?;
    for (index, object) in all("objects").iter().enumerate().take(200) {
        let row = format!("[data-object='{index}'] td:nth-child(3)");
        let waits = text(browser, &row)?.replace(',', "");
        ensure!(
            waits.parse::<u64>().ok() == object["waits"]["count"].as_u64(),
            "object {index}: {waits} waits, not {}",
            object["waits"]["count"]
        );
    }
    no_errors(browser)
}

/// Equal documents; a number may be written as an integer or not.
pub(super) fn same(place: &str, seen: &Value, wanted: &Value) -> Result<()> {
    match (seen, wanted) {
        (Value::Object(seen), Value::Object(wanted)) => {
            let keys = |of: &serde_json::Map<String, Value>| {
                let mut keys: Vec<String> = of.keys().cloned().collect();
                keys.sort();
                keys
            };
            ensure!(keys(seen) == keys(wanted), "{place}: other fields");
            for (key, value) in seen {
                same(&format!("{place}.{key}"), value, &wanted[key])?;
            }
        }
        (Value::Array(seen), Value::Array(wanted)) => {
            ensure!(seen.len() == wanted.len(), "{place}: other length");
            for (at, (seen, wanted)) in seen.iter().zip(wanted).enumerate() {
                same(&format!("{place}[{at}]"), seen, wanted)?;
            }
        }
        (Value::Number(seen), Value::Number(wanted)) => ensure!(
            seen.as_f64() == wanted.as_f64(),
            "{place}: {seen}, not {wanted}"
        ),
        _ => ensure!(seen == wanted, "{place}: {seen}, not {wanted}"),
    }
    Ok(())
}

/// A link opens what it names, and back returns.
fn links(browser: &mut Browser) -> Result<()> {
    let recorded = RECORDED.get((), recorded)?;
    opened(
        browser,
        &recorded.page,
        "#view=timeline&thread=2&zoom=1000000-30000000&range=2000000-9000000",
    )?;
    let view = browser.run("return unspool.page.timeline.view", json!([]))?;
    ensure!(view == json!([1_000_000, 30_000_000]), "zoomed to {view}");
    let tid = browser.run("return String(unspool.rec.threads[2].tid)", json!([]))?;
    let panel = text(browser, ".details h2")?;
    ensure!(
        panel.contains(tid.as_str().unwrap_or("?")),
        "{panel} is not thread {tid}"
    );
    ensure!(text(browser, ".chip")?.contains("7.00 ms"), "the range");
    // A click on a link of the panel, and back.
    let before = browser.run("return location.hash", json!([]))?;
    browser.run(
        "document.querySelector('.details .place').click()",
        json!([]),
    )?;
    browser.wait("return document.querySelector('main').className === 'source'")?;
    ensure!(
        text(browser, ".listing .selected .line").is_ok(),
        "a line is selected"
    );
    browser.run("history.back()", json!([]))?;
    browser.wait("return document.querySelector('main').className === 'timeline'")?;
    let after = browser.run("return location.hash", json!([]))?;
    ensure!(before == after, "back leads to {after}, not {before}");
    // Each finding leads to its moment.
    let findings = browser.run("return unspool.rec.findings.length", json!([]))?;
    for finding in 0..findings.as_u64().unwrap_or(0) {
        select(browser, &format!("#view=findings&finding={finding}"))?;
        let follow = "document.querySelector('.finding.selected .links a').click()";
        browser.run(follow, json!([]))?;
        browser.wait(
            "return location.hash.includes('view=timeline') && location.hash.includes('zoom=')",
        )?;
    }
    // Nonsense in a link is ignored.
    opened(
        browser,
        &recorded.page,
        "#view=nothing&thread=99999&object=-4&zoom=9-1&range=x&span=7",
    )?;
    ensure!(text(browser, "main h1").is_ok(), "the overview is shown");
    no_errors(browser)
}

/// The left edge, the top and the width of the lanes on the screen.
fn lanes(browser: &mut Browser) -> Result<(i64, i64, i64)> {
    let place = browser.run(
        "const box = document.querySelector('.lanes').getBoundingClientRect();
         return [box.left, box.top, box.width].map(Math.round)",
        json!([]),
    )?;
    let number = |at: usize| place[at].as_i64().unwrap_or(0);
    Ok((number(0), number(1), number(2)))
}

/// Zoom, pan, selection of a range and of spans, by mouse and by keyboard.
fn timeline(browser: &mut Browser) -> Result<()> {
    let recorded = RECORDED.get((), recorded)?;
    opened(browser, &recorded.page, "#view=timeline")?;
    browser.wait("return unspool.page.timeline.frames.length > 0")?;
    let colors = "
        const canvas = document.querySelector('.lanes-canvas');
        const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
        return new Set(new Uint32Array(data.buffer)).size";
    let colors = browser.run(colors, json!([]))?.as_u64();
    ensure!(
        colors.is_some_and(|colors| colors > 8),
        "{colors:?} colours"
    );
    let (left, top, width) = lanes(browser)?;
    // A drag along the ruler selects a range.
    browser.drag((left + width / 2, top + 8), (left + width * 3 / 4, top + 8))?;
    browser.wait("return location.hash.includes('range=')")?;
    ensure!(
        text(browser, ".details")?.contains("lived"),
        "statistics of the range"
    );
    // The wheel over the minimap zooms, a drag on the lanes pans.
    let view = "return unspool.page.timeline.view";
    let whole = browser.run(view, json!([]))?;
    // The details of the range have moved the lanes.
    let (left, top, width) = lanes(browser)?;
    browser.wheel((left + width / 2, top - 20), -240)?;
    browser.wait("return unspool.page.timeline.view[1] - unspool.page.timeline.view[0] < unspool.rec.end * 0.9")?;
    let zoomed = browser.run(view, json!([]))?;
    ensure!(whole != zoomed, "the wheel zooms");
    browser.drag(
        (left + width / 2, top + 60),
        (left + width / 2 - 80, top + 60),
    )?;
    let panned = browser.run(view, json!([]))?;
    ensure!(
        panned[0].as_f64() > zoomed[0].as_f64(),
        "{panned} after {zoomed}"
    );
    // Keys: all of it, the next thread, its next wait.
    browser.run("document.querySelector('.lanes').focus()", json!([]))?;
    browser.keys(&["0"])?;
    browser.wait("return unspool.page.timeline.view[0] === 0")?;
    browser.keys(&["\u{E015}", "\u{E015}", "n"])?;
    browser.wait("return location.hash.includes('thread=') && location.hash.includes('span=')")?;
    let said = text(browser, "[aria-live]")?;
    ensure!(
        said.contains("ms") || said.contains("µs"),
        "a screen reader hears {said:?}"
    );
    no_errors(browser)
}

fn text_stays_text(browser: &mut Browser) -> Result<()> {
    let recorded = RECORDED.get((), recorded)?;
    let page = fs::read_to_string(&recorded.page)?;
    ensure!(page.matches("<img").count() == 0, "an element in the page");
    opened(browser, &recorded.page, "")?;
    for view in VIEWS {
        for thread in 0..5 {
            select(
                browser,
                &format!("#view={view}&thread={thread}&object={thread}"),
            )?;
        }
        let seen = browser.run(
            "return [document.querySelectorAll('img, b').length, window.hit ?? null]",
            json!([]),
        )?;
        ensure!(seen == json!([0, null]), "{view}: {seen}");
    }
    select(browser, "#view=source")?;
    let shown = text(browser, "main")?;
    ensure!(
        shown.contains("</script><img src=x onerror=window.hit=1>.c"),
        "the name of a source file is shown: {shown}"
    );
    network_is_refused(browser)
}

/// The page may not reach the network, even if its code wanted to.
pub(super) fn network_is_refused(browser: &mut Browser) -> Result<()> {
    let reached = "return fetch('http://127.0.0.1:9/').then(() => 'reached', () => 'refused')";
    ensure!(
        browser.run(reached, json!([]))? == "refused",
        "a request left the page"
    );
    let policy =
        "return unspool.problems.some((problem) => problem.startsWith('policy: connect-src'))";
    ensure!(
        browser.run(policy, json!([]))? == true,
        "the policy refused it"
    );
    Ok(())
}

/// Recordings that are cut, empty of calls, or without any end open, and say what is missing.
fn bad_recordings(browser: &mut Browser) -> Result<()> {
    let recorded = RECORDED.get((), recorded)?;
    let bytes = fs::read(&recorded.capture)?;
    let cut = recorded
        .folder
        .path()
        .join(format!("cut-{}", std::process::id()));
    for share in [2, 4, 10, 50] {
        fs::write(&cut, &bytes[..bytes.len() - bytes.len() / share])?;
        let page = cut.with_extension(format!("{share}.html"));
        let mut command = report::unspool()?;
        command
            .args(["report", "--format", "html", "-o"])
            .arg(&page)
            .arg(&cut);
        let run = process::run(&mut command, LIMIT)?;
        ensure!(run.code()? == 1, "a cut recording is an error: {run}");
        opened(browser, &page, "")?;
        for view in VIEWS {
            select(browser, &format!("#view={view}"))?;
        }
        select(browser, "#view=overview")?;
        ensure!(
            text(browser, ".notes .error").is_ok(),
            "the page says that it is cut"
        );
        no_errors(browser)?;
    }
    // Without calls.
    let plain = recorded
        .folder
        .path()
        .join(format!("plain-{}", std::process::id()));
    let page = plain.with_extension("html");
    let html = page.to_str().context("a path in UTF-8")?;
    report::record(&plain, &["-q", "--html", html], &["/bin/true"])?.success()?;
    opened(browser, &page, "")?;
    for view in VIEWS {
        select(browser, &format!("#view={view}"))?;
        ensure!(text(browser, "main")?.len() > 30, "{view} is blank");
    }
    no_errors(browser)
}

/// The commands that write the page, and their errors.
fn commands() -> Result<()> {
    let recorded = RECORDED.get((), recorded)?;
    let capture = &recorded.capture;
    let run = |arguments: &[&str]| -> Result<process::Run> {
        let mut command: Command = report::unspool()?;
        command.args(arguments).arg(capture);
        process::run(&mut command, LIMIT)
    };
    let viewed = run(&["view", "--no-open"])?.success()?.text();
    let page = Path::new(viewed.trim());
    ensure!(
        fs::read_to_string(page)?.contains("Content-Security-Policy"),
        "{viewed}"
    );
    fs::remove_file(page)?;
    let written = run(&["report", "--format", "html"])?.success()?.text();
    ensure!(written.starts_with("<!DOCTYPE html>"), "to standard output");
    let without = run(&["report", "--format", "html", "--no-source"])?
        .success()?
        .text();
    ensure!(without.len() < written.len(), "source files are left out");
    let refused = run(&["report", "--format", "html", "-o", "/nowhere/report.html"])?;
    ensure!(refused.code()? == 1, "{refused}");
    ensure!(
        refused.stderr.contains("cannot write /nowhere/report.html"),
        "{refused}"
    );
    let mut view = report::unspool()?;
    view.arg("view")
        .arg(capture)
        .env("BROWSER", "/nowhere/browser");
    let refused = process::run(&mut view, LIMIT)?;
    ensure!(refused.code()? == 1, "{refused}");
    ensure!(refused.stderr.contains("/nowhere/browser"), "{refused}");
    fs::remove_file(refused.text().trim())?;
    Ok(())
}
