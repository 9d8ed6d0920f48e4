//! Compares `unspool table` with readelf, and with the CFI that a compiler wrote.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::running::{Run, unspool};

const PROGRAM: &str = "/usr/bin/bash";

fn rows(args: &[&str]) -> Value {
    let run = Run::of(unspool().arg("table").args(args).args(["--format", "json"]));
    run.succeeds();
    let document: Value = serde_json::from_str(&run.stdout).expect("JSON");
    assert_eq!(document["schema_version"], 1);
    document
}

fn number(row: &Value, field: &str) -> u64 {
    row[field].as_u64().expect(field)
}

/// The row that applies to an address.
fn at(document: &Value, svma: u64) -> Option<&Value> {
    let rows = document["rows"].as_array().expect("rows");
    let after = rows.partition_point(|row| number(row, "start") <= svma);
    let row = rows.get(after.checked_sub(1)?)?;
    (number(row, "end") > svma).then_some(row)
}

/// Readelf's rows: address, CFA, rbp, return address. A later row replaces one at the same address.
fn interpreted(path: &str) -> Vec<[String; 4]> {
    let output = Command::new("readelf")
        .args(["--debug-dump=frames-interp", path])
        .env("LC_ALL", "C")
        .output()
        .expect("readelf");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut rows: Vec<[String; 4]> = Vec::new();
    let mut columns: Vec<&str> = Vec::new();
    let mut in_fde = false;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if line.contains(" FDE ") {
            in_fde = true;
        } else if line.contains(" CIE ") {
            in_fde = false;
        } else if words.first() == Some(&"LOC") {
            columns = words[1..].to_vec();
        } else if in_fde && words.len() == columns.len() + 1 {
            let of = |name: &str| {
                let place = columns.iter().position(|column| *column == name);
                place.map_or("u", |place| words[place + 1]).to_owned()
            };
            let row = [words[0].to_owned(), of("CFA"), of("rbp"), of("ra")];
            match rows.last_mut() {
                Some(last) if last[0] == row[0] => *last = row,
                _ => rows.push(row),
            }
        }
    }
    rows
}

/// Formats a place from the JSON as readelf does.
fn place(place: &Value) -> String {
    if let Some(offset) = place["cfa_offset"].as_i64() {
        return format!("c{offset:+}");
    }
    match (&place["reg"], place["offset"].as_i64()) {
        (Value::String(register), Some(offset)) => format!("{register}{offset:+}"),
        _ if place["expr"].is_string() => "exp".to_owned(),
        // Readelf prints an unchanged register and one without a rule in the same way.
        _ => "u".to_owned(),
    }
}

#[test]
fn json_rows_equal_readelfs() {
    let document = rows(&[PROGRAM, "--source", "cfi"]);
    assert_eq!(document["arch"], "x86_64");
    let mut last = 0;
    for row in document["rows"].as_array().expect("rows") {
        assert!(number(row, "start") >= last && number(row, "end") > number(row, "start"));
        assert_eq!(row["source"], "cfi");
        last = number(row, "end");
    }
    let mut compared = 0;
    for [address, cfa, rbp, ra] in interpreted(PROGRAM) {
        let svma = u64::from_str_radix(&address, 16).expect("address");
        let row = at(&document, svma).unwrap_or_else(|| panic!("no row at {svma:#x}"));
        let own = [place(&row["cfa"]), place(&row["fp"]), place(&row["ra"])];
        assert_eq!(own, [cfa, rbp, ra], "{svma:#x}");
        compared += 1;
    }
    assert!(compared > 5000, "{compared}");
}

#[test]
fn the_merged_table_has_the_same_cfi() {
    let all = rows(&[PROGRAM]);
    let cfi = rows(&[PROGRAM, "--source", "cfi"]);
    let mut compared = 0;
    for row in cfi["rows"].as_array().expect("rows").iter().step_by(17) {
        let found = at(&all, number(row, "start")).expect("row");
        for field in ["cfa", "ra", "fp", "source"] {
            assert_eq!(found[field], row[field], "{row}");
        }
        compared += 1;
    }
    assert!(compared > 300, "{compared}");
}

#[test]
fn frame_pointer_rows_are_the_convention() {
    let document = rows(&[PROGRAM, "--source", "fp"]);
    let row = &document["rows"][0];
    assert_eq!(row["cfa"]["reg"], "rbp");
    assert_eq!(row["cfa"]["offset"], 16);
    assert_eq!(row["ra"]["cfa_offset"], -8);
    assert_eq!(row["fp"]["cfa_offset"], -16);
    assert_eq!(row["source"], "fp");
}

#[test]
fn exidx_rows_start_where_readelfs_entries_do() {
    let path = "/usr/arm-linux-gnueabihf/lib/libc.so.6";
    let document = rows(&[path, "--source", "exidx"]);
    assert_eq!(document["arch"], "arm");
    let output = Command::new("readelf")
        .args(["-u", path])
        .env("LC_ALL", "C")
        .output()
        .expect("readelf");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut starts = 0;
    for line in text.lines() {
        let entry = line.strip_prefix("0x");
        let Some(entry) = entry.filter(|_| line.contains(": @") || line.contains(": 0x8")) else {
            continue;
        };
        let digits: String = entry.chars().take_while(char::is_ascii_hexdigit).collect();
        let svma = u64::from_str_radix(&digits, 16).expect("address");
        starts += usize::from(at(&document, svma).is_some_and(|row| row["source"] == "exidx"));
    }
    assert!(starts > 300, "{starts}");
}

#[test]
fn text_is_readable() {
    let run = Run::of(unspool().args(["table", PROGRAM, "--source", "cfi"]));
    run.succeeds();
    let first = run.stdout.lines().nth(1).expect("a row");
    assert!(first.starts_with("0x") && first.contains("rsp+"), "{first}");
    assert!(run.stdout.trim_end().ends_with("rows of x86_64 code"));
}

#[test]
fn verify_compares_code_with_cfi() {
    let directory = tempfile::tempdir().expect("directory");
    let source = directory.path().join("two.c");
    let code = "int g(int *); int __attribute__((noinline)) f(int n) { int a[40]; a[n] = n; return g(a) + n; }\n\
                int __attribute__((noinline)) g(int *a) { return a[3] ? f(a[3]) : 0; }\n\
                int main(int c, char **v) { return f(c) + !v; }\n";
    std::fs::write(&source, code).expect("source");
    let program = directory.path().join("two");
    let status = Command::new("arm-linux-gnueabihf-gcc")
        .args(["-g", "-O2", "-o"])
        .args([&program, &source])
        .status();
    assert!(status.expect("arm-linux-gnueabihf-gcc").success());
    let path = program.to_str().expect("path");
    let run = Run::of(unspool().args(["table", "--verify", path, "--format", "json"]));
    run.succeeds();
    let document: Value = serde_json::from_str(&run.stdout).expect("JSON");
    let count = |field: &str| document[field].as_u64().expect("number");
    assert!(count("instructions") >= 20, "{document}");
    assert_eq!(count("wrong"), 0, "{document}");
    assert!(
        count("agree") * 100 >= count("instructions") * 98,
        "{document}"
    );
    let text = Run::of(unspool().args(["table", "--verify", path]));
    text.succeeds();
    for word in ["agree", "unknown", "wrong", "%"] {
        assert!(text.stdout.contains(word), "{}", text.stdout);
    }
}

/// `path`'s disassembly of `function`, and objdump's of the same addresses.
fn disassembled(path: &str, function: &str, objdump: &str) -> (Value, Vec<(u64, String)>) {
    let document = {
        let args = ["table", path, "--disasm", function, "--format", "json"];
        let run = Run::of(unspool().args(args));
        run.succeeds();
        serde_json::from_str::<Value>(&run.stdout).expect("JSON")
    };
    let range = ["start", "end"].map(|end| format!("--{end}={}", number(&document, end)));
    let [start, stop] =
        range.map(|option| option.replace("--end", "--stop").replace('=', "-address="));
    let output = Command::new(objdump)
        .args(["-d", "--no-show-raw-insn", &start, &stop, path])
        .output()
        .expect("objdump");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines = text.lines().filter_map(|line| {
        let (address, rest) = line.split_once(":\t")?;
        let address = u64::from_str_radix(address.trim(), 16).ok()?;
        Some((address, rest.split_whitespace().next()?.to_owned()))
    });
    (document, lines.collect())
}

#[test]
fn disassembly_shows_the_rule_before_each_instruction() {
    let path = "/lib/x86_64-linux-gnu/libc.so.6";
    let (document, expected) = disassembled(path, "getenv", "objdump");
    assert_eq!(document["function"], "getenv");
    let seen = document["instructions"].as_array().expect("instructions");
    let addresses: Vec<u64> = seen.iter().map(|line| number(line, "address")).collect();
    let theirs: Vec<u64> = expected.iter().map(|line| line.0).collect();
    assert!(addresses.len() > 20, "{document}");
    assert_eq!(addresses, theirs);
    for (line, (_, mnemonic)) in seen.iter().zip(&expected) {
        if ["push", "pop", "ret", "lea", "xor"].contains(&mnemonic.as_str()) {
            let text = line["text"].as_str().expect("text");
            assert!(text.starts_with(mnemonic.as_str()), "{line} {mnemonic}");
        }
    }
    // The rule at each address must be that of the table.
    let all = rows(&[path]);
    for line in seen {
        let row = at(&all, number(line, "address")).expect("row");
        assert_eq!(line["rule"]["cfa"], row["cfa"], "{line}");
        assert_eq!(line["rule"]["source"], row["source"], "{line}");
    }
    assert_eq!(seen[0]["rule"]["cfa"]["offset"], 8, "{document}");
}

#[test]
fn disassembly_follows_the_instruction_set_of_arm() {
    let directory = tempfile::tempdir().expect("directory");
    let source = directory.path().join("small.c");
    let code = "double d; int main(int c, char **v) { d = c * 3.141592653589793; return !v; }\n";
    std::fs::write(&source, code).expect("source");
    for mode in ["-mthumb", "-marm"] {
        let program = directory.path().join(format!("small{mode}"));
        let status = Command::new("arm-linux-gnueabihf-gcc")
            .args(["-O1", mode, "-o"])
            .args([&program, &source])
            .status();
        assert!(status.expect("arm-linux-gnueabihf-gcc").success());
        let path = program.to_str().expect("path");
        let (document, expected) = disassembled(path, "main", "arm-linux-gnueabihf-objdump");
        let seen = document["instructions"].as_array().expect("instructions");
        let addresses: Vec<u64> = seen.iter().map(|line| number(line, "address")).collect();
        let theirs: Vec<u64> = expected.iter().map(|line| line.0).collect();
        assert_eq!(addresses, theirs, "{mode} {document}");
        // The constant is a literal: two words of data, which have no rule.
        let data: Vec<&Value> = seen.iter().filter(|line| line["data"] == true).collect();
        assert!(data.len() >= 2, "{mode} {document}");
        assert!(data.iter().all(|line| line["rule"].is_null()), "{document}");
        let inside = format!("{:#x}", addresses[1]);
        let run = Run::of(unspool().args(["table", path, "--disasm", &inside]));
        run.succeeds();
        assert!(run.stdout.starts_with("main:\n"), "{}", run.stdout);
    }
}

#[test]
fn disassembly_of_an_unknown_function_fails() {
    let run = Run::of(unspool().args(["table", PROGRAM, "--disasm", "no_such_function"]));
    assert_eq!(run.code, Some(1));
    assert!(run.stderr.contains("no function"), "{}", run.stderr);
    let run = Run::of(unspool().args(["table", PROGRAM, "--disasm", "0x1"]));
    assert_eq!(run.code, Some(1));
    assert!(
        run.stderr.contains("no code at address 0x1"),
        "{}",
        run.stderr
    );
}

#[test]
fn wrong_files_are_named() {
    let run = Run::of(unspool().args(["table", "/etc/passwd"]));
    assert_eq!(run.code, Some(1));
    assert!(run.stderr.contains("/etc/passwd"), "{}", run.stderr);
    let run = Run::of(unspool().args([
        "table",
        PROGRAM,
        "--debug-file",
        "/lib/x86_64-linux-gnu/libc.so.6",
    ]));
    assert_eq!(run.code, Some(1));
    assert!(run.stderr.contains("expected build-id"), "{}", run.stderr);
    assert!(Path::new(PROGRAM).exists());
}
