//! Tests that tables come back from disk, and that damaged or foreign files are rejected.

use std::path::Path;

use super::*;
use crate::rule::Source;

fn library() -> Image {
    Image::open(Path::new("/lib/x86_64-linux-gnu/libc.so.6")).expect("libc6")
}

fn only_file(directory: &Path) -> PathBuf {
    let mut files = std::fs::read_dir(directory).expect("cache directory");
    let file = files.next().expect("a file").expect("entry").path();
    assert!(files.next().is_none(), "one file");
    file
}

/// Writes a table with all its rows to the cache.
fn keep(cache: &Cache, image: &Image, options: &CompileOptions) -> Table {
    let table = cache.table(image, options);
    assert!(table.rows_of_all().count() > 1000);
    cache.keep(&table).expect("kept");
    table
}

/// Reads the table from the cache.
fn load(cache: &Cache, image: &Image, options: &CompileOptions) -> Option<Table> {
    Table::from_bytes(image, options, &cache.stored(image, options)?)
}

fn same_rows(a: &Table, b: &Table) {
    let mut rows = 0;
    let mut others = b.rows_of_all();
    for row in a.rows_of_all() {
        assert_eq!(Some(row), others.next());
        rows += 1;
    }
    assert!(others.next().is_none());
    assert!(rows > 10_000, "{rows}");
}

#[test]
fn a_table_comes_back() {
    let directory = tempfile::tempdir().expect("directory");
    let cache = Cache::at(directory.path());
    let options = CompileOptions {
        code: false,
        ..CompileOptions::default()
    };
    let image = library();
    let made = keep(&cache, &image, &options);
    let file = only_file(directory.path());
    let written = std::fs::metadata(&file)
        .expect("file")
        .modified()
        .expect("time");
    let loaded = load(&cache, &image, &options).expect("loaded, not compiled");
    same_rows(&made, &loaded);
    let loaded = keep(&cache, &image, &options);
    let again = std::fs::metadata(&file)
        .expect("file")
        .modified()
        .expect("time");
    assert_eq!(written, again, "what was loaded is not written again");
    // The rows of a single source are compiled on request.
    assert_eq!(loaded.size(Source::Cfi), made.size(Source::Cfi));
}

#[test]
fn damaged_files_are_replaced() {
    let directory = tempfile::tempdir().expect("directory");
    let cache = Cache::at(directory.path());
    let options = CompileOptions {
        code: false,
        ..CompileOptions::default()
    };
    let image = library();
    let made = keep(&cache, &image, &options);
    let file = only_file(directory.path());
    let good = std::fs::read(&file).expect("file");
    let step = good.len() / 61;
    for at in (0..good.len()).step_by(step).chain([0, 9, 17, 40]) {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        std::fs::write(&file, &bad).expect("write");
        assert!(load(&cache, &image, &options).is_none(), "byte {at}");
    }
    for len in [0, 7, 8, 16, 30, good.len() / 2, good.len() - 1] {
        std::fs::write(&file, &good[..len]).expect("write");
        assert!(load(&cache, &image, &options).is_none(), "{len} bytes");
    }
    same_rows(&made, &keep(&cache, &image, &options));
    assert_eq!(std::fs::read(&file).expect("file"), good);
}

#[test]
fn another_images_table_is_rejected() {
    let directory = tempfile::tempdir().expect("directory");
    let cache = Cache::at(directory.path());
    let options = CompileOptions {
        code: false,
        ..CompileOptions::default()
    };
    // The image is parsed from memory, so that a section's address gives its offset in the file.
    let bytes = std::fs::read("/lib/x86_64-linux-gnu/libc.so.6").expect("libc6");
    let image = Image::parse("libc.so.6", bytes).expect("libc6");
    keep(&cache, &image, &options);
    let file = only_file(directory.path());
    // The same build-id with other call frame information, as after damage on disk.
    let section = image.section(".eh_frame").expect("section");
    let offset = section.data.as_ptr() as usize - image.bytes().as_ptr() as usize;
    let mut bytes = image.bytes().to_vec();
    bytes[offset + 1000] ^= 1;
    let doctored = Image::parse("doctored", bytes).expect("image");
    assert_eq!(doctored.build_id(), image.build_id());
    assert!(load(&cache, &doctored, &options).is_none());
    // Another image's table under this image's name.
    let other = Image::open(Path::new("/usr/bin/bash")).expect("bash");
    let name = name(&other, &options, "table").expect("build-id");
    let place = cache.directory.join(name);
    std::fs::rename(&file, place).expect("rename");
    assert!(load(&cache, &other, &options).is_none());
}

#[test]
fn regions_that_walks_needed_come_back() {
    let directory = tempfile::tempdir().expect("directory");
    let cache = Cache::at(directory.path());
    let options = CompileOptions::default();
    let image = library();
    let asked = image.symbols().named("qsort")[0].svma + 4;
    let made = cache.table(&image, &options);
    let rows = made.rows_at(Source::Code, asked).expect("code");
    let truth = rows.lookup(asked).expect("a row");
    assert_eq!(made.known_regions(), 1, "no more was analysed than need be");
    cache.keep(&made).expect("kept");
    let file = only_file(directory.path());
    let loaded = cache.table(&image, &options);
    assert!(loaded.doubt_at(asked).is_none());
    assert_eq!(loaded.known_regions(), 1, "it was in the cache");
    let rows = loaded.rows_at(Source::Code, asked).expect("code");
    assert_eq!(rows.lookup(asked), Some(truth));
    // A damaged file is rejected.
    let mut bytes = std::fs::read(&file).expect("file");
    let last = bytes.len() - 9;
    bytes[last] ^= 0x20;
    std::fs::write(&file, bytes).expect("write");
    let again = cache.table(&image, &options);
    assert!(again.doubt_at(asked).is_none());
    assert_eq!(again.known_regions(), 0);
    let rows = again.rows_at(Source::Code, asked).expect("code");
    assert_eq!(rows.lookup(asked), Some(truth));
}
