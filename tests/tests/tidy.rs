//! The invariants of `docs/internals/architecture.md` that can be read off the tree.

mod directions;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use libtest_mimic::Trial;

use unspool_tests::{process, workspace};

/// A file longer than this has a second subject.
const LONGEST: usize = 600;

/// Longer files, each with the reason.
const LONGER: &[(&str, &str)] = &[(
    "stub/src/arch/x86_64/collector.rs",
    "one sequence of machine code, in its order",
)];

pub(crate) fn trials() -> Vec<Trial> {
    [
        ("heads", heads as fn() -> Result<()>),
        ("unsafe_only_in_stub_sys", unsafe_only_in_stub_sys),
        ("target_arch_once", target_arch_once),
        (
            "architectures_in_platform",
            directions::architectures_in_platform,
        ),
        ("crate_imports", directions::crate_imports),
        ("dependencies_are_used", dependencies_are_used),
        ("module_imports", directions::module_imports),
        ("stub_module_imports", directions::stub_module_imports),
        ("only_cmd_and_views_print", only_cmd_and_views_print),
        ("names", names),
        ("no_machine_paths", no_machine_paths),
        ("small_files", small_files),
        ("no_ignored_tests", no_ignored_tests),
        ("links_in_documents", links_in_documents),
    ]
    .into_iter()
    .map(|(name, check)| crate::trial(format!("tidy::{name}"), check))
    .collect()
}

/// Every source file says what it owns.
fn heads() -> Result<()> {
    none(
        sources()?.iter().filter_map(|file| {
            let first = file.text.lines().next().unwrap_or("");
            (!first.starts_with("//! ") || first.len() < 14)
                .then(|| format!("{}: {first:?}", file.path))
        }),
        "every .rs file opens with `//!`: what it owns and why it is apart",
    )
}

/// Invariant: `unsafe` is denied for the workspace and allowed at one place.
fn unsafe_only_in_stub_sys() -> Result<()> {
    let manifest = read("Cargo.toml")?;
    ensure!(
        manifest.contains("unsafe_code = \"deny\""),
        "Cargo.toml: unsafe_code is not denied"
    );
    for package in packages() {
        let manifest = read(&format!("{package}/Cargo.toml"))?;
        ensure!(
            manifest.contains("[lints]\nworkspace = true"),
            "{package}/Cargo.toml does not take the workspace's lints"
        );
    }
    let allows: Vec<String> = places(|line| {
        let code = code(line);
        code.contains("allow(unsafe_code") || code.contains("expect(unsafe_code")
    })?;
    ensure!(
        allows.len() == 1 && allows[0].starts_with("stub/src/"),
        "unsafe code is allowed in one place of the stub, seen: {allows:?}"
    );
    none(
        places(|line| words(&code(line)).any(|word| word == "unsafe"))?
            .into_iter()
            .filter(|place| !place.starts_with("stub/src/sys")),
        "unsafe stands only under stub/src/sys",
    )
}

/// Invariant 3: the analyzer runs everywhere; the stub chooses its architecture in one file, and so
/// do its trials.
fn target_arch_once() -> Result<()> {
    let chooses = |place: &&String| {
        ["stub/src/arch.rs", "stub/tests/stub/target.rs"]
            .iter()
            .any(|file| place.starts_with(file))
    };
    let places = places(|line| code(line).contains("target_arch ="))?;
    none(
        places.iter().filter(|place| !chooses(place)).cloned(),
        "cfg(target_arch) stands in stub/src/arch.rs and the trials' target.rs alone",
    )
}

/// Requires that a package uses every dependency of the workspace, and that the code of a package
/// uses every dependency of the package.
fn dependencies_are_used() -> Result<()> {
    let workspace = read("Cargo.toml")?;
    let mut unused: Vec<String> = Vec::new();
    let mut taken = Vec::new();
    let files = sources()?;
    for package in packages() {
        let manifest = read(&format!("{package}/Cargo.toml"))?;
        let folder = format!("{package}/");
        let code: Vec<&str> = files
            .iter()
            .filter(|file| file.path.starts_with(&folder))
            .map(|file| file.text.as_str())
            .collect();
        for name in dependencies(&manifest, |section| section.ends_with("dependencies")) {
            let module = name.replace('-', "_");
            let uses = |text: &&str| words(text).any(|word| word == module);
            if !code.iter().any(uses) {
                unused.push(format!(
                    "{package}/Cargo.toml: {name}: no code of the package names it"
                ));
            }
            taken.push(name);
        }
    }
    for name in dependencies(&workspace, |section| section == "workspace.dependencies") {
        if !taken.contains(&name) {
            unused.push(format!("Cargo.toml: {name}: no package depends on it"));
        }
    }
    none(unused, "every dependency is used")
}

/// The names in the sections of a manifest that `wanted` picks.
fn dependencies(manifest: &str, wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let mut section = "";
    let mut names = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']);
        } else if wanted(section) && line.contains('=') && !line.starts_with('#') {
            let name = line.split(['.', ' ', '=']).next().unwrap_or("");
            names.push(name.to_owned());
        }
    }
    names
}

/// Invariant 6. The stub is a program of its own: its command line prints, too.
fn only_cmd_and_views_print() -> Result<()> {
    let printing = [
        "println!",
        "eprintln!",
        "print!(",
        "eprint!(",
        "dbg!",
        "io::stdout()",
        "io::stderr()",
        "stdout().",
        "stderr().",
    ];
    let may_print = |place: &str| {
        let path = place.split(':').next().unwrap_or("");
        path.starts_with("tests/")
            || path.contains("/tests")
            || path.contains("/examples/")
            || path.contains("/benches/")
            || path.ends_with("build.rs")
            || path.starts_with("analyzer/unspool/src/cmd")
            || path.starts_with("analyzer/unspool/src/views")
            || path.starts_with("analyzer/unspool/demo")
            || path.starts_with("stub/")
    };
    none(
        places(|line| printing.iter().any(|word| code(line).contains(word)))?
            .into_iter()
            .filter(|place| !may_print(place)),
        "only cmd/ and views/ print; libraries return values",
    )
}

/// The directory listing is the architecture diagram: no file that could hold anything.
fn names() -> Result<()> {
    let vague = [
        "util", "utils", "helper", "helpers", "common", "misc", "shared", "mod",
    ];
    none(
        files()?.into_iter().filter(|path| {
            path.ends_with(".rs")
                && Path::new(path).iter().any(|part| {
                    let part = part.to_string_lossy();
                    vague.contains(&part.trim_end_matches(".rs"))
                })
        }),
        "no mod.rs, and no util, helpers, common, misc or shared",
    )
}

/// Nothing in the repository depends on one machine. (Ann, of goldens, has none.)
fn no_machine_paths() -> Result<()> {
    // Spelled so that this file does not hold them.
    let paths: Vec<String> = ["work", "home", "root"]
        .iter()
        .map(|folder| format!("/{folder}/"))
        .collect();
    let example = format!("{}ann/", paths[1]);
    let mut wrong = Vec::new();
    for path in files()? {
        let Ok(text) = read(&path) else { continue };
        for (number, line) in text.lines().enumerate() {
            let line = line.replace(&example, "");
            if paths.iter().any(|machine| starts_a_path(&line, machine)) {
                wrong.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    none(wrong, "no absolute path of one machine")
}

/// In `x/home/y` the folder is not an absolute path.
fn starts_a_path(line: &str, machine: &str) -> bool {
    line.match_indices(machine).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "._-*)}$".contains(c))
    })
}

/// Nothing big is committed, and no source file has two subjects.
fn small_files() -> Result<()> {
    for path in files()? {
        let bytes = std::fs::metadata(workspace::root().join(&path))?.len();
        ensure!(
            bytes <= 1 << 20,
            "{path}: {bytes} bytes; at most 1 MiB is committed"
        );
    }
    none(
        sources()?.into_iter().filter_map(|file| {
            let lines = file.text.lines().count();
            let listed = LONGER.iter().any(|(path, _)| *path == file.path);
            (lines > LONGEST && !listed).then(|| format!("{}: {lines} lines", file.path))
        }),
        "at most 600 lines",
    )
}

/// A test that does not run is not a test.
fn no_ignored_tests() -> Result<()> {
    none(
        places(|line| {
            code(line)
                .trim_start()
                .starts_with(&format!("#[{}", "ignore"))
        })?,
        "no ignored tests: a missing tool fails and says how to install it",
    )
}

/// Relative links in Markdown lead somewhere.
fn links_in_documents() -> Result<()> {
    let mut wrong = Vec::new();
    for path in files()?.into_iter().filter(|path| path.ends_with(".md")) {
        let text = read(&path)?;
        let folder = workspace::root()
            .join(&path)
            .parent()
            .context("a file is in a folder")?
            .to_owned();
        for link in text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split([')', '#']).next())
        {
            let local = !link.is_empty() && !link.contains("://") && !link.contains(' ');
            if local && !folder.join(link).exists() {
                wrong.push(format!("{path}: {link}"));
            }
        }
    }
    none(wrong, "links in documents lead to files")
}

pub(super) struct Source {
    pub(super) path: String,
    pub(super) text: String,
}

fn packages() -> impl Iterator<Item = &'static str> {
    // In the order of the table in `crate_imports`.
    let mut packages = vec![
        "stub",
        "analyzer/rsp",
        "analyzer/image",
        "analyzer/unwind",
        "analyzer/capture",
        "analyzer/unspool",
        "tests",
    ];
    packages.sort_unstable();
    packages.into_iter()
}

/// Files git knows, and new ones it does not ignore.
pub(super) fn files() -> Result<Vec<String>> {
    let mut git = Command::new("git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(workspace::root());
    let text = process::run(&mut git, Duration::from_secs(20))?
        .success()?
        .text();
    let mut files: Vec<String> = text
        .lines()
        .map(str::to_owned)
        .filter(|path| workspace::root().join(path).is_file())
        .collect();
    files.dedup();
    ensure!(!files.is_empty(), "git lists no files");
    Ok(files)
}

/// Our source files; not the programs that tests look at.
pub(super) fn sources() -> Result<Vec<Source>> {
    files()?
        .into_iter()
        .filter(|path| path.ends_with(".rs") && !path.contains("/tests/sources/"))
        .map(|path| {
            Ok(Source {
                text: read(&path)?,
                path,
            })
        })
        .collect()
}

/// `path:line: text` of every source line that `wanted` picks.
pub(super) fn places(wanted: impl Fn(&str) -> bool) -> Result<Vec<String>> {
    let mut places = Vec::new();
    for file in sources()? {
        for (number, line) in file.text.lines().enumerate() {
            if wanted(line) {
                places.push(format!("{}:{}: {}", file.path, number + 1, line.trim()));
            }
        }
    }
    Ok(places)
}

/// The line without comments and string literals, as far as one line shows.
fn code(line: &str) -> String {
    let mut out = String::new();
    let mut in_string = false;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' if in_string => {
                chars.next();
            }
            '"' => in_string = !in_string,
            '/' if !in_string && chars.peek() == Some(&'/') => break,
            _ if in_string => {}
            _ => out.push(c),
        }
    }
    out
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !(c.is_alphanumeric() || c == '_'))
}

pub(super) fn read(path: &str) -> Result<String> {
    let path: PathBuf = workspace::root().join(path);
    std::fs::read_to_string(&path).with_context(|| path.display().to_string())
}

pub(super) fn none(found: impl IntoIterator<Item = String>, rule: &str) -> Result<()> {
    let found: Vec<String> = found.into_iter().collect();
    if !found.is_empty() {
        bail!("{rule}; seen:\n  {}", found.join("\n  "));
    }
    Ok(())
}
