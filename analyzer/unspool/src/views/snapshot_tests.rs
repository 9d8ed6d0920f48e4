//! Snapshot tests of the views. The programs are fixtures, and the expected views are files beside
//! this one.
//!
//! `UNSPOOL_BLESS=1` rewrites the files. Read the difference before you commit it.

use std::path::PathBuf;

use unspool_capture::{
    Capture, Cut, CutReason, Dropped, End, EndReason, Missed, Note, ProcessStarted, Severity,
    ThreadSeen,
};

use crate::model::fixture::sync::Acting;
use crate::model::fixture::{Function, PID, Stage};
use crate::model::{Listing, Model};
use crate::views::text::{
    contention, critical, findings, functions, inspection, line, lock_order, objects, source,
    timeline, tree, waits,
};
use crate::views::{Style, graph, json};

const START: Function = "orders!start@orders.c:27";
const MAIN: Function = "orders!main@orders.c:125";
const BEGIN: [Function; 3] = [
    "libc.so.6!__libc_start_call_main",
    "libc.so.6!__libc_start_main",
    "orders!_start",
];

/// Two places that create a pool, threads that create threads, a detached thread, many short
/// threads.
fn orders() -> Model {
    let mut stage = Stage::new();
    let main = |inner: &[Function]| [inner, &[MAIN], &BEGIN[..]].concat();
    stage.create(
        PID,
        1,
        "orders!write_log@orders.c:111",
        0,
        &main(&["orders!start_log@orders.c:117"]),
    );
    stage.with_detached_attr();
    stage.start(4243, 1, "orders!write_log@orders.c:111", 0, &[], 4243 << 12);
    stage.name(4243, "log", 2);
    for (tids, pool, name) in [
        (4244..4247, "orders!open_billing@orders.c:68", "billing"),
        (4247..4249, "orders!open_shipping@orders.c:73", "shipping"),
    ] {
        for tid in tids {
            stage.spawn(
                PID,
                tid,
                2,
                "orders!worker@orders.c:33",
                &main(&[START, "orders!start_pool@orders.c:62", pool]),
            );
            stage.name(tid, name, 4);
        }
    }
    stage.spawn(
        PID,
        4249,
        4,
        "orders!listener@orders.c:102",
        &main(&[START]),
    );
    stage.name(4249, "listener", 6);
    stage.join(PID, 6, 4249 << 12);
    for at in 0..300 {
        let (tid, ms) = (4250 + at, 10 + at);
        let stack = [
            START,
            "orders!serve@orders.c:96",
            "orders!listener@orders.c:106",
            "libc.so.6!start_thread",
            "libc.so.6!clone3",
        ];
        stage.spawn(4249, tid, ms, "orders!connection@orders.c:78", &stack);
        stage.join(4249, ms + 2, tid << 12);
        stage.exit(tid, ms + 3 + at % 5);
    }
    stage.exit(4249, 340);
    for tid in 4244..4249 {
        stage.join(PID, 341, tid << 12);
        stage.exit(tid, 345);
    }
    stage.end(350);
    stage.model()
}

/// C++ and Rust names, recursion, inlining, guessed frames, frames without lines or names.
fn names() -> Model {
    let mut stage = Stage::new();
    stage.spawn(
        PID,
        11,
        1,
        "libstdc++.so.6!execute_native_thread_routine",
        &[
            "libstdc++.so.6!std::thread::_M_start_thread(std::unique_ptr<std::thread::_State, std::default_delete<std::thread::_State> >, void (*)())",
            "~orders!std::thread::thread<shop::Server::listen(std::string const&, unsigned short)::{lambda(int)#1}, int&, void>(shop::Server::listen(std::string const&, unsigned short)::{lambda(int)#1}&&, int&)@/usr/include/c++/12/bits/std_thread.h:143",
            "orders!shop::Server::listen(std::string const&, unsigned short)@net/server.cpp:88",
            "orders!main@main.cpp:12",
        ],
    );
    stage.spawn(
        11,
        12,
        3,
        "orders!std::sys::thread::unix::Thread::new::thread_start",
        &[
            "orders!std::sys::thread::unix::Thread::new@/rustc/59807616e1fa2540724bfbac14d7976d7e4a3860/library/std/src/sys/thread/unix.rs:94",
            "orders!std::thread::Builder::spawn_unchecked_::<orders::pool::Pool::start::{closure#0}, alloc::vec::Vec<orders::job::Result>>@/rustc/59807616e1fa2540724bfbac14d7976d7e4a3860/library/std/src/thread/mod.rs:600",
            "orders!<orders::pool::Pool as orders::Start>::start@pool.rs:31",
            "libjit.so!?",
            "*orders!orders::run@main.rs:7",
        ],
    );
    stage.truncated = Some("no unwind information or readable code at 0x7f5500001234");
    let deep: Vec<Function> = [
        vec!["orders!descend@tree.c:9"; 200],
        ["orders!even@tree.c:20", "orders!odd@tree.c:24"].repeat(40),
    ]
    .concat();
    stage.spawn(12, 13, 5, "orders!?", &deep);
    stage.spawn(13, 14, 7, "?", &["?"]);
    stage.name(13, "\u{1b}[31mevil\u{202e}", 9);
    stage.name(14, "größer 漢字", 9);
    stage.model()
}

/// Threads that wait: a pool for work, writers for a lock that one of them holds for a long time,
/// and two threads for each other forever.
pub(super) fn shop() -> Model {
    const QUEUE: u64 = 0x6000;
    const READY: u64 = 0x6040;
    const LOG: u64 = 0x7000;
    const STOCK: u64 = 0x8000;
    const ORDERS: u64 = 0x9000;
    let mut acting = Acting::new();
    for (address, name) in [
        (QUEUE, "queue_lock"),
        (READY, "queue_ready"),
        (STOCK, "stock_lock"),
        (ORDERS, "orders_lock"),
    ] {
        acting.stage.data.insert(address, name);
    }
    let start = ["orders!start_pool@orders.c:62", MAIN, BEGIN[0], BEGIN[1]];
    let end = ["libc.so.6!start_thread", "libc.so.6!clone3"];
    acting.on(PID, &["orders!open_log@log.c:12", MAIN]);
    acting.call(PID, 500, "pthread_mutex_init", &[LOG, 0]);
    for (tid, function) in [
        (11, "orders!worker@orders.c:33"),
        (12, "orders!worker@orders.c:33"),
        (21, "orders!writer@log.c:30"),
        (22, "orders!writer@log.c:30"),
        (31, "orders!restock@stock.c:8"),
        (32, "orders!sell@stock.c:40"),
    ] {
        acting.stage.spawn(PID, tid, 1, function, &start);
    }
    for tid in [11, 12] {
        acting.on(
            tid,
            &[
                "orders!take@queue.c:20",
                "orders!worker@orders.c:35",
                end[0],
                end[1],
            ],
        );
        for at in 0..5 {
            let us = 3000 + 18_000 * at + 500 * (tid - 11);
            acting.lock(tid, us, QUEUE);
            acting.enter(tid, us + 10, "pthread_cond_wait", &[READY, QUEUE]);
            acting.leave(tid, us + 12_000, "pthread_cond_wait", 0);
            acting.unlock(tid, us + 12_003, QUEUE);
        }
    }
    acting.on(
        21,
        &[
            "orders!flush@log.c:44",
            "orders!writer@log.c:31",
            end[0],
            end[1],
        ],
    );
    acting.on(
        22,
        &[
            "orders!line@log.c:52",
            "orders!writer@log.c:33",
            end[0],
            end[1],
        ],
    );
    for at in 0..3 {
        let us = 4000 + 31_000 * at;
        acting.lock(21, us, LOG);
        acting.enter(22, us + 200, "pthread_mutex_lock", &[LOG]);
        acting.unlock(21, us + 25_000 - 2000 * at, LOG);
        acting.leave(22, us + 25_020 - 2000 * at, "pthread_mutex_lock", 0);
        acting.unlock(22, us + 25_600, LOG);
    }
    acting.on(31, &["orders!restock@stock.c:10", end[0], end[1]]);
    acting.on(32, &["orders!sell@stock.c:43", end[0], end[1]]);
    acting.lock(31, 60_000, STOCK).lock(32, 60_010, ORDERS);
    acting.on(31, &["orders!restock@stock.c:12", end[0], end[1]]);
    acting.on(32, &["orders!sell@stock.c:45", end[0], end[1]]);
    acting.enter(31, 61_000, "pthread_mutex_lock", &[ORDERS]);
    acting.enter(32, 61_050, "pthread_mutex_lock", &[STOCK]);
    acting.on(PID, &[MAIN, BEGIN[0]]);
    acting.enter(PID, 62_000, "pthread_join", &[31 << 12]);
    acting.stage.in_time();
    acting.stage.add(End {
        reason: EndReason::Interrupted.into(),
        time_ns: 100_000_000,
        detail: String::new(),
    });
    acting.stage.model()
}

/// A cut recording that lost events, with threads that ran before it.
pub(super) fn broken() -> Model {
    let mut stage = Stage::new();
    for tid in 11..14 {
        stage.add(ThreadSeen {
            tid,
            name: "pool".into(),
            existed_before: true,
            ..Default::default()
        });
        stage.look(
            tid,
            1,
            &[
                "libc.so.6!futex_wait",
                "orders!worker@orders.c:40",
                "libc.so.6!start_thread",
            ],
        );
    }
    stage.look(
        PID,
        1,
        &["libc.so.6!read", MAIN, "libc.so.6!__libc_start_main"],
    );
    stage.spawn(
        11,
        20,
        2,
        "orders!helper",
        &[START, "orders!worker@orders.c:44", "libc.so.6!start_thread"],
    );
    stage.seen(21, "stranger", 5);
    for (pid, executable) in [(31, "/usr/bin/sort"), (32, ""), (33, "/usr/bin/sort")] {
        stage.add(ProcessStarted {
            time_ns: 5_000_000,
            pid,
            creator_tid: Some(PID),
            executable: String::new(),
        });
        stage.add(ProcessStarted {
            time_ns: 5_000_000,
            pid,
            creator_tid: None,
            executable: executable.into(),
        });
    }
    stage.add(Dropped {
        probe: 1,
        count: 17,
        time_ns: 0,
    });
    stage.add(Missed {
        probe: 1,
        pauses: 3,
        paused_ns: 400_000_000,
        hits: 12,
        time_ns: 0,
    });
    stage.add(Note {
        severity: Severity::Warning.into(),
        text: "The server does not report thread exits, so the list of threads is read every 100 ms; short-lived threads may be missing.".into(),
        ..Default::default()
    });
    let mut capture = Capture::from_records(stage.records.clone());
    capture.cut = Some(Cut {
        offset: 81_920,
        reason: CutReason::InBlock { missing: Some(311) },
    });
    stage.model_of(&capture)
}

/// All text views.
const VIEWS: [View; 12] = [
    tree::write,
    findings::write,
    waits::write,
    contention::write,
    lock_order::write,
    critical::write,
    objects::write,
    functions::write,
    inspection::write,
    whole_timeline,
    zoomed_timeline,
    listed,
];

type View = fn(&Model, &mut dyn std::io::Write, &Style) -> std::io::Result<()>;

fn text(view: View, model: &Model, width: usize, color: bool) -> String {
    let mut out = Vec::new();
    let mut style = Style::default();
    (style.color, style.width) = (color, width);
    view(model, &mut out, &style).unwrap();
    String::from_utf8(out).unwrap()
}

fn check(name: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("src/views/snapshot_tests")
        .join(name);
    if std::env::var_os("UNSPOOL_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        text == expected,
        "{name} differs; UNSPOOL_BLESS=1 writes it anew. Now:\n{text}"
    );
}

#[test]
fn trees_match_their_snapshots() {
    for (name, model) in [
        ("orders", orders()),
        ("names", names()),
        ("broken", broken()),
    ] {
        for width in [100, 60] {
            check(
                &format!("{name}.tree.{width}.txt"),
                &text(tree::write, &model, width, false),
            );
        }
    }
}

/// The whole timeline, with one line per identity.
fn whole_timeline(
    model: &Model,
    out: &mut dyn std::io::Write,
    style: &Style,
) -> std::io::Result<()> {
    timeline::write(model, timeline::Zoom::default(), out, style)
}

/// A part of the timeline, with one line per thread.
fn zoomed_timeline(
    model: &Model,
    out: &mut dyn std::io::Write,
    style: &Style,
) -> std::io::Result<()> {
    let zoom = timeline::Zoom {
        from_ns: Some(2_000_000),
        to_ns: Some(20_000_000),
        each: true,
    };
    timeline::write(model, zoom, out, style)
}

#[test]
fn timelines_match_their_snapshots() {
    for (name, model) in [("orders", orders()), ("broken", broken())] {
        for width in [120, 80] {
            check(
                &format!("{name}.timeline.{width}.txt"),
                &text(whole_timeline, &model, width, false),
            );
        }
    }
}

#[test]
fn times_above_a_timeline_are_round_however_long_it_is() {
    let model = orders();
    for (to_ns, ticks) in [
        (100_000, &["0.00000", "0.00002", "0.00004"][..]),
        (200_000_000_000, &["0.0", "50.0", "100.0"]),
        (86_400_000_000_000, &["0.0", "20000.0", "40000.0"]),
        (u64::MAX, &["0.0"]),
    ] {
        let zoom = timeline::Zoom {
            to_ns: Some(to_ns),
            ..timeline::Zoom::default()
        };
        let mut shown = Vec::new();
        timeline::write(&model, zoom, &mut shown, &Style::default()).unwrap();
        let shown = String::from_utf8(shown).unwrap();
        let axis = shown
            .lines()
            .find(|line| line.trim_start().starts_with("0.0"));
        let axis = axis.unwrap_or_else(|| panic!("no times\n{shown}"));
        let times: Vec<&str> = axis.split(" s").map(str::trim).collect();
        assert!(times.starts_with(ticks), "{axis}");
    }
}

/// A source file without text, and one with text.
fn listed(model: &Model, out: &mut dyn std::io::Write, style: &Style) -> std::io::Result<()> {
    let listings = Listing::of(model, "orders.c");
    let lines: Vec<String> = (1..126).map(|n| format!("    line({n});")).collect();
    for (text, line) in [(None, None), (Some(lines.join("\n")), Some(96))] {
        for listing in &listings {
            let excerpt = source::Excerpt {
                listing,
                text: text.as_deref(),
                line,
                doubt: text.is_none().then_some("The file is not here."),
            };
            source::write(model, &excerpt, out, style)?;
        }
    }
    Ok(())
}

#[test]
fn sources_match_their_snapshots() {
    check("orders.source.80.txt", &text(listed, &orders(), 80, false));
    check("shop.source.80.txt", &text(listed, &shop(), 80, false));
}

#[test]
fn synchronization_matches_its_snapshots() {
    let model = shop();
    for (name, view) in [
        ("findings", findings::write as View),
        ("waits", waits::write),
        ("contention", contention::write),
        ("lock_order", lock_order::write),
        ("critical", critical::write),
        ("objects", objects::write),
        ("functions", functions::write),
        ("timeline", whole_timeline),
        ("tree", tree::write),
    ] {
        for width in [120, 80] {
            let text = text(view, &model, width, false);
            check(&format!("shop.{name}.{width}.txt"), &text);
        }
    }
    for (name, graph) in [
        ("threads", graph::threads::write as Graph),
        ("sync", graph::sync::write),
        ("waits", graph::waits::write),
    ] {
        let mut out = Vec::new();
        graph(&model, &mut out).unwrap();
        check(
            &format!("shop.{name}.dot"),
            &String::from_utf8(out).unwrap(),
        );
    }
}

type Graph = fn(&Model, &mut dyn std::io::Write) -> std::io::Result<()>;

#[test]
fn graphs_match_their_snapshots() {
    for (name, model) in [
        ("orders", orders()),
        ("names", names()),
        ("broken", broken()),
    ] {
        let mut out = Vec::new();
        graph::threads::write(&model, &mut out).unwrap();
        check(
            &format!("{name}.threads.dot"),
            &String::from_utf8(out).unwrap(),
        );
    }
}

#[test]
fn stacks_match_their_snapshots() {
    check(
        "broken.inspection.100.txt",
        &text(inspection::write, &broken(), 100, false),
    );
}

#[test]
fn json_matches_its_snapshots() {
    check(
        "broken.report.json",
        &text(json::report::write, &broken(), 100, false),
    );
    check(
        "broken.inspect.json",
        &text(json::inspection::write, &broken(), 100, false),
    );
}

#[test]
fn colour_adds_escapes_and_nothing_else() {
    for model in [orders(), names(), broken(), shop()] {
        for view in VIEWS {
            let plain = text(view, &model, 100, false);
            let colored = text(view, &model, 100, true);
            assert!(!plain.contains('\u{1b}'));
            let mut stripped = String::new();
            let mut rest = colored.as_str();
            while let Some((before, after)) = rest.split_once("\u{1b}[") {
                stripped.push_str(before);
                rest = after.split_once('m').unwrap().1;
            }
            assert_eq!(stripped + rest, plain);
        }
    }
}

#[test]
fn no_line_is_wider_than_the_page() {
    let mut deep = Stage::new();
    for tid in 1..200 {
        let creator = if tid == 1 { PID } else { tid - 1 };
        let stack =
            ["orders!a_function_with_a_name_of_some_length@a/rather/long/path/to/a/file.c:123456"];
        deep.spawn(
            creator,
            tid,
            tid * 2,
            "orders!nested_thread_function",
            &stack,
        );
        deep.name(tid, "漢字漢字漢字漢字漢字漢字", 900);
    }
    for model in [
        orders(),
        names(),
        broken(),
        shop(),
        deep.model(),
        Model::default(),
    ] {
        for width in (40..130).chain([0, 1000]) {
            for view in VIEWS {
                for text in text(view, &model, width, false).lines() {
                    assert!(line::width(text) <= width.max(40), "{width}: {text:?}");
                    assert_eq!(text, text.trim_end());
                }
            }
        }
    }
}

/// Requires every field of the documents to appear in `docs/reference/report-json.md`.
#[test]
fn every_json_field_is_documented() {
    fn fields(value: &serde_json::Value, found: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(object) => {
                for (name, value) in object {
                    found.push(name.clone());
                    fields(value, found);
                }
            }
            serde_json::Value::Array(values) => values.iter().for_each(|v| fields(v, found)),
            _ => {}
        }
    }
    let docs =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/report-json.md");
    let docs = std::fs::read_to_string(docs).unwrap();
    let (report, inspection) = docs.split_once("# `unspool inspect").unwrap();
    for (docs, view, model) in [
        (report, json::report::write as View, broken()),
        (report, json::report::write, shop()),
        (inspection, json::inspection::write, broken()),
    ] {
        let json: serde_json::Value =
            serde_json::from_str(&text(view, &model, 100, false)).unwrap();
        assert_eq!(json["schema_version"], 1);
        let mut found = Vec::new();
        fields(&json, &mut found);
        found.sort();
        found.dedup();
        assert!(found.len() > 10);
        for field in found {
            let named =
                docs.contains(&format!("`{field}`")) || report.contains(&format!("| `{field}` |"));
            assert!(named, "{field} is not documented");
        }
    }
}
