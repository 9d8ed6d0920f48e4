//! Where a thread's own data is, as libc's own description of its layout says.
//!
//! glibc exports a descriptor `{bits, count, offset}` (each an int) for every field that
//! `libthread_db` reads (`nptl_db/structs.def`), also when it is stripped. The client knows
//! symbols; it is asked for their addresses.

use crate::arch;
use crate::sys::Tid;
use crate::tracee::Tracee;

/// The descriptors that are needed.
const SYMBOLS: [&str; 5] = [
    "_thread_db_link_map_l_tls_modid",
    "_thread_db_link_map_l_tls_offset",
    "_thread_db_pthread_dtvp",
    "_thread_db_dtv_dtv",
    "_thread_db_dtv_t_pointer_val",
];
const MODULE_NUMBER: usize = 0;
const STATIC_OFFSET: usize = 1;
const VECTOR_POINTER: usize = 2;
const VECTOR_ENTRY: usize = 3;
const ENTRY_POINTER: usize = 4;

const WORD: u64 = size_of::<arch::Word>() as u64;

/// What the client has said of the symbols.
#[derive(Default)]
pub(crate) struct ThreadDb {
    addresses: [Option<u64>; SYMBOLS.len()],
}

impl ThreadDb {
    /// The symbol to be asked for first.
    pub(crate) fn first() -> &'static str {
        SYMBOLS[0]
    }

    /// The client's answer; returns what to ask for next. If the first symbol is where it was known
    /// to be, so are the others.
    pub(crate) fn answered(&mut self, name: &[u8], address: Option<u64>) -> Option<&'static str> {
        let index = SYMBOLS
            .iter()
            .position(|symbol| symbol.as_bytes() == name)?;
        if index == 0 && self.addresses[0] != address {
            self.addresses = Default::default();
        }
        self.addresses[index] = address;
        // A libc that lacks one describes nothing.
        address?;
        (index + 1..SYMBOLS.len())
            .find(|index| self.addresses[*index].is_none())
            .map(|index| SYMBOLS[index])
    }

    /// Where the thread-local block of the module with this `link_map` is, in this thread; `None`
    /// if it has not been allocated there yet, or nothing is known.
    pub(crate) fn block(&self, tracee: &mut Tracee, tid: Tid, link_map: u64) -> Option<u64> {
        let pointer = tracee.process.stopped(tid)?.thread_pointer().ok()?;
        let vector_at = if arch::TLS_BELOW_POINTER {
            pointer + self.field(tracee, VECTOR_POINTER)?.offset
        } else {
            // The thread control block begins with it (ELF Handling for TLS, variant I).
            pointer
        };
        // A static program has no link map; its own block is the first module's.
        let mut module = 1;
        if link_map != 0 {
            let modid = self.field(tracee, MODULE_NUMBER)?;
            module = word(tracee, link_map.wrapping_add(modid.offset))?;
            if let Some(field) = self.field(tracee, STATIC_OFFSET)
                && let Some(offset) = word(tracee, link_map.wrapping_add(field.offset))
                && !is_dynamic(offset)
            {
                return Some(if arch::TLS_BELOW_POINTER {
                    pointer.wrapping_sub(offset)
                } else {
                    pointer.wrapping_add(offset)
                });
            }
        }
        let entry = self.field(tracee, VECTOR_ENTRY)?;
        let block = self.field(tracee, ENTRY_POINTER)?;
        let vector = word(tracee, vector_at)?;
        let at = entry.size().checked_mul(module)?;
        let block = word(
            tracee,
            vector
                .wrapping_add(entry.offset)
                .wrapping_add(at)
                .wrapping_add(block.offset),
        )?;
        // TLS_DTV_UNALLOCATED
        (block != 0 && block != arch::wide(arch::Word::MAX)).then_some(block)
    }

    fn field(&self, tracee: &Tracee, which: usize) -> Option<Field> {
        let mut bytes = [0; 12];
        let known = tracee
            .read_memory(self.addresses[which]?, &mut bytes)
            .ok()?;
        let number = |at: usize| {
            let mut value = [0; 4];
            value.copy_from_slice(&bytes[at..at + 4]);
            u64::from(u32::from_le_bytes(value))
        };
        (known == bytes.len()).then(|| Field {
            bits: number(0),
            offset: number(8),
        })
    }
}

/// A field of a structure of libc's.
struct Field {
    bits: u64,
    offset: u64,
}

impl Field {
    /// Of one element, where the field is an array.
    fn size(&self) -> u64 {
        self.bits / 8
    }
}

/// `l_tls_offset` says so of blocks that are allocated on first use: 0, or -1 (also -2 where 0 is
/// an offset).
fn is_dynamic(offset: u64) -> bool {
    let max = arch::wide(arch::Word::MAX);
    offset == 0 || offset >= max - 1
}

fn word(tracee: &Tracee, at: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    let size = WORD as usize;
    let known = tracee.read_memory(at, &mut bytes[..size]).ok()?;
    (known == size).then(|| u64::from_le_bytes(bytes))
}
