//! Places in the program where the recorder plants breakpoints and tracepoints, and the reasons.
//!
//! Separate from `probes`, which holds the planted probes: code that plans places needs no server.

use unspool_capture::ProbeKind;

/// The C library's functions that create, join and detach threads, in all their versions. C11 and
/// C++ threads use them, too.
pub(super) const THREAD_FUNCTIONS: [(ProbeKind, &[&str]); 3] = [
    (ProbeKind::Create, &["pthread_create"]),
    (
        ProbeKind::Join,
        &[
            "pthread_join",
            "pthread_tryjoin_np",
            "pthread_timedjoin_np",
            "pthread_clockjoin_np",
            "__pthread_timedjoin_np64",
            "__pthread_clockjoin_np64",
        ],
    ),
    (ProbeKind::Detach, &["pthread_detach"]),
];

/// The reason for a breakpoint or tracepoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The dynamic linker calls this function around changes to its list.
    Linker,
    /// A thread gets a name.
    Name,
    /// The process is about to execute another file, which would destroy the hits buffered in its
    /// memory. A stop here makes the server read them.
    Exec,
    /// An ifunc resolver returns the version of the function that the program will use.
    Resolver,
    /// A probe of the capture.
    Probe { id: u32, kind: ProbeKind },
}

impl Purpose {
    /// True if the thread must wait until the recorder has handled the hit.
    pub(super) fn waits(self) -> bool {
        matches!(self, Purpose::Linker | Purpose::Resolver)
    }

    /// True if one of the two purposes suffices at one address.
    pub(super) fn is_like(self, other: Purpose) -> bool {
        match (self, other) {
            (Purpose::Probe { kind, .. }, Purpose::Probe { kind: other, .. }) => {
                kind == other || !kind.is_of_calls() && !other.is_of_calls()
            }
            (one, other) => one == other,
        }
    }
}

/// An address in the program for a breakpoint or tracepoint.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) address: u64,
    /// Number of instruction bytes that a server may move elsewhere (`movable`); 0 if none.
    pub(super) movable: u8,
    pub(super) thumb: bool,
    pub(super) function: String,
    pub(super) module: Option<u32>,
}
