//! Tests that the page shows the processes that the program started, with the JSON report's
//! numbers.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use unspool_tests::browser::Browser;
use unspool_tests::memo::Memo;
use unspool_tests::{report, waiting};

use super::{REBUILD, Recorded, lanes, no_errors, opened, same, select, text};

/// Processes that start each other; one of them has two threads.
fn recorded() -> Result<Recorded> {
    let (folder, program) =
        waiting::compile_in(".", "family.c", &["gcc", "-g", "-O1", "-pthread"])?;
    let capture = folder.path().join("family.unspool");
    let page = folder.path().join("family.html");
    let html = page.to_str().context("a path in UTF-8")?;
    let program = program.to_str().context("a path in UTF-8")?;
    report::record(&capture, &["-q", "--html", html], &[program])?.success()?;
    Ok(Recorded {
        folder,
        capture,
        page,
    })
}

static RECORDED: Memo<(), Recorded> = Memo::new();

/// For each process: its start, its thread ids, the sums of its threads' states, and its creator.
const PROCESSES: &str = "
    const {rec} = window.unspool;
    const ids = {
        0: 'running_ns', 1: 'runnable_ns', 5: 'blocked_ns', 6: 'unknown_ns', 7: 'stopped_ns',
    };
    return rec.processes.map((process, index) => {
        const times = Object.fromEntries(Object.values(ids).map((name) => [name, 0]));
        const threads = rec.all.flatMap((thread, at) => thread.process === index ? [at] : []);
        for (const thread of threads) {
            const [from, to] = rec.life[thread];
            times.running_ns += to - from;
            for (let at = rec.spans.first[thread]; at < rec.spans.first[thread + 1]; at += 1) {
                const ns = rec.spans.to[at] - rec.spans.from[at];
                times.running_ns -= ns;
                times[ids[rec.spans.kind[at]]] += ns;
            }
        }
        const creator = rec.all[rec.creatorOf[index]];
        return {times, tids: threads.map((thread) => rec.all[thread].tid),
            creator_tid: creator?.tid ?? null, parent: creator?.process ?? null};
    });";

/// The processes without the states of their threads, which are in the page as lanes.
fn without_schedules(processes: &[Value]) -> Value {
    let mut processes = processes.to_vec();
    let threads = processes.iter_mut().map(|process| &mut process["threads"]);
    for thread in threads.filter_map(Value::as_array_mut).flatten() {
        if let Some(thread) = thread.as_object_mut() {
            thread.remove("schedule");
        }
    }
    processes.into()
}

/// The lanes and the critical path have the numbers of the JSON report, and each view shows the
/// processes.
pub(super) fn shown(browser: &mut Browser) -> Result<()> {
    let recorded = RECORDED.get((), recorded)?;
    let json = report::json(&recorded.capture, &[])?;
    let processes = json["processes"].as_array().context("processes")?;
    opened(browser, &recorded.page, "")?;
    let wanted = processes.iter().map(|process| {
        let threads = process["threads"].as_array().into_iter().flatten();
        let tids: Vec<&Value> = threads.map(|thread| &thread["tid"]).collect();
        let field = |name: &str| process[name].clone();
        json!({"times": field("times"), "tids": tids, "creator_tid": field("creator_tid"),
            "parent": field("parent")})
    });
    let seen = browser.run(REBUILD, json!([["processes"]]))?;
    let seen: Value = serde_json::from_str(seen.as_str().context("text")?)?;
    same(
        "processes",
        &seen["processes"],
        &without_schedules(processes),
    )?;
    let seen = browser.run(PROCESSES, json!([]))?;
    same("processes", &seen, &wanted.collect())?;
    let path = "
        const {path, all} = window.unspool.rec;
        return Array.from(path.thread, (thread) => all[thread].process ?? null);";
    let segments = json["critical_path"]["segments"].as_array();
    let segments = segments.into_iter().flatten();
    let wanted: Value = segments.map(|segment| segment["process"].clone()).collect();
    same("path", &browser.run(path, json!([]))?, &wanted)?;
    ensure!(text(browser, ".headline")?.contains("started 3 processes: family (3 times)."));

    // The tree: the main thread, what it started, and what that started.
    select(browser, "#view=threads")?;
    let rows = "return [...document.querySelectorAll('.tree tbody tr')].map((row) => [
        row.querySelector('th').style.getPropertyValue('--indent'),
        row.querySelector('th').textContent.trim()])";
    let rows = browser.run(rows, json!([]))?;
    let words = |row: usize| rows[row][1].as_str().unwrap_or_default().to_owned();
    ensure!(rows.as_array().map(Vec::len) == Some(3), "{rows}");
    ensure!(
        rows[0][0] == "0" && rows[1][0] == "1" && rows[2][0] == "2",
        "{rows}"
    );
    ensure!(
        words(1).contains("2 ×") && words(1).contains("process family"),
        "{rows}"
    );
    ensure!(words(2).contains("process family"), "{rows}");
    ensure!(words(1).contains("3 threads"), "{rows}");

    // A lane for each thread, in a group that folds.
    select(browser, "#view=timeline")?;
    browser.wait("return unspool.page.timeline.frames.length > 0")?;
    let shown = "return unspool.page.timeline.layout.lanes.map((lane) =>
        lane.thread === null ? lane.group.title : unspool.rec.all[lane.thread].tid)";
    let all = browser.run(shown, json!([]))?;
    let tids = processes
        .iter()
        .flat_map(|process| process["threads"].as_array());
    let tids = tids.flatten().map(|thread| thread["tid"].clone());
    let main = json["threads"][0]["tid"].clone();
    let expected = [main.clone(), json!("process family")]
        .into_iter()
        .chain(tids);
    same("lanes", &all, &expected.collect())?;
    let (left, top, _) = lanes(browser)?;
    // The group's name is below the ruler and the first lane.
    browser.drag(
        (left + 30, top + 24 + 20 + 15),
        (left + 30, top + 24 + 20 + 15),
    )?;
    browser.wait("return unspool.page.timeline.layout.lanes.length === 2")?;

    // A thread of another process, and a range.
    select(browser, "#view=timeline&thread=2")?;
    let panel = text(browser, ".details")?;
    let pid = format!("family, pid {}", processes[0]["pid"]);
    ensure!(
        panel.contains("process family") && panel.contains(&pid),
        "{panel} is not of {pid}"
    );
    // Where a thread of another process was created.
    let of_first = |at: usize| &processes[0]["threads"][at];
    ensure!(
        of_first(0)["creation"] == json!([]) && of_first(1)["creator"] == 0,
        "{}",
        processes[0]
    );
    let caller = &of_first(1)["creation"][0];
    let place = format!("family.c:{}", caller["line"]);
    ensure!(
        caller["function"] == "main" && panel.contains(&place),
        "{place}: {panel}"
    );
    let end = json["recording"]["duration_ns"]
        .as_u64()
        .context("duration")?;
    select(browser, &format!("#view=timeline&range=0-{end}"))?;
    let panel = text(browser, ".details")?;
    let lived = "1 thread and 4 threads of other processes lived.";
    ensure!(panel.contains(lived), "{panel}");
    no_errors(browser)
}

/// Processes of which only the start is known.
pub(super) fn not_recorded(browser: &mut Browser) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let capture = folder.path().join("alone.unspool");
    let page = folder.path().join("alone.html");
    let html = page.to_str().context("a path in UTF-8")?;
    let options = ["-q", "--no-follow", "--html", html];
    report::record(
        &capture,
        &options,
        &["/bin/sh", "-c", "/bin/true; /bin/true"],
    )?
    .success()?;
    opened(browser, &page, "#view=timeline")?;
    browser.wait("return unspool.page.timeline.frames.length > 0")?;
    let all = browser.run(
        "return unspool.rec.all.length === unspool.rec.threads.length",
        json!([]),
    )?;
    ensure!(all == true, "no lanes");
    no_errors(browser)
}

/// A process that was recorded together with the program: its threads, and a deadlock of both.
pub(super) fn recorded_together(browser: &mut Browser) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let page = folder.path().join("both.html");
    let [_, other] = crate::several::record_deadlock(&folder.path().join("both.unspool"), &page)?;
    opened(browser, &page, "#view=findings")?;
    let finding = text(browser, "main")?;
    let holder = format!("the main thread {other} of process {other} (across) holds");
    ensure!(finding.contains(&holder), "{holder}: {finding}");
    let last = browser.run("return unspool.rec.all.length - 1", json!([]))?;
    ensure!(last == 2, "{last}");
    select(browser, "#view=timeline&thread=2")?;
    let panel = text(browser, ".details")?;
    ensure!(panel.contains(&format!("across, pid {other}")), "{panel}");
    for view in ["threads", "sync", "findings"] {
        select(browser, &format!("#view={view}&thread=2"))?;
    }
    no_errors(browser)
}
