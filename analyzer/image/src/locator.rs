//! Finds the function names and source lines of an address, including inlined frames.
//!
//! Separate from the symbols because it reads DWARF, lazily, and keeps the parsed parts: one
//! locator per image serves thousands of lookups.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, OnceLock};

use gimli::RunTimeEndian;

use crate::Image;
use crate::demangle::function_name;

mod dwarf;
mod scopes;
mod variables;

pub(crate) use dwarf::unit_headers;

use dwarf::Reader;
use scopes::Scopes;
use variables::Variables;

/// Looks up addresses in one image.
pub struct Locator {
    image: Image,
    loaded: OnceLock<Loaded>,
}

/// The data that the first lookup loads.
struct Loaded {
    dwarf: Option<Mutex<Dwarf>>,
    notes: Vec<String>,
}

struct Dwarf {
    context: addr2line::Context<Reader>,
    scopes: Scopes,
    variables: Variables,
    known: HashMap<u64, Vec<SourceFrame>>,
}

/// The function and the source lines of an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// The outermost function (not inlined), named by DWARF, else by the symbol table.
    pub function: Option<Function>,
    /// Source frames, innermost first; the last one belongs to the function itself. Empty without
    /// DWARF.
    pub lines: Vec<SourceFrame>,
}

/// A function that contains an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The readable name: qualified, without parameters; with DWARF, as in gdb's `bt`.
    pub name: String,
    /// The (mangled) name in the symbol table; the same as `name` if there is no symbol.
    pub raw: String,
    /// First address. The requested address if no symbol covers it.
    pub start: u64,
}

/// A source line in a function, or in a function inlined into it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceFrame {
    /// Qualified name without parameters, as in gdb's `bt`.
    pub function: Option<String>,
    /// The path in DWARF, made absolute by the compilation directory.
    pub file: Option<String>,
    /// Line, from 1.
    pub line: Option<u32>,
    /// Column, from 1.
    pub column: Option<u32>,
    /// Whether this function was inlined into the next frame's function.
    pub inlined: bool,
}

/// Maximum number of cached lookups. At this limit the cache is cleared.
const KNOWN_LIMIT: usize = 1 << 16;

/// Maximum depth of DIEs. Compilers nest fewer, and any thread's stack has room for this many.
const DEPTH_LIMIT: usize = 1000;

impl Locator {
    /// A locator for an image and its debug file. Parses nothing before the first lookup.
    pub fn new(image: &Image) -> Locator {
        Locator {
            image: image.clone(),
            loaded: OnceLock::new(),
        }
    }

    /// The location of an address; never fails. For a return address, pass the address before it,
    /// inside the call.
    pub fn locate(&self, svma: u64) -> Location {
        let mut lines = self.lines(svma);
        let symbol = self.image.symbols().containing(svma);
        // gcc's debug information for the code of a C++ lambda names neither the function around it
        // nor the lambda's number.
        if let Some(outer) = lines.last_mut()
            && outer.function.as_deref() == Some("operator()")
            && let Some(symbol) = symbol
        {
            outer.function = Some(function_name(symbol.name));
        }
        let named = lines.last().and_then(|frame| frame.function.clone());
        let function = match (named, symbol) {
            (Some(name), Some(symbol)) => Some(Function {
                name,
                raw: symbol.name.to_owned(),
                start: symbol.svma,
            }),
            (Some(name), None) => Some(Function {
                raw: name.clone(),
                name,
                start: svma,
            }),
            (None, Some(symbol)) => Some(Function {
                name: function_name(symbol.name),
                raw: symbol.name.to_owned(),
                start: symbol.svma,
            }),
            (None, None) => None,
        };
        Location { function, lines }
    }

    /// The part of the variable at `start` that lies `offset` bytes after its start, as it is
    /// written in the source after the variable's name: `[13]`, `[1].m`. Empty for the variable
    /// itself. `None` if no type is known.
    pub fn part(&self, start: u64, offset: u64) -> Option<String> {
        let dwarf = self.loaded().dwarf.as_ref()?;
        let dwarf = dwarf.lock();
        let mut dwarf = dwarf.unwrap_or_else(|poisoned| poisoned.into_inner());
        dwarf.variables.part(start, offset)
    }

    /// Whether there is readable debug information, which may not cover all code.
    pub fn has_debug_information(&self) -> bool {
        self.loaded().dwarf.is_some()
    }

    /// The parts that could not be read.
    pub fn notes(&self) -> &[String] {
        &self.loaded().notes
    }

    fn loaded(&self) -> &Loaded {
        self.loaded.get_or_init(|| Loaded::load(&self.image))
    }

    fn lines(&self, svma: u64) -> Vec<SourceFrame> {
        let Some(dwarf) = &self.loaded().dwarf else {
            return Vec::new();
        };
        // A lookup that panicked leaves only caches behind.
        let mut dwarf = dwarf
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        let Dwarf {
            context,
            scopes,
            known,
            ..
        } = &mut *dwarf;
        if let Some(frames) = known.get(&svma) {
            return frames.clone();
        }
        let frames = frames(context, scopes, svma);
        if known.len() >= KNOWN_LIMIT {
            known.clear();
        }
        known.insert(svma, frames.clone());
        frames
    }
}

impl Loaded {
    fn load(image: &Image) -> Loaded {
        let mut notes = Vec::new();
        let dwarf = match dwarf::load(image) {
            Ok(dwarf) => dwarf,
            Err(error) => {
                notes.push(format!("the debug information cannot be read: {error}"));
                None
            }
        };
        if dwarf.is_some() && has_missing_supplement(image) {
            notes.push(
                "the debug information refers to a supplementary file (.gnu_debugaltlink) that was \
                 not found: some names are missing"
                    .to_owned(),
            );
        }
        Loaded {
            dwarf: dwarf.map(Mutex::new),
            notes,
        }
    }
}

fn frames(
    context: &addr2line::Context<Reader>,
    scopes: &mut Scopes,
    svma: u64,
) -> Vec<SourceFrame> {
    let mut lines: Vec<SourceFrame> = Vec::new();
    // addr2line recurses into nested DIEs.
    if scopes.deepest_at(svma) > DEPTH_LIMIT {
        return lines;
    }
    // Split DWARF (.dwo) is not loaded; the skeleton still has lines. addr2line searches the range
    // up to the next address.
    if svma == u64::MAX {
        return Vec::new();
    }
    let Ok(mut frames) = context.find_frames(svma).skip_all_loads() else {
        return lines;
    };
    let unit = context
        .find_dwarf_and_unit(svma)
        .skip_all_loads()
        .and_then(|unit| unit.header.debug_info_offset());
    while let Ok(Some(frame)) = frames.next() {
        let die = unit
            .zip(frame.dw_die_offset)
            .map(|(unit, die)| unit.0 + die.0);
        let function = die.and_then(|die| scopes.qualified_name(die)).or_else(|| {
            let name = frame.function.as_ref()?.raw_name().ok()?;
            Some(function_name(&name))
        });
        let place = frame.location;
        lines.push(SourceFrame {
            function,
            file: place
                .as_ref()
                .and_then(|place| place.file)
                .map(str::to_owned),
            line: place
                .as_ref()
                .and_then(|place| place.line)
                .filter(|&line| line != 0),
            column: place
                .as_ref()
                .and_then(|place| place.column)
                .filter(|&column| column != 0),
            inlined: true,
        });
    }
    if let Some(outermost) = lines.last_mut() {
        outermost.inlined = false;
    }
    // A unit's range without function or line is of no use.
    lines.retain(|frame| frame.function.is_some() || frame.file.is_some());
    lines
}

fn has_missing_supplement(image: &Image) -> bool {
    image.supplementary_image().is_none() && image.has_section(".gnu_debugaltlink")
}

fn endianness(image: &Image) -> RunTimeEndian {
    if image.is_big_endian() {
        RunTimeEndian::Big
    } else {
        RunTimeEndian::Little
    }
}

impl fmt::Debug for Locator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locator")
            .field("image", &self.image.name())
            .field("loaded", &self.loaded.get().is_some())
            .finish_non_exhaustive()
    }
}
