//! Screens of `unspool top`, drawn to memory.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use unspool_capture::{CpuTime, CpuTimes};

use super::*;
use crate::model::{ObjectName, State, Wait};

use crate::primitives::Kind;

/// The text of the screen for a program with these threads: id, name, time on a processor.
fn screen_text(size: (u16, u16), threads: &[(u64, &str, u64)], screen: &mut Screen) -> String {
    let mut live = Live::default();
    live.model.target.name = "shop\u{1b}[2J".to_owned();
    let times = |time_ns: u64, factor: u64| CpuTimes {
        time_ns,
        threads: threads
            .iter()
            .map(|(tid, _, on_cpu_ns)| CpuTime {
                tid: *tid,
                on_cpu_ns: on_cpu_ns * factor,
                runnable_ns: 0,
            })
            .collect(),
    };
    let name = |tid: u64| {
        let (_, name, _) = threads.iter().find(|(other, ..)| *other == tid)?;
        Some((*name).to_owned())
    };
    live.sample(&times(1_000, 0), name);
    live.sample(&times(2_000, 1), name);
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
    terminal.draw(|frame| draw(frame, &live, screen)).unwrap();
    terminal.backend().to_string()
}

const THREADS: [(u64, &str, u64); 3] =
    [(7, "log\u{7}", 100), (8, "pool-1", 900), (9, "pool-2", 300)];

#[test]
fn rows_are_sorted_and_filtered() {
    let mut screen = Screen::new(false);
    let text = screen_text((80, 24), &THREADS, &mut screen);
    let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what}: {text}"));
    assert!(at("pool-…") < at("log\u{fffd}"), "{text}");
    assert!(
        text.contains("  2  new threads \"pool-…\"  60%   0%  40% 120%"),
        "{text}"
    );
    assert!(text.contains("1.30 CPUs"), "{text}");
    screen.filter = "LOG".to_owned();
    let text = screen_text((80, 24), &THREADS, &mut screen);
    assert!(!text.contains("pool"), "{text}");
    screen.filter = "none".to_owned();
    let text = screen_text((80, 24), &THREADS, &mut screen);
    assert!(text.contains("nothing contains \"none\""), "{text}");
}

#[test]
fn the_selection_stays_with_its_row() {
    let mut screen = Screen::new(false);
    let selected = |screen: &mut Screen| {
        let text = screen_text((80, 24), &THREADS, screen);
        let rows: Vec<&str> = text.lines().filter(|line| line.contains('%')).collect();
        rows.get(screen.selected()).map(|row| row.contains("pool"))
    };
    assert_eq!(selected(&mut screen), Some(true));
    screen.move_by(1);
    assert_eq!(selected(&mut screen), Some(false));
    for _ in 0..5 {
        screen.sort_by_next();
        assert_eq!(selected(&mut screen), Some(false));
    }
    screen.move_to_first();
    assert_eq!(screen.selected(), 0);
}

#[test]
fn control_characters_are_removed() {
    let text = screen_text((80, 24), &THREADS, &mut Screen::new(true));
    assert!(!text.contains(['\u{1b}', '\u{7}']), "{text:?}");
}

#[test]
fn every_size_can_be_drawn() {
    for columns in [1, 20, 39, 40, 60, 200] {
        for rows in [1, 5, 9, 10, 24, 60] {
            for help in [false, true] {
                let mut screen = Screen::new(true);
                screen.shows_help = help;
                screen.move_by(1);
                screen_text((columns, rows), &THREADS, &mut screen);
            }
        }
    }
}

#[test]
fn ages_are_short() {
    assert_eq!(age(400_000_000), "0.4 s");
    assert_eq!(age(12_000_000_000), "12 s");
    assert_eq!(age(180_000_000_000), "3 min");
    assert_eq!(age(7_200_000_000_000), "2 h");
}

/// The times of waits must not grow when the program has ended.
#[test]
fn a_program_that_has_ended_does_not_wait() {
    let mut live = Live::default();
    let mut model = crate::views::snapshot_tests::broken();
    let wait = Wait {
        object: ObjectName {
            kind: Kind::Mutex,
            address: 0x1000,
            name: Some("queue".into()),
        },
        function: None,
        flavor: Vec::new(),
        holders: Vec::new(),
        readers: None,
        mutex: None,
        timed: false,
        shared: false,
        proved: true,
        moving: false,
        refused: false,
        word: Default::default(),
        unknown: None,
        trace: None,
    };
    model.inspection.states = vec![State::Waiting(Box::new(wait)); model.threads.len()];
    live.inspected(model);
    let mut screen = Screen::new(false);
    let mut drawn = |ended: Option<&str>| {
        screen.status.ended = ended.map(str::to_owned);
        let mut terminal = Terminal::new(TestBackend::new(100, 40)).unwrap();
        let frame = terminal.draw(|frame| draw(frame, &live, &mut screen));
        frame.unwrap();
        terminal.backend().to_string()
    };
    let text = drawn(None);
    assert!(text.contains("WAITS FOR"), "{text}");
    let text = drawn(Some("The program has ended with exit code 0."));
    assert!(!text.contains("WAITS FOR"), "{text}");
}
