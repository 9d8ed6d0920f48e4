//! One region of an image's code, analysed when a walk first needs a rule there.
//!
//! The whole text of a browser takes half a minute and a gigabyte, and a walk needs a dozen of its
//! functions. So the text is divided into regions. Each holds the functions that start in it, as
//! far as starts are known. Every address belongs to one region, so that results can be stored.
//!
//! All regions share the facts about the image that need no decoding ([`Outline`]). Facts that only
//! the whole text shows are missing: calls from other regions, and the state at jumps from other
//! regions to a part in this one. Where no function start is known nearby, code on both sides of
//! the region is analysed with it.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use unspool_image::{Arch, Image};

use super::flow::{Function, Show, Shown};
use super::function_discovery::{Discovery, catches};
use super::handlers::{self, Handler};
use super::landing::Landings;
use super::rules::Rules;
use super::state::State;
use super::text::Text;
use super::{Analysis, States, machine, pointers, starts};
use crate::cfi;
use crate::cfi::index::{self, Described, Index};
use crate::table::eh_frame;

/// Maximum size of a text that forms one region.
const MAX_WHOLE: u64 = 256 << 10;
/// [`MAX_WHOLE`] if few function starts are known.
const MAX_WHOLE_UNNAMED: u64 = 1 << 20;
/// [`MAX_WHOLE`] for x86-64 code without call frame information.
const MAX_WHOLE_UNDESCRIBED: u64 = 4 << 20;
/// Approximate size of a region.
const REGION_SIZE: u64 = 16 << 10;
/// Maximum size of a region. A larger one is divided anywhere. A divided function counts as
/// several, and only the first has the state of a call. The largest functions have 55 KB (CPython)
/// to 170 KB (LLVM).
const MAX_REGION_SIZE: u64 = 16 * REGION_SIZE;
/// Size of the code analysed on each side of a region without a known start nearby.
const MARGIN_SIZE: u64 = 8 << 10;

/// Facts about an image that need no decoding of code.
#[derive(Debug)]
pub(crate) struct Outline {
    /// Function starts, sorted, and whether they are T32 code.
    starts: Vec<(u64, bool)>,
    /// The same starts, and the starts of all ranges in call frame information.
    bounds: Vec<u64>,
    /// Functions that do not return, judging by their names; sorted.
    pub(super) noreturn: Arc<[u64]>,
    pub(super) relocations: Arc<[(u64, u64)]>,
    handlers: Vec<Handler>,
    pub(super) landings: Landings,
    /// Code addresses in data, sorted; computed when first needed.
    candidates: OnceLock<Vec<u64>>,
    /// Whether exceptions are caught in more than a few places.
    pub(super) catches: bool,
    /// Whether the whole text is one region.
    whole: bool,
}

impl Outline {
    /// The outline of `image`, with or without its symbols. `None` if its code cannot be decoded.
    pub(crate) fn new(image: &Image, symbols: bool) -> Option<Outline> {
        let mut text = Text::sparse(machine::machine(image.arch())?, image, symbols);
        text.relocations = pointers::relocations(image).into();
        let starts: Vec<(u64, bool)> = starts::known(image, &text, symbols).into_iter().collect();
        let mut bounds: Vec<u64> = starts.iter().map(|start| start.0).collect();
        if let Some((_, index)) = indexed(image) {
            bounds.extend(index.starts().filter(|svma| text.is_text(*svma)));
        }
        let described = bounds.len() - starts.len();
        bounds.sort_unstable();
        bounds.dedup();
        let mut noreturn = Vec::new();
        if symbols {
            let named = image.symbols().unordered_functions();
            let named = named.filter(|symbol| starts::never_returns(symbol.name));
            noreturn.extend(named.map(|symbol| symbol.svma));
            noreturn.sort_unstable();
            noreturn.dedup();
        }
        let arm = image.arch() == Arch::Arm;
        let size: u64 = text
            .ranges()
            .iter()
            .map(|range| range.end - range.start)
            .sum();
        Some(Outline {
            whole: size <= whole_limit(image, &starts, described, size),
            starts,
            bounds,
            noreturn: noreturn.into(),
            handlers: handlers::handlers(image, &text),
            landings: if arm {
                Landings::default()
            } else {
                Landings::new(image)
            },
            candidates: OnceLock::new(),
            catches: !arm && catches(image, &text),
            relocations: text.relocations,
        })
    }

    /// The region that contains `svma`, and the range to analyse for it. `None` if there is no
    /// code.
    fn region(&self, image: &Image, svma: u64) -> Option<(Range<u64>, Range<u64>)> {
        let text = image.text_ranges();
        let text = text.iter().find(|range| range.contains(&svma))?;
        let before = self.bounds.partition_point(|start| *start <= svma);
        let function = before.checked_sub(1).map(|at| self.bounds[at]);
        let function = function
            .filter(|start| text.contains(start))
            .unwrap_or(text.start);
        let tile = |svma: u64| svma / REGION_SIZE * REGION_SIZE;
        let next = |from: u64| {
            let at = self.bounds.partition_point(|start| *start < from);
            self.bounds
                .get(at)
                .map_or(text.end, |start| text.end.min(*start))
        };
        let from = tile(function);
        let start = if from <= text.start {
            text.start
        } else {
            next(from)
        };
        let end = next(from.saturating_add(REGION_SIZE).max(start + 1));
        if end - start <= MAX_REGION_SIZE {
            return Some((start..end, start..end));
        }
        // Few function starts are known here.
        let region = tile(svma).max(start)..(tile(svma) + REGION_SIZE).min(end);
        let around = region.start.saturating_sub(MARGIN_SIZE).max(start)
            ..(region.end + MARGIN_SIZE).min(end);
        Some((region, around))
    }

    /// The function starts in a range.
    pub(super) fn starts_in(&self, range: &Range<u64>) -> &[(u64, bool)] {
        let within = |svma: u64| self.starts.partition_point(|(start, _)| *start < svma);
        &self.starts[within(range.start)..within(range.end)]
    }

    /// The functions and parts of functions in a range, from call frame information.
    pub(super) fn described_in(image: &Image, range: &Range<u64>) -> Vec<Described> {
        indexed(image).map_or(Vec::new(), |(section, index)| {
            index::described(image.arch(), &section, &index, range)
        })
    }

    pub(super) fn handlers_in(&self, range: &Range<u64>) -> Vec<Handler> {
        let handlers = self.handlers.iter();
        handlers
            .filter(|handler| range.contains(&handler.start))
            .copied()
            .collect()
    }

    /// The addresses in `range` that data contains.
    pub(super) fn candidates_in(&self, image: &Image, range: &Range<u64>) -> &[u64] {
        let all = self.candidates.get_or_init(|| {
            let machine = machine::machine(image.arch());
            machine.map_or(Vec::new(), |machine| {
                let mut text = Text::sparse(machine, image, false);
                text.relocations = Arc::clone(&self.relocations);
                pointers::candidates(image, &text)
            })
        });
        let within = |svma: u64| all.partition_point(|candidate| *candidate < svma);
        &all[within(range.start)..within(range.end)]
    }
}

/// Call frame information with a search table.
fn indexed(image: &Image) -> Option<(cfi::Section<'_>, Index<'_>)> {
    let section = eh_frame(image)?;
    let (svma, header) = section.header?;
    Some((section, Index::new(svma, header)?))
}

/// Maximum size of a text that forms one region.
fn whole_limit(image: &Image, starts: &[(u64, bool)], described: usize, size: u64) -> u64 {
    let functions = starts.len() as u64;
    if image.arch() == Arch::X86_64 && (described as u64) < size / 4096 {
        // Compilers move cold code out of functions, and only jumps from there lead to it.
        MAX_WHOLE_UNDESCRIBED
    } else if functions < size / 4096 && image.arch() != Arch::X86_64 {
        MAX_WHOLE_UNNAMED
    } else {
        MAX_WHOLE
    }
}

/// Analyses the region that contains `svma`. Returns its range and the result. `None` if there is
/// no code.
pub(crate) fn analyze(
    image: &Image,
    outline: &Outline,
    svma: u64,
    symbols: bool,
) -> Option<(Range<u64>, Analysis)> {
    if outline.whole {
        let text = image.text_ranges();
        let range = text.first()?.start..text.last()?.end;
        let inside = text.iter().any(|range| range.contains(&svma));
        return inside.then(|| (range, super::analyze_by(image, symbols, 1)));
    }
    let (region, around) = outline.region(image, svma)?;
    let mut rules = Rules::new(image.arch());
    let mut starts = Vec::new();
    let mut runs = Vec::new();
    discover(
        image,
        outline,
        around,
        symbols,
        &mut rules,
        &mut |function| {
            starts.push(function.start);
            runs.extend(Rules::runs(&function.shown));
        },
    )?;
    starts.sort_unstable();
    starts.dedup();
    // Include the function that reaches into the region.
    let first = starts
        .partition_point(|start| *start <= region.start)
        .saturating_sub(1);
    let last = starts.partition_point(|start| *start < region.end);
    let starts = starts.get(first..last).map_or(Vec::new(), <[u64]>::to_vec);
    let within = |(start, end, rule): (u64, u64, u32)| {
        let (start, end) = (start.max(region.start), end.min(region.end));
        (start < end).then_some((start, end, rule))
    };
    let runs: Vec<_> = runs.into_iter().filter_map(within).collect();
    let rows = rules.rows(&runs);
    Some((region, Analysis { rows, starts }))
}

/// Shows the states in the region that contains `svma`. Returns the region's end.
pub(super) fn states(
    image: &Image,
    outline: &Outline,
    svma: u64,
    symbols: bool,
    visit: &mut dyn FnMut(u64, &State),
) -> Option<u64> {
    let (region, around) = outline.region(image, svma)?;
    discover(
        image,
        outline,
        around,
        symbols,
        &mut States,
        &mut |function| {
            for shown in &function.shown {
                if let Shown::State(svma, _, state) = shown
                    && region.contains(svma)
                {
                    visit(*svma, state);
                }
            }
        },
    )?;
    Some(region.end)
}

fn discover(
    image: &Image,
    outline: &Outline,
    range: Range<u64>,
    symbols: bool,
    show: &mut dyn Show,
    visit: &mut dyn FnMut(&Function),
) -> Option<()> {
    let machine = machine::machine(image.arch())?;
    let bytes = bytes(image, &range);
    let mut text = Text::region(machine, image, symbols, (range.clone(), &bytes));
    text.noreturn_elsewhere = Arc::clone(&outline.noreturn);
    text.relocations = Arc::clone(&outline.relocations);
    text.handlers = outline.handlers_in(&range);
    Discovery::of_region(image, text, symbols, outline).run(1, show, visit);
    Some(())
}

/// The code in a range, and the bytes after it that an instruction may extend into.
fn bytes(image: &Image, range: &Range<u64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut at = range.start;
    let end = range.end.saturating_add(16);
    while at < end
        && let Some(more) = image.bytes_from(at)
    {
        let len = usize::try_from(end - at)
            .unwrap_or(usize::MAX)
            .min(more.len());
        bytes.extend_from_slice(&more[..len]);
        at += len as u64;
    }
    bytes
}
