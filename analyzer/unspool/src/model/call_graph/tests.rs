//! Tests of call graphs: hooks of a fixture program, and malformed traces.

use unspool_capture::{Event, Probe, ProbeKind};

use super::*;
use crate::model::Detail;
use crate::model::fixture::{PID, Stage};

const HOOK: u32 = 50;
/// A stack pointer near the outer end of a stack.
const TOP: u64 = 0x7fff_0000;

/// A program whose main thread calls hooks.
struct Hooked(Stage);

impl Hooked {
    fn new() -> Hooked {
        let mut stage = Stage::new();
        stage.add(Probe {
            id: HOOK,
            function: "__cyg_profile_func_enter".into(),
            kind: ProbeKind::Hook.into(),
            ..Probe::default()
        });
        Hooked(stage)
    }

    fn address(&mut self, function: &'static str) -> u64 {
        self.0.address(match function {
            "a" => "orders!a",
            "b" => "orders!b",
            "c" => "orders!c",
            "d" => "orders!d",
            _ => "orders!e",
        })
    }

    /// A call from an unknown place.
    fn hit(&mut self, us: u64, function: &'static str, depth: u64, ends: u64) {
        self.hit_from(us, function, depth, ends, 1);
    }

    fn hit_from(&mut self, us: u64, function: &'static str, depth: u64, ends: u64, site: u64) {
        let function = self.address(function);
        self.0.add(Event {
            time_ns: us * 1000,
            tid: PID,
            probe: HOOK,
            args: vec![function, site, 2, ends],
            frame: Some(TOP.wrapping_sub(depth.wrapping_mul(64))),
            ..Event::default()
        });
    }

    fn enter(&mut self, us: u64, function: &'static str, depth: u64) -> &mut Hooked {
        self.hit(us, function, depth, 0);
        self
    }

    fn exit(&mut self, us: u64, function: &'static str, depth: u64) -> &mut Hooked {
        self.hit(us, function, depth, 1);
        self
    }

    /// A call from an instruction in `caller`.
    fn enter_from(&mut self, us: u64, caller: &'static str, function: &'static str, depth: u64) {
        let site = self.address(caller) + 5;
        self.hit_from(us, function, depth, 0, site);
    }

    fn exit_from(&mut self, us: u64, caller: &'static str, function: &'static str, depth: u64) {
        let site = self.address(caller) + 5;
        self.hit_from(us, function, depth, 1, site);
    }

    fn graph(&mut self) -> CallGraph {
        self.0.end(1);
        let records = self.0.records.clone();
        let capture = Capture::from_records(records);
        let detail = Detail {
            call_graph: true,
            ..Detail::default()
        };
        Model::interpret(&capture, &mut self.0, detail)
            .call_graph
            .expect("asked for")
    }
}

/// Edges with the functions' names, counts and microseconds.
fn edges(graph: &CallGraph) -> Vec<(Option<&str>, &str, u64, u64)> {
    let name = |function: usize| graph.functions[function].function.as_deref().unwrap_or("");
    let edges = graph.edges.iter().map(|edge| {
        (
            edge.caller.map(name),
            name(edge.callee),
            edge.calls,
            edge.total_ns / 1000,
        )
    });
    edges.collect()
}

#[test]
fn recursion_counts_each_call_and_no_time_twice() {
    let mut program = Hooked::new();
    program
        .enter(10, "a", 1)
        .enter(20, "b", 2)
        .enter(30, "b", 3);
    program.exit(50, "b", 3).exit(60, "b", 2);
    program.enter(70, "b", 2).exit(75, "b", 2).exit(100, "a", 1);
    let graph = program.graph();
    assert_eq!(
        edges(&graph),
        [
            (None, "a", 1, 90),
            (Some("a"), "b", 2, 45),
            (Some("b"), "b", 1, 20)
        ]
    );
    let node = |at: usize| {
        let Node {
            calls,
            total_ns,
            self_ns,
            ..
        } = graph.nodes[at];
        (calls, total_ns / 1000, self_ns / 1000)
    };
    assert_eq!((node(0), node(1)), ((1, 90, 45), (3, 45, 45)));
    assert_eq!((graph.left, graph.begun_before), (0, 0));
}

#[test]
fn calls_that_a_jump_left_call_nothing_more() {
    let mut program = Hooked::new();
    program.enter(10, "a", 1);
    for us in [20, 40, 60] {
        // c leaves itself and b, each time from the same place.
        program.enter(us, "b", 2).enter(us + 10, "c", 3);
    }
    program.enter(80, "d", 2).exit(85, "d", 2).exit(100, "a", 1);
    let graph = program.graph();
    let counts: Vec<_> = edges(&graph)
        .into_iter()
        .map(|(caller, callee, calls, _)| (caller, callee, calls))
        .collect();
    assert_eq!(
        counts,
        [
            (None, "a", 1),
            (Some("a"), "b", 3),
            (Some("a"), "d", 1),
            (Some("b"), "c", 3)
        ]
    );
    assert_eq!(graph.left, 6);
}

/// The times of a function in microseconds: total, and its own.
fn times(graph: &CallGraph, name: &str) -> (u64, u64) {
    let is_it = |node: &&Node| graph.functions[node.function].function.as_deref() == Some(name);
    let node = graph.nodes.iter().find(is_it).expect("the function");
    (node.total_ns / 1000, node.self_ns / 1000)
}

/// The frame of a new call is smaller or larger than that of the call that a jump left.
#[test]
fn a_call_by_an_outer_function_shows_that_the_inner_ones_are_over() {
    let mut program = Hooked::new();
    program.enter(10, "a", 1);
    program.enter_from(20, "a", "b", 2);
    program.enter_from(30, "b", "c", 3);
    // A jump back to `a`, which later calls `d` with a large frame.
    program.enter_from(5000, "a", "d", 9);
    program.exit_from(5010, "a", "d", 9);
    program.exit(5020, "a", 1);
    let graph = program.graph();
    assert_eq!(graph.left, 2);
    assert!(edges(&graph).contains(&(Some("a"), "d", 1, 10)));
    // The jump happened at an unknown time after the last hit.
    assert_eq!([times(&graph, "b"), times(&graph, "c")], [(10, 10), (0, 0)]);
    assert_eq!(times(&graph, "a"), (5010, 4990));
}

#[test]
fn a_call_that_only_seemed_to_be_left_has_its_end() {
    let mut program = Hooked::new();
    program.enter(10, "a", 1);
    program.enter_from(20, "a", "b", 900);
    // `b` runs as a coroutine, and switches back to `a`.
    program.enter_from(30, "a", "c", 2);
    program.exit_from(40, "a", "c", 2);
    program.exit_from(70, "a", "b", 900);
    program.exit(80, "a", 1);
    let graph = program.graph();
    assert_eq!((graph.left, graph.begun_before), (0, 0));
    assert_eq!((times(&graph, "b").0, times(&graph, "c")), (50, (10, 10)));
}

#[test]
fn a_recording_may_begin_and_end_within_calls() {
    let mut program = Hooked::new();
    program.exit(10, "b", 2).enter(20, "c", 2).exit(30, "c", 2);
    program.exit(40, "a", 1).enter(500, "e", 1);
    let graph = program.graph();
    assert_eq!(edges(&graph), [(None, "c", 1, 10), (None, "e", 1, 500)]);
    assert_eq!((graph.left, graph.begun_before), (1, 2));
}

#[test]
fn a_signal_handler_on_another_stack_leaves_no_call() {
    let mut program = Hooked::new();
    program.enter(10, "a", 1);
    // The other stack lies above.
    let far = 0_u64.wrapping_sub(2 * SAME_STACK / 64);
    program.enter(20, "b", far).exit(30, "b", far);
    program.exit(50, "a", 1);
    let graph = program.graph();
    assert_eq!(edges(&graph), [(None, "a", 1, 40), (Some("a"), "b", 1, 10)]);
    assert_eq!(graph.left, 0);
}

#[test]
fn a_wrong_line_of_a_trace_is_named() {
    let own = std::env::current_exe().expect("a path");
    let image = unspool_image::Image::open(&own).expect("this program");
    for (trace, line) in [
        ("E0x10\nX0x10\nQ0x10\n", Some(3)),
        ("E0x10\nE0x\n", Some(2)),
        ("E0x+1\n", Some(1)),
        ("E0x11223344556677889\n", Some(1)),
        ("E0x10\n\nX0x10", None),
    ] {
        match (pvtrace::read(trace.as_bytes(), &image, 0), line) {
            (Err(pvtrace::Error::Line { line: found, .. }), Some(line)) => assert_eq!(found, line),
            (Ok(graph), None) => assert_eq!(graph.edges.len(), 1),
            (other, _) => panic!("{trace:?}: {other:?}"),
        }
    }
}
