//! From an address to function names and source lines, inlining expanded.
//!
//! Apart from the symbols because it reads DWARF, lazily, and keeps what it has parsed: one locator per
//! image serves thousands of lookups.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, OnceLock};

use gimli::RunTimeEndian;

use crate::Image;
use crate::demangle::function_name;

mod dwarf;
mod scopes;
mod variables;

use dwarf::Reader;
use scopes::Scopes;
use variables::Variables;

/// Looks up addresses of one image.
pub struct Locator {
    image: Image,
    loaded: OnceLock<Loaded>,
}

/// What the first lookup loads.
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

/// What is known of an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// The (outermost, not inlined) function: named by DWARF, else by the symbol table.
    pub function: Option<Function>,
    /// Source frames, innermost first; the last one is the function's own. Empty without DWARF.
    pub lines: Vec<SourceFrame>,
}

/// A function that contains an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// For people: qualified, without parameters; with DWARF, as gdb's `bt` shows it.
    pub name: String,
    /// As in the symbol table (mangled); the same as `name` if there is no symbol.
    pub raw: String,
    /// First address; the address asked for if not even a symbol says.
    pub start: u64,
}

/// A source line, in a function or in what was inlined into it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceFrame {
    /// Qualified, without parameters, as gdb's `bt` shows it.
    pub function: Option<String>,
    /// Path as DWARF has it, made absolute by the compilation directory.
    pub file: Option<String>,
    /// Line, from 1.
    pub line: Option<u32>,
    /// Column, from 1.
    pub column: Option<u32>,
    /// True if this function was inlined into the next frame's.
    pub inlined: bool,
}

/// Memory for remembered lookups is bounded by forgetting them all now and then.
const KNOWN_LIMIT: usize = 1 << 16;

/// More levels of DIEs than any compiler nests; few enough for the stack of any thread.
const DEPTH_LIMIT: usize = 1000;

impl Locator {
    /// For an image and its debug file. Nothing is parsed before the first lookup.
    pub fn new(image: &Image) -> Locator {
        Locator {
            image: image.clone(),
            loaded: OnceLock::new(),
        }
    }

    /// What is known of an address; never fails. For a return address ask for the address before
    /// it, inside the call.
    pub fn locate(&self, svma: u64) -> Location {
        let lines = self.lines(svma);
        let symbol = self.image.symbols().containing(svma);
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

    /// What lies `offset` bytes behind the beginning of the variable at `start`, as the source has
    /// it behind the variable's name: `[13]`, `[1].m`; nothing for the variable itself. `None` if
    /// no type tells.
    pub fn part(&self, start: u64, offset: u64) -> Option<String> {
        let dwarf = self.loaded().dwarf.as_ref()?;
        let dwarf = dwarf.lock();
        let mut dwarf = dwarf.unwrap_or_else(|poisoned| poisoned.into_inner());
        dwarf.variables.part(start, offset)
    }

    /// Whether there is debug information that can be read; it may not cover all of the code.
    pub fn has_debug_information(&self) -> bool {
        self.loaded().dwarf.is_some()
    }

    /// What could not be read.
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
        // A lookup that panicked would have left only caches behind.
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
    // addr2line reads nested DIEs recursively.
    if scopes.deepest_at(svma) > DEPTH_LIMIT {
        return lines;
    }
    // Split DWARF (.dwo) is not loaded; the skeleton still gives lines.
    // addr2line looks for the range up to the next address.
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
    // A unit's range without function or line is not information.
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
