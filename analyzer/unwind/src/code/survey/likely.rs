//! Functions of which only an address is known, which data or code holds: whether there is a function, the code there shows.

use unspool_image::Arch;

use super::Survey;
use crate::code::cover::Cover;
use crate::code::effect::Target;
use crate::code::flow::{Function, Show};
use crate::code::{pointers, starts};

impl Survey<'_> {
    /// Functions of which only the address is known: in data, or computed by code.
    pub(super) fn named_by_data(&mut self, show: &mut dyn Show) {
        let stated = pointers::candidates(self.image, &self.text);
        // With the bit that says T32, on ARM.
        let mut candidates = Cover::of(&self.text, stated.iter());
        for _ in 0..6 {
            for function in self.done.values() {
                for &address in &function.addresses {
                    candidates.add(address);
                }
            }
            let reached = self.reached();
            let targets = candidates.all().map(|candidate| self.target(candidate));
            let targets = targets.filter(|target| !reached.contains(target.svma));
            let likely = targets.filter(|&target| self.is_likely(target)).collect();
            if !self.add_likely(likely, show) {
                return;
            }
        }
    }

    /// Add those that turn out to be functions. Returns whether any did.
    pub(super) fn add_likely(&mut self, candidates: Vec<Target>, show: &mut dyn Show) -> bool {
        let mut reached = self.reached();
        let mut found = Vec::new();
        for target in candidates {
            if reached.contains(target.svma)
                || self.started.contains(target.svma)
                || !self.text.is_text(target.svma)
                || self.text.is_data(target.svma)
            {
                continue;
            }
            let end = self.end_of(target.svma);
            let function = self.follow(target, end, false, show);
            if self.is_function(&function, &reached) {
                // What follows may be its labels.
                reached.insert_all(&function.spans);
                found.push(function);
            }
        }
        let any = !found.is_empty();
        self.add(found, show);
        any
    }

    /// Half-made addresses and small numbers are taken for addresses of ARM code easily.
    fn is_likely(&self, target: Target) -> bool {
        self.text.machine.arch != Arch::Arm
            || target.thumb && starts::is_prologue(&self.text, target)
            || !target.thumb
                && target.svma & 3 == 0
                && !starts::mode(
                    self.image,
                    &self.text,
                    self.symbols,
                    target.svma,
                    target.svma + 32,
                    false,
                )
    }

    fn target(&self, pointer: u64) -> Target {
        let arm = self.text.machine.arch == Arch::Arm;
        Target {
            svma: if arm { pointer & !1 } else { pointer },
            thumb: arm && pointer & 1 == 1,
        }
    }

    /// Whether what was followed from its entry looks like a whole function.
    pub(super) fn is_function(&self, function: &Function, reached: &Cover) -> bool {
        let machine = self.text.machine;
        let aligned = function.start & ((1 << machine.shift(function.thumb)) - 1) == 0;
        if !aligned || function.alien || function.doubtful || function.instructions == 0 {
            return false;
        }
        let start = Target {
            svma: function.start,
            thumb: function.thumb,
        };
        let prologue = starts::is_prologue(&self.text, start);
        if function.endless {
            return prologue;
        }
        // Jumps to parts elsewhere look like a frame that is not taken down.
        if prologue && function.start & 15 == 0 && machine.arch != Arch::Arm {
            return true;
        }
        if self.catches && !prologue && function.start & 15 != 0 {
            return false;
        }
        // A jump without a frame to where another function has one is no tail call.
        let inside = |target: &Target| {
            let mut before = self.done.range(..=target.svma);
            reached.contains(target.svma)
                && !self.started.contains(target.svma)
                && before.next_back().is_none_or(|(_, other)| other.framed)
        };
        function.clean && !function.exits.iter().any(|(target, _)| inside(target))
    }
}
