//! The dynamic linker's rendezvous with debuggers: `r_debug`, its list of link maps, and the
//! function that the linker calls around every change (`<link.h>`, SVR4 convention).
//!
//! It replaces the server's library list where a server has none. With any server, it shows when a
//! change to the list is complete.

use unspool_rsp::Client;

use super::auxv::Auxv;
use super::memory::{self, PT_DYNAMIC, PT_PHDR};
use crate::platform::abi::Abi;

/// `DT_DEBUG`, whose value the dynamic linker sets to the address of `r_debug`.
const DT_DEBUG: u64 = 21;
/// Limit on listed libraries. A longer list is a loop.
const LIBRARY_LIMIT: usize = 10_000;

/// A library in the dynamic linker's list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) path: String,
    pub(super) bias: u64,
}

/// The relevant fields of `struct r_debug`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rendezvous {
    map: u64,
    /// The function called around changes, as a code pointer.
    pub(super) notifier: u64,
    /// RT_CONSISTENT: no change is in progress.
    pub(super) consistent: bool,
}

impl Rendezvous {
    /// Reads `r_debug` at `address`. `None` until the dynamic linker has filled it in.
    pub(super) fn read(client: &mut Client, abi: &Abi, address: u64) -> Option<Self> {
        // int r_version; struct link_map *r_map; ElfW(Addr) r_brk; enum r_state. Each is padded to
        // a pointer.
        let words = memory::pointers(client, abi, address, 4)?;
        let low = |word: u64| word & 0xffff_ffff;
        (low(words[0]) >= 1 && words[1] != 0).then_some(Self {
            map: words[1],
            notifier: words[2],
            consistent: low(words[3]) == 0,
        })
    }

    /// All libraries except the program itself, in the linker's order.
    pub(super) fn libraries(&self, client: &mut Client, abi: &Abi) -> Vec<Listed> {
        let mut listed = Vec::new();
        let mut at = self.map;
        for index in 0..LIBRARY_LIMIT {
            // l_addr, l_name, l_ld, l_next
            let Some(map) = memory::pointers(client, abi, at, 4) else {
                break;
            };
            if index > 0
                && let Some(path) = memory::string(client, map[1])
                && !path.is_empty()
            {
                listed.push(Listed { path, bias: map[0] });
            }
            at = map[3];
            if at == 0 {
                break;
            }
        }
        listed
    }
}

/// The address of `r_debug`, which is the value of `DT_DEBUG`. `None` in static programs, and
/// before the dynamic linker has stored it.
pub(super) fn address(client: &mut Client, abi: &Abi, auxv: &Auxv) -> Option<u64> {
    let headers = memory::program_headers(client, abi, auxv.headers, auxv.header_count)?;
    let bias = headers
        .iter()
        .find(|header| header.kind == PT_PHDR)
        .map_or(0, |own| auxv.headers.wrapping_sub(own.svma));
    let dynamic = headers.iter().find(|header| header.kind == PT_DYNAMIC)?;
    let count = usize::try_from(dynamic.mem_size.min(65536)).ok()? / abi.pointer;
    let words = memory::pointers(client, abi, bias.wrapping_add(dynamic.svma), count)?;
    let (entries, _) = words.as_chunks::<2>();
    let value = entries.iter().find(|[tag, _]| *tag == DT_DEBUG)?[1];
    (value != 0).then_some(value)
}
