//! Which functions called which, how often, and how long the calls took.
//!
//! A program built with `-finstrument-functions` calls a hook where a function begins or ends.
//! Without hooks the graph has the calls of traced functions. Memory is small: each thread has a
//! stack of its open calls, and ended calls are added to sums.
//!
//! Times: of recursive calls, only the outermost counts, so that no time is greater than the
//! thread's life. The same rule holds for edges.

use std::collections::VecDeque;
use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};
use unspool_capture::{Capture, Event, ProbeKind, Record};

use super::Model;
use super::backtrace::{Frames, Place};
use super::calls::lives::Lives;
use super::calls::{Call, Calls, Moment};
use crate::platform::Architecture;

pub mod pvtrace;
#[cfg(test)]
mod tests;

/// Maximum distance between two addresses on one stack, in bytes: the usual size of a stack. An
/// address further away is on the stack of a signal handler or a coroutine.
const SAME_STACK: u64 = 8 << 20;

/// Calls by caller and callee, and by the identity of the thread.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallGraph {
    /// The functions; [`Edge`] and [`Node`] have indices.
    pub functions: Vec<Place>,
    /// Sums per function.
    pub nodes: Vec<Node>,
    /// Sums per caller and callee.
    pub edges: Vec<Edge>,
    /// True if the times of the calls are known.
    pub has_times: bool,
    /// Number of calls that ended without a recorded end: by an exception, `longjmp`, or the end
    /// of their thread. Unless the thread ended, their time ends with its last recorded hit before.
    pub left: u64,
    /// Number of ends of calls that began before the recording.
    pub begun_before: u64,
}

/// The calls of one function by threads of one identity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// The function.
    pub function: usize,
    /// Index in [`Sync::identities`](super::sync::Sync::identities).
    pub identity: usize,
    /// Number of calls.
    pub calls: u64,
    /// Time in the function and in functions that it called, nanoseconds.
    pub total_ns: u64,
    /// Time in the function itself, nanoseconds.
    pub self_ns: u64,
}

/// The calls of one function by another, by threads of one identity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Edge {
    /// The calling function; `None` if it is not recorded.
    pub caller: Option<usize>,
    /// The called function.
    pub callee: usize,
    /// Index in [`Sync::identities`](super::sync::Sync::identities).
    pub identity: usize,
    /// Number of calls.
    pub calls: u64,
    /// Time from the beginning to the end of the calls, nanoseconds.
    pub total_ns: u64,
}

impl CallGraph {
    /// True if no call was recorded.
    pub fn is_empty(&self) -> bool {
        self.edges.is_empty()
    }

    /// Reads the calls of a capture from its hooks, or from traced functions if it has no hook
    /// hits.
    pub(super) fn of(capture: &Capture, model: &Model, frames: &mut dyn Frames) -> CallGraph {
        let hooks = capture.records.iter().filter_map(|record| match record {
            Record::Probe(probe) if probe.kind() == ProbeKind::Hook => Some(probe.id),
            _ => None,
        });
        let hooks: Vec<u32> = hooks.collect();
        let counted = |id: &u32| capture.calls.hits.contains_key(id);
        let in_memory = || capture.events().any(|event| hooks.contains(&event.probe));
        let mut graph = match hooks.iter().any(counted) || in_memory() {
            true => of_hooks(capture, model, frames, &hooks),
            false => of_traced(capture, model, frames),
        };
        graph.has_times = true;
        graph
    }
}

/// A call that is under way.
#[derive(Clone, Copy, Debug)]
struct Open {
    function: usize,
    caller: Option<usize>,
    /// Distinguishes the calls of a thread: the stack pointer at the hook, or the number of a
    /// traced call.
    place: u64,
    call_site: u64,
    return_address: u64,
    began_ns: u64,
    inner_ns: u64,
}

/// The end of a call.
#[derive(Clone, Copy, Debug)]
struct Ended {
    function: usize,
    place: u64,
    call_site: u64,
}

/// A call that seems to have been left without a recorded end. It goes on if its thread runs on
/// another stack meanwhile, such as a coroutine's.
#[derive(Clone, Copy, Debug)]
struct Abandoned {
    call: Open,
    /// The time until which it has been counted.
    left_ns: u64,
    /// It is the outermost call of its function, or on its edge.
    outermost: (bool, bool),
}

/// Maximum number of abandoned calls of a thread; the first ones are forgotten first.
const MAX_ABANDONED: usize = 1024;

/// The calls of one thread that are under way, the outermost first.
#[derive(Debug, Default)]
struct Stack {
    identity: usize,
    open: Vec<Open>,
    abandoned: VecDeque<Abandoned>,
    /// Time of the thread's last hit.
    last_ns: u64,
    /// Number of open calls by function, and by caller and function.
    functions: HashMap<usize, u32>,
    edges: HashMap<(Option<usize>, usize), u32>,
}

/// A function's module, its edition and the address there, or its name and address.
type FunctionKey = (Option<Arc<str>>, Option<Arc<str>>, u64);

fn key(place: &Place) -> FunctionKey {
    match place.function_svma().or(place.svma) {
        Some(start) => (place.module.clone(), place.edition.clone(), start),
        None => (place.function.clone(), None, place.avma),
    }
}

/// Sums up calls.
#[derive(Debug, Default)]
struct Sums {
    graph: CallGraph,
    nodes: HashMap<(usize, usize), usize>,
    edges: HashMap<(Option<usize>, usize, usize), usize>,
    interned: HashMap<FunctionKey, usize>,
}

impl Sums {
    /// The function at a place, which is the function's start.
    fn function(&mut self, place: Place) -> usize {
        let key = key(&place);
        let functions = &mut self.graph.functions;
        *self.interned.entry(key).or_insert_with(|| {
            functions.push(place);
            functions.len() - 1
        })
    }

    fn node(&mut self, function: usize, identity: usize) -> &mut Node {
        let nodes = &mut self.graph.nodes;
        let at = self.nodes.entry((function, identity)).or_insert_with(|| {
            nodes.push(Node {
                function,
                identity,
                ..Node::default()
            });
            nodes.len() - 1
        });
        &mut self.graph.nodes[*at]
    }

    fn edge(&mut self, caller: Option<usize>, callee: usize, identity: usize) -> &mut Edge {
        let edges = &mut self.graph.edges;
        let key = (caller, callee, identity);
        let at = self.edges.entry(key).or_insert_with(|| {
            edges.push(Edge {
                caller,
                callee,
                identity,
                ..Edge::default()
            });
            edges.len() - 1
        });
        &mut self.graph.edges[*at]
    }

    fn begin(&mut self, stack: &mut Stack, call: Open) {
        self.node(call.function, stack.identity).calls += 1;
        self.edge(call.caller, call.function, stack.identity).calls += 1;
        *stack.functions.entry(call.function).or_default() += 1;
        let edge = (call.caller, call.function);
        *stack.edges.entry(edge).or_default() += 1;
        stack.open.push(call);
    }

    /// Ends the open call with this index. Returns the call, and whether it was the outermost one
    /// of its function and of its edge.
    fn end(&mut self, stack: &mut Stack, at: usize, now_ns: u64) -> (Open, (bool, bool)) {
        let call = stack.open.remove(at);
        let total_ns = now_ns.saturating_sub(call.began_ns);
        if let Some(outer) = at.checked_sub(1) {
            let inner_ns = &mut stack.open[outer].inner_ns;
            *inner_ns = inner_ns.saturating_add(total_ns);
        }
        let is_last = |count: Option<&mut u32>| {
            count.is_some_and(|count| {
                *count -= 1;
                *count == 0
            })
        };
        let outermost = is_last(stack.functions.get_mut(&call.function));
        let node = self.node(call.function, stack.identity);
        node.self_ns = (node.self_ns).saturating_add(total_ns.saturating_sub(call.inner_ns));
        if outermost {
            node.total_ns = node.total_ns.saturating_add(total_ns);
        }
        let edge = (call.caller, call.function);
        let outermost_edge = is_last(stack.edges.get_mut(&edge));
        if outermost_edge {
            let edge = self.edge(call.caller, call.function, stack.identity);
            edge.total_ns = edge.total_ns.saturating_add(total_ns);
        }
        (call, (outermost, outermost_edge))
    }

    /// Ends the calls from this index on, whose ends were not recorded.
    fn leave(&mut self, stack: &mut Stack, from: usize, now_ns: u64) {
        while stack.open.len() > from {
            self.graph.left += 1;
            self.end(stack, stack.open.len() - 1, now_ns);
        }
    }

    /// Ends the calls from this index on, which seem to have been left since the last hit.
    fn abandon(&mut self, stack: &mut Stack, from: usize) {
        while stack.open.len() > from {
            self.graph.left += 1;
            let left_ns = stack.last_ns;
            let (call, outermost) = self.end(stack, stack.open.len() - 1, left_ns);
            if stack.abandoned.len() == MAX_ABANDONED {
                stack.abandoned.pop_front();
            }
            stack.abandoned.push_back(Abandoned {
                call,
                left_ns,
                outermost,
            });
        }
    }

    /// Ends a call that seemed to have been left, but continued. Its own time does not grow,
    /// because the thread ran on another stack meanwhile. Returns false if there is no such call.
    fn goes_on(&mut self, stack: &mut Stack, ended: &dyn Fn(&Open) -> bool, now_ns: u64) -> bool {
        let mut abandoned = stack.abandoned.iter();
        let Some(at) = abandoned.rposition(|abandoned| ended(&abandoned.call)) else {
            return false;
        };
        let Some(Abandoned {
            call,
            left_ns,
            outermost: (of_function, of_edge),
        }) = stack.abandoned.remove(at)
        else {
            return false;
        };
        self.graph.left -= 1;
        let more_ns = now_ns.saturating_sub(left_ns);
        if of_function {
            let node = self.node(call.function, stack.identity);
            node.total_ns = node.total_ns.saturating_add(more_ns);
        }
        if of_edge {
            let edge = self.edge(call.caller, call.function, stack.identity);
            edge.total_ns = edge.total_ns.saturating_add(more_ns);
        }
        true
    }

    /// A function begins, called by the function `by`, if that is known.
    fn enter(&mut self, stack: &mut Stack, mut call: Open, by: Option<usize>) {
        // A call with a frame below the new one has been left. So has a call with the same frame,
        // unless the new function is inlined into it: same call site, another return address.
        let is_over = |open: &Open| {
            let again = open.place == call.place
                && (open.call_site != call.call_site || open.return_address == call.return_address);
            let below = call.place.wrapping_sub(open.place);
            again || (1..SAME_STACK).contains(&below)
        };
        let live = stack.open.iter().rposition(|open| !is_over(open));
        let live = live.map_or(0, |at| at + 1);
        // So have calls within the caller, unless the new function is inlined into one of them.
        let is_caller = |open: &Open| Some(open.function) == by;
        let inlines = |open: &Open| (open.call_site, open.place) == (call.call_site, call.place);
        let within = &stack.open[..live];
        let caller = within.iter().any(is_caller);
        let caller = caller.then(|| {
            within
                .iter()
                .rposition(|open| is_caller(open) || inlines(open))
        });
        self.abandon(stack, caller.flatten().map_or(live, |at| at + 1));
        call.caller = stack.open.last().map(|open| open.function);
        stack.last_ns = call.began_ns;
        self.begin(stack, call);
    }

    /// A function ends. Calls within it have been left.
    fn exit(&mut self, stack: &mut Stack, ended: &Ended, now_ns: u64) {
        let own =
            |open: &Open| (open.function, open.call_site) == (ended.function, ended.call_site);
        // A stack pointer that has moved since the beginning is no other call's.
        let exact = |open: &Open| own(open) && open.place == ended.place;
        let position = |is: &dyn Fn(&Open) -> bool| stack.open.iter().rposition(is);
        let at = match position(&exact) {
            None if self.goes_on(stack, &exact, now_ns) => None,
            None => match stack.open.iter().rposition(own) {
                None => {
                    let goes_on = self.goes_on(stack, &own, now_ns);
                    self.graph.begun_before += u64::from(!goes_on);
                    None
                }
                at => at,
            },
            at => at,
        };
        if let Some(at) = at {
            self.abandon(stack, at + 1);
            self.end(stack, at, now_ns);
        }
        stack.last_ns = now_ns;
    }

    fn finish(mut self) -> CallGraph {
        let by_function = |node: &Node| (node.function, node.identity);
        self.graph.nodes.sort_by_key(by_function);
        let by_ends = |edge: &Edge| (edge.caller, edge.callee, edge.identity);
        self.graph.edges.sort_by_key(by_ends);
        self.graph
    }
}

/// Reads the calls from hits of hooks.
fn of_hooks(capture: &Capture, model: &Model, frames: &mut dyn Frames, hooks: &[u32]) -> CallGraph {
    let platform = Architecture::by_gdb_name(&capture.target.arch);
    let lives = Lives::new(&model.threads);
    let mut sums = Sums::default();
    let mut stacks: HashMap<u64, Stack> = HashMap::new();
    let mut known: HashMap<u64, usize> = HashMap::new();
    // The functions that contain call sites.
    let mut callers: HashMap<u64, Option<FunctionKey>> = HashMap::new();
    let code = |pointer| platform.map_or(pointer, |one| one.split_code_pointer(pointer).0);
    // `sync` notes a failure to read.
    let _ = capture.each(&mut |at, record| match record {
        Record::ModuleLoaded(_) | Record::ModuleUnloaded(_) => {
            known.clear();
            callers.clear();
        }
        Record::ThreadExited(exited) => {
            if let Some(mut stack) = stacks.remove(&exited.tid) {
                sums.leave(&mut stack, 0, exited.time_ns);
            }
        }
        Record::Event(event) if hooks.contains(&event.probe) => {
            let [pointer, call_site, return_address, ends] = event.args[..] else {
                return;
            };
            let function = *known
                .entry(pointer)
                .or_insert_with(|| sums.function(frames.place(at, code(pointer))));
            let stack = stacks.entry(event.tid).or_insert_with(|| Stack {
                identity: identity(model, &lives, event),
                ..Stack::default()
            });
            let place = event.frame.unwrap_or(0);
            if ends == 1 {
                let ended = Ended {
                    function,
                    place,
                    call_site,
                };
                sums.exit(stack, &ended, event.time_ns);
                return;
            }
            let caller = callers.entry(call_site).or_insert_with(|| {
                let within = code(call_site).checked_sub(1)?;
                Some(key(&frames.start(at, within)?))
            });
            let caller = caller.as_ref().and_then(|caller| sums.interned.get(caller));
            let caller = caller.copied();
            let call = Open {
                function,
                caller: None,
                place,
                call_site,
                return_address,
                began_ns: event.time_ns,
                inner_ns: 0,
            };
            sums.enter(stack, call, caller);
        }
        _ => {}
    });
    for stack in stacks.values_mut() {
        sums.leave(stack, 0, model.recording.duration_ns);
    }
    sums.finish()
}

fn identity(model: &Model, lives: &Lives, event: &Event) -> usize {
    let thread = lives.at(event.tid, event.time_ns);
    let identity = thread.and_then(|thread| model.sync.identity_of.get(thread.0));
    identity.copied().unwrap_or(0)
}

/// The calls of traced functions. The caller comes from the stack, so it need not be traced.
fn of_traced(capture: &Capture, model: &Model, frames: &mut dyn Frames) -> CallGraph {
    let mut sums = Sums::default();
    let mut stacks: HashMap<usize, Stack> = HashMap::new();
    let begin = |sums: &mut Sums, stack: &mut Stack, calls: &Calls, call: &Call| {
        let mut path = calls.path(call.path).physical();
        let mut next = || {
            let place = &path.next()?.place;
            Some(place.start().unwrap_or_else(|| place.clone()))
        };
        // By the traced name: debug information may have another one.
        let name = unspool_image::function_name(&calls.function(call.function).name);
        let own = Place {
            function: Some(name.into()),
            ..next().unwrap_or_default()
        };
        let caller = next().filter(|place| place.function.is_some());
        let open = Open {
            function: sums.function(own),
            caller: caller.map(|place| sums.function(place)),
            place: call.number,
            call_site: 0,
            return_address: 0,
            began_ns: call.entered_ns,
            inner_ns: 0,
        };
        sums.begin(stack, open);
        if !calls.function(call.function).has_end {
            sums.end(stack, stack.open.len() - 1, call.entered_ns);
        }
    };
    Calls::interpret(capture, model, frames, &mut |calls, moment| {
        let (call, ended_ns) = match moment {
            Moment::Entered(call) => (call, None),
            Moment::Left(call) => (call, call.left_ns),
            Moment::Lost { call, .. } | Moment::CutShort { call, .. } => {
                (call, Some(call.entered_ns))
            }
            Moment::Unfinished { call, .. } => (call, Some(model.recording.duration_ns)),
            Moment::Missing { .. } => return,
        };
        if calls.function(call.function).futex {
            return;
        }
        let stack = stacks.entry(call.thread.0).or_insert_with(|| Stack {
            identity: (model.sync.identity_of.get(call.thread.0).copied()).unwrap_or(0),
            ..Stack::default()
        });
        match ended_ns {
            None => begin(&mut sums, stack, calls, call),
            Some(now_ns) => {
                let own = |open: &Open| open.place == call.number;
                if let Some(at) = stack.open.iter().rposition(own) {
                    sums.graph.left += u64::from(!matches!(moment, Moment::Left(_)));
                    sums.end(stack, at, now_ns);
                }
            }
        }
    });
    sums.finish()
}
