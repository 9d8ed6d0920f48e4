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

#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    /// Each plugin has a build-id.
    build_ids: bool,
    /// All plugins have the same path, one after the other.
    replaced: bool,
    rounds: u32,
    /// Options of `record`.
    options: &'static [&'static str],
}

const USUAL: Case = Case {
    name: "other-file",
    build_ids: true,
    replaced: false,
    rounds: 10,
    options: &[],
};

const CASES: [Case; 6] = [
    USUAL,
    Case {
        name: "other-file-traps",
        options: &["--probes", "traps"],
        ..USUAL
    },
    Case {
        name: "other-file-samples",
        options: &["--cpu"],
        ..USUAL
    },
    // Each round instruments two functions, and at most 500 can be instrumented at once.
    Case {
        name: "many-rounds",
        rounds: 300,
        ..USUAL
    },
    Case {
        name: "replaced-file",
        replaced: true,
        ..USUAL
    },
    Case {
        name: "replaced-file-without-build-id",
        build_ids: false,
        replaced: true,
        ..USUAL
    },
];

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |case: Case| crate::trial(format!("reload::{}", case.name), move || check(case));
    CASES.into_iter().map(trial).collect()
}

fn check(case: Case) -> Result<()> {
    let rounds = format!("-DROUNDS={}", case.rounds);
    let host = ["gcc", "-std=gnu11", "-g", "-O1", "-pthread", &rounds];
    let (folder, host) = waiting::compile_in("reload", "host.c", &host)?;
    let build_id = match case.build_ids {
        true => "-Wl,--build-id",
        false => "-Wl,--build-id=none",
    };
    for (file, function, [outer, inner]) in PLUGINS {
        let mut compiler = Command::new("gcc");
        compiler.args(["-std=gnu11", "-g", "-O1", "-shared", "-fPIC", "-o", file]);
        compiler.arg(build_id);
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
    command.args(case.options).arg("--").arg(host);
    command.args(case.replaced.then_some("./plugin.so"));
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
    let objects = rows("objects");
    let mutexes: Vec<&Value> = objects
        .iter()
        .filter(|object| ["low", "high"].iter().any(|name| object["name"] == *name))
        .collect();
    // Each mutex belongs to one plugin, whose function alone uses it.
    let mut users = BTreeSet::new();
    for mutex in &mutexes {
        let uses = mutex["uses"].as_array().context("uses")?.iter();
        let callers: BTreeSet<Option<&str>> = uses
            .map(|used| {
                let path = usize::try_from(used["path"].as_u64()?).ok()?;
                report["paths"][path]["frames"][1]["function"].as_str()
            })
            .collect();
        ensure!(
            callers.len() == 1 && !callers.contains(&None),
            "{callers:?}"
        );
        users.extend(callers.into_iter().flatten());
    }
    ensure!(
        users.into_iter().eq(PLUGINS.map(|(_, name, _)| name)),
        "a plugin's function has the other's name"
    );
    let text = |key: &str| -> BTreeSet<String> {
        let values = mutexes.iter().map(|mutex| mutex[key].to_string());
        values.collect()
    };
    let (names, keys) = (text("name"), text("key"));
    ensure!(
        mutexes.len() == 4 && names.len() == 2 && keys.len() == 4,
        "{names:?} {keys:?}: {:#}",
        report["objects"]
    );
    // In many rounds, the short threads are a finding, and so may be the main thread, which starts
    // them one after the other.
    let findings = rows("findings");
    let are_true = findings.iter().all(|finding| {
        ["churn", "bottleneck"]
            .iter()
            .any(|kind| finding["kind"] == *kind)
    });
    ensure!(are_true, "{findings:#?}");
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
