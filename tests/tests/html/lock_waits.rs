//! Tests that the page shows locks of which only the waits are known, with the JSON report's
//! numbers.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use unspool_tests::browser::Browser;
use unspool_tests::memo::Memo;
use unspool_tests::{lock_waits, report};

use super::{REBUILD, Recorded, no_errors, opened, same, select, text};

/// One recording of the program itself, and one in which another program starts it.
fn recorded(started: bool) -> Result<Recorded> {
    let (folder, command) = lock_waits::build(started)?;
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let capture = folder.path().join("locks.unspool");
    let page = folder.path().join("locks.html");
    let html = page.to_str().context("a path in UTF-8")?;
    report::record(&capture, &["-q", "--html", html], &command)?.success()?;
    Ok(Recorded {
        folder,
        capture,
        page,
    })
}

static RECORDED: Memo<bool, Recorded> = Memo::new();

/// The waits for each lock, from the spans of all threads.
const SUMS: &str = "
    const {rec} = window.unspool;
    const sums = rec.lock_waits.map(() => [0, 0, 0]);
    for (let thread = 0; thread < rec.all.length; thread += 1) {
        for (let at = rec.spans.first[thread]; at < rec.spans.first[thread + 1]; at += 1) {
            const lock = rec.lockAt(thread, at);
            if (lock < 0) continue;
            const ns = rec.spans.to[at] - rec.spans.from[at];
            const [count, total, longest] = sums[lock - rec.objects.length];
            sums[lock - rec.objects.length] = [count + 1, total + ns, Math.max(longest, ns)];
        }
    }
    return sums;";

pub(super) fn own(browser: &mut Browser) -> Result<()> {
    shown(browser, false)
}

pub(super) fn of_started_process(browser: &mut Browser) -> Result<()> {
    shown(browser, true)
}

fn shown(browser: &mut Browser, started: bool) -> Result<()> {
    let recorded = RECORDED.get(started, || recorded(started))?;
    let json = report::json(&recorded.capture, &[])?;
    let locks = json["lock_waits"].as_array().context("lock_waits")?;
    ensure!(locks.len() >= 4, "{locks:#?}");
    opened(browser, &recorded.page, "")?;
    let seen = browser.run(REBUILD, json!([["lock_waits", "findings"]]))?;
    let seen: Value = serde_json::from_str(seen.as_str().context("text")?)?;
    for name in ["lock_waits", "findings"] {
        same(name, &seen[name], &json[name])?;
    }
    let sums = locks.iter().map(|lock| {
        let field = |name: &str| lock[name].clone();
        json!([field("count"), field("total_ns"), field("longest_ns")])
    });
    same("sums", &browser.run(SUMS, json!([]))?, &sums.collect())?;
    ensure!(text(browser, "main")?.contains("Longest waits by object"));

    // What the lock costs the run.
    let impacts = json["critical_path"]["impacts"].as_array();
    let locks_of = impacts.into_iter().flatten();
    let locks_of = locks_of.filter(|it| it["lock_waits"].is_number());
    let shown = "return [...document.querySelectorAll('main a.object')].filter((link) =>
        link.parentNode.textContent.includes('never contended')).length";
    let shown = browser.run(shown, json!([]))?;
    let expected = locks_of.clone().count().min(5);
    ensure!(shown == expected, "{shown} of {expected} locks");

    // The table, in whole and in a range.
    select(browser, "#view=sync")?;
    for (index, lock) in locks.iter().enumerate() {
        let shown = text(browser, &format!("[data-object='{index}'] td:nth-child(3)"))?;
        ensure!(
            shown.parse().ok() == lock["count"].as_u64(),
            "{index}: {shown}"
        );
    }
    let end = json["recording"]["duration_ns"].as_u64().context("end")?;
    select(browser, &format!("#view=sync&range=0-{}", end + 1))?;
    browser.wait("return document.querySelector('.toolbar')?.textContent.includes('range')")?;
    let shown = text(browser, "[data-object='0'] td:nth-child(3)")?;
    ensure!(shown.parse().ok() == locks[0]["count"].as_u64(), "{shown}");

    // From a finding to its lock.
    let findings = json["findings"].as_array().context("findings")?;
    let of_door = |finding: &Value| {
        let index = finding["lock_waits"].as_u64()?;
        let lock = locks.get(usize::try_from(index).ok()?)?;
        (lock["object"]["name"] == "door").then_some(lock)
    };
    let mut found = findings.iter().enumerate();
    let (at, door) = found
        .find_map(|(at, finding)| Some((at, of_door(finding)?)))
        .context("a finding of `door`")?;
    select(browser, &format!("#view=findings&finding={at}"))?;
    let link = format!("document.querySelector('#finding-{at} a.object').click()");
    browser.run(&link, json!([]))?;
    browser.wait("return document.querySelector('.object-page') !== null")?;
    let page = text(browser, ".object-page")?;
    let count = format!("{}, ", door["count"]);
    for words in ["mutex door", "pthread_mutex_lock()", "timed", &count] {
        ensure!(page.contains(words), "{words}: {page}");
    }
    ensure!(page.contains("process lock_waits") == started, "{page}");
    for (number, sums) in [(1, "waiters"), (2, "holders")] {
        let section = format!(".object-page .pair section:nth-child({number})");
        let shown = text(browser, &section)?;
        for thread in door[sums].as_array().context(sums)?.iter().take(12) {
            let tid = thread["tid"].to_string();
            ensure!(shown.contains(&tid), "{tid} in {sums}: {shown}");
        }
    }
    // From the lock to its longest wait, and back.
    let link = "[...document.querySelectorAll('.object-page a')].find((link) =>
        link.textContent === 'Longest wait in the timeline').click()";
    browser.run(link, json!([]))?;
    browser.wait("return document.querySelector('main').className === 'timeline'")?;
    browser.run(
        "document.querySelector('.details a.object').click()",
        json!([]),
    )?;
    browser.wait("return document.querySelector('.object-page') !== null")?;
    let title = text(browser, ".object-page h2")?;
    ensure!(title == "mutex door", "{title}");
    no_errors(browser)
}
