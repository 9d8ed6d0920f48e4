//! Finds all functions of an image.
//!
//! It follows functions with known starts, the functions they call, parts that only jumps lead to,
//! and code in the gaps between them.

mod dead;
mod gaps;
mod likely;
mod parts;
mod workers;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use hashbrown::{HashMap, HashSet};
use unspool_image::{Arch, Image};

use super::byte_map::ByteMap;
use super::effect::Target;
use super::flow::{Engine, Function, Show};
use super::landing::Landings;
use super::region::Outline;
use super::starts::Calls;
use super::state::State;
use super::text::Text;
use super::{callee_clobbers, handlers, plt_resolver, pointers, starts};
use workers::{Workers, Workspace};

/// Whether exceptions are caught in more than a few places, as in C++ and unlike in C with
/// cancellation points.
pub(super) fn catches(image: &Image, text: &Text<'_>) -> bool {
    let size: u64 = text
        .ranges()
        .iter()
        .map(|range| range.end - range.start)
        .sum();
    let table = image.section(".gcc_except_table");
    table.is_some_and(|table| table.data.len() as u64 * 200 > size)
}

/// A boxed function, because it is moved more often than it is read.
type Found = Box<Function>;

/// The functions of one image.
pub(super) struct Discovery<'i> {
    image: &'i Image,
    symbols: bool,
    /// Whether the image catches exceptions.
    catches: bool,
    text: Text<'i>,
    landings: Landings,
    calls: Calls,
    /// Function starts, and whether they are T32 code.
    starts: BTreeMap<u64, bool>,
    /// The same starts as a set, for fast lookups.
    start_set: ByteMap,
    done: BTreeMap<u64, Found>,
    /// Addresses of all followed code. Must be rebuilt if `stale`.
    reached: ByteMap,
    stale: bool,
    fragments: Vec<Found>,
    /// Code that nothing leads to.
    dead: Vec<Found>,
    /// Functions that were followed before they were accepted.
    followed: HashMap<u64, Found>,
    /// Gaps in which no function was found.
    empty_gaps: HashSet<(u64, u64)>,
    /// Code addresses in data. On ARM, bit 0 marks T32. Computed when first needed.
    data_addresses: Option<ByteMap>,
    /// Facts about the whole image, if `text` is only a region.
    outline: Option<&'i Outline>,
    /// Parts of functions that only jumps lead to. No function starts there.
    parts: Vec<Range<u64>>,
}

impl<'i> Discovery<'i> {
    pub(super) fn new(image: &'i Image, mut text: Text<'i>, symbols: bool) -> Self {
        if symbols {
            for symbol in image.symbols().functions() {
                if starts::never_returns(symbol.name) {
                    text.noreturn.add(symbol.svma);
                }
            }
        }
        text.relocations = pointers::relocations(image).into();
        text.handlers = handlers::handlers(image, &text);
        let starts = starts::known(image, &text, symbols);
        let catches = text.machine.arch != Arch::Arm && catches(image, &text);
        Discovery::with(image, text, symbols, starts, catches)
    }

    /// The functions of a region, using facts about the whole image.
    pub(super) fn of_region(
        image: &'i Image,
        text: Text<'i>,
        symbols: bool,
        outline: &'i Outline,
    ) -> Self {
        let range = text.start()..text.end();
        let starts = outline.starts_in(&range).iter().copied();
        let mut starts: BTreeMap<u64, bool> = starts.collect();
        let described = Outline::described_in(image, &range);
        let (functions, parts): (Vec<_>, Vec<_>) =
            described.into_iter().partition(|one| one.function);
        for function in functions {
            if text.is_text(function.range.start) {
                starts.entry(function.range.start).or_insert(false);
            }
        }
        let mut discovery = Discovery {
            outline: Some(outline),
            parts: parts.into_iter().map(|part| part.range).collect(),
            ..Discovery::with(image, text, symbols, starts, outline.catches)
        };
        // Functions end where parts of others start.
        for part in &discovery.parts {
            discovery.start_set.add(part.start);
        }
        discovery
    }

    fn with(
        image: &'i Image,
        text: Text<'i>,
        symbols: bool,
        starts: BTreeMap<u64, bool>,
        catches: bool,
    ) -> Self {
        let reached = ByteMap::over(&text);
        Discovery {
            start_set: ByteMap::of(&text, starts.keys()),
            starts,
            catches,
            image,
            symbols,
            text,
            landings: Landings::default(),
            calls: Calls::default(),
            done: BTreeMap::new(),
            reached,
            stale: false,
            fragments: Vec::new(),
            dead: Vec::new(),
            followed: HashMap::new(),
            empty_gaps: HashSet::new(),
            data_addresses: None,
            outline: None,
            parts: Vec::new(),
        }
    }

    /// Analyses everything with `threads` threads, then passes every function to `visit`, the most
    /// reliable ones first.
    pub(super) fn run(
        mut self,
        threads: usize,
        show: &mut dyn Show,
        visit: &mut dyn FnMut(&Function),
    ) {
        let workers = &mut Workers::new(self.text.machine, show, threads);
        let mut calls = starts::called(&self.text, workers.threads());
        for svma in std::mem::take(&mut calls.targets) {
            self.start(svma, false);
        }
        // On other machines, the target of a jump table may push arguments.
        for &svma in &calls.prologues {
            if self.text.machine.link || starts::is_landing(&self.text, svma) {
                self.start(svma, false);
            }
        }
        for svma in std::mem::take(&mut calls.noreturn) {
            self.text.noreturn.add(svma);
        }
        self.text.references = std::mem::take(&mut calls.references);
        if !calls.prologues.is_empty() {
            self.text.prologues = ByteMap::of(&self.text, calls.prologues.iter());
        }
        self.calls = calls;
        if self.text.machine.arch != Arch::Arm {
            self.landings = match self.outline {
                Some(outline) => outline.landings.clone(),
                None => Landings::new(self.image),
            };
        }
        let known: Vec<u64> = self.starts.keys().copied().collect();
        self.add_landing_pads(&known, true);
        let open = self.starts.keys().copied().collect();
        self.functions(open, workers);
        self.infer_noreturn(workers);
        self.infer_callee_clobbers(workers);
        if self.text.machine.arch == Arch::Arm {
            let likely = starts::likely_called(self.image, &self.text, self.symbols);
            self.add_likely(likely, workers);
        }
        self.discover_from_addresses(workers);
        self.infer_noreturn(workers);
        self.landing_pads(workers);
        self.follow_fragments(workers);
        self.follow_dead(workers);
        self.fill_gaps(workers);
        for function in self.all() {
            visit(function);
        }
    }

    /// Adds the landing pads from the call-site tables of the functions at `starts` (in order).
    /// `whole` means that they are not parts of functions. Returns the ranges of calls with an
    /// entry.
    fn add_landing_pads(&mut self, starts: &[u64], whole: bool) -> Vec<Range<u64>> {
        if self.landings.is_empty() {
            return Vec::new();
        }
        let Calls { returns, lines, .. } = &self.calls;
        let found = self
            .landings
            .find(starts, whole, &self.text, returns, lines);
        let calls = found.iter().map(|site| site.start..site.end).collect();
        self.text.handlers.extend(found);
        self.text
            .handlers
            .sort_unstable_by_key(|handler| handler.start);
        calls
    }

    fn entry(&self, start: Target) -> State {
        let machine = self.text.machine;
        // Nothing calls a program's entry point. A library's is a normal function.
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

    /// Analyses the functions at `open` and those they call, until no new one appears.
    fn functions(&mut self, mut open: VecDeque<u64>, workers: &mut Workers<'_>) {
        let entry = self.image.entry() & !u64::from(self.text.machine.arch == Arch::Arm);
        // Functions that were followed early, and how many of the next starts were included.
        let (mut ahead, mut asked) = (HashMap::new(), 0);
        loop {
            if asked == 0 {
                ahead.extend(self.ahead(&open, workers));
                asked = open.len();
            }
            asked = asked.saturating_sub(1);
            let Some(start) = open.pop_front() else {
                return;
            };
            let Some(&thumb) = self.starts.get(&start) else {
                continue;
            };
            let end = self.end_of(start);
            if self.done.get_mut(&start).is_some_and(|done| done.fits(end)) {
                continue;
            }
            let known = self.followed.remove(&start);
            let known = known.filter(|known| !known.open);
            let function = known
                .and_then(|mut known| known.fits(end).then_some(known))
                .or_else(|| ahead.remove(&(start, end)))
                .unwrap_or_else(|| {
                    self.follow(
                        Target { svma: start, thumb },
                        end,
                        true,
                        &mut workers.workspace(),
                    )
                });
            if start == entry
                && let Some(runs) = starts::runs_program(&self.text, &function)
                && self.text.noreturn.add(runs.svma)
            {
                ahead.retain(|_, other| !other.calls.contains(&runs));
                open.push_front(start);
                continue;
            }
            for &call in &function.calls {
                if self.start_set.contains(call.svma) || !self.text.is_text(call.svma) {
                    continue;
                }
                self.start(call.svma, call.thumb);
                open.push_back(call.svma);
                // The function that contained this start ends here.
                if let Some((&before, _)) = self.starts.range(..call.svma).next_back() {
                    open.push_back(before);
                }
            }
            self.keep(function);
        }
    }

    /// Follows the functions in `open` that still need it, in parallel. The key is start and end;
    /// the end may change later.
    fn ahead(
        &self,
        open: &VecDeque<u64>,
        workers: &mut Workers<'_>,
    ) -> impl Iterator<Item = ((u64, u64), Found)> {
        let mut tasks = Vec::new();
        if workers.is_worth(open.len()) {
            let mut seen = ByteMap::over(&self.text);
            for &start in open.iter().filter(|start| seen.add(**start)) {
                let end = self.end_of(start);
                let fits = |function: &Found| function.would_fit(end);
                if let Some(&thumb) = self.starts.get(&start)
                    && !self.done.get(&start).is_some_and(fits)
                    && !self.followed.get(&start).is_some_and(fits)
                {
                    tasks.push((Target { svma: start, thumb }, end));
                }
            }
        }
        let found = workers.each(self, &tasks, |discovery, &(start, end), workspace| {
            [discovery.follow(start, end, true, workspace)]
        });
        let ends = tasks.into_iter().map(|(start, end)| (start.svma, end));
        ends.zip(found.into_iter().flatten())
    }

    fn follow(&self, start: Target, end: u64, whole: bool, workspace: &mut Workspace<'_>) -> Found {
        let function = self.follow_from(start, end, &self.entry(start), whole, workspace);
        for entry in plt_resolver::entries(self.text.machine, &function) {
            let other = self.follow_from(start, end, &entry, whole, workspace);
            if plt_resolver::is_resolver(self.text.machine, &other) {
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
        workspace: &mut Workspace<'_>,
    ) -> Found {
        let engine = &mut Engine::new(&self.text, workspace.memory, self.catches);
        Box::new(engine.follow(start, end, entry, whole, workspace.show))
    }

    fn end_of(&self, start: u64) -> u64 {
        let end = self.text.range(start).map_or(start, |range| range.end);
        self.start_set.next(start + 1, end, true)
    }

    /// Infers which functions never return, and follows their callers again, whose code ends at the
    /// call.
    fn infer_noreturn(&mut self, workers: &mut Workers<'_>) {
        for _ in 0..4 {
            let mut found = ByteMap::default();
            for function in self.done.values() {
                if function.never_leaves
                    && !function.doubtful
                    && function.instructions > 1
                    && self.text.noreturn.add(function.start)
                {
                    if found.is_empty() {
                        found = ByteMap::over(&self.text);
                    }
                    found.add(function.start);
                }
            }
            if found.is_empty() {
                return;
            }
            let again: Vec<u64> = self
                .done
                .values()
                .filter(|function| function.calls.iter().any(|call| found.contains(call.svma)))
                .map(|function| function.start)
                .collect();
            let found = workers.each(self, &again, |discovery, &start, workspace| {
                let thumb = discovery.done[&start].thumb;
                let end = discovery.end_of(start);
                [discovery.follow(Target { svma: start, thumb }, end, true, workspace)]
            });
            for function in found.into_iter().flatten() {
                self.keep(function);
            }
            if self.text.machine.arch == Arch::Arm {
                return;
            }
        }
    }

    /// Assembly calls functions that preserve more registers than the convention requires. Follows
    /// functions again whose frame is known only by such a register.
    fn infer_callee_clobbers(&mut self, workers: &mut Workers<'_>) {
        let clobber_sensitive: Vec<(u64, Vec<Target>)> = self
            .done
            .values()
            .filter(|function| !function.clobber_sensitive.is_empty())
            .map(|function| (function.start, function.clobber_sensitive.clone()))
            .collect();
        for (start, calls) in clobber_sensitive {
            for call in calls {
                let preserved = self.done.get(&call.svma);
                let preserved = preserved.map_or(0, |function| {
                    callee_clobbers::preserved_registers(&self.text, function)
                });
                self.text.preserved_by.insert(call.svma, preserved);
            }
            let thumb = self.done[&start].thumb;
            let end = self.end_of(start);
            let function = self.follow(
                Target { svma: start, thumb },
                end,
                true,
                &mut workers.workspace(),
            );
            self.keep(function);
        }
    }

    /// Adds new functions, which may shorten the functions before them. Keeps earlier results that
    /// still hold.
    fn add(&mut self, found: Vec<Found>, workers: &mut Workers<'_>) {
        let mut starts: Vec<u64> = found.iter().map(|function| function.start).collect();
        starts.sort_unstable();
        let caught = self.add_landing_pads(&starts, true);
        let mut open = VecDeque::new();
        for function in found {
            let start = function.start;
            self.start(start, function.thumb);
            open.push_back(start);
            if let Some((&before, _)) = self.starts.range(..start).next_back() {
                open.push_back(before);
            }
            let inside = start..function.reach;
            if !caught.iter().any(|calls| inside.contains(&calls.start)) {
                self.followed.insert(start, function);
            }
        }
        self.functions(open, workers);
        self.followed.clear();
    }

    /// Records a function start, if it is new.
    fn start(&mut self, svma: u64, thumb: bool) {
        if self.start_set.add(svma) {
            self.starts.insert(svma, thumb);
        }
    }

    fn keep(&mut self, function: Found) {
        self.reached.insert_all(&function.spans);
        match self.done.entry(function.start) {
            Entry::Vacant(place) => {
                place.insert(function);
            }
            Entry::Occupied(mut place) => {
                self.stale |= place.get().spans != function.spans;
                place.insert(function);
            }
        }
    }

    fn keep_part(&mut self, part: Found) {
        self.reached.insert_all(&part.spans);
        self.fragments.push(part);
    }

    fn reached(&mut self) -> ByteMap {
        if std::mem::take(&mut self.stale) {
            self.reached = ByteMap::over(&self.text);
            let all = self.done.values().chain(&self.fragments).chain(&self.dead);
            for function in all {
                self.reached.insert_all(&function.spans);
            }
        }
        self.reached.clone()
    }

    /// All functions, the most reliable ones first.
    fn all(&self) -> impl Iterator<Item = &Found> {
        self.done.values().chain(&self.fragments).chain(&self.dead)
    }

    /// All followed code, and the data it reads.
    fn covered(&mut self) -> ByteMap {
        let mut covered = self.reached();
        for part in &self.parts {
            covered.insert(part.start, part.end);
        }
        for function in self.all() {
            for &literal in &function.literals {
                covered.insert(literal, literal + 4);
            }
            covered.insert_all(&function.tables);
        }
        covered
    }
}
