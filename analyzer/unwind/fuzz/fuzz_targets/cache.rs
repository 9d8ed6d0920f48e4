//! A cached table with any bytes changed and its checksum right again: it loads or is made anew, and can be
//! looked up and kept. Input: four bytes each, three for the place and one for the byte there.
#![no_main]

use std::cell::LazyCell;
use std::path::PathBuf;

use libfuzzer_sys::fuzz_target;
use unspool_image::{Arch, Image};
use unspool_unwind::{Cache, CompileOptions, Table};
use unspool_unwind_fuzz::{BASE, image};

struct Kept {
    directory: tempfile::TempDir,
    path: PathBuf,
    bytes: Vec<u8>,
    image: Image,
}

/// `push {r4, lr}; sub sp, #8; bl .; add sp, #8; pop {r4, pc}` in T32, again and again.
const TEXT: &[u8] = b"\x10\xb5\x82\xb0\xff\xf7\xfe\xff\x02\xb0\x10\xbd";

fn keep() -> Kept {
    let directory = tempfile::tempdir().expect("directory");
    let image = image(Arch::Arm, &[(".text", &TEXT.repeat(64))]);
    let table = Table::compile(&image, &CompileOptions::default());
    table.analysis();
    Cache::at(directory.path()).keep(&table).expect("kept");
    let mut files = std::fs::read_dir(directory.path()).expect("directory");
    let path = files.next().expect("a file").expect("entry").path();
    let bytes = std::fs::read(&path).expect("read");
    Kept { directory, path, bytes, image }
}

thread_local! {
    static KEPT: LazyCell<Kept> = const { LazyCell::new(keep) };
}

fuzz_target!(|input: &[u8]| {
    KEPT.with(|kept| {
        let mut bytes = kept.bytes.clone();
        for change in input.chunks_exact(4).take(64) {
            let at = u32::from_le_bytes([change[0], change[1], change[2], 0]) as usize;
            // Behind the magic and the checksum.
            let at = 16 + at % (bytes.len() - 16);
            bytes[at] = change[3];
        }
        if input.len() % 4 == 1 {
            bytes.truncate(16 + usize::from(input[input.len() - 1]) * (bytes.len() - 16) / 256);
        }
        let sum = u64::from(crc32c::crc32c(&bytes[16..]));
        bytes[8..16].copy_from_slice(&sum.to_le_bytes());
        std::fs::write(&kept.path, &bytes).expect("write");
        let table = Cache::at(kept.directory.path()).table(&kept.image, &CompileOptions::default());
        for svma in BASE..BASE + 1024 {
            table.lookup(svma);
        }
        table.rows_of_all().take(4096).for_each(drop);
        table.analysis();
        table.notes();
    });
});
