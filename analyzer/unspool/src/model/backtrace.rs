//! Stacks as people read them, and the seam between records and symbols.
//!
//! Apart from the symbolizer so that the rest of the model can be tested without ELF files.

use std::sync::Arc;

use unspool_capture::Snapshot;
use unspool_unwind::Provenance;

use super::layouts::Layout;
use crate::c_library::has_threads;

/// A place in the program's code, independent of where things were mapped, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// Function, demangled.
    pub function: Option<Arc<str>>,
    /// Bytes from the function's start; from the module's address zero if the function is not
    /// known.
    pub offset: u64,
    /// The module's path on the target.
    pub module: Option<Arc<str>>,
    /// The path by which that module was started, where it is a link to it: people know the program
    /// by that name.
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

    /// What people call the module: its file name, or that of the link by which the program was
    /// started.
    pub fn shown_module(&self) -> Option<&str> {
        let link = self.link.as_deref().map(base_name);
        link.or_else(|| self.module_name())
    }

    /// What primitives of synchronization are made of: the C library's functions, and the
    /// language's own.
    pub(super) fn is_within(&self) -> bool {
        self.is_low() || self.function.as_deref().is_some_and(is_inner)
    }

    /// In a C or C++ library, which programs' own waits do not come from.
    pub(super) fn is_low(&self) -> bool {
        self.module.as_deref().is_some_and(|path| {
            let name = base_name(path);
            let starts = ["libstdc++", "[vdso]"];
            has_threads(path) || starts.iter().any(|start| name.starts_with(start))
        })
    }

    /// Where the function begins, as the module's file states it.
    pub(super) fn function_svma(&self) -> Option<u64> {
        self.function.as_ref()?;
        self.svma?.checked_sub(self.offset)
    }
}

/// Functions inside primitives where these are part of the program itself.
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
    /// Where execution was, or will return to. The line is that of the call.
    pub place: Place,
    /// The function was inlined into the next frame's.
    pub inlined: bool,
    /// How the frame was found.
    pub provenance: Provenance,
    /// What it was called as, where its own name is not known: by the name of what the next frame
    /// calls. That may have gone on by a jump to what has no name, as musl's `pthread_once` does.
    pub called: Option<Arc<str>>,
}

/// A stack, innermost frame first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Backtrace {
    /// Its frames.
    pub frames: Vec<NamedFrame>,
    /// Why there are no more frames, if that is not the thread's first function.
    pub truncated: Option<String>,
}

impl Backtrace {
    /// Frames that exist on the stack, inlined functions left out.
    pub fn physical(&self) -> impl DoubleEndedIterator<Item = &NamedFrame> {
        self.frames.iter().filter(|frame| !frame.inlined)
    }
}

/// What turns addresses into frames and names; `record` is an index into the capture's records and
/// tells what was mapped at that time.
pub(super) trait Frames {
    /// The stack of a snapshot.
    fn backtrace(&mut self, record: usize, snapshot: &Snapshot) -> Arc<Backtrace>;
    /// A code address, e.g. of a start routine.
    fn place(&mut self, record: usize, avma: u64) -> Place;
    /// A data address: the variable it is in as the function, and the offset into that.
    fn data(&mut self, record: usize, avma: u64) -> Option<Place>;
    /// What the source calls what is at a data address, the variable's name first: `l[13]`,
    /// `acc[1].m`.
    fn part(&mut self, _record: usize, _avma: u64) -> Option<Arc<str>> {
        None
    }
    /// What the pointer at an address holds, by the file that was mapped there.
    fn pointer(&mut self, _record: usize, _avma: u64) -> Option<u64> {
        None
    }
    /// The C library is musl, as far as the files tell.
    fn is_musl(&mut self) -> bool {
        false
    }
    /// What lies where in the C library's objects, if that is known.
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
