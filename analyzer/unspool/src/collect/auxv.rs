//! The auxiliary vector: the kernel's addresses of the program, its interpreter and the vDSO.

use unspool_rsp::Client;

/// The entries that lead to modules; 0 if absent. Values from `<linux/auxvec.h>`.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Auxv {
    /// AT_PHDR: the program's program headers.
    pub(super) headers: u64,
    /// AT_PHNUM: number of program headers.
    pub(super) header_count: usize,
    /// AT_BASE: load address of the interpreter.
    pub(super) interpreter: u64,
    /// AT_ENTRY: the program's entry point.
    pub(super) entry: u64,
    /// AT_EXECFN: path by which the program was started.
    pub(super) file_name: u64,
    /// AT_SYSINFO_EHDR: address of the vDSO's ELF header.
    pub(super) vdso: u64,
}

impl Auxv {
    pub(super) fn read(client: &mut Client) -> Self {
        let mut auxv = Self::default();
        for (kind, value) in client.auxv().unwrap_or_default() {
            match kind {
                3 => auxv.headers = value,
                5 => auxv.header_count = usize::try_from(value).unwrap_or(0),
                7 => auxv.interpreter = value,
                9 => auxv.entry = value,
                31 => auxv.file_name = value,
                33 => auxv.vdso = value,
                _ => {}
            }
        }
        auxv
    }
}
