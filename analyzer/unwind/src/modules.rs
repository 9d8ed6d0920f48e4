//! The map of a process: which image is mapped at which address.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};

use unspool_image::Arch;

use crate::table::Table;

/// An image mapped at a base.
#[derive(Clone, Debug)]
pub struct Module {
    /// The caller's number for the module, returned in [`crate::Frame::module`].
    pub id: u32,
    /// The name for messages.
    pub name: String,
    /// `avma = svma + bias` (wrapping).
    pub bias: u64,
    /// The compiled unwind rules of its file.
    pub table: Arc<Table>,
}

/// The modules of one process, by address.
#[derive(Clone, Debug)]
pub struct ModuleMap {
    arch: Arch,
    modules: Vec<Module>,
    /// Mapped address range, index in `modules`; sorted, not overlapping.
    segments: Vec<(Range<u64>, usize)>,
    /// The same ranges, in the form that [`ModuleMap::find`] searches.
    places: Places,
    /// Executable address ranges; sorted.
    text: Vec<Range<u64>>,
    /// Executable memory without a file; sorted, not overlapping.
    generated: Vec<Range<u64>>,
    /// Files that cannot be read.
    unreadable: Vec<Range<u64>>,
    /// A number that maps with different content never share.
    generation: u64,
}

/// The number of the last change to any map.
static GENERATIONS: AtomicUsize = AtomicUsize::new(0);

fn next_generation() -> u64 {
    (GENERATIONS.fetch_add(1, Ordering::Relaxed) + 1) as u64
}

impl ModuleMap {
    /// An empty map.
    pub fn new(arch: Arch) -> Self {
        ModuleMap {
            arch,
            modules: Vec::new(),
            segments: Vec::new(),
            places: Places::default(),
            text: Vec::new(),
            generated: Vec::new(),
            unreadable: Vec::new(),
            generation: next_generation(),
        }
    }

    /// Adds `module`. Earlier modules lose the addresses it covers, because they were unmapped.
    pub fn add(&mut self, module: Module) {
        let mask = if self.arch == Arch::Arm {
            0xffff_ffff
        } else {
            u64::MAX
        };
        let place = |range: &Range<u64>| {
            let start = range.start.wrapping_add(module.bias) & mask;
            start..start.saturating_add(range.end.saturating_sub(range.start))
        };
        let layout = module.table.layout();
        let occupied = |ranges: &[Range<u64>]| -> Vec<Range<u64>> {
            let placed = ranges.iter().map(place);
            placed.filter(|range| !range.is_empty()).collect()
        };
        let mut whole = occupied(&layout.segments);
        whole.sort_by_key(|range| range.start);
        let text = occupied(&layout.text);
        let index = self.modules.len();
        self.generation = next_generation();
        self.modules.push(module);
        let overlaps = |a: &Range<u64>| whole.iter().any(|b| a.start < b.end && b.start < a.end);
        self.segments.retain(|(range, _)| !overlaps(range));
        self.text.retain(|range| !overlaps(range));
        self.segments
            .extend(whole.into_iter().map(|range| (range, index)));
        self.segments.sort_by_key(|(range, _)| range.start);
        self.places = Places::new(&self.segments, &self.modules);
        self.text.extend(text);
        self.text.sort_by_key(|range| range.start);
    }

    /// Removes the module with this id.
    pub fn remove(&mut self, id: u32) {
        let modules = core::mem::take(&mut self.modules);
        self.segments.clear();
        self.places = Places::default();
        self.text.clear();
        self.generation = next_generation();
        for module in modules {
            if module.id != id {
                self.add(module);
            }
        }
    }

    /// Adds executable memory without a file, such as that of a JIT compiler. Modules that lie in
    /// the range keep their addresses.
    pub fn add_generated_code(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        self.generation = next_generation();
        let mut whole = range;
        self.generated.retain(|other| {
            let touches = other.start <= whole.end && whole.start <= other.end;
            if touches {
                whole = whole.start.min(other.start)..whole.end.max(other.end);
            }
            !touches
        });
        let after = self
            .generated
            .partition_point(|other| other.start <= whole.start);
        self.generated.insert(after, whole);
    }

    /// Adds a mapped file that cannot be read. Its code is not generated code.
    pub fn add_unreadable(&mut self, range: Range<u64>) {
        self.generation = next_generation();
        self.unreadable.push(range);
    }

    /// The architecture of the process.
    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// All modules, in the order they were added.
    pub fn modules(&self) -> &[Module] {
        &self.modules
    }

    /// A number that changes with the map's content. Maps with the same number have the same
    /// content.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The module mapped at `avma`, and the address as its file states it.
    #[inline]
    pub fn find(&self, avma: u64) -> Option<(&Module, u64)> {
        let place = self.places.find(avma)?;
        let svma = avma.wrapping_sub(place.bias);
        let svma = if self.arch == Arch::Arm {
            svma & 0xffff_ffff
        } else {
            svma
        };
        Some((self.modules.get(place.module)?, svma))
    }

    /// Whether `avma` lies in code of a module.
    pub fn is_text(&self, avma: u64) -> bool {
        let after = self.text.partition_point(|range| range.start <= avma);
        after > 0 && self.text[after - 1].contains(&avma)
    }

    /// Whether `avma` lies in executable memory without a file.
    pub fn is_generated_code(&self, avma: u64) -> bool {
        let after = self.generated.partition_point(|range| range.start <= avma);
        after > 0
            && self.generated[after - 1].contains(&avma)
            && self.find(avma).is_none()
            && !self.is_unreadable(avma)
    }

    /// Whether `avma` lies in a file that cannot be read.
    pub fn is_unreadable(&self, avma: u64) -> bool {
        let mut ranges = self.unreadable.iter();
        ranges.any(|range| range.contains(&avma)) && self.find(avma).is_none()
    }

    /// Bytes of the module's file at `avma`.
    pub(crate) fn bytes(&self, avma: u64, len: usize) -> Option<&[u8]> {
        let (module, svma) = self.find(avma)?;
        module.table.bytes_at(svma, len)
    }
}

/// The search structure for modules. A gap between two segments of one module counts as part of
/// that module if no other module lies there. This leaves fewer ranges to search.
#[derive(Clone, Debug, Default)]
struct Places {
    /// The start address of each range, in order.
    starts: Vec<u64>,
    places: Vec<Place>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    end: u64,
    bias: u64,
    /// Index in the list of modules.
    module: usize,
}

impl Places {
    fn new(segments: &[(Range<u64>, usize)], modules: &[Module]) -> Places {
        let mut places = Places::default();
        for (range, module) in segments {
            match places.places.last_mut() {
                Some(last) if last.module == *module => last.end = last.end.max(range.end),
                _ => {
                    places.starts.push(range.start);
                    places.places.push(Place {
                        end: range.end,
                        bias: modules[*module].bias,
                        module: *module,
                    });
                }
            }
        }
        places
    }

    #[inline]
    fn find(&self, avma: u64) -> Option<&Place> {
        let after = self.starts.partition_point(|&start| start <= avma);
        let place = self.places.get(after.checked_sub(1)?)?;
        (avma < place.end).then_some(place)
    }
}
