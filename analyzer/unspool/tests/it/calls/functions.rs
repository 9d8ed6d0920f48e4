//! Functions traced by name (`--trace`), compared with the hit counts of gdb's breakpoints.

use super::*;

/// Hit counts of gdb's breakpoints. `server` is the socket of a waiting program; otherwise gdb
/// starts it.
fn gdb_counts(
    program: &Path,
    functions: &[&str],
    server: Option<&Path>,
) -> BTreeMap<String, usize> {
    let mut command = Command::new(if server.is_some() {
        "gdb-multiarch"
    } else {
        "gdb"
    });
    command.args(["-q", "-batch", "-nx"]);
    let mut commands = vec!["set breakpoint pending on".to_owned()];
    commands.extend(server.map(|server| format!("target remote {}", server.display())));
    for (index, function) in functions.iter().enumerate() {
        commands.push(format!("break *{function}"));
        commands.push(format!("ignore {} 1000000", index + 1));
    }
    let run = if server.is_some() { "continue" } else { "run" };
    commands.extend([run.to_owned(), "info breakpoints".to_owned()]);
    for line in commands {
        command.args(["-ex", &line]);
    }
    let output = command.arg(program).output().expect("gdb");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut counts = BTreeMap::new();
    let mut current = None;
    for line in text.lines() {
        if let Some(function) = functions.iter().find(|function| {
            line.ends_with(&format!("<{function}>"))
                || line.contains(&format!("in {function} at "))
                || line.contains(&format!("<{function}+"))
        }) {
            current = Some((*function).to_owned());
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["breakpoint", "already", "hit", times, ..] = words[..]
            && let Some(function) = current.take()
        {
            counts.insert(function, times.parse().unwrap());
        }
    }
    assert_eq!(counts.len(), functions.len(), "{text}");
    counts
}

const TRACED: &[&str] = &[
    "traced_several",
    "traced_end_of_jump",
    "traced_jumps",
    "traced_recursion",
    "traced_switch",
    "traced_jumper",
    "traced_exit",
    "traced_compare",
];

#[test]
fn functions_by_name() {
    let dir = tempfile::tempdir().unwrap();
    for level in ["-O0", "-O1", "-O2", "-Os"] {
        let calls = program(dir.path(), "calls", &[level, "-g"]);
        let gdb = gdb_counts(&calls, TRACED, None);
        for probes in ["tracepoints", "breakpoints"] {
            let options = [
                "--trace", "traced_*", "--budget", "none", "--probes", probes,
            ];
            let recorded = Recorded::of(&dir, &options, &[&calls], &[]);
            check_functions(&recorded, &gdb, &format!("{level} {probes}"));
        }
    }
}

/// Checks the calls of `calls.c`, for any architecture and recorder.
fn check_functions(recorded: &Recorded, gdb: &BTreeMap<String, usize>, what: &str) {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for told in &recorded.calls {
        *counts.entry(told.function.clone()).or_default() += 1;
    }
    assert_eq!(&counts, gdb, "{what}");
    let mut shown: BTreeMap<&str, Vec<(i64, i64)>> = BTreeMap::new();
    for line in recorded.stdout.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let pair = (words[1].parse().unwrap(), words[2].parse().unwrap());
        shown.entry(words[0]).or_default().push(pair);
    }
    for (function, shown) in &shown {
        let from_main = |told: &&Told| {
            told.function == *function && told.path.get(1).is_some_and(|name| name == "main")
        };
        let seen: Vec<(i64, i64)> = recorded
            .calls
            .iter()
            .filter(from_main)
            .filter(|told| told.end == Some("left"))
            .map(|told| {
                (
                    i64::from(told.call.args[0] as i32),
                    i64::from(told.call.result.unwrap() as i32),
                )
            })
            .collect();
        // If a function jumps through a pointer, for example from A32 to T32 code, the ends of
        // those calls are not recorded, and a note says so.
        let open = |note: &unspool::model::Note| {
            note.text.contains(function) && note.text.contains("have no end")
        };
        if recorded.model.notes.iter().any(open) {
            let mut all = shown.iter();
            assert!(
                seen.iter().all(|one| all.any(|other| other == one)),
                "{what}: {function}: {seen:?}"
            );
            assert!(
                seen.len() + 2 >= shown.len(),
                "{what}: {function}: {seen:?}"
            );
        } else {
            assert_eq!(&seen, shown, "{what}: {function}");
        }
    }
    let ends = |function: &str| {
        let of = recorded
            .calls
            .iter()
            .filter(move |told| told.function == function);
        let mut ends: Vec<_> = of.map(|told| told.end.unwrap_or("-")).collect();
        ends.sort_unstable();
        ends
    };
    // Two calls were left by longjmp.
    assert_eq!(
        ends("traced_jumper"),
        ["left", "left", "left", "lost", "lost"],
        "{what}"
    );
    assert_eq!(ends("traced_exit").len(), 1, "{what}");
    assert!(
        ends("traced_compare").iter().all(|end| *end == "left"),
        "{what}"
    );
    // Each recursive call was made within the one before.
    let deep: Vec<&Told> = recorded
        .calls
        .iter()
        .filter(|told| told.function == "traced_recursion")
        .collect();
    for two in deep.windows(2) {
        assert_eq!(two[1].call.within, Some(two[0].call.number), "{what}");
    }
}

/// Starts `qemu-arm` with the program, waiting for a debugger.
fn under_qemu(program: &Path, socket: &Path) -> std::process::Child {
    let _ = std::fs::remove_file(socket);
    let child = Command::new("qemu-arm")
        .arg("-g")
        .args([socket, program])
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("qemu-arm: is qemu-user installed?");
    let there = crate::running::wait_for(std::time::Duration::from_secs(30), || {
        let path = socket.display().to_string();
        let table = std::fs::read_to_string("/proc/net/unix").ok()?;
        let mut lines = table.lines();
        lines
            .find(|line| line.ends_with(&path) && line.contains(" 00010000 "))
            .map(drop)
    });
    assert!(there.is_some(), "qemu-arm does not listen");
    child
}

#[test]
fn functions_by_name_on_arm() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    for mode in ["-marm", "-mthumb"] {
        for level in ["-O1", "-O2", "-Os"] {
            let options = [level, mode, "-static", "-g"];
            let calls = program_by("arm-linux-gnueabihf-gcc", dir.path(), "calls", &options);
            let mut child = under_qemu(&calls, &socket);
            let gdb = gdb_counts(&calls, TRACED, Some(&socket));
            let _ = child.wait();

            let child = under_qemu(&calls, &socket);
            let file = dir.path().join("capture");
            let mut command = unspool();
            command
                .args(["record", "-q", "--trace", "traced_*", "-o"])
                .arg(&file);
            command
                .arg("--connect")
                .arg(format!("unix:{}", socket.display()));
            let mut run = Run::of(command.arg("--exec").arg(&calls));
            let output = child.wait_with_output().expect("qemu-arm ends");
            run.succeeds();
            run.stdout = String::from_utf8_lossy(&output.stdout).into_owned();
            check_functions(
                &Recorded::read(&file, run),
                &gdb,
                &format!("{mode} {level}"),
            );
        }
    }
}

#[test]
fn functions_of_a_library_that_is_loaded_later() {
    let dir = tempfile::tempdir().unwrap();
    // A library that is not loaded at the start of the program.
    let source = dir.path().join("late.c");
    std::fs::write(
        &source,
        "#include <dlfcn.h>\n#include <stdio.h>\n\
         int main(void) { void *m = dlopen(\"libm.so.6\", RTLD_NOW); \
         double (*f)(double) = (double (*)(double))dlsym(m, \"j0\"); double s = 0; \
         for (int i = 0; i < 5; i++) s += f(i); printf(\"%f\\n\", s); return 0; }\n",
    )
    .unwrap();
    let late = dir.path().join("late");
    let built = Command::new("cc")
        .arg("-o")
        .args([&late, &source])
        .status()
        .unwrap();
    assert!(built.success());
    let options = [
        "--trace",
        "libm.so*:j0",
        "--trace",
        "no_such_function",
        "--budget",
        "none",
    ];
    let recorded = Recorded::of(&dir, &options, &[&late], &[]);
    let calls: Vec<&Told> = recorded
        .calls
        .iter()
        .filter(|told| told.function == "j0")
        .collect();
    assert_eq!(calls.len(), 5);
    for call in calls {
        assert_eq!(
            (call.path[1].as_str(), call.caller.as_str()),
            ("main", "late")
        );
    }
    let notes: Vec<&str> = recorded
        .model
        .notes
        .iter()
        .map(|note| note.text.as_str())
        .collect();
    assert!(
        notes
            .iter()
            .any(|note| note.contains("'no_such_function'")
                && note.contains("no function of that name")),
        "{notes:?}"
    );
}

/// A name may stand for a function that is chosen when the program starts (ifunc). The chosen
/// function must be traced, in the program and in the C library.
#[test]
fn chosen_functions_are_traced() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("chosen.c");
    std::fs::write(
        &source,
        r#"
#include <stddef.h>
#include <string.h>
static int one_more(int n) { return n + 1; }
static int two_more(int n) { return n + 2; }
static int (*choose(int wanted))(int) { return wanted == 1 ? one_more : two_more; }
static int (*chooser(void))(int) { return choose(2); }
int more(int n) __attribute__((ifunc("chooser")));
size_t (*volatile length)(const char *) = strlen;
int main(void)
{
    int total = 0;
    for (int n = 0; n < 20; n++)
        total += more(n) + (int)length("twenty-one characters" + n);
    return total == 190 + 40 + 230 ? 0 : 1;
}
"#,
    )
    .unwrap();
    for (linking, options) in [("dynamic", &["-O1"][..]), ("now", &["-O1", "-Wl,-z,now"])] {
        let program = dir.path().join(linking);
        let mut compiler = Command::new("cc");
        compiler.args(options).arg("-o").args([&program, &source]);
        assert!(compiler.status().unwrap().success());
        let named = ["--trace", "more", "--trace", "strlen", "--budget", "none"];
        let recorded = Recorded::of(&dir, &named, &[&program], &[]);
        for (function, result) in [
            ("more", (|n| n + 2) as fn(u64) -> u64),
            ("strlen", |n| 21 - n),
        ] {
            let from_main = |told: &&Told| {
                told.function == function && told.path.get(1).is_some_and(|name| name == "main")
            };
            let results: Vec<u64> = recorded
                .calls
                .iter()
                .filter(from_main)
                .filter_map(|told| told.call.result)
                .collect();
            let expected: Vec<u64> = (0..20).map(result).collect();
            assert_eq!(results, expected, "{linking} {function}");
        }
    }
}

/// Exported and hidden functions that are chosen when the library is loaded or first used (ifunc).
const LIBRARY: &str = r#"
static int one_more(int n) { return n + 1; }
static int two_more(int n) { return n + 2; }
static int (*choose(int wanted))(int) { return wanted == 1 ? one_more : two_more; }
static int (*chooser(void))(int) { return choose(2); }
int more(int n) __attribute__((ifunc("chooser")));
static int ten_more(int n) { return n + 10; }
static int (*inner_chooser(void))(int) { return ten_more; }
__attribute__((visibility("hidden"))) int inner(int n) __attribute__((ifunc("inner_chooser")));
int unused(int n) __attribute__((ifunc("chooser_of_unused")));
static int (*chooser_of_unused(void))(int) { return one_more; }
int outer(int n) { return inner(n) + more(n); }
"#;
const LATER: &str = r#"
#include <dlfcn.h>
int main(int count, char **words)
{
    void *library = dlopen(words[count - 1], RTLD_NOW);
    int (*outer)(int) = library ? (int (*)(int))dlsym(library, "outer") : 0;
    int (*more)(int) = library ? (int (*)(int))dlsym(library, "more") : 0;
    int total = 0;
    for (int n = 0; outer && more && n < 5; n++)
        total += outer(n) + more(n);
    return total == 100 ? 0 : 1;
}
"#;
const LINKED: &str = r#"
int outer(int), more(int);
int main(void)
{
    int total = 0;
    for (int n = 0; n < 5; n++)
        total += outer(n) + more(n);
    return total == 100 ? 0 : 1;
}
"#;

fn check_chosen(recorded: &Recorded, what: &str) {
    let results = |function: &str, from: &str| -> Vec<u64> {
        let calls = recorded.calls.iter();
        let wanted = |told: &&Told| {
            told.function == function && told.path.get(1).is_some_and(|name| name == from)
        };
        let calls = calls.filter(wanted);
        calls.filter_map(|told| told.call.result).collect()
    };
    assert_eq!(results("inner", "outer"), [10, 11, 12, 13, 14], "{what}");
    assert_eq!(results("more", "outer"), [2, 3, 4, 5, 6], "{what}");
    assert_eq!(results("more", "main"), [2, 3, 4, 5, 6], "{what}");
    assert_eq!(recorded.calls.len(), 15, "{what}");
    let notes = recorded.model.notes.iter();
    let mut notes = notes.filter(|note| note.text.starts_with("no calls were recorded of unused"));
    assert!(notes.next().is_some(), "{what}");
}

#[test]
fn functions_that_a_library_chooses_later_are_traced() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    for (name, text) in [("library", LIBRARY), ("later", LATER), ("linked", LINKED)] {
        std::fs::write(file(name).with_extension("c"), text).unwrap();
    }
    let build = |name: &str, options: &[&str], source: &str| {
        let mut compiler = Command::new("cc");
        compiler
            .args(["-O1", "-o"])
            .args([file(name), file(source)]);
        let linked = (source == "linked.c").then(|| file("library.so"));
        let found = format!("-Wl,-rpath,{}", dir.path().display());
        compiler.args(linked).arg(found).args(options);
        assert!(compiler.status().unwrap().success(), "{name}");
        file(name)
    };
    let library = build("library.so", &["-shared", "-fPIC"], "library.c");
    let later = build("later", &[], "later.c");
    let lazy = build("lazy", &["-Wl,-z,lazy"], "linked.c");
    let now = build("now", &["-Wl,-z,now"], "linked.c");
    let traced = ["--trace", "more", "--trace", "inner", "--trace", "unused"];
    for probes in ["tracepoints", "breakpoints"] {
        let options = [&traced[..], &["--budget", "none", "--probes", probes]].concat();
        for program in [&later, &lazy, &now] {
            let recorded = Recorded::of(&dir, &options, &[program, &library], &[]);
            check_chosen(&recorded, &format!("{probes} {}", program.display()));
        }
    }

    // Another client controls the program. A thread waits for the recorder whenever a function was
    // chosen.
    let address = format!("unix:{}", file("socket").display());
    let mut stub = unspool();
    stub.args(["stub", "--once", "--budget", "none", &address]);
    let mut stub = stub.args([&later, &library]).spawn().unwrap();
    let there = crate::running::wait_for(std::time::Duration::from_secs(30), || {
        file("socket").exists().then_some(())
    });
    assert!(there.is_some(), "the stub does not listen");
    let capture = file("observed");
    let mut command = unspool();
    command
        .args(["record", "-q", "-o"])
        .arg(&capture)
        .args(traced);
    let run = Run::of(command.args(["--connect", &address]));
    run.succeeds();
    assert!(stub.wait().unwrap().success());
    check_chosen(&Recorded::read(&capture, run), "observed");
}

#[test]
fn too_many_functions_are_refused_before_anything_runs() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("capture");
    let record = |glob: &str, program: &Path, argument: &str| {
        let mut command = unspool();
        command
            .args(["record", "-q", "--trace", glob, "-o"])
            .arg(&file);
        Run::of(command.arg("--").arg(program).arg(argument))
    };
    // This command itself has thousands of functions.
    let itself = Path::new(env!("CARGO_BIN_EXE_unspool"));
    let run = record("*", itself, "--version");
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    for words in ["--trace names", "at most 500", "FILE:NAME"] {
        assert!(run.stderr.contains(words), "{}", run.stderr);
    }
    assert!(run.stdout.is_empty() && !file.exists(), "{}", run.stdout);
    // If a library that is loaded later has too many functions, the program continues, and a note
    // names what is left out.
    let calls = program(dir.path(), "calls", &["-O1"]);
    let run = record("libc.so*:*", &calls, "");
    run.succeeds();
    assert!(run.stdout.contains("traced_several"), "{}", run.stdout);
    let recorded = Recorded::read(&file, run);
    assert_eq!(recorded.calls.len(), 0);
    let notes = &recorded.model.notes;
    assert!(
        notes
            .iter()
            .any(|note| note.text.contains("none of them is recorded")),
        "{notes:?}"
    );
}
