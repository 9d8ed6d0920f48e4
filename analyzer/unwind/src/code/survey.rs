//! All functions of one image: those whose starts are known, those they call, parts that are only jumped to, and what
//! lies between.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet, VecDeque};

use unspool_image::{Arch, Image};

use super::cover::Cover;
use super::effect::Target;
use super::flow::{Engine, Function, Show};
use super::landing::Landings;
use super::listing::Listing;
use super::starts::Calls;
use super::state::{NO_CALL, State};
use super::text::Text;
use super::{handlers, lazy, pointers, sparing, starts};

/// Whether exceptions are caught in more than a few places: C++ rather than C with cancellation points.
fn catches(image: &Image, text: &Text<'_>) -> bool {
    let size: u64 = text
        .ranges()
        .iter()
        .map(|range| range.end - range.start)
        .sum();
    let table = image.section(".gcc_except_table");
    table.is_some_and(|table| table.data.len() as u64 * 200 > size)
}

/// The functions of one image.
pub(super) struct Survey<'i> {
    image: &'i Image,
    symbols: bool,
    /// There are places where exceptions are caught.
    catches: bool,
    text: Text<'i>,
    landings: Landings,
    calls: Calls,
    /// Function starts: T32 or not.
    starts: BTreeMap<u64, bool>,
    done: BTreeMap<u64, Function>,
    fragments: Vec<Function>,
    /// Memory that one function after the other is listed in.
    listing: RefCell<Listing>,
}

impl<'i> Survey<'i> {
    pub(super) fn new(image: &'i Image, mut text: Text<'i>, symbols: bool) -> Self {
        if symbols {
            for symbol in image.symbols().functions() {
                if starts::never_returns(symbol.name) {
                    text.silent.insert(symbol.svma);
                }
            }
        }
        text.relocations = pointers::relocations(image);
        text.handlers = handlers::handlers(image, &text);
        Survey {
            starts: starts::known(image, &text, symbols),
            catches: text.machine.arch != Arch::Arm && catches(image, &text),
            image,
            symbols,
            text,
            landings: Landings::default(),
            calls: Calls::default(),
            done: BTreeMap::new(),
            fragments: Vec::new(),
            listing: RefCell::default(),
        }
    }

    /// Analyse everything, then show every function to `visit`, those to be believed first.
    pub(super) fn run(mut self, show: &mut dyn Show, visit: &mut dyn FnMut(&Function)) {
        let mut calls = starts::called(&self.text);
        for svma in std::mem::take(&mut calls.targets) {
            self.starts.entry(svma).or_insert(false);
        }
        // Elsewhere, what a jump table leads to may push arguments.
        for &svma in &calls.prologues {
            if self.text.machine.link || starts::is_landing(&self.text, svma) {
                self.starts.entry(svma).or_insert(false);
            }
        }
        self.text.silent.extend(std::mem::take(&mut calls.silent));
        self.text.references = std::mem::take(&mut calls.references);
        self.text.prologues = std::mem::take(&mut calls.prologues);
        self.calls = calls;
        if self.text.machine.arch != Arch::Arm {
            self.landings = Landings::new(self.image);
        }
        let known: Vec<u64> = self.starts.keys().copied().collect();
        self.land(&known, true);
        let open = self.starts.keys().copied().collect();
        self.functions(open, show);
        self.infer_silent(show);
        self.infer_sparing(show);
        if self.text.machine.arch == Arch::Arm {
            let likely = starts::likely_called(self.image, &self.text, self.symbols);
            self.add_likely(likely, show);
        }
        self.named_by_data(show);
        self.infer_silent(show);
        self.landing_pads(show);
        self.follow_fragments(show);
        self.fill_gaps(show);
        for function in self.done.values().chain(&self.fragments) {
            visit(function);
        }
    }

    /// Find what the tables of call sites say about the functions at `starts`, in order; `whole`: they are no parts.
    fn land(&mut self, starts: &[u64], whole: bool) {
        if self.landings.is_empty() {
            return;
        }
        let Calls { returns, lines, .. } = &self.calls;
        let found = self
            .landings
            .find(starts, whole, &self.text, returns, lines);
        self.text.handlers.extend(found);
        self.text
            .handlers
            .sort_unstable_by_key(|handler| handler.start);
    }

    fn entry(&self, start: Target) -> State {
        let machine = self.text.machine;
        // Nothing calls a program's first instruction; a library's is a function like others.
        let entry = match machine.arch {
            Arch::Arm => {
                start.svma == self.image.entry() & !1 && !starts::is_prologue(&self.text, start)
            }
            _ => start.svma == self.image.entry(),
        };
        if entry {
            State::root(machine)
        } else {
            State::entry(machine)
        }
    }

    /// Analyse the functions at `open`, and those that they call, until no new one appears.
    fn functions(&mut self, mut open: VecDeque<u64>, show: &mut dyn Show) {
        let entry = self.image.entry() & !u64::from(self.text.machine.arch == Arch::Arm);
        while let Some(start) = open.pop_front() {
            let Some(&thumb) = self.starts.get(&start) else {
                continue;
            };
            let end = self.end_of(start);
            if self.done.get(&start).is_some_and(|done| done.end == end) {
                continue;
            }
            let function = self.follow(Target { svma: start, thumb }, end, true, show);
            if start == entry
                && let Some(runs) = starts::runs_program(&self.text, &function)
                && self.text.silent.insert(runs.svma)
            {
                open.push_front(start);
                continue;
            }
            for &call in &function.calls {
                if self.starts.contains_key(&call.svma) || !self.text.is_text(call.svma) {
                    continue;
                }
                self.starts.insert(call.svma, call.thumb);
                open.push_back(call.svma);
                // The function it was taken from is shorter than it was thought to be.
                if let Some((&before, _)) = self.starts.range(..call.svma).next_back() {
                    open.push_back(before);
                }
            }
            self.done.insert(start, function);
        }
    }

    fn follow(&self, start: Target, end: u64, whole: bool, show: &mut dyn Show) -> Function {
        let function = self.follow_from(start, end, &self.entry(start), whole, show);
        for entry in lazy::entries(self.text.machine, &function) {
            let other = self.follow_from(start, end, &entry, whole, show);
            if lazy::is_one(&other) {
                return other;
            }
        }
        function
    }

    fn follow_from(
        &self,
        start: Target,
        end: u64,
        entry: &State,
        whole: bool,
        show: &mut dyn Show,
    ) -> Function {
        let mut engine = Engine::new(&self.text, self.listing.take());
        let function = engine.follow(start, end, entry, whole, show);
        self.listing.replace(engine.into_listing());
        function
    }

    fn end_of(&self, start: u64) -> u64 {
        let next = self
            .starts
            .range(start + 1..)
            .next()
            .map_or(u64::MAX, |next| *next.0);
        let text = self.text.range(start).map_or(start, |range| range.end);
        next.min(text)
    }

    /// Functions of which no path returns make their callers' code end there: look again at those.
    fn infer_silent(&mut self, show: &mut dyn Show) {
        for _ in 0..4 {
            let found: HashSet<u64> = self
                .done
                .values()
                .filter(|function| function.endless && !function.doubtful)
                .filter(|function| function.instructions > 1)
                .map(|function| function.start)
                .filter(|start| !self.text.silent.contains(start))
                .collect();
            if found.is_empty() {
                return;
            }
            self.text.silent.extend(&found);
            let again: Vec<u64> = self
                .done
                .values()
                .filter(|function| function.calls.iter().any(|call| found.contains(&call.svma)))
                .map(|function| function.start)
                .collect();
            for start in again {
                let thumb = self.done[&start].thumb;
                let end = self.end_of(start);
                let function = self.follow(Target { svma: start, thumb }, end, true, show);
                self.done.insert(start, function);
            }
            if self.text.machine.arch == Arch::Arm {
                return;
            }
        }
    }

    /// Assembly calls functions that leave registers as they are by a convention of their own: look again at functions of
    /// which the frame is known by such a register.
    fn infer_sparing(&mut self, show: &mut dyn Show) {
        let fragile: Vec<(u64, Vec<Target>)> = self
            .done
            .values()
            .filter(|function| !function.fragile.is_empty())
            .map(|function| (function.start, function.fragile.clone()))
            .collect();
        for (start, calls) in fragile {
            for call in calls {
                let spared = self.done.get(&call.svma);
                let spared = spared.map_or(0, |function| sparing::spared(&self.text, function));
                self.text.sparing.insert(call.svma, spared);
            }
            let thumb = self.done[&start].thumb;
            let end = self.end_of(start);
            let function = self.follow(Target { svma: start, thumb }, end, true, show);
            self.done.insert(start, function);
        }
    }

    /// Functions of which only the address is known: in data, or computed by code.
    fn named_by_data(&mut self, show: &mut dyn Show) {
        let mut candidates = pointers::candidates(self.image, &self.text);
        for _ in 0..6 {
            let functions = self.done.values();
            candidates.extend(functions.flat_map(|function| &function.addresses));
            candidates.sort_unstable();
            candidates.dedup();
            let targets = candidates.iter().map(|&candidate| self.target(candidate));
            let likely = targets.filter(|&target| self.is_likely(target)).collect();
            if !self.add_likely(likely, show) {
                return;
            }
        }
    }

    /// Add those that turn out to be functions. Returns whether any did.
    fn add_likely(&mut self, candidates: Vec<Target>, show: &mut dyn Show) -> bool {
        let mut reached = self.reached();
        let mut found = Vec::new();
        for target in candidates {
            if reached.contains(target.svma)
                || self.starts.contains_key(&target.svma)
                || !self.text.is_text(target.svma)
                || self.text.is_data(target.svma)
            {
                continue;
            }
            let end = self.end_of(target.svma);
            let function = self.follow(target, end, false, show);
            if self.is_function(&function, &reached) {
                // What follows may be its labels.
                for &(start, end) in &function.spans {
                    reached.insert(start, end);
                }
                found.push(target);
            }
        }
        self.add(&found, show);
        !found.is_empty()
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

    /// New starts, which may make the functions before shorter.
    fn add(&mut self, found: &[Target], show: &mut dyn Show) {
        let mut starts: Vec<u64> = found.iter().map(|target| target.svma).collect();
        starts.sort_unstable();
        self.land(&starts, true);
        let mut open = VecDeque::new();
        for target in found {
            self.starts.insert(target.svma, target.thumb);
            open.push_back(target.svma);
            if let Some((&before, _)) = self.starts.range(..target.svma).next_back() {
                open.push_back(before);
            }
        }
        self.functions(open, show);
    }

    /// Whether what was followed from its entry looks like a whole function.
    fn is_function(&self, function: &Function, reached: &Cover) -> bool {
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
                && !self.starts.contains_key(&target.svma)
                && before.next_back().is_none_or(|(_, other)| other.framed)
        };
        function.clean && !function.exits.iter().any(|(target, _)| inside(target))
    }

    /// Code of a function that only the unwinder leads to, when an exception passes a call: it starts with what is
    /// known behind all of the function's calls.
    fn landing_pads(&mut self, show: &mut dyn Show) {
        if !self.catches {
            return;
        }
        let mut reached = self.reached();
        let mut found = Vec::new();
        for (&start, function) in &self.done {
            let Some(state) = &function.after_calls else {
                continue;
            };
            // Parts of other functions lie between what is not aligned: code that is rarely used.
            let end = self.end_of(start);
            if start & 15 != 0 || end & 15 != 0 && self.text.is_text(end) {
                continue;
            }
            let mut state = state.clone();
            state.called(0);
            state.after = NO_CALL;
            for (from, end) in reached.gaps(&(start..end)) {
                let mut at = from;
                while at < end {
                    if let Some(len) = starts::padding(&self.text, at, false) {
                        at += len;
                        continue;
                    }
                    if reached.contains(at) {
                        at += 1;
                        continue;
                    }
                    let target = Target {
                        svma: at,
                        thumb: false,
                    };
                    let alone = self.follow(target, end, false, show);
                    let stub = at & 15 != 0
                        && alone.instructions <= 2
                        && matches!(alone.exits.as_slice(), [(to, _)] if !reached.contains(to.svma));
                    if !alone.alien && !stub {
                        break;
                    }
                    let pad = self.follow_from(target, end, &state, false, show);
                    if pad.doubtful || pad.spans.is_empty() {
                        break;
                    }
                    for &(start, end) in &pad.spans {
                        reached.insert(start, end);
                    }
                    found.push(pad);
                }
            }
        }
        self.fragments.extend(found);
    }

    /// Code that is only reached by jumps from another function (`.cold` parts, shared tails), with the state
    /// that the jump brings along.
    fn follow_fragments(&mut self, show: &mut dyn Show) {
        let called: HashSet<u64> = self
            .done
            .values()
            .flat_map(|function| &function.calls)
            .map(|call| call.svma)
            .collect();
        let mut reached = self.reached();
        for _ in 0..4 {
            let mut wanted: BTreeMap<u64, (Target, State)> = BTreeMap::new();
            for (target, state) in self
                .done
                .values()
                .chain(&self.fragments)
                .flat_map(|function| &function.exits)
            {
                let start = self.done.get(&target.svma);
                let part = start.is_some()
                    && !called.contains(&target.svma)
                    && state.has_frame()
                    && !starts::is_entry(&self.text, *target, state);
                if !self.text.is_text(target.svma) || reached.contains(target.svma) && !part {
                    continue;
                }
                wanted
                    .entry(target.svma)
                    .and_modify(|(_, known)| {
                        known.meet(state);
                    })
                    .or_insert((*target, state.clone()));
            }
            if wanted.is_empty() {
                return;
            }
            let parts: Vec<u64> = wanted.keys().copied().collect();
            self.land(&parts, false);
            for (svma, (target, mut state)) in wanted {
                state.after = NO_CALL;
                let end = self.end_of(svma);
                let function = self.follow_from(target, end, &state, false, show);
                for &(start, end) in &function.spans {
                    reached.insert(start, end);
                }
                // Believed before what was found by taking it for a whole function.
                self.done.remove(&svma);
                self.fragments.push(function);
            }
        }
    }

    fn reached(&self) -> Cover {
        let mut cover = Cover::new(self.text.start(), self.text.end());
        for function in self.done.values().chain(&self.fragments) {
            for &(start, end) in &function.spans {
                cover.insert(start, end);
            }
        }
        cover
    }

    /// Look for functions in text that nothing has led to: those called through pointers only.
    fn fill_gaps(&mut self, show: &mut dyn Show) {
        for _ in 0..6 {
            let found = self.fill_all(show);
            if found.is_empty() {
                return;
            }
            self.add(&found, show);
            self.named_by_data(show);
            self.landing_pads(show);
            self.follow_fragments(show);
        }
    }

    fn fill_all(&mut self, show: &mut dyn Show) -> Vec<Target> {
        let mut found = Vec::new();
        let reached = self.reached();
        let mut covered = self.reached();
        for function in self.done.values().chain(&self.fragments) {
            for &literal in &function.literals {
                covered.insert(literal, literal + 4);
            }
            for &(start, end) in &function.tables {
                covered.insert(start, end);
            }
        }
        let ranges = self.text.ranges().to_vec();
        let mut named = BTreeMap::new();
        for range in ranges {
            for (start, end) in covered.gaps(&range) {
                found.extend(self.fill(start, end, &reached, &mut named, show));
            }
        }
        found
    }

    /// `named`: what the functions that are found call, or jump to without a frame; T32 or not.
    fn fill(
        &mut self,
        start: u64,
        end: u64,
        reached: &Cover,
        named: &mut BTreeMap<u64, bool>,
        show: &mut dyn Show,
    ) -> Vec<Target> {
        let mut found = Vec::new();
        let machine = self.text.machine;
        let arm = machine.arch == Arch::Arm;
        let unit = if arm { 2 } else { 1 << machine.shift };
        let mut covered = Cover::new(start, end);
        // Behind a function's end the next one starts, even without a prologue; it must then look like one in all
        // other ways.
        let mut fresh = true;
        let mut after_a32 = self
            .done
            .range(..start)
            .next_back()
            .is_some_and(|(_, function)| !function.thumb);
        let mut at = start.next_multiple_of(unit);
        while at + unit <= end {
            let known = named.get(&at).copied();
            let thumb = known.unwrap_or_else(|| {
                arm && starts::mode(
                    self.image,
                    &self.text,
                    self.symbols,
                    at,
                    (at + 32).min(end),
                    after_a32,
                )
            });
            if covered.contains(at) || self.text.is_data(at) {
                at += unit;
                continue;
            }
            if let Some(len) = starts::padding(&self.text, at, thumb) {
                at += if arm && !thumb { 2 } else { len };
                continue;
            }
            let target = Target { svma: at, thumb };
            let prologue = starts::is_prologue(&self.text, target);
            if !prologue && !fresh && known.is_none() || arm && !thumb && at & 3 != 0 {
                at = self.next_candidate(at, end, &mut fresh);
                continue;
            }
            let last = if arm {
                let next = named.range(at + 1..).next();
                next.map_or(end, |next| end.min(*next.0))
            } else {
                starts::extent(&self.text, at, end)
            };
            let function = self.follow(target, last, false, show);
            fresh = false;
            let sound = known.is_some() && !function.alien && !function.doubtful;
            let accepted = sound || prologue && arm || self.is_function(&function, reached);
            if !accepted {
                at = self.next_candidate(at, end, &mut fresh);
                continue;
            }
            let mut next = at + unit;
            for &(start, end) in &function.spans {
                covered.insert(start, end);
                if start <= next {
                    next = next.max(end);
                }
            }
            for &literal in &function.literals {
                covered.insert(literal, literal + 4);
            }
            for &(start, end) in &function.tables {
                covered.insert(start, end);
            }
            if arm {
                let left = function
                    .exits
                    .iter()
                    .filter(|(_, state)| !state.has_frame());
                let left = left.map(|(target, _)| target);
                named.extend(
                    function
                        .calls
                        .iter()
                        .chain(left)
                        .map(|to| (to.svma, to.thumb)),
                );
            }
            found.push(target);
            after_a32 = arm && !thumb;
            at = next;
            fresh = true;
        }
        found
    }

    /// Where a function may start after `at`, where none does. `fresh` is set if the code before cannot run on into
    /// it.
    fn next_candidate(&self, at: u64, end: u64, fresh: &mut bool) -> u64 {
        let machine = self.text.machine;
        if machine.arch == Arch::Arm {
            return at + 2;
        }
        let mut at = at;
        while at < end {
            let Some(instruction) = self.text.decode(at, false) else {
                return (at + 1).next_multiple_of(16);
            };
            at += u64::from(instruction.len);
            if starts::ends(&instruction) || self.text.prologues.binary_search(&at).is_ok() {
                *fresh = true;
                return at;
            }
        }
        end
    }
}
