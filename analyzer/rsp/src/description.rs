//! Target descriptions: the registers, and the place of each in the `g` packet.

pub(crate) mod builtin;
#[cfg(test)]
mod tests;
mod xml;

pub(crate) use xml::includes;

use std::ops::Range;

/// The server's description of its target.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TargetDescription {
    /// gdb's name of the architecture, such as `i386:x86-64`, `aarch64`, `arm`.
    pub architecture: Option<String>,
    /// The operating system ABI, such as `GNU/Linux`.
    pub osabi: Option<String>,
    /// All registers in order of their numbers, which is also their order in the `g` packet.
    pub registers: Vec<Register>,
    /// The received documents: annex and XML. `target.xml` is the first.
    pub documents: Vec<(String, String)>,
}

impl TargetDescription {
    /// Parses the documents. The first one includes the others by their annex.
    pub fn parse(documents: &[(String, String)]) -> Result<TargetDescription, DescriptionError> {
        xml::parse(documents)
    }

    /// For a description that names an architecture but no registers, which gdb allows: the
    /// documents with that architecture's built-in layout.
    pub(crate) fn architecture_only(documents: &[(String, String)]) -> Option<TargetDescription> {
        let (_, document) = documents.first()?;
        let mut description = TargetDescription::builtin(&xml::architecture(document)?)?;
        description.documents = documents.to_vec();
        Some(description)
    }

    /// gdb's documented layout for servers without target.xml, by gdb's name of the architecture.
    pub fn builtin(architecture: &str) -> Option<TargetDescription> {
        builtin::description(architecture)
    }

    /// The register with this name.
    pub fn register(&self, name: &str) -> Option<&Register> {
        self.registers.iter().find(|r| r.name == name)
    }

    /// The register with this number.
    pub fn register_numbered(&self, number: u32) -> Option<&Register> {
        let index = self.registers.binary_search_by_key(&number, |r| r.number);
        self.registers.get(index.ok()?)
    }

    /// Length of a complete `g` reply, in bytes of registers.
    pub fn size(&self) -> usize {
        self.registers.last().map_or(0, |r| r.range().end)
    }

    /// Size of a pointer in bytes, taken from the program counter.
    pub fn pointer_size(&self) -> usize {
        ["pc", "rip", "eip"]
            .into_iter()
            .find_map(|name| self.register(name))
            .map_or(8, |r| r.size())
    }
}

/// One register of the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Register {
    /// Its name in gdb.
    pub name: String,
    /// Its number in `p`, `P` and expedited registers.
    pub number: u32,
    /// Its size in bits.
    pub bits: u32,
    /// Its offset in the `g` packet, in bytes of registers.
    pub offset: usize,
    /// `general`, `float`, `vector`, or a server-specific name.
    pub group: Option<String>,
    /// Its type, such as `int64`, `data_ptr`, `ieee_double`.
    pub kind: String,
    /// The feature that contains it, such as `org.gnu.gdb.arm.core`.
    pub feature: String,
}

impl Register {
    /// Its size in bytes.
    pub fn size(&self) -> usize {
        self.bits.div_ceil(8) as usize
    }

    /// Its byte range in the `g` packet.
    pub fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.size()
    }
}

/// Assigns offsets to registers, which are sorted by number: "registers are transferred in the `g`
/// packet in order of increasing register number". Missing numbers take no space.
fn place(registers: &mut [Register]) {
    let mut offset = 0;
    for register in registers {
        register.offset = offset;
        offset += register.size();
    }
}

/// The reason why a target description cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DescriptionError {
    /// The document is not XML.
    #[error(
        "the target description {annex} is not XML at byte {position}: {problem}; the server is \
         broken, so name the architecture instead"
    )]
    Xml {
        /// The annex of the document.
        annex: String,
        /// The position in bytes.
        position: u64,
        /// The problem.
        problem: String,
    },
    /// A register lacks an attribute, or the attribute is out of range.
    #[error(
        "the target description {annex} has a register {register:?} with {problem}; the server \
         is broken, so name the architecture instead"
    )]
    Register {
        /// The annex of the document.
        annex: String,
        /// The register's name.
        register: String,
        /// The problem.
        problem: String,
    },
    /// An included document is missing.
    #[error(
        "the target description includes {annex}, which the server did not send; name the \
         architecture instead"
    )]
    Missing {
        /// The document's annex.
        annex: String,
    },
    /// Documents include one another endlessly, or there are too many.
    #[error(
        "the target description includes {annex} more than {limit} documents deep or wide; the \
         server is broken, so name the architecture instead"
    )]
    TooDeep {
        /// The document's annex.
        annex: String,
        /// The limit.
        limit: usize,
    },
    /// The description contains no registers.
    #[error(
        "the target description holds no registers; the server is broken, so name the \
         architecture instead"
    )]
    NoRegisters,
}
