//! The register table of one architecture, and the data derived from it: numbers, offsets in the
//! `g` packet, and target.xml.

use std::fmt::Write;
use std::ops::Range;
use std::sync::OnceLock;

use super::machine;

/// A register set of the kernel (`PTRACE_GETREGSET`).
pub(crate) struct Set {
    /// The ELF note type that names it.
    pub(crate) note: u32,
    /// Size of its largest form, in bytes.
    pub(crate) capacity: usize,
}

/// The location of a register's value in the kernel's register set.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// Index into the architecture's `SETS`.
    pub(crate) set: usize,
    /// Offset in bytes.
    pub(crate) offset: usize,
    /// Size in bytes; the register's other bytes read as zero.
    pub(crate) size: usize,
    /// Whether the value is the x87 tag word in the kernel's abridged form, with one bit for each
    /// register instead of two.
    pub(crate) abridged_tag: bool,
}

/// One row of the architecture's table: a register, or a series of numbered registers.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    name: &'static str,
    suffix: &'static str,
    first: usize,
    count: usize,
    bits: usize,
    kind: &'static str,
    group: Option<&'static str>,
    number: Option<usize>,
    place: Place,
    stride: usize,
}

/// A feature of target.xml, by which clients find registers.
pub(crate) struct Feature {
    pub(crate) name: &'static str,
    /// Type definitions, as XML.
    pub(crate) types: &'static str,
    pub(crate) rows: &'static [Row],
    /// A flag of `/proc/cpuinfo` without which the registers do not exist.
    pub(crate) needs: Option<&'static str>,
}

/// The pairs (0, 0) to (COUNT - 1, COUNT - 1), for registers whose bit in the mask is their number.
pub(crate) const fn numbers<const COUNT: usize>() -> [(u32, usize); COUNT] {
    let mut all = [(0, 0); COUNT];
    let mut number = 0;
    while number < COUNT {
        all[number] = (number as u32, number);
        number += 1;
    }
    all
}

/// One register of `bits` bits at `offset` of set `set`.
pub(crate) const fn one(
    name: &'static str,
    bits: usize,
    kind: &'static str,
    set: usize,
    offset: usize,
) -> Row {
    Row {
        name,
        suffix: "",
        first: 0,
        count: 1,
        bits,
        kind,
        group: None,
        number: None,
        place: Place {
            set,
            offset,
            size: bits / 8,
            abridged_tag: false,
        },
        stride: bits / 8,
    }
}

#[allow(dead_code, reason = "each architecture uses those it needs")]
impl Row {
    /// Makes the row a series: `name` followed by the numbers from `first`.
    pub(crate) const fn run(mut self, first: usize, count: usize) -> Row {
        self.first = first;
        self.count = count;
        self
    }

    /// Text that follows the number in the names of a series.
    pub(crate) const fn suffix(mut self, suffix: &'static str) -> Row {
        self.suffix = suffix;
        self
    }

    /// Distance between the registers of a series, in bytes.
    pub(crate) const fn stride(mut self, stride: usize) -> Row {
        self.stride = stride;
        self
    }

    /// Size in the kernel's set, in bytes, if it is smaller than the register.
    pub(crate) const fn stored(mut self, size: usize) -> Row {
        self.place.size = size;
        self
    }

    /// The group in which clients print the register.
    pub(crate) const fn group(mut self, group: &'static str) -> Row {
        self.group = Some(group);
        self
    }

    /// The register's number, if it is not its predecessor's plus one.
    pub(crate) const fn number(mut self, number: usize) -> Row {
        self.number = Some(number);
        self
    }

    /// Marks the x87 tag word.
    pub(crate) const fn tag(mut self) -> Row {
        self.place.abridged_tag = true;
        self
    }
}

/// One register of the machine.
pub(crate) struct Register {
    /// Its number in `p`, `P` and stop replies.
    pub(crate) number: usize,
    /// Offset in the `g` packet, in bytes.
    pub(crate) offset: usize,
    /// Its size in bytes.
    pub(crate) size: usize,
    /// Location in the kernel's register set.
    pub(crate) place: Place,
}

/// Neighbouring registers of one set.
pub(crate) struct Run {
    set: usize,
    /// Their indexes in [`Layout::registers`].
    pub(crate) registers: Range<usize>,
    /// Their bytes in the `g` packet.
    pub(crate) bytes: Range<usize>,
}

/// All registers of the machine.
pub(crate) struct Layout {
    /// Registers in the order of their numbers.
    pub(crate) registers: Vec<Register>,
    runs: Vec<Run>,
    /// Size of a `g` packet, in bytes.
    pub(crate) size: usize,
    /// The document target.xml.
    pub(crate) description: String,
}

impl Layout {
    /// The register with this number.
    #[inline]
    pub(crate) fn register(&self, number: usize) -> Option<&Register> {
        // The numbers of the first registers are their indexes.
        let same = self.registers.get(number);
        if let Some(register) = same.filter(|register| register.number == number) {
            return Some(register);
        }
        let index = self
            .registers
            .binary_search_by_key(&number, |register| register.number);
        index.ok().map(|index| &self.registers[index])
    }

    /// The runs of registers of these sets, one bit each.
    pub(crate) fn runs(&self, sets: u8) -> impl Iterator<Item = &Run> {
        let runs = self.runs.iter();
        runs.filter(move |run| sets >> run.set & 1 != 0)
    }
}

/// The layout of this machine, computed once.
#[inline]
pub(crate) fn layout() -> &'static Layout {
    static LAYOUT: OnceLock<Layout> = OnceLock::new();
    LAYOUT.get_or_init(|| {
        let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let flags: Vec<&str> = cpu
            .lines()
            .find(|line| line.starts_with("flags") || line.starts_with("Features"))
            .map(|line| line.split_whitespace().collect())
            .unwrap_or_default();
        build(machine::FEATURES, |flag| flags.contains(&flag))
    })
}

fn build(features: &[Feature], has: impl Fn(&str) -> bool) -> Layout {
    let mut layout = Layout {
        registers: Vec::new(),
        runs: Vec::new(),
        size: 0,
        description: format!(
            "<?xml version=\"1.0\"?>\n<!DOCTYPE target SYSTEM \"gdb-target.dtd\">\n<target>\n\
             <architecture>{}</architecture>\n<osabi>GNU/Linux</osabi>\n",
            machine::NAME
        ),
    };
    let mut next = 0;
    for feature in features {
        if feature.needs.is_some_and(|flag| !has(flag)) {
            continue;
        }
        let xml = &mut layout.description;
        let _ = writeln!(
            xml,
            "<feature name=\"{}\">\n{}",
            feature.name, feature.types
        );
        for row in feature.rows {
            for index in 0..row.count {
                let number = row.number.filter(|_| index == 0).unwrap_or(next);
                next = number + 1;
                let _ = write!(xml, "<reg name=\"{}", row.name);
                if row.count > 1 {
                    let _ = write!(xml, "{}", row.first + index);
                }
                let _ = write!(
                    xml,
                    "{}\" bitsize=\"{}\" type=\"{}\" regnum=\"{number}\"",
                    row.suffix, row.bits, row.kind
                );
                if let Some(group) = row.group {
                    let _ = write!(xml, " group=\"{group}\"");
                }
                xml.push_str("/>\n");
                let mut place = row.place;
                place.offset += row.stride * index;
                layout.registers.push(Register {
                    number,
                    offset: layout.size,
                    size: row.bits / 8,
                    place,
                });
                layout.size += row.bits / 8;
            }
        }
        xml.push_str("</feature>\n");
    }
    layout.description.push_str("</target>\n");
    layout.runs = runs(&layout.registers);
    layout
}

/// The runs of these registers, in the same order.
fn runs(registers: &[Register]) -> Vec<Run> {
    let mut next = 0;
    let same = registers.chunk_by(|one, other| one.place.set == other.place.set);
    same.map(|run| {
        let (first, last) = (&run[0], &run[run.len() - 1]);
        let from = next;
        next += run.len();
        Run {
            set: first.place.set,
            registers: from..next,
            bytes: first.offset..last.offset + last.size,
        }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_rise_and_offsets_are_dense() {
        let layout = build(machine::FEATURES, |_| true);
        let mut end = 0;
        for (index, register) in layout.registers.iter().enumerate() {
            assert_eq!(register.offset, end);
            end += register.size;
            assert!(index == 0 || layout.registers[index - 1].number < register.number);
        }
        assert_eq!(end, layout.size);
    }

    #[test]
    fn runs_have_all_registers_of_their_sets() {
        let layout = build(machine::FEATURES, |_| true);
        for set in 0..machine::SETS.len() {
            let runs: Vec<&Run> = layout.runs(1 << set).collect();
            let indexes = runs.iter().flat_map(|run| run.registers.clone());
            let of_set = (0..).zip(&layout.registers);
            let of_set = of_set.filter(|(_, register)| register.place.set == set);
            assert!(indexes.eq(of_set.map(|(index, _)| index)));
            for run in runs {
                let [first, .., last] = &layout.registers[run.registers.clone()] else {
                    continue;
                };
                assert_eq!(run.bytes, first.offset..last.offset + last.size);
            }
        }
        assert_eq!(layout.runs(0).count(), 0);
    }

    #[test]
    fn optional_features_need_their_flag() {
        let all = build(machine::FEATURES, |_| true);
        let plain = build(machine::FEATURES, |_| false);
        assert!(plain.size <= all.size);
        assert!(plain.register(machine::PC).is_some());
    }

    #[test]
    fn unmoved_ignores_only_the_kernels_words() {
        let word = size_of::<super::super::Word>();
        let rows = machine::FEATURES.iter().flat_map(|feature| feature.rows);
        let rows = rows.filter(|row| row.place.set == 0);
        // All registers that a client sees belong to the program, except these.
        let is_kernels = |row: &&Row| matches!(row.name, "eflags" | "cpsr" | "orig_rax");
        let words = |row: &Row| {
            let (offset, stride) = (row.place.offset, row.stride);
            (0..row.count).map(move |index| (offset + index * stride) / word)
        };
        let programs: Vec<usize> = rows
            .filter(|row| !is_kernels(row))
            .flat_map(words)
            .collect();
        assert!(programs.len() >= 16);
        let before = vec![0; machine::SETS[0].capacity];
        for index in 0..before.len() {
            let mut now = before.clone();
            now[index] = 0x10;
            let unmoved = super::super::unmoved(&now, &before);
            assert_eq!(unmoved, !programs.contains(&(index / word)), "byte {index}");
        }
    }
}
