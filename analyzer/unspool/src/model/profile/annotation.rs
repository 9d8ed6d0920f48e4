//! Samples by source line and by instruction, in some functions of a profile.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Breakdown, FunctionIndex, Hits, Profile};

/// Numbers of samples by source file and line.
pub type LineHits = BTreeMap<Arc<str>, BTreeMap<u32, Hits>>;

/// Numbers of samples by module path and address in the module's file. A call counts at the last
/// byte of its instruction.
pub type AddressHits = BTreeMap<Arc<str>, BTreeMap<u64, Hits>>;

impl Breakdown {
    /// The lines of functions, with the samples in each and in the functions called there.
    pub fn lines(&self, profile: &Profile, functions: &[FunctionIndex]) -> LineHits {
        let mut lines = LineHits::new();
        for (index, count) in profile.counts().into_iter().enumerate() {
            let mut seen = Vec::new();
            let frames = profile.stacks[index].frames.iter();
            for (at, (frame, function)) in frames.zip(&self.stacks[index]).enumerate() {
                let place = &frame.place;
                let (Some(file), Some(line)) = (&place.file, place.line) else {
                    continue;
                };
                if count == 0 || !functions.contains(function) {
                    continue;
                }
                let hits = lines.entry(file.clone()).or_default();
                let hits = hits.entry(line).or_default();
                hits.flat += if at == 0 { count } else { 0 };
                // Recursion passes a line several times.
                if !seen.contains(&(file, line)) {
                    hits.cum += count;
                    seen.push((file, line));
                }
            }
        }
        lines
    }

    /// The instructions of functions, with the samples at each and in the functions called there.
    pub fn addresses(&self, profile: &Profile, functions: &[FunctionIndex]) -> AddressHits {
        let mut addresses = AddressHits::new();
        for (index, count) in profile.counts().into_iter().enumerate() {
            let mut seen = Vec::new();
            let frames = profile.stacks[index].frames.iter().zip(&self.stacks[index]);
            let physical = frames.filter(|(frame, _)| !frame.inlined);
            for (at, (frame, function)) in physical.enumerate() {
                let place = &frame.place;
                let (Some(module), Some(svma)) = (&place.module, place.svma) else {
                    continue;
                };
                if count == 0 || !functions.contains(function) {
                    continue;
                }
                let svma = if at == 0 {
                    svma
                } else {
                    svma.saturating_sub(1)
                };
                let hits = addresses.entry(module.clone()).or_default();
                let hits = hits.entry(svma).or_default();
                hits.flat += if at == 0 { count } else { 0 };
                if !seen.contains(&(module, svma)) {
                    hits.cum += count;
                    seen.push((module, svma));
                }
            }
        }
        addresses
    }
}
