//! The distinct rules of an image's code, numbered while functions are followed.
//!
//! The rows are built at the end, when it is known which function's rows win.

use unspool_image::Arch;

use super::flow::{Show, Shown};
use super::state::{RuleKey, State};
use crate::rows::{Builder, Draft, Rows};
use crate::rule::{Place, Source};

/// Marks instructions without a rule.
pub(super) const NO_RULE: u32 = u32::MAX;

pub(super) struct Rules {
    builder: Builder,
    saved: Vec<(u8, Place)>,
    /// By hash: recent rule keys and their rule numbers.
    recent: Vec<(RuleKey, u32)>,
    key: RuleKey,
}

/// Size of that cache.
const RECENT: usize = 256;

impl Rules {
    pub(super) fn new(arch: Arch) -> Rules {
        Rules {
            builder: Builder::new(Source::Code, arch),
            saved: Vec::new(),
            recent: vec![(RuleKey::NONE, NO_RULE); RECENT],
            key: RuleKey::NONE,
        }
    }

    fn number(&mut self, state: &State) -> u32 {
        if state.write_rule_key(&mut self.key).is_none() {
            return self.make(state);
        }
        let place = (self.key.hash() >> 32) as usize % RECENT;
        if self.recent[place].0 != self.key {
            let number = self.make(state);
            let recent = &mut self.recent[place];
            recent.0.copy_from(&self.key);
            recent.1 = number;
        }
        self.recent[place].1
    }

    fn make(&mut self, state: &State) -> u32 {
        let Rules { builder, saved, .. } = self;
        let rule = state.rule(saved, &mut |bytes| builder.expression(bytes));
        let Some((cfa, ra)) = rule else {
            return NO_RULE;
        };
        builder.rule(&Draft {
            cfa,
            ra,
            saved,
            signal_frame: false,
            signed: state.is_signed(),
        })
    }

    /// The number in this set of a rule from another set.
    pub(super) fn adopt(&mut self, other: &Rules, number: u32) -> u32 {
        self.builder.adopt(&other.builder, number)
    }

    /// The address ranges and rule numbers in a function's output.
    pub(super) fn runs(shown: &[Shown]) -> impl Iterator<Item = (u64, u64, u32)> {
        shown.iter().filter_map(|shown| match shown {
            Shown::Run(start, end, rule) if *rule != NO_RULE => Some((*start, *end, *rule)),
            _ => None,
        })
    }

    /// The rows of these runs. Where runs overlap, the first wins.
    pub(super) fn rows(mut self, runs: &[(u64, u64, u32)]) -> Rows {
        for &(start, end, number) in runs {
            self.builder.push_rule(start, end, number);
        }
        self.builder.finish()
    }
}

impl Show for Rules {
    fn rules(&mut self) -> Option<&mut Rules> {
        Some(self)
    }

    fn merges(&self) -> bool {
        true
    }

    fn show(
        &mut self,
        svma: u64,
        len: u8,
        state: &mut State,
        last: Option<&mut Shown>,
    ) -> Option<Shown> {
        let next = svma + u64::from(len);
        state.dirty = false;
        let number = self.number(state);
        match last {
            Some(Shown::Run(_, end, before)) if *end == svma && *before == number => {
                *end = next;
                None
            }
            _ => Some(Shown::Run(svma, next, number)),
        }
    }
}
