//! Finds thread-local data with libc's own description of its layout.
//!
//! glibc exports a descriptor `{bits, count, offset}` (each an int) for every field that
//! `libthread_db` reads (`nptl_db/structs.def`), even when it is stripped. The stub asks the client
//! for the descriptors' addresses, because the client knows symbols.

use crate::arch;
use crate::sys::Tid;
use crate::tracee::Tracee;

/// The descriptors that this file needs.
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

/// The addresses of the symbols, as the client reported them.
#[derive(Default)]
pub(crate) struct ThreadDb {
    addresses: [Option<u64>; SYMBOLS.len()],
}

impl ThreadDb {
    /// The symbol to request first.
    pub(crate) fn first() -> &'static str {
        SYMBOLS[0]
    }

    /// Stores the client's answer, and returns the symbol to request next. If the first address has
    /// not changed, the others are still valid.
    pub(crate) fn answered(&mut self, name: &[u8], address: Option<u64>) -> Option<&'static str> {
        let index = SYMBOLS
            .iter()
            .position(|symbol| symbol.as_bytes() == name)?;
        if index == 0 && self.addresses[0] != address {
            self.addresses = Default::default();
        }
        self.addresses[index] = address;
        // A libc that lacks one of the symbols describes nothing.
        address?;
        (index + 1..SYMBOLS.len())
            .find(|index| self.addresses[*index].is_none())
            .map(|index| SYMBOLS[index])
    }

    /// Address of a thread's local block for the module with this `link_map`. `None` if the thread
    /// has not allocated the block yet, or if the layout is unknown.
    pub(crate) fn block(&self, tracee: &mut Tracee, tid: Tid, link_map: u64) -> Option<u64> {
        let pointer = tracee.process.stopped(tid)?.thread_pointer().ok()?;
        let vector_at = if arch::TLS_BELOW_POINTER {
            pointer + self.field(tracee, VECTOR_POINTER)?.offset
        } else {
            // The thread control block begins with the vector (ELF Handling for TLS, variant I).
            pointer
        };
        // A static program has no link map. Its own block is that of the first module.
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

/// A field of one of libc's structures.
struct Field {
    bits: u64,
    offset: u64,
}

impl Field {
    /// Size in bytes; for an array, the size of one element.
    fn size(&self) -> u64 {
        self.bits / 8
    }
}

/// True if the block is allocated on first use: `l_tls_offset` is 0 or -1 then (or -2 where 0 is a
/// valid offset).
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
