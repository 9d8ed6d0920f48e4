//! Permitted directions of use: between crates, the folders of the command and of the stub, and
//! what only `platform/` knows.

use std::collections::BTreeMap;

use anyhow::{Result, bail, ensure};

use super::{code, none, packages, places, read, sources, words};

/// Most files that name an architecture outside `platform/`: help texts, messages and fixtures.
const MAX_ARCHITECTURE_FILES: usize = 8;

/// Invariant 3: the command asks `platform/` for what differs by architecture. No other code of it
/// chooses by architecture, and few files name one in a text.
pub(super) fn architectures_in_platform() -> Result<()> {
    let outside = |place: &String| {
        let inside = place.strip_prefix("analyzer/unspool/src/");
        inside.is_some_and(|inside| !inside.starts_with("platform"))
    };
    let chosen = places(|line| {
        let code = code(line);
        ["X86_64", "Aarch64", "Arm"]
            .iter()
            .any(|name| code.contains(&format!("Arch::{name}")))
    })?;
    none(
        chosen.into_iter().filter(outside),
        "code outside platform/ does not choose by architecture",
    )?;
    let names = [
        "x86", "x86_64", "aarch64", "AArch64", "arm", "ARM", "rip", "rsp", "cpsr", "fs_base",
    ];
    let naming = places(|line| {
        let line = line.trim_start();
        !line.starts_with("//") && words(line).any(|word| names.contains(&word))
    })?;
    let mut files: Vec<&str> = naming
        .iter()
        .filter(|place| outside(place))
        .filter_map(|place| place.split(':').next())
        .collect();
    files.dedup();
    ensure!(
        files.len() <= MAX_ARCHITECTURE_FILES,
        "at most {MAX_ARCHITECTURE_FILES} files outside platform/ name an architecture, seen: {files:#?}"
    );
    Ok(())
}

/// The direction of the crates' dependencies, and that stub and analyzer share no code.
pub(super) fn crate_imports() -> Result<()> {
    let allowed: BTreeMap<&str, &[&str]> = [
        ("stub", &[][..]),
        ("analyzer/rsp", &[]),
        ("analyzer/image", &[]),
        ("analyzer/capture", &[]),
        ("analyzer/unwind", &["unspool-image"]),
        (
            "analyzer/unspool",
            &[
                "unspool-capture",
                "unspool-image",
                "unspool-rsp",
                "unspool-stub",
                "unspool-unwind",
            ],
        ),
        ("tests", &[]),
    ]
    .into();
    ensure!(
        packages().eq(allowed.keys().copied()),
        "a package this test does not know"
    );
    for (package, allowed) in allowed {
        let manifest = read(&format!("{package}/Cargo.toml"))?;
        let mut section = "";
        for line in manifest.lines() {
            if line.starts_with('[') {
                section = line.trim_matches(['[', ']']);
            }
            let name = line.split(['.', ' ', '=']).next().unwrap_or("");
            if section.ends_with("dependencies") && name.starts_with("unspool-") {
                ensure!(
                    allowed.contains(&name),
                    "{package} must not depend on {name} ({section})"
                );
            }
        }
    }
    // `unspool stub` calls the stub's own main, and `unspool record` lets it prepare the kernel.
    let uses = places(|line| code(line).contains("unspool_stub::"))?;
    let foreign = uses.iter().filter(|place| {
        place.starts_with("analyzer/") && !place.starts_with("analyzer/unspool/src/cmd")
    });
    none(foreign.cloned(), "only cmd/ may call the stub")
}

/// Inside `unspool`: cmd uses {collect, model, views}, views uses model, all use platform and
/// primitives, nothing goes back.
pub(super) fn module_imports() -> Result<()> {
    let above: &[&str] = &["cmd", "collect", "model", "views", "store", "debuginfod"];
    let forbidden: &[(&str, &[&str])] = &[
        ("platform", above),
        ("primitives", above),
        ("maps", above),
        ("debuginfod", &["cmd", "collect", "model", "views", "store"]),
        ("store", &["cmd", "collect", "model", "views", "debuginfod"]),
        ("model", &["cmd", "collect", "views", "debuginfod"]),
        ("collect", &["cmd", "model", "views", "debuginfod"]),
        ("views", &["cmd", "collect", "debuginfod"]),
    ];
    let mut wrong = Vec::new();
    for file in sources()? {
        let Some(inside) = file.path.strip_prefix("analyzer/unspool/src/") else {
            continue;
        };
        // Tests of the model read the sentences of its findings.
        if inside.contains("/tests") {
            continue;
        }
        let module = inside.split(['/', '.']).next().unwrap_or("");
        let Some((_, forbidden)) = forbidden.iter().find(|(name, _)| *name == module) else {
            continue;
        };
        for (number, line) in file.text.lines().enumerate() {
            for name in *forbidden {
                if code(line).contains(&format!("crate::{name}")) {
                    wrong.push(format!("{}:{}: {}", file.path, number + 1, line.trim()));
                }
            }
        }
    }
    none(
        wrong,
        "model and collect import neither each other nor cmd and views; views import model; platform \
         and primitives import none of them",
    )
}

/// The folders that each folder of the stub may use. A folder comes after the folders that it uses,
/// so there is no cycle.
const STUB_MODULES: &[(&str, &[&str])] = &[
    ("sys", &[]),
    ("bytecode", &["sys"]),
    ("arch", &["sys", "bytecode"]),
    ("output", &["sys"]),
    ("thread_events", &["sys", "arch"]),
    ("samples", &["sys", "arch", "thread_events"]),
    ("schedule", &["sys", "arch", "thread_events"]),
    ("breakpoint", &["sys", "arch", "bytecode"]),
    ("tracepoint", &["sys", "arch", "bytecode", "breakpoint"]),
    ("ptrace", &["sys", "arch"]),
    ("subscription", &["sys", "arch", "schedule", "tracepoint"]),
    (
        "tracee",
        &[
            "sys",
            "arch",
            "output",
            "samples",
            "schedule",
            "bytecode",
            "breakpoint",
            "tracepoint",
            "ptrace",
            "subscription",
        ],
    ),
    (
        "session",
        &[
            "sys",
            "arch",
            "samples",
            "schedule",
            "breakpoint",
            "tracepoint",
            "ptrace",
            "subscription",
            "tracee",
        ],
    ),
];

/// The files beside the folders that start the program, listen and serve.
const STUB_TOP: &[&str] = &[
    "lib", "main", "cli", "client", "comm", "fuzzing", "guardian", "server",
];

/// The only line that breaks a rule of folders: `unsafe` belongs in sys, and the choice of the
/// machine in arch.
const STUB_EXCEPTION: (&str, &str) = ("stub/src/sys.rs", "crate::arch::ticks!()");

/// Inside the stub: ptrace knows no clients and no traps, and each folder uses those below it.
pub(super) fn stub_module_imports() -> Result<()> {
    let mut known = Vec::new();
    for (name, below) in STUB_MODULES {
        let upward = below.iter().find(|other| !known.contains(*other));
        ensure!(
            upward.is_none(),
            "{name} must not stand before {upward:?} in the table"
        );
        known.push(*name);
    }
    let mut wrong = Vec::new();
    for file in sources()? {
        let Some(inside) = file.path.strip_prefix("stub/src/") else {
            continue;
        };
        let module = inside.split(['/', '.']).next().unwrap_or("");
        if STUB_TOP.contains(&module) {
            continue;
        }
        let Some((_, allowed)) = STUB_MODULES.iter().find(|(name, _)| *name == module) else {
            bail!("stub/src/{inside}: a module this test does not know");
        };
        for (number, line) in file.text.lines().enumerate() {
            let code = code(line);
            let used = code.split("crate::").skip(1);
            let used = used.map(|rest| words(rest).next().unwrap_or(""));
            let upward = used.filter(|name| known.contains(name) || STUB_TOP.contains(name));
            let excepted = file.path == STUB_EXCEPTION.0 && code.contains(STUB_EXCEPTION.1);
            for name in upward {
                if name != module && !allowed.contains(&name) && !excepted {
                    wrong.push(format!("{}:{}: {}", file.path, number + 1, line.trim()));
                }
            }
        }
    }
    none(wrong, "each folder of the stub uses only folders below it")
}
