//! Stacks with names, and the interface between records and symbols.
//!
//! Separate from the symbolizer, so that the rest of the model can be tested without ELF files.

use std::sync::Arc;

use unspool_capture::Snapshot;
use unspool_unwind::Provenance;

use crate::platform::c_library::has_threads;
use crate::platform::layouts::Layout;
use crate::primitives::{self, Primitive};

/// A place in the program's code, independent of the mapping as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// Function, demangled.
    pub function: Option<Arc<str>>,
    /// Bytes from the function's start, or from the module's address zero if the function is
    /// unknown.
    pub offset: u64,
    /// The module's path on the target.
    pub module: Option<Arc<str>>,
    /// Tells the module's file from the first one with its path in the recording: its build-id, or
    /// its number without one. `None` for the first file.
    pub edition: Option<Arc<str>>,
    /// The link by which that module was started, if any, because the user knows the program by
    /// that name.
    pub link: Option<Arc<str>>,
    /// Address as the module's file states it.
    pub svma: Option<u64>,
    /// Address as mapped. Different in each run.
    pub avma: u64,
    /// Source file.
    pub file: Option<Arc<str>>,
    /// Line, from 1.
    pub line: Option<u32>,
}

impl Place {
    /// The module's file name without directories.
    pub fn module_name(&self) -> Option<&str> {
        self.module.as_deref().map(base_name)
    }

    /// The module's name for people: its file name, or that of the link by which the program was
    /// started.
    pub fn shown_module(&self) -> Option<&str> {
        let link = self.link.as_deref().map(base_name);
        link.or_else(|| self.module_name())
    }

    /// True for the internals of synchronization primitives, in the C library or the language's
    /// library.
    pub(crate) fn is_within(&self) -> bool {
        self.is_low() || self.function.as_deref().is_some_and(is_inner)
    }

    /// True for C and C++ libraries, which contain no waits of the program itself.
    pub(super) fn is_low(&self) -> bool {
        self.module.as_deref().is_some_and(|path| {
            let name = base_name(path);
            let starts = ["libstdc++", "[vdso]"];
            has_threads(path) || starts.iter().any(|start| name.starts_with(start))
        })
    }

    /// The function's start, as the module's file states it.
    pub(super) fn function_svma(&self) -> Option<u64> {
        self.function.as_ref()?;
        self.svma?.checked_sub(self.offset)
    }

    /// The start of the function, if it is known.
    pub(super) fn start(&self) -> Option<Place> {
        Some(Place {
            svma: Some(self.function_svma()?),
            avma: self.avma.wrapping_sub(self.offset),
            offset: 0,
            line: None,
            ..self.clone()
        })
    }
}

/// True for internals of primitives that are part of the program itself.
fn is_inner(function: &str) -> bool {
    const STARTS: [&str; 12] = [
        // musl's, around a system call.
        "sccp",
        // glibc's, of semaphores.
        "do_futex_wait",
        "std::",
        "core::",
        "<std::",
        "__",
        "syscall",
        "futex",
        "lll_",
        "pthread_",
        "bool std::",
        "void std::",
    ];
    STARTS.iter().any(|start| function.starts_with(start))
}

/// A frame with names. An inlined function is a frame of its own, before the frame it was inlined
/// into.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedFrame {
    /// The current address, or the return address. The line is that of the call.
    pub place: Place,
    /// The function was inlined into the next frame's.
    pub inlined: bool,
    /// How the frame was found.
    pub provenance: Provenance,
    /// The name by which an unnamed function was called, from the next frame's call. It may since
    /// have jumped to an unnamed function, like musl's `pthread_once`.
    pub called: Option<Arc<str>>,
}

impl NamedFrame {
    /// The function's name, or the one by which it was called.
    pub(super) fn name(&self) -> Option<&Arc<str>> {
        self.place.function.as_ref().or(self.called.as_ref())
    }
}

/// The innermost function for which `find` returns something, and its frame. Frames behind the
/// first one `outside` are left out.
pub(super) fn innermost<T>(
    frames: &[NamedFrame],
    find: impl Fn(&str) -> Option<T>,
    outside: impl Fn(&Place) -> bool,
) -> Option<(usize, T)> {
    for (at, frame) in frames.iter().enumerate() {
        if let Some(found) = frame.name().and_then(|name| find(name)) {
            return Some((at, found));
        }
        if outside(&frame.place) {
            break;
        }
    }
    None
}

/// The innermost primitive that a thread waits in, and its frame. Only functions of the C library
/// and of the language may be below it.
pub(super) fn innermost_primitive(frames: &[NamedFrame]) -> Option<(usize, &'static Primitive)> {
    let waits = |name: &str| primitives::find(name).filter(|primitive| primitive.may_wait());
    let (at, inner) = innermost(frames, waits, |place| !place.is_within())?;
    // The function that the program called may call another one of the library for this.
    let outer = frames.get(at + 1);
    let outer = outer.filter(|outer| outer.place.module == frames[at].place.module);
    let does_the_same = |outer: &&Primitive| {
        (outer.kind, outer.operation) == (inner.kind, inner.operation) && !outer.is_of_a_language()
    };
    let outer = outer.and_then(|frame| waits(frame.name()?));
    let outer = outer.filter(does_the_same);
    Some(outer.map_or((at, inner), |outer| (at + 1, outer)))
}

/// A stack, innermost frame first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Backtrace {
    /// Its frames.
    pub frames: Vec<NamedFrame>,
    /// The reason why the stack ends early, if it does.
    pub truncated: Option<String>,
}

impl Backtrace {
    /// Frames that exist on the stack, inlined functions left out.
    pub fn physical(&self) -> impl DoubleEndedIterator<Item = &NamedFrame> {
        self.frames.iter().filter(|frame| !frame.inlined)
    }

    /// True if it leads to the thread's start, and no frame is a guess.
    pub fn reaches_start(&self) -> bool {
        let mut frames = self.frames.iter();
        self.truncated.is_none() && !frames.any(|frame| frame.provenance == Provenance::Scan)
    }
}

/// Turns addresses into frames and names. `record` is an index into the capture's records, and
/// selects the mappings at that time.
pub(super) trait Frames {
    /// Returns the stack of a snapshot.
    fn backtrace(&mut self, record: usize, snapshot: &Snapshot) -> Arc<Backtrace>;
    /// Returns the place of a code address, e.g. of a start routine.
    fn place(&mut self, record: usize, avma: u64) -> Place;
    /// Returns the start of the function that contains a code address, even without a symbol.
    fn start(&mut self, _record: usize, _avma: u64) -> Option<Place> {
        None
    }
    /// Returns the variable at a data address as the function, with the offset into it.
    fn data(&mut self, record: usize, avma: u64) -> Option<Place>;
    /// Returns the source's name for the data at an address, after the variable's name: `l[13]`,
    /// `acc[1].m`.
    fn part(&mut self, _record: usize, _avma: u64) -> Option<Arc<str>> {
        None
    }
    /// Returns the value of the pointer at an address, from the file that was mapped there.
    fn pointer(&mut self, _record: usize, _avma: u64) -> Option<u64> {
        None
    }
    /// True if the C library is musl, as far as the files show.
    fn is_musl(&mut self) -> bool {
        false
    }
    /// The layout of the C library's objects, if known.
    fn layout(&mut self) -> Option<&'static Layout> {
        None
    }
}

/// The last component of a path on the target.
pub fn base_name(path: &str) -> &str {
    path.rsplit('/')
        .find(|part| !part.is_empty())
        .unwrap_or(path)
}
