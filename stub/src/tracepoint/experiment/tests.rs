//! Experiments with a thread that stands still.

use super::*;
use crate::tracepoint::definition::Action;
use crate::tracepoint::frame_buffer::Block;
use crate::tracepoint::variable::Computed;

struct Still;

impl HitContext for Still {
    fn registers(&mut self, sets: u8) -> (u8, &[u8]) {
        (sets, &[1, 2, 3, 4])
    }

    fn register(&mut self, number: usize) -> Option<u64> {
        Some(0x1000 + number as u64)
    }

    /// Readable up to 0x1010.
    fn read(&mut self, address: u64, into: &mut [u8]) -> usize {
        into.fill(9);
        into.len().min(0x1010_u64.saturating_sub(address) as usize)
    }

    fn compute(&mut self, computed: Computed) -> i64 {
        computed as i64
    }
}

fn trace(tracepoint: Tracepoint) -> Experiment {
    let mut trace = Experiment::default();
    trace.tracepoints.insert(tracepoint);
    trace.start();
    trace
}

fn tracepoint(actions: Vec<Action>) -> Tracepoint {
    Tracepoint {
        number: 1,
        address: 0x400,
        at: 0x400,
        enabled: true,
        actions,
        ..Tracepoint::default()
    }
}

#[test]
fn a_hit_records_what_its_actions_collect() {
    let memory = Action::Memory {
        register: Some(4),
        offset: 4,
        length: 64,
    };
    let registers = Action::Registers(0b10);
    // tracev 5
    let expression = Action::Expression(vec![0x2e, 0, 5, 0x27]);
    let mut trace = trace(tracepoint(vec![registers, memory, expression]));
    trace.variables.define(5, b"trace_cpu", 0);
    trace.hit(0x400, &mut Still);
    trace.hit(0x500, &mut Still);
    let frames = trace.buffer.frames();
    assert_eq!((frames.len(), frames[0].sets), (1, 3));
    assert_eq!(
        frames[0].blocks(4),
        [
            Block::Registers(&[1, 2, 3, 4]),
            Block::Memory {
                address: 0x1008,
                bytes: &[9; 8]
            },
            Block::Variable {
                number: 5,
                value: Computed::Cpu as i64
            },
        ]
    );
}

#[test]
fn conditions_passes_and_errors() {
    // $v5++ > 1, counting by itself: getv, const8 1, add, setv, const8 1, swap, less_signed
    let condition = vec![
        0x2c, 0, 5, 0x22, 1, 0x02, 0x2d, 0, 5, 0x22, 1, 0x2b, 0x14, 0x27,
    ];
    let mut counted = trace(Tracepoint {
        condition: Some(condition),
        passes: 2,
        ..tracepoint(Vec::new())
    });
    (0..9).for_each(|_| assert!(!counted.hit(0x400, &mut Still).stop));
    assert_eq!(counted.buffer.created, 2);
    assert_eq!(counted.ended, Ended::Passes(1));
    let mut faulty = trace(tracepoint(vec![Action::Expression(vec![0x17, 0x27])]));
    faulty.hit(0x400, &mut Still);
    assert!(matches!(faulty.ended, Ended::Error(1, _)) && !faulty.running);
}

#[test]
fn steps_after_hits() {
    let registers = vec![Action::Registers(1)];
    let mut trace = trace(Tracepoint {
        steps: 2,
        step_actions: registers,
        passes: 2,
        ..tracepoint(Vec::new())
    });
    let mut series = Vec::new();
    for _ in 0..2 {
        series.extend(trace.hit(0x400, &mut Still).series);
    }
    let mut step = |trace: &mut Experiment, index: usize, pc| {
        let one_series: &mut StepSeries = &mut series[index];
        trace.step(one_series, pc, &mut Still)
    };
    assert!(step(&mut trace, 1, 0x404));
    assert!(step(&mut trace, 0, 0x404) && !step(&mut trace, 0, 0x408));
    // The second hit was the last, and its steps belong to it.
    assert!(trace.running && !step(&mut trace, 1, 0x408));
    assert_eq!(trace.ended, Ended::Passes(1));
    let frames = trace.buffer.frames();
    let frames: Vec<(u64, u8)> = frames.iter().map(|f| (f.pc, f.sets)).collect();
    let [hit, first, second] = [(0x400, 0), (0x404, 1), (0x408, 1)];
    assert_eq!(frames, [hit, hit, first, first, second, second]);
    // The next run does not continue the series of this one.
    let one_series = series.remove(0);
    trace.start();
    assert!(!trace.is_for(&one_series));
    trace.end_series(&one_series);
    assert!(trace.running);
}

#[test]
fn variables_request_stops_and_needed_frames() {
    // $v5 = 1
    let set = Action::Expression(vec![0x22, 1, 0x2d, 0, 5, 0x27]);
    for (name, asked) in [
        (&b"trace_stop"[..], (true, false)),
        (b"trace_needed", (false, true)),
        (b"another", (false, false)),
    ] {
        let mut trace = trace(tracepoint(vec![set.clone()]));
        trace.variables.define(5, name, 0);
        let Asked { stop, needed, .. } = trace.hit(0x400, &mut Still);
        assert_eq!((stop, needed), asked);
        assert_eq!(trace.buffer.created, u64::from(!stop));
    }
}

#[test]
fn a_drained_buffer_drops() {
    let mut full = trace(tracepoint(vec![Action::Memory {
        register: None,
        offset: 0x1000,
        length: 16,
    }]));
    full.buffer.resize(Some(40));
    full.drained = true;
    (0..3).for_each(|_| assert!(!full.hit(0x400, &mut Still).stop));
    assert!(full.running);
    assert_eq!(full.tracepoints.get(&(1, 0x400)).unwrap().dropped, 2);
    full.drained = false;
    full.hit(0x400, &mut Still);
    assert_eq!(full.ended, Ended::Full);
}

/// For example thread creations, while other hits fill the buffer.
#[test]
fn a_full_buffer_keeps_needed_frames() {
    // $v5 = 1
    let set = Action::Expression(vec![0x22, 1, 0x2d, 0, 5, 0x27]);
    let memory = Action::Memory {
        register: None,
        offset: 0x1000,
        length: 16,
    };
    let mut full = trace(tracepoint(vec![memory.clone()]));
    let needed = Tracepoint {
        number: 2,
        address: 0x500,
        at: 0x500,
        ..tracepoint(vec![memory, set])
    };
    full.tracepoints.insert(needed);
    full.variables.define(5, b"trace_needed", 0);
    full.buffer.resize(Some(80));
    full.drained = true;
    for _ in 0..9 {
        full.hit(0x400, &mut Still);
    }
    assert!(full.hit(0x500, &mut Still).needed);
    let dropped = |key| full.tracepoints.get(&key).unwrap().dropped;
    assert_eq!((dropped((1, 0x400)), dropped((2, 0x500))), (7, 0));
    // The mark before it says that others are missing.
    let numbers: Vec<u32> = full.buffer.frames().iter().map(|f| f.tracepoint).collect();
    assert_eq!(numbers, [1, 1, 1, 2]);
}

#[test]
fn the_last_counts_of_a_deleted_tracepoint_are_told() {
    let mut trace = trace(tracepoint(Vec::new()));
    trace.drained = true;
    let missed = Missed {
        pauses: 1,
        paused_ns: 5,
        hits: 3,
    };
    trace.forget(&(1, 0x400), missed, true);
    let mut marks = trace.buffer.frames().iter();
    assert!(marks.all(|frame| frame.tracepoint == 1) && trace.buffer.frames().len() == 1);
    assert!(!trace.tracepoints.are_at(0x400));
    // Another library has a tracepoint at this address.
    trace.tracepoints.insert(Tracepoint {
        number: 2,
        ..tracepoint(Vec::new())
    });
    let mut budget = Budget::default();
    assert_eq!(trace.newly_missed(&mut budget, true), [(1, missed)]);
    assert_eq!(trace.newly_missed(&mut budget, true), []);
}
