//! Recognizes stacks whose call path the stub has already sent, without unwinding them.
//!
//! Threads often reach a tracepoint through the same calls, and most bytes of a trace frame are the
//! stack from which the client finds these calls. An unwinder uses only two kinds of words on the
//! stack: return addresses, and saved addresses of the stack itself. So two stacks at the same
//! tracepoint with the same stack pointer have the same call path if all words that may be such
//! addresses are equal. A [key](CodeMap::key) is a hash over these words. The stub sends only the
//! first of several stacks with equal keys.
//!
//! The program's mappings decide whether a word may be the address of code. The stub reads them
//! from time to time ([`CodeMap`]). An address outside all known mappings counts as code.

use std::cell::Cell;
use std::collections::HashMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use crate::arch::{Word, wide};
use crate::sys::{Tid, maps};

/// Lowest address that can be mapped. Most counters and sizes are smaller.
const LOWEST: u64 = 0x1_0000;
/// Words below this that are in no mapping are numbers, because 64-bit programs map new memory
/// above it.
const NUMBERS: u64 = if size_of::<Word>() == 8 {
    1 << 32
} else {
    LOWEST
};
/// End of the addresses that Linux maps without a hint (four levels of page tables).
const HIGHEST: u64 = if size_of::<Word>() == 8 {
    1 << 47
} else {
    1 << 32
};
/// Minimum time between two reads of the mappings.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);
/// Reading the mappings takes at most the fraction `1 / REST_FACTOR` of the time.
const REST_FACTOR: u32 = 100;
/// Maximum number of keys kept.
const MAX_KEYS: usize = 4096;
/// Minimum size of a page, in bytes. Mappings consist of whole pages.
const PAGE: u64 = 4096;
/// Number of pages whose answers are kept. A power of two.
const KEPT_PAGES: usize = 1024;

/// The addresses of the program's code and data.
#[derive(Default)]
pub(crate) struct CodeMap {
    /// Runs of mappings, by address, and whether they may hold code.
    ranges: Vec<(Range<u64>, bool)>,
    pages: Pages,
    due: Option<Instant>,
}

/// Recent answers by page, because many words of a stack point into few pages.
struct Pages(Box<[Cell<u64>]>);

impl Default for Pages {
    fn default() -> Pages {
        Pages(vec![Cell::new(0); KEPT_PAGES].into())
    }
}

impl Pages {
    /// The kept answer for a word's page, or the result of `find`, which is then kept. Page 0 marks
    /// an empty entry, so `word` must not point into it.
    fn answer(&self, word: u64, find: impl FnOnce() -> bool) -> bool {
        let page = word / PAGE;
        let kept = &self.0[page as usize % KEPT_PAGES];
        if kept.get() >> 1 != page {
            kept.set(page << 1 | u64::from(find()));
        }
        kept.get() & 1 != 0
    }
}

impl CodeMap {
    /// Reads the mappings if the last read is long enough ago. Returns true if code has come or
    /// gone.
    pub(crate) fn refresh(&mut self, process: Tid) -> bool {
        let now = Instant::now();
        if self.due.is_some_and(|due| now < due) {
            return false;
        }
        let text = maps::read(process);
        let before = std::mem::take(&mut self.ranges);
        self.ranges = runs(maps::mappings(&text).map(|mapping| {
            let data = mapping.readable && !mapping.executable;
            (mapping.range, !data)
        }));
        self.pages = Pages::default();
        self.due = Some(now + SHORTEST_INTERVAL.max(now.elapsed() * REST_FACTOR));
        let code = |(_, code): &&(Range<u64>, bool)| *code;
        !before
            .iter()
            .filter(code)
            .eq(self.ranges.iter().filter(code))
    }

    /// True if a word may be the address of code.
    fn may_be_code(&self, word: u64) -> bool {
        (LOWEST..HIGHEST).contains(&word) && self.pages.answer(word, || self.find(word))
    }

    fn find(&self, word: u64) -> bool {
        let index = self.ranges.partition_point(|(range, _)| range.end <= word);
        let around = self.ranges.get(index);
        let around = around.filter(|(range, _)| range.contains(&word));
        around.map_or(word >= NUMBERS, |(_, code)| *code)
    }

    /// The key of a stack from `sp` on, with the registers of its thread. `place` is the address of
    /// the tracepoint.
    pub(crate) fn key(&self, place: u64, sp: u64, registers: &[u8], stack: &[u8]) -> u64 {
        const WORD: usize = size_of::<Word>();
        let stack_range = sp..sp.saturating_add(stack.len() as u64);
        let mut hash = mixed(mixed(1, place), sp);
        let mut index = 0;
        for part in [registers, stack] {
            for word in part.chunks_exact(WORD) {
                let word = word.first_chunk().copied().map_or(0, Word::from_le_bytes);
                let word = wide(word);
                if word >= LOWEST && (stack_range.contains(&word) || self.may_be_code(word)) {
                    hash = mixed(mixed(hash, index), word);
                }
                index += 1;
            }
        }
        // 0 is not a key.
        mixed(hash, stack.len() as u64).max(1)
    }
}

/// Joins neighbours of the same kind.
fn runs(mappings: impl Iterator<Item = (Range<u64>, bool)>) -> Vec<(Range<u64>, bool)> {
    let mut runs: Vec<(Range<u64>, bool)> = Vec::new();
    for (range, code) in mappings {
        match runs.last_mut() {
            Some((last, kind)) if last.end == range.start && *kind == code => last.end = range.end,
            _ => runs.push((range, code)),
        }
    }
    runs
}

/// A step of the hash: each input changes about half of the bits.
fn mixed(hash: u64, word: u64) -> u64 {
    let product = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ product.rotate_right(29)
}

/// The keys of stacks that a client has, and the time of the frame that each came with. Frames are
/// sent in the order of their times.
#[derive(Default)]
pub(crate) struct KnownStacks(HashMap<u64, Instant>);

impl KnownStacks {
    /// Whether the client has this stack when it gets a frame of this time.
    pub(crate) fn contains(&self, key: u64, time: Instant) -> bool {
        self.0.get(&key).is_some_and(|sent| *sent <= time)
    }

    /// Remembers that the client gets this stack with a frame of this time.
    pub(crate) fn add(&mut self, key: u64, time: Instant) {
        if self.0.len() >= MAX_KEYS {
            self.0.clear();
        }
        self.0.insert(key, time);
    }

    /// Forgets all stacks, so that the stub sends them again.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_words_that_unwinders_follow_count() {
        let map = CodeMap {
            ranges: vec![(0x40_0000..0x50_0000, true), (0x50_0000..0x60_0000, false)],
            ..CodeMap::default()
        };
        let sp = 0x7000_1000;
        let stack = |words: [Word; 4]| words.map(Word::to_le_bytes).concat();
        let key = |words| map.key(1, sp, &[], &stack(words));
        let first = key([0x40_1234, 7, 0x7000_1010, 0x50_0008]);
        // Numbers, addresses of data.
        assert_eq!(first, key([0x40_1234, 9, 0x7000_1010, 0x50_0010]));
        assert_eq!(first, key([0x40_1234, 7, 0x7000_1010, 3]));
        // Another return address, another place of it, another saved stack address.
        assert_ne!(first, key([0x40_1238, 7, 0x7000_1010, 0x50_0008]));
        assert_ne!(first, key([7, 0x40_1234, 0x7000_1010, 0x50_0008]));
        assert_ne!(first, key([0x40_1234, 7, 0x7000_1018, 0x50_0008]));
        // Another stack, another tracepoint, another register.
        let same = stack([0x40_1234, 7, 0x7000_1010, 0x50_0008]);
        assert_ne!(first, map.key(1, sp + 16, &[], &same));
        assert_ne!(first, map.key(2, sp, &[], &same));
        let register = Word::to_le_bytes(0x40_0001);
        assert_ne!(first, map.key(1, sp, &register, &same));
    }

    #[test]
    fn what_is_not_known_to_be_data_may_be_code() {
        let map = CodeMap {
            ranges: vec![(0x40_0000..0x50_0000, true), (0x50_0000..0x60_0000, false)],
            ..CodeMap::default()
        };
        let known = |word| map.may_be_code(word);
        assert!(known(0x40_0000) && !known(0x50_0000) && !known(0x60_0000 - 1));
        assert!(!known(0x1000) && known(HIGHEST - 1));
        assert_eq!(known(0x3b9a_c9ff), size_of::<Word>() == 4);
    }

    #[test]
    fn own_code_is_found() {
        let mut map = CodeMap::default();
        let process = Tid(std::process::id().cast_signed());
        assert!(map.refresh(process) && !map.refresh(process));
        assert!(map.may_be_code(own_code_is_found as *const () as u64));
        let data = Box::new(1_u8);
        assert!(!map.may_be_code(&raw const *data as u64));
    }

    #[test]
    fn a_stack_is_known_from_its_frame_on() {
        let now = Instant::now();
        let later = now + SHORTEST_INTERVAL;
        let mut known = KnownStacks::default();
        known.add(5, later);
        assert!(known.contains(5, later) && !known.contains(5, now) && !known.contains(6, later));
        known.add(5, now);
        assert!(known.contains(5, now));
        known.clear();
        assert!(!known.contains(5, later));
    }

    #[test]
    fn neighbours_are_joined() {
        let joined = runs([(1..2, true), (2..3, true), (3..4, false), (5..6, false)].into_iter());
        assert_eq!(joined, [(1..3, true), (3..4, false), (5..6, false)]);
    }
}
