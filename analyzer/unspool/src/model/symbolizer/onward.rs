//! Determines the effects of code from an address on: whether it can end another thread's wait, and
//! whether it returns to its caller.
//!
//! The search follows direct calls inside one file, and knows functions of the C library by name.
//! In doubt, the code may end a wait: an indirect call or an unknown function is enough.

use std::collections::HashMap;

use unspool_image::Image;
use unspool_unwind::code::effect::Target;
use unspool_unwind::code::onward::{Callee, onward, relative_slots};

use super::Symbolizer;
use super::program::LAST;
use crate::model::inspection::Onward;
use crate::platform::c_library::ends_no_wait;

/// Maximum number of functions that are followed from one address.
const MAX_FUNCTIONS: usize = 200;

impl Symbolizer {
    pub(super) fn onward_by_files(&mut self, avma: u64) -> Onward {
        let unknown = Onward {
            ends_waits: true,
            returns: true,
        };
        let epoch = self.epoch(LAST);
        let Some((file, svma)) = self.file_at(epoch, avma) else {
            return unknown;
        };
        let Some(image) = self.files.image(file) else {
            return unknown;
        };
        // A return address behind a call that never returns may be the start of the next function.
        let Some(function) = image.symbols().containing(svma.saturating_sub(1)) else {
            return unknown;
        };
        let mut search = Search {
            image,
            slots: None,
            known: HashMap::new(),
        };
        let from = Target {
            svma: svma & !u64::from(function.thumb),
            thumb: function.thumb,
        };
        search.follow(from, function.svma, function.size)
    }
}

/// The functions of one file that were followed so far.
struct Search<'i> {
    image: &'i Image,
    /// The functions in slots of the global offset table, read when one is needed.
    slots: Option<Slots>,
    /// Results by function address. A function under examination ends no wait but may return.
    known: HashMap<u64, Onward>,
}

/// The contents of the global offset table.
struct Slots {
    /// Functions of other files, by name.
    names: HashMap<u64, String>,
    /// Addresses in the file itself.
    own: HashMap<u64, u64>,
}

impl Slots {
    fn of(image: &Image) -> Slots {
        Slots {
            names: image.slots().into_iter().collect(),
            own: relative_slots(image).into_iter().collect(),
        }
    }
}

impl Search<'_> {
    fn follow(&mut self, from: Target, start: u64, size: u64) -> Onward {
        let range = start..start.saturating_add(size);
        let image = self.image;
        let mut ends_waits = false;
        let found = onward(image, from, &range, &mut |callee| {
            let called = self.called(callee);
            ends_waits |= called.ends_waits;
            called.returns
        });
        Onward {
            ends_waits: ends_waits || found.unknown,
            returns: found.returns || found.unknown,
        }
    }

    fn called(&mut self, callee: Callee) -> Onward {
        let unknown = Onward {
            ends_waits: true,
            returns: true,
        };
        let target = match callee {
            Callee::Slot(slot) => {
                let image = self.image;
                let slots = self.slots.get_or_insert_with(|| Slots::of(image));
                if let Some(name) = slots.names.get(&slot) {
                    return by_name(name).unwrap_or(unknown);
                }
                let Some(svma) = slots.own.get(&slot) else {
                    return unknown;
                };
                Target {
                    svma: svma & !1,
                    thumb: svma & 1 == 1,
                }
            }
            Callee::Code(target) => target,
        };
        if let Some(known) = self.known.get(&target.svma) {
            return *known;
        }
        let Some(symbol) = self.image.symbols().containing(target.svma) else {
            return unknown;
        };
        if let Some(known) = by_name(symbol.name) {
            return known;
        }
        if symbol.svma != target.svma
            || symbol.name.ends_with("@plt")
            || self.known.len() >= MAX_FUNCTIONS
        {
            return unknown;
        }
        let (start, size) = (symbol.svma, symbol.size);
        self.known.insert(
            target.svma,
            Onward {
                ends_waits: false,
                returns: true,
            },
        );
        let found = self.follow(target, start, size);
        self.known.insert(target.svma, found);
        found
    }
}

/// The effect of a function, known by its name.
fn by_name(name: &str) -> Option<Onward> {
    let plain = name.strip_suffix("@plt").unwrap_or(name);
    if never_returns(plain) {
        return Some(Onward {
            ends_waits: false,
            returns: false,
        });
    }
    let ends_none =
        ends_no_wait(plain) || is_rust(plain) && ends_no_wait(&unspool_image::demangle(plain));
    ends_none.then_some(Onward {
        ends_waits: false,
        returns: true,
    })
}

/// True for functions that end the program, or that begin error handling. A thread that reaches
/// them no longer counts.
fn never_returns(name: &str) -> bool {
    let plain = [
        "abort",
        "exit",
        "_exit",
        "__stack_chk_fail",
        "__assert_fail",
        "_Unwind_Resume",
        "__cxa_throw",
        "__cxa_rethrow",
        "__clang_call_terminate",
        "_ZSt9terminatev",
    ];
    if plain.contains(&name) || name.starts_with("_ZSt") && name.contains("__throw_") {
        return true;
    }
    if !is_rust(name) {
        return false;
    }
    let name = unspool_image::demangle(name);
    let panics = [
        "core::panicking::",
        "std::panicking::",
        "core::cell::panic_",
    ];
    panics.iter().any(|start| name.starts_with(start))
        || name.starts_with("core::") && name.contains("_failed")
        || name.starts_with("alloc::") && name.ends_with("handle_error")
}

/// True if the symbol may be a Rust function's; those of C++ begin with `_ZN`, too.
fn is_rust(name: &str) -> bool {
    name.starts_with("_R") || name.starts_with("_ZN")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_known_by_name() {
        let of = |name: &str| by_name(name).map(|known| (known.ends_waits, known.returns));
        assert_eq!(of("nanosleep@plt"), Some((false, true)));
        assert_eq!(of("abort"), Some((false, false)));
        assert_eq!(
            of("_ZN4core9panicking5panic17h0123456789abcdefE"),
            Some((false, false))
        );
        for name in [
            "pthread_cond_signal",
            "pthread_mutex_unlock",
            "syscall",
            "work",
        ] {
            assert_eq!(of(name), None, "{name}");
        }
    }
}
