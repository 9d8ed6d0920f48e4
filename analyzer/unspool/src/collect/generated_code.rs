//! Finds executable memory without a file: that of JIT compilers, and of callbacks made at run
//! time.
//!
//! A recording looks for it only when a stack leads there, because it grows while the program runs.
//! The recorder's own walks take any address outside all files for such code, so that snapshots
//! keep the bytes that later walks need. Those have the exact ranges.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::{Duration, Instant};

use unspool_capture::GeneratedCode;
use unspool_unwind::{ModuleMap, Stack};

use super::modules::{Mapped, Modules};
use super::recorder::Recorder;
use super::session::Session;
use super::sink::Sink;
use crate::maps;
use crate::platform::abi::Abi;

/// The addresses that the recorder's walks take for code if no file is there.
const ANY: Range<u64> = 1 << 16..u64::MAX;
/// Maximum number of addresses to find.
const MAX_PENDING: usize = 256;
/// Interval between two searches of which the first found nothing. It doubles each time.
const FIRST_INTERVAL: Duration = Duration::from_millis(10);
/// Maximum interval.
const MAX_INTERVAL: Duration = Duration::from_secs(5);

/// A map for the recorder's walks, without modules.
pub(super) fn empty_map(abi: &Abi) -> ModuleMap {
    let mut map = ModuleMap::new(abi.arch);
    map.add_generated_code(ANY);
    map
}

/// Addresses on stacks that no file contains.
#[derive(Debug, Default)]
pub(super) struct UnknownCode(BTreeSet<u64>);

impl UnknownCode {
    /// Notes the addresses of a stack.
    pub(super) fn note(&mut self, modules: &Modules, stack: &Stack) {
        for frame in &stack.frames {
            let pc = frame.address_for_lookup;
            let is_unknown = frame.module.is_none() && modules.at(pc).is_none();
            if is_unknown && self.0.len() < MAX_PENDING {
                self.0.insert(pc);
            }
        }
    }
}

/// The ranges that were found.
#[derive(Debug, Default)]
pub(super) struct GeneratedCodeSearch {
    known: BTreeSet<(u64, u64)>,
    next: Option<Instant>,
    interval: Duration,
}

impl GeneratedCodeSearch {
    /// Records the ranges that contain `unknown`, and all others found with them.
    pub(super) fn find(
        &mut self,
        session: &mut Session,
        sink: &mut Sink,
        modules: &[Mapped],
        unknown: &mut UnknownCode,
    ) {
        unknown.0.retain(|pc| !self.contains(*pc));
        let now = Instant::now();
        if unknown.0.is_empty() || self.next.is_some_and(|next| now < next) {
            return;
        }
        unknown.0.clear();
        let maps = session.maps().unwrap_or_default();
        let mut record = GeneratedCode {
            time_ns: sink.now_ns(),
            ..GeneratedCode::default()
        };
        let is_module = |name: &str| modules.iter().any(|mapped| mapped.path == name);
        for range in maps::generated_code(&maps, is_module) {
            let is_in = |mapped: &Mapped| mapped.contains(range.start);
            if !modules.iter().any(is_in) && self.known.insert((range.start, range.end)) {
                record.starts.push(range.start);
                record.ends.push(range.end);
            }
        }
        if record.starts.is_empty() {
            self.interval = (self.interval * 2).clamp(FIRST_INTERVAL, MAX_INTERVAL);
            self.next = Some(now + self.interval);
        } else {
            (self.interval, self.next) = (Duration::ZERO, None);
            sink.record(record);
        }
    }

    fn contains(&self, pc: u64) -> bool {
        let before = self.known.range(..=(pc, u64::MAX));
        before.rev().take(4).any(|(_, end)| pc < *end)
    }
}

impl Recorder {
    /// Records the memory without a file that stacks have led to.
    pub(super) fn find_generated_code(&mut self) {
        let (session, sink) = (&mut self.session, &mut self.sink);
        let unknown = &mut self.hits.walker.unknown_code;
        let modules = &mut self.program.modules;
        modules.find_generated_code(session, sink, unknown);
    }
}
