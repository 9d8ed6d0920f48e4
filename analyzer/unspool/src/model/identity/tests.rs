//! Keys stay equal across runs and differ between creation paths.

use super::Key;
use crate::model::fixture::{PID, Stage};
use crate::model::{Model, Thread};

const MAIN: &[&str] = &["orders!start@orders.c:27", "orders!main"];

fn key(model: &Model, tid: u64) -> Key {
    model
        .threads
        .iter()
        .find(|thread| thread.tid == Some(tid))
        .map(|thread: &Thread| thread.key)
        .unwrap()
}

/// The same program at other addresses, with other thread ids.
fn run(bias: u64, tids: u64) -> Vec<Key> {
    let mut stage = Stage::new();
    stage.bias = bias;
    stage.spawn(PID, tids + 1, 1, "orders!worker", MAIN);
    stage.spawn(
        PID,
        tids + 2,
        3,
        "orders!worker",
        &["orders!start@orders.c:27", "orders!other", "orders!main"],
    );
    stage.spawn(PID, tids + 3, 5, "orders!writer", MAIN);
    stage.spawn(tids + 1, tids + 4, 7, "orders!child", &["orders!worker"]);
    stage.spawn(tids + 2, tids + 5, 9, "orders!child", &["orders!worker"]);
    stage.spawn(PID, tids + 6, 11, "orders!worker", MAIN);
    let model = stage.model();
    (0..=6)
        .map(|i| key(&model, if i == 0 { PID } else { tids + i }))
        .collect()
}

#[test]
fn keys_survive_another_run_at_other_addresses() {
    assert_eq!(run(0x5555_0000_0000, 100), run(0x7f12_3450_0000, 9000));
}

#[test]
fn keys_differ_where_threads_do() {
    let keys = run(0x5555_0000_0000, 100);
    assert_eq!(keys[1], keys[6], "same function, same path");
    for (a, b, why) in [
        (0, 1, "main"),
        (1, 2, "creation path"),
        (1, 3, "function"),
        (4, 5, "same function and path, but another creator"),
    ] {
        assert_ne!(keys[a], keys[b], "{why}");
    }
}

#[test]
fn keys_are_a_promise() {
    // Compared across versions of Unspool: a change here is a change of
    // docs/reference/report-json.md, "Keys".
    let keys: Vec<String> = run(0x5555_0000_0000, 100)[..2]
        .iter()
        .map(Key::to_string)
        .collect();
    assert_eq!(keys, ["603e8390f46b5ece", "237461f4b11c362b"]);
}

#[test]
fn code_of_no_module_brings_no_address_in() {
    let keys = |bias| {
        let mut stage = Stage::new();
        stage.bias = bias;
        stage.spawn(PID, 11, 1, "orders!worker", &["?", "orders!main"]);
        stage.spawn(PID, 12, 3, "?", MAIN);
        let model = stage.model();
        assert!(
            model
                .notes
                .iter()
                .any(|n| n.text.starts_with("2 threads were created by code"))
        );
        (key(&model, 11), key(&model, 12))
    };
    assert_eq!(keys(0x5555_0000_0000), keys(0x7f12_3450_0000));
}

#[test]
fn inlining_is_no_part_of_identity() {
    // Debug information does not change the physical frames.
    let key_of = |inlined: &[&'static str]| {
        let mut stage = Stage::new();
        stage.spawn(
            PID,
            10,
            1,
            "orders!worker",
            &["orders!outer", "~orders!inlined", "orders!main"],
        );
        let stack: Vec<&str> = inlined
            .iter()
            .copied()
            .chain(["orders!outer", "orders!main"])
            .collect();
        stage.spawn(PID, 11, 3, "orders!worker", &stack);
        key(&stage.model(), 11)
    };
    assert_eq!(key_of(&[]), key_of(&["~orders!inlined"]));
}
