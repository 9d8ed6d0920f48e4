//! Looks up addresses exactly as GNU binutils does: same functions, same lines, same order.
//!
//! Separate from [`crate::Locator`], which names functions as gdb does and prefers what is right
//! over what binutils prints. Scripts that parse `addr2line` rely on its answers, so this module
//! follows them even where they are odd: an address takes the symbol before it although that symbol
//! has ended, and a second lookup in one function can give another name than the first.
//!
//! Ground truth: `addr2line` of binutils 2.40, compared in `tests/tests/addr2line.rs`.

use std::ops::Range;
use std::sync::Arc;

use gimli::{EndianSlice, RunTimeEndian, SectionId};

use crate::image::SharedBytes;
use crate::{Arch, Image};

mod functions;
mod lines;
mod names;
mod symbols;
mod unit;
mod units;
mod variables;

use symbols::SymbolTable;
use units::Units;

pub(crate) type Reader<'a> = EndianSlice<'a, RunTimeEndian>;

/// Formats that binutils knows for the supported architectures. It finds ELF files under all of
/// these names, except for `binary` and `ihex`, which are missing here.
const TARGETS: &str = "default elf64-x86-64 elf32-x86-64 elf32-i386 elf32-iamcu \
    elf64-littleaarch64 elf64-bigaarch64 elf32-littleaarch64 elf32-bigaarch64 elf32-littlearm \
    elf32-bigarm elf32-littlearm-fdpic elf32-bigarm-fdpic elf64-little elf64-big elf32-little \
    elf32-big pe-x86-64 pei-x86-64 pe-bigobj-x86-64 pe-i386 pei-i386 pe-aarch64-little \
    pei-aarch64-little pdb srec symbolsrec verilog tekhex plugin";

/// Whether binutils knows a format or, by its GNU triplet, a system of a supported architecture.
pub fn is_binutils_target(name: &str) -> bool {
    let machine = name.split('-').next();
    let machine = machine.filter(|_| name.contains("-linux-gnu"));
    machine.is_some_and(|machine| ["x86_64", "i686", "aarch64"].contains(&machine))
        || TARGETS.split(' ').any(|target| target == name)
}

/// A file as binutils reads it: the file itself, or its debug file if only that has DWARF.
pub struct BinutilsFile {
    image: Image,
    /// The file that DWARF comes from, if it is not `image`.
    separate: Option<Image>,
    dwarf: Option<gimli::DwarfSections<SharedBytes>>,
    supplementary: Option<gimli::DwarfSections<SharedBytes>>,
    symbols: symbols::Tables,
    separate_symbols: symbols::Tables,
    /// The file in `.gnu_debugdata`, if it is the only source of local symbols. binutils does not
    /// read it.
    mini: Option<(Image, symbols::Tables)>,
    standard: bool,
}

/// Looks up addresses in one [`BinutilsFile`]. The answers can depend on earlier lookups, as those
/// of binutils do.
pub struct BinutilsLocator<'a> {
    file: &'a BinutilsFile,
    sections: Vec<Section>,
    units: Option<Units<'a>>,
    symbols: SymbolTable<'a>,
    separate_symbols: SymbolTable<'a>,
    nearest: Option<symbols::Nearest>,
}

/// A section in memory.
struct Section {
    name: String,
    range: Range<u64>,
    is_code: bool,
    /// Index in the section header table of the file.
    index: u16,
    /// Index of the section with this name in the separate debug file.
    separate_index: Option<u16>,
}

/// One line of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BinutilsFrame<'a> {
    /// The name in DWARF (linkage name first) or in the symbol table, still mangled.
    pub function: Option<&'a [u8]>,
    /// The source file.
    pub file: Option<Arc<[u8]>>,
    /// The line; 0 if unknown.
    pub line: u64,
    /// The discriminator; 0 if there is none.
    pub discriminator: u64,
}

impl BinutilsFile {
    /// Reads the sections that lookups need. `image` has its debug file attached, if one exists.
    pub fn new(image: &Image) -> BinutilsFile {
        let separate = match image.own_shared_section(".debug_info") {
            Some(_) => None,
            None => image
                .debug_image()
                .filter(|debug| debug.own_shared_section(".debug_info").is_some()),
        };
        let with_dwarf = separate.unwrap_or(image);
        let has_dwarf = with_dwarf.own_shared_section(".debug_info").is_some();
        let supplementary = image.supplementary_image();
        let stripped = separate.is_none() && image.own_shared_section(".symtab").is_none();
        let mini = image.mini_debug_image().filter(|_| stripped);
        BinutilsFile {
            dwarf: has_dwarf.then(|| sections(with_dwarf)),
            supplementary: supplementary.filter(|_| has_dwarf).map(sections),
            symbols: symbols::Tables::read(image),
            separate_symbols: separate.map(symbols::Tables::read).unwrap_or_default(),
            separate: separate.cloned(),
            mini: mini.map(|mini| (mini.clone(), symbols::Tables::read(mini))),
            standard: false,
            image: image.clone(),
        }
    }

    /// Follows DWARF 5 where binutils 2.40 does not. It ignores ranges of functions in the form
    /// `DW_FORM_rnglistx`, which clang writes, and thus misses most functions that clang inlined.
    /// And it takes a unit's first function to be in its main file, although gcc leaves out the
    /// name of an included file there.
    pub fn with_standard(mut self) -> BinutilsFile {
        self.standard = true;
        self
    }

    /// Whether it has debug information.
    pub fn has_debug_information(&self) -> bool {
        self.dwarf.is_some()
    }

    /// A locator. Parses each unit when an address in it is looked up first.
    pub fn locator(&self) -> BinutilsLocator<'_> {
        let endian = if self.image.is_big_endian() {
            RunTimeEndian::Big
        } else {
            RunTimeEndian::Little
        };
        let units = self.dwarf.as_ref().map(|dwarf| {
            let mut main = borrow(dwarf, endian);
            if let Some(supplementary) = &self.supplementary {
                main.set_sup(borrow(supplementary, endian));
            }
            Units::new(main, self.standard)
        });
        let headers = &self.image.layout().sections;
        let separate = self.separate.as_ref().map(|image| &image.layout().sections);
        let sections = headers.iter().enumerate().skip(1);
        let sections = sections
            .filter(|(_, header)| header.flags & crate::image::layout::SHF_ALLOC != 0)
            .map(|(index, header)| Section {
                name: header.name.clone(),
                range: header.svma..header.svma.saturating_add(header.size),
                is_code: header.flags & crate::image::layout::SHF_EXECINSTR != 0,
                index: u16::try_from(index).unwrap_or(0),
                separate_index: separate.and_then(|headers| {
                    let same = headers.iter().position(|other| other.name == header.name)?;
                    u16::try_from(same).ok()
                }),
            })
            .collect();
        let arch = self.image.arch();
        let same = |number: u16| Some(number);
        let mini = self.mini.as_ref();
        let named = |number: u16| {
            let name = &mini?.0.layout().sections.get(usize::from(number))?.name;
            let same = headers.iter().position(|other| other.name == *name)?;
            u16::try_from(same).ok()
        };
        let mut symbols: Vec<symbols::Part<'_, '_>> = vec![(&self.symbols, headers, &same)];
        if let Some((image, tables)) = mini {
            symbols.push((tables, &image.layout().sections, &named));
        }
        BinutilsLocator {
            file: self,
            sections,
            units,
            symbols: SymbolTable::new(&symbols, arch),
            separate_symbols: match separate {
                Some(headers) => {
                    SymbolTable::new(&[(&self.separate_symbols, headers, &same)], arch)
                }
                None => SymbolTable::default(),
            },
            nearest: None,
        }
    }
}

fn borrow(
    sections: &gimli::DwarfSections<SharedBytes>,
    endian: RunTimeEndian,
) -> gimli::Dwarf<Reader<'_>> {
    sections.borrow(|section| EndianSlice::new(section.bytes(), endian))
}

fn sections(image: &Image) -> gimli::DwarfSections<SharedBytes> {
    let load = |id: SectionId| -> Result<SharedBytes, std::convert::Infallible> {
        // Only local variables and other lookup tables need these.
        if let SectionId::DebugLoc | SectionId::DebugLocLists | SectionId::DebugAranges = id {
            return Ok(SharedBytes::default());
        }
        Ok(image.own_shared_section(id.name()).unwrap_or_default())
    };
    match gimli::DwarfSections::load(load) {
        Ok(sections) => sections,
        Err(never) => match never {},
    }
}

impl<'a> BinutilsLocator<'a> {
    /// The address of a section's byte, if the section is in memory and has such a byte.
    pub fn address_in_section(&self, name: &str, offset: u64) -> Option<u64> {
        let section = self.sections.iter().find(|section| section.name == name)?;
        let size = section.range.end - section.range.start;
        (offset < size).then(|| section.range.start.wrapping_add(offset))
    }

    /// The addresses that a number can mean: in a relocatable file, it is an offset in any section.
    pub fn addresses(&self, number: u64) -> Vec<u64> {
        if !self.file.image.is_relocatable() {
            return vec![number];
        }
        let ranges = self.sections.iter().map(|section| &section.range);
        let containing = ranges.filter(|range| number < range.end - range.start);
        containing.map(|range| range.start + number).collect()
    }

    /// Whether the file has a section of this name.
    pub fn has_section(&self, name: &str) -> bool {
        let headers = &self.file.image.layout().sections;
        headers.iter().any(|header| header.name == name)
    }

    /// The frames at an address, innermost first, in `frames`. With `inlined` false, only the first
    /// one. Returns false if nothing is known.
    pub fn find(
        &mut self,
        svma: u64,
        section: Option<&str>,
        inlined: bool,
        frames: &mut Vec<BinutilsFrame<'a>>,
    ) -> bool {
        frames.clear();
        for index in 0..self.sections.len() {
            let here = &self.sections[index];
            let wanted = section.is_none_or(|name| here.name == name);
            if wanted && here.range.contains(&svma) && self.in_section(index, svma, frames) {
                if inlined {
                    self.callers(frames);
                }
                return true;
            }
        }
        false
    }

    fn in_section(&mut self, index: usize, svma: u64, frames: &mut Vec<BinutilsFrame<'a>>) -> bool {
        let section = &self.sections[index];
        let offset = svma - section.range.start;
        let mut frame = BinutilsFrame::default();
        let mut function = None;
        let mut found = false;
        if let Some(units) = &mut self.units {
            let variable = (!section.is_code)
                .then(|| self.symbols.exactly_at(section.index, svma))
                .flatten();
            if let Some(name) = variable {
                if let Some((file, line)) = units.variable(name, svma) {
                    (frame.file, frame.line, found) = (Some(file), line, true);
                }
            } else if let Some(hit) = units.find(svma) {
                found = true;
                function = hit.function;
                if let Some(row) = hit.row {
                    (frame.file, frame.line, frame.discriminator) =
                        (row.file, row.line, row.discriminator);
                }
            }
            match function.filter(|&id| units.is_linkage(id)) {
                Some(id) => {
                    frame.function = units.name(id);
                    found = true;
                }
                None => {
                    let (table, number) = match (&self.file.separate, section.separate_index) {
                        (Some(_), Some(index)) => (&self.separate_symbols, (true, index)),
                        (Some(_), None) => (&self.symbols, (true, u16::MAX)),
                        (None, _) => (&self.symbols, (false, section.index)),
                    };
                    let symbol = table.function(&mut self.nearest, number, offset);
                    if let Some(symbol) = &symbol {
                        frame.function = Some(symbol.name);
                        if frame.file.is_none() {
                            frame.file = symbol.file.map(Arc::from);
                        }
                        found = true;
                    }
                    if let (Some(id), Some(symbol)) = (function, symbol) {
                        let start = section.range.start.wrapping_add(symbol.offset);
                        units.use_symbol(id, start, symbol.name);
                    }
                }
            }
        }
        if !found {
            let number = (false, section.index);
            let Some(symbol) = self.symbols.function(&mut self.nearest, number, offset) else {
                return false;
            };
            frame = BinutilsFrame {
                function: Some(symbol.name),
                file: symbol.file.map(Arc::from),
                ..BinutilsFrame::default()
            };
        }
        frames.push(frame);
        if let Some(units) = &mut self.units {
            units.set_innermost(function);
        }
        true
    }

    /// Appends the functions that the found one is inlined into.
    fn callers(&mut self, frames: &mut Vec<BinutilsFrame<'a>>) {
        let Some(units) = &mut self.units else {
            return;
        };
        // binutils repeats the discriminator of the first line.
        let discriminator = frames.last().map_or(0, |frame| frame.discriminator);
        while let Some((file, line, caller)) = units.next_caller() {
            frames.push(BinutilsFrame {
                function: units.name(caller),
                file,
                line,
                discriminator,
            });
        }
    }
}

/// Whether a symbol of this name marks a change between code and data in ARM's object files.
fn is_mapping_symbol(arch: Arch, name: &[u8]) -> bool {
    let kinds: &[u8] = match arch {
        Arch::Arm => b"atdmfpb",
        Arch::Aarch64 => b"xd",
        _ => return false,
    };
    match name {
        [b'$', kind] | [b'$', kind, b'.', ..] => kinds.contains(kind),
        _ => false,
    }
}
