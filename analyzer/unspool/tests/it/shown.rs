//! Other views of a recording than the tree: the timeline, the sources, pictures.

use crate::running::{Run, record, unspool};

#[test]
fn a_recording_is_drawn_listed_and_laid_out_in_time() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c");
    Run::of(&mut record(&file, &["exit", "0"])).succeeds();
    let show = |args: &[&str]| Run::of(unspool().args(args).arg(&file));
    let shown = |args: &[&str]| {
        let run = show(args);
        run.succeeds();
        run.stdout
    };

    let timeline = shown(&["report", "--width", "80", "--view", "timeline"]);
    assert!(timeline.contains("short_life"), "{timeline}");
    assert!(timeline.contains('█'), "{timeline}");
    for line in timeline.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    show(&["report", "--from", "2", "--to", "1"]).fails_with(1, &["--to", "--from"]);
    let late = ["report", "--view", "timeline", "--from", "3600"];
    show(&late).fails_with(1, &["--from is 3600.000 s", "is from 0 s to 0."]);
    show(&["report", "--from", "soon"]).fails_with(2, &["seconds", "0.25"]);

    let dot = shown(&["export", "--format", "dot"]);
    assert!(
        dot.starts_with("digraph") && dot.contains("short_life"),
        "{dot}"
    );
    let svg = shown(&["export", "--format", "svg"]);
    assert!(svg.contains("<svg") && svg.contains("short_life"), "{svg}");
    let without = Run::of(
        unspool()
            .args(["export", "--format", "svg"])
            .arg(&file)
            .env("PATH", ""),
    );
    without.fails_with(1, &["Graphviz", "--format dot"]);

    let place = |place: &str| {
        let mut command = unspool();
        Run::of(
            command
                .arg("report")
                .arg(&file)
                .args(["--view", "source", place]),
        )
    };
    let source = place("programs/subject.c");
    source.succeeds();
    assert!(
        source.stdout.contains("pthread_create("),
        "{}",
        source.stdout
    );
    assert!(
        source.stdout.contains("creates 1 thread: short_life"),
        "{}",
        source.stdout
    );
    let mut last = unspool();
    let last = Run::of(
        last.args(["report", "--view", "source", "programs/subject.c"])
            .arg(&file),
    );
    last.succeeds();
    assert_eq!(last.stdout, source.stdout);
    place("other.c:7").fails_with(1, &["other.c", "name the files"]);
    place("subject.c:x").fails_with(1, &["line number"]);
}
