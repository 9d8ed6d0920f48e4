//! What threads wait for in futex calls, from the places of these calls.
//!
//! The kernel records the place of each wait. Its function tells a mutex from a condition, and the
//! futex belongs to the object. So also programs of which no call was recorded, such as started
//! processes, have named locks.

use std::collections::HashMap;
use std::sync::Arc;

use unspool_capture::{BlockingCall, Capture, FutexPlace, Record};
use unspool_image::Arch;
use unspool_unwind::Provenance;

use crate::model::backtrace::{Frames, NamedFrame, Place, innermost, innermost_primitive};
use crate::model::sync::variable_name;
use crate::platform::c_library::{is_c_library, is_musl};
use crate::platform::layouts::{self, Family, takes_mutex};
use crate::platform::syscall::{Call, Futex};
use crate::primitives::{self, Kind, Operation, Primitive};

/// A wait at an object, by the place of its futex call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FutexWait {
    /// The function that the program called, by its documented name.
    pub function: Arc<str>,
    /// The kind of the object. The function may be one of another kind, or none: a wait at a
    /// condition variable takes its mutex again, and `malloc` takes a lock of its own.
    pub kind: Kind,
    /// It is a lock inside the C library, such as that of `malloc`.
    pub is_internal: bool,
    /// Threads of other processes can end it, if they have the same memory.
    pub may_be_shared: bool,
    /// The object, if it has a name or is a lock.
    pub object: Option<FutexObject>,
}

/// True if `function` waits at a condition variable and then takes the variable's mutex again, and
/// `kind` is a lock: the thread may wait for that mutex.
pub fn takes_again(kind: Kind, function: &str) -> bool {
    kind.is_lock() && primitives::find(function).is_some_and(|it| it.kind == Kind::Cond)
}

/// The object of a wait.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FutexObject {
    /// A variable, or a part of one.
    Named {
        /// Its name. Several files of a program may have a variable with this name.
        name: Arc<str>,
        /// The file that has the variable.
        module: Option<Arc<str>>,
        /// Its address as stated in that file, which is the same in each process.
        svma: Option<u64>,
    },
    /// Its address, because no variable is known.
    At(u64),
}

/// A wait at one place.
pub(super) struct PlacedWait {
    pub(super) wait: FutexWait,
    pub(super) at: WaitPlace,
}

/// What differs between the places of equal waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::model) struct WaitPlace {
    /// The code that called the function.
    pub(in crate::model) caller: Option<Place>,
    /// Where the object is; 0 if it has no single address, because several processes have it.
    pub(in crate::model) address: u64,
}

/// The waits of a recording, by the ids of their calls.
pub(super) fn of(capture: &Capture, frames: &mut dyn Frames) -> HashMap<u64, PlacedWait> {
    let parts = capture.records.iter().filter_map(|record| match record {
        Record::Schedule(part) | Record::Processes(part) => Some(part),
        _ => None,
    });
    let calls = parts.flat_map(|part| &part.calls);
    let calls: HashMap<u64, &BlockingCall> = calls.map(|call| (call.id, call)).collect();
    let Some(arch) = Arch::from_gdb_name(&capture.target.arch) else {
        return HashMap::new();
    };
    let records = capture.records.iter().enumerate();
    let places = records.filter_map(|(at, record)| match record {
        Record::FutexPlace(place) => Some((at, place)),
        _ => None,
    });
    let waits = places.filter_map(|(at, place)| {
        let futex = futex(calls.get(&place.call)?, arch)?;
        Some((place.call, wait(frames, at, place, (&futex, arch))?))
    });
    waits.collect()
}

/// The futex of a call. Only the first two arguments are known.
fn futex(call: &BlockingCall, arch: Arch) -> Option<Futex> {
    Some(Futex {
        expected: None,
        ..Call::with_first(call.number?, &call.args).futex(arch)?
    })
}

fn wait(
    frames: &mut dyn Frames,
    record: usize,
    place: &FutexPlace,
    (futex, arch): (&Futex, Arch),
) -> Option<PlacedWait> {
    let stack = frames.backtrace(record, place.snapshot.as_ref()?);
    // Words of the stack are missing, so that only rules lead to a caller.
    let guessed = |frame: &NamedFrame| {
        matches!(
            frame.provenance,
            Provenance::FramePointer | Provenance::LinkRegister | Provenance::Scan
        )
    };
    let sure = stack.frames.iter().position(guessed);
    let sure = &stack.frames[..sure.unwrap_or(stack.frames.len())];
    let Awaited {
        frame,
        function,
        kind,
        is_internal,
        beginning,
        is_exact,
    } = awaited(sure, futex, arch.address_size())?;
    let is_primitive = |name: &str| primitives::find(name).is_some();
    let caller = sure[frame + 1..].iter().find(|frame| {
        !frame.place.function.as_deref().is_some_and(is_primitive) && !frame.place.is_within()
    });
    let is_exact = is_exact
        || kind == Kind::Rwlock && is_in_one_object(frames, record, [beginning, futex.address]);
    let symbol = frames.data(record, if is_exact { beginning } else { futex.address });
    let part = frames.part(record, beginning).filter(|_| is_exact);
    let name = variable_name(symbol.as_ref(), part.as_ref(), !is_exact);
    let named = |name| FutexObject::Named {
        name,
        module: symbol.as_ref().and_then(|symbol| symbol.module.clone()),
        svma: symbol.as_ref().and_then(|symbol| {
            // Several words of one object have its name.
            let inside = if is_exact { 0 } else { symbol.offset };
            symbol.svma?.checked_sub(inside)
        }),
    };
    let unnamed = kind.is_lock().then_some(FutexObject::At(beginning));
    Some(PlacedWait {
        wait: FutexWait {
            function,
            kind,
            is_internal,
            may_be_shared: futex.shared,
            object: name.map(named).or(unnamed),
        },
        at: WaitPlace {
            caller: caller.map(|frame| frame.place.clone()),
            address: beginning,
        },
    })
}

/// True if two addresses are in the same variable, and in the same part of it as far as its type is
/// known.
fn is_in_one_object(frames: &mut dyn Frames, record: usize, addresses: [u64; 2]) -> bool {
    let [a, b] = addresses.map(|address| {
        let symbol = frames.data(record, address);
        let variable = symbol.and_then(|it| Some((it.svma?.checked_sub(it.offset)?, it.module)));
        (variable, frames.part(record, address))
    });
    a.0.is_some() && a == b
}

/// What a thread waits for.
struct Awaited {
    /// The frame of the function that the program called.
    frame: usize,
    function: Arc<str>,
    kind: Kind,
    /// It is a lock inside the C library.
    is_internal: bool,
    /// The start of the object.
    beginning: u64,
    /// The start is certain.
    is_exact: bool,
}

fn awaited(frames: &[NamedFrame], futex: &Futex, pointer: usize) -> Option<Awaited> {
    let Some((frame, primitive)) = innermost_primitive(frames) else {
        let (frame, function) = with_internal_lock(frames)?;
        return Some(Awaited {
            frame,
            function,
            kind: Kind::Mutex,
            is_internal: true,
            beginning: futex.address,
            is_exact: true,
        });
    };
    let library = frames[frame].place.module.as_deref();
    let waits = |primitive: &Primitive| {
        (primitive.kind, primitive.operation) == (Kind::Cond, Operation::Wait)
    };
    let around = innermost_primitive(&frames[frame + 1..]);
    let around = around.filter(|(_, around)| primitive.kind == Kind::Mutex && waits(around));
    let (frame, entered, primitive) = match around {
        Some((more, around)) => (frame + 1 + more, around, primitive),
        None if waits(primitive) && retakes(primitive, library, futex) => {
            (frame, primitive, primitives::find("pthread_mutex_lock")?)
        }
        None => (frame, primitive, primitive),
    };
    let (beginning, is_exact) = beginning(primitive, library, (futex.address, pointer));
    // One instance of a template of libstdc++ serves several classes.
    let (function, kind) =
        match primitive.name().starts_with("std::") && primitive.kind != Kind::Future {
            true => ("std::atomic::wait", Kind::Futex),
            false => (entered.public_name(), primitive.kind),
        };
    Some(Awaited {
        frame,
        function: function.into(),
        kind,
        is_internal: false,
        beginning,
        is_exact,
    })
}

/// True if a thread inside a wait of glibc's condition variable takes the mutex again. The
/// condition variables before 2.34, whose threads' functions are in a file of their own, may wait
/// by the same call.
fn retakes(wait: &Primitive, library: Option<&str>, futex: &Futex) -> bool {
    let is_glibc = library.is_some_and(|library| is_c_library(library) && !is_musl(library));
    is_glibc && !wait.is_of_a_language() && takes_mutex(None, futex.has_bits)
}

/// The function of glibc that takes one of the library's own locks, and its frame: `malloc` takes
/// that of an arena, `fprintf` that of a stream.
fn with_internal_lock(frames: &[NamedFrame]) -> Option<(usize, Arc<str>)> {
    let library = &frames.first()?.place.module;
    let outside = |frame: &NamedFrame| {
        frame.place.module != *library || !library.as_deref().is_some_and(is_c_library)
    };
    let inside = frames.iter().position(outside).unwrap_or(frames.len());
    let takes_lock = |name: &str| name.starts_with("__lll_lock_wait").then_some(());
    let (lock, ()) = innermost(&frames[..inside], takes_lock, |_| false)?;
    let mut around = (lock + 1..inside).rev();
    around.find_map(|at| {
        let name = frames[at].name()?;
        Some((at, public_name(name).into()))
    })
}

/// The documented name of a function of glibc, whose debug information has `__libc_malloc`,
/// `_IO_puts` and `__vfprintf_internal`.
fn public_name(function: &str) -> &str {
    let mut prefixes = ["__libc_", "_IO_", "__"].iter();
    let name = prefixes.find_map(|prefix| function.strip_prefix(prefix));
    let name = name.unwrap_or(function);
    name.strip_suffix("_internal").unwrap_or(name)
}

/// The start of the object in which a thread waits at a word, and whether it is certain.
fn beginning(
    primitive: &Primitive,
    library: Option<&str>,
    (word, pointer): (u64, usize),
) -> (u64, bool) {
    let (kind, operation) = (primitive.kind, primitive.operation);
    if primitive.is_of_a_language() {
        return (layouts::beginning_in_language(kind, operation, word), true);
    }
    let family = match library.is_some_and(is_musl) {
        true => Family::Musl,
        false => Family::Glibc(None),
    };
    let layout = layouts::of(family, pointer).ok();
    let found = layout.map(|layout| layout.beginnings((kind, operation), word, None));
    match found.as_deref() {
        Some([one]) => (*one, true),
        // The likeliest one.
        Some([first, ..]) => (*first, false),
        _ => (word, false),
    }
}
