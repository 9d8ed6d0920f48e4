//! Sets the revision of cached tables. Tables from other code than this are rejected, whatever the
//! version number.

use std::hash::{DefaultHasher, Hasher};
use std::path::Path;

fn main() {
    let mut files = Vec::new();
    collect(Path::new("src"), &mut files);
    files.sort();
    let mut hasher = DefaultHasher::new();
    for file in &files {
        hasher.write(file.as_bytes());
        hasher.write(&std::fs::read(file).expect("a source file"));
    }
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rustc-env=UNWIND_REVISION={:016x}", hasher.finish());
}

fn collect(directory: &Path, files: &mut Vec<String>) {
    for entry in std::fs::read_dir(directory).expect("the source directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect(&path, files);
        } else {
            files.push(path.to_str().expect("a plain name").to_owned());
        }
    }
}
