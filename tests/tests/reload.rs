//! Tests libraries that are unloaded, and whose addresses another library gets: its calls and its
//! locks must not be taken for those of the former one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use serde_json::Value;

use unspool_tests::{process, report, waiting, workspace};

const LIMIT: Duration = Duration::from_secs(60);

/// Name, function and mutexes of each plugin.
const PLUGINS: [(&str, &str, [&str; 2]); 2] = [
    ("first.so", "plug", ["low", "high"]),
    ("second.so", "work", ["high", "low"]),
];

pub(crate) fn trials() -> Vec<Trial> {
    let without_build_ids: &[&str] = &["-Wl,--build-id=none"];
    let with_build_ids: &[&str] = &["-Wl,--build-id"];
    let cases: [(&str, &[&str], bool, &[&str]); 5] = [
        ("other-file", with_build_ids, false, &[]),
        (
            "other-file-traps",
            with_build_ids,
            false,
            &["--probes", "traps"],
        ),
        ("other-file-waits", with_build_ids, false, &["--cpu"]),
        ("replaced-file", with_build_ids, true, &[]),
        (
            "replaced-file-without-build-id",
            without_build_ids,
            true,
            &[],
        ),
    ];
    cases
        .into_iter()
        .map(|(name, link, replaced, options)| {
            crate::trial(format!("reload::{name}"), move || {
                check(link, replaced, options)
            })
        })
        .collect()
}

fn check(link: &[&str], replaced: bool, options: &[&str]) -> Result<()> {
    let host = ["gcc", "-std=gnu11", "-g", "-O1", "-pthread"];
    let (folder, host) = waiting::compile_in("reload", "host.c", &host)?;
    for (file, function, [outer, inner]) in PLUGINS {
        let mut compiler = Command::new("gcc");
        compiler.args(["-std=gnu11", "-g", "-O1", "-shared", "-fPIC", "-o", file]);
        compiler.args(link);
        let macros = [("FUNCTION", function), ("OUTER", outer), ("INNER", inner)];
        compiler.args(macros.map(|(name, value)| format!("-D{name}={value}")));
        compiler.arg(workspace::file("programs/reload/plugin.c"));
        process::run(compiler.current_dir(folder.path()), LIMIT)?.success()?;
    }
    let mut command = report::unspool()?;
    command.args([
        "record",
        "-q",
        "--sync=all",
        "--budget",
        "none",
        "-o",
        "capture",
    ]);
    command.args(PLUGINS.map(|(_, function, _)| format!("--trace={function}")));
    command.args(options).arg("--").arg(host);
    command.args(replaced.then_some("./plugin.so"));
    for (file, function, _) in PLUGINS {
        command.args([&format!("./{file}"), function]);
    }
    let run = process::run(command.current_dir(folder.path()), LIMIT)?.success()?;
    let text = run.text();
    let called: Vec<Vec<&str>> = text
        .lines()
        .filter_map(|line| line.strip_prefix("called "))
        .map(|line| line.split(' ').collect())
        .collect();
    let addresses: BTreeSet<&str> = called.iter().map(|call| call[1]).collect();
    ensure!(addresses.len() == 1, "the functions are at {addresses:?}");
    let mut truth: BTreeMap<&str, u64> = BTreeMap::new();
    for call in &called {
        *truth.entry(call[0]).or_default() += 1;
    }

    let report = read(&folder.path().join("capture"))?;
    let rows = |key: &str| report[key].as_array().cloned().unwrap_or_default();
    let functions = rows("functions");
    let is_traced = |row: &&Value| PLUGINS.iter().any(|(_, name, _)| row["name"] == *name);
    let traced: Vec<(&str, u64)> = functions
        .iter()
        .filter(is_traced)
        .map(|row| Some((row["name"].as_str()?, row["calls"].as_u64()?)))
        .collect::<Option<_>>()
        .context("names and calls")?;
    ensure!(
        traced.len() == truth.len() && traced.iter().copied().collect::<BTreeMap<_, _>>() == truth,
        "{traced:?} instead of {truth:?}"
    );
    let mutexes = rows("objects")
        .iter()
        .filter(|object| ["low", "high"].iter().any(|name| object["name"] == *name))
        .count();
    // Without a build-id, each load may be of another file.
    let are_told_apart = match link {
        ["-Wl,--build-id=none"] => mutexes >= 4,
        _ => mutexes == 4,
    };
    ensure!(are_told_apart, "{mutexes} mutexes: {:#}", report["objects"]);
    ensure!(rows("findings").is_empty(), "{:#}", report["findings"]);
    Ok(())
}

fn read(capture: &Path) -> Result<Value> {
    let mut command = report::unspool()?;
    command
        .arg("report")
        .arg(capture)
        .args(["--format", "json"]);
    let text = process::run(&mut command, LIMIT)?.success()?.text();
    serde_json::from_str(&text).context(text)
}
