//! Names the code that a thread ran between two recorded calls.
//!
//! Only recorded calls have stacks. Between two of them, a thread is in the innermost function that
//! both stacks share, or in a function that it calls. Before the first and after the last call it
//! is in its thread function.

use foldhash::HashMap;

use crate::model::backtrace::{Backtrace, Place};
use crate::model::calls::{Call, Moment, PathId};
use crate::model::origin::start_code;
use crate::model::sync::caller;
use crate::model::thread::{Creation, Thread, ThreadIndex};
use std::sync::Arc;

/// Index of a function in [`Functions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionIndex(pub usize);

/// The beginnings and ends of recorded calls, by thread and in order of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calls {
    threads: Vec<Vec<Mark>>,
}

/// The beginning or the end of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Mark {
    ns: u64,
    path: PathId,
    ends: bool,
}

impl Calls {
    pub(in crate::model) fn note(&mut self, moment: Moment<'_>) {
        let (call, ns, ends): (&Call, u64, bool) = match moment {
            Moment::Entered(call) => (call, call.entered_ns, false),
            Moment::Left(call) => (call, call.left_ns.unwrap_or(call.entered_ns), true),
            _ => return,
        };
        let index = call.thread.0;
        if self.threads.len() <= index {
            self.threads.resize(index + 1, Vec::new());
        }
        let path = call.path;
        self.threads[index].push(Mark { ns, path, ends });
    }
}

/// The functions of a program, as far as recorded calls show them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Functions {
    places: Vec<Place>,
    /// Per thread, its thread function.
    of_thread: Vec<Option<FunctionIndex>>,
    /// Per thread, the function from each moment on, in order of time.
    from: Vec<Vec<(u64, Option<FunctionIndex>)>>,
}

impl Functions {
    pub(in crate::model) fn of(
        threads: &[Thread],
        calls: Calls,
        paths: &[Arc<Backtrace>],
    ) -> Functions {
        let mut interned = Interned::default();
        let outermost: Vec<Option<FunctionIndex>> = threads
            .iter()
            .map(|thread| interned.place(thread.function.as_ref()?))
            .collect();
        let stacks: Vec<Vec<(FunctionIndex, u64)>> =
            paths.iter().map(|path| interned.stack(path)).collect();
        let mut common: HashMap<(PathId, PathId, bool), Option<FunctionIndex>> = HashMap::default();
        let mut functions = Functions {
            of_thread: outermost,
            ..Functions::default()
        };
        for (index, mut marks) in calls.threads.into_iter().enumerate() {
            marks.sort_by_key(|mark| mark.ns);
            if let Some(outermost) = functions.of_thread.get_mut(index)
                && outermost.is_none()
                && threads[index].creation == Creation::Main
            {
                *outermost = marks
                    .iter()
                    .find_map(|mark| Some(stacks.get(mark.path.0)?.first()?.0));
            }
            let outermost = functions.of_thread.get(index).copied().flatten();
            let mut from: Vec<(u64, Option<FunctionIndex>)> = Vec::new();
            for (at, mark) in marks.iter().enumerate() {
                let function = match marks.get(at + 1) {
                    Some(next) => {
                        let inside = !mark.ends && next.ends && mark.path == next.path;
                        let key = (mark.path, next.path, inside);
                        let shared = common.entry(key).or_insert_with(|| {
                            let (one, other) = (stacks.get(mark.path.0)?, stacks.get(next.path.0)?);
                            shared(one, other, inside)
                        });
                        shared.or(outermost)
                    }
                    None => outermost,
                };
                if from.last().is_none_or(|(_, last)| *last != function) {
                    from.push((mark.ns, function));
                }
            }
            if functions.from.len() <= index {
                functions.from.resize(index + 1, Vec::new());
            }
            functions.from[index] = from;
        }
        functions.places = interned.places;
        functions
    }

    /// A function by its index; indices come from this same value.
    pub fn place(&self, function: FunctionIndex) -> &Place {
        &self.places[function.0]
    }

    /// All functions; [`FunctionIndex`] counts here.
    pub fn places(&self) -> impl Iterator<Item = &Place> {
        self.places.iter()
    }

    /// The function in which a thread was at a moment.
    pub(super) fn at(&self, thread: ThreadIndex, ns: u64) -> Option<FunctionIndex> {
        let from = self.from.get(thread.0).map_or(&[][..], Vec::as_slice);
        let after = from.partition_point(|(begin, _)| *begin <= ns);
        match after.checked_sub(1) {
            Some(at) => from[at].1,
            None => self.of_thread.get(thread.0).copied().flatten(),
        }
    }

    /// Divides a time of a thread where its function changes, the earliest part first.
    pub(super) fn parts(
        &self,
        thread: ThreadIndex,
        from_ns: u64,
        to_ns: u64,
    ) -> impl Iterator<Item = (u64, u64, Option<FunctionIndex>)> + '_ {
        let from = self.from.get(thread.0).map_or(&[][..], Vec::as_slice);
        let mut next = from.partition_point(|(begin, _)| *begin <= from_ns);
        let mut now = from_ns;
        let mut function = self.at(thread, from_ns);
        std::iter::from_fn(move || {
            if now >= to_ns {
                return None;
            }
            let change = from.get(next).filter(|(begin, _)| *begin < to_ns);
            let end = change.map_or(to_ns, |(begin, _)| *begin);
            let part = (now, end, function);
            if let Some((_, then)) = change {
                function = *then;
                next += 1;
            }
            now = end;
            Some(part)
        })
    }
}

/// The innermost function that a thread did not leave between two calls, by their stacks from the
/// outermost frame on: functions, and where they called the next one. `inside` is true between the
/// beginning and the end of the same call.
fn shared(
    one: &[(FunctionIndex, u64)],
    other: &[(FunctionIndex, u64)],
    inside: bool,
) -> Option<FunctionIndex> {
    let mut last = None;
    for (depth, ((function, from), (next, to))) in one.iter().zip(other).enumerate() {
        if function != next {
            break;
        }
        last = Some(depth);
        if from != to {
            break;
        }
    }
    let depth = last?;
    // A call that does not come later in the function is made in its next call, or in a loop.
    let again = !inside && other[depth].1 <= one[depth].1;
    one.get(depth.saturating_sub(usize::from(again)))
        .map(|(function, _)| *function)
}

/// A function's name, its module and the module's edition.
type FunctionKey = (Arc<str>, Option<Arc<str>>, Option<Arc<str>>);

/// Functions without their addresses and lines.
#[derive(Default)]
struct Interned {
    places: Vec<Place>,
    known: HashMap<FunctionKey, FunctionIndex>,
}

impl Interned {
    /// A place's function; nothing if it has no name.
    fn place(&mut self, place: &Place) -> Option<FunctionIndex> {
        let name = place.function.clone()?;
        let next = FunctionIndex(self.places.len());
        let key = (name, place.module.clone(), place.edition.clone());
        let index = *self.known.entry(key).or_insert(next);
        if index == next {
            self.places.push(Place {
                offset: 0,
                svma: place.function_svma(),
                avma: place.avma.wrapping_sub(place.offset),
                line: None,
                ..place.clone()
            });
        }
        Some(index)
    }

    /// The named functions of a call path outside its primitive, the outermost first.
    fn stack(&mut self, path: &Backtrace) -> Vec<(FunctionIndex, u64)> {
        let Some(inner) = caller(path) else {
            return Vec::new();
        };
        let inner = path.frames.iter().position(|f| std::ptr::eq(f, inner));
        let outer = path.frames.len().saturating_sub(start_code(path));
        let own = path.frames.get(inner.unwrap_or(0)..outer).unwrap_or(&[]);
        let own = own.iter().rev();
        own.map_while(|frame| Some((self.place(&frame.place)?, frame.place.avma)))
            .collect()
    }
}
