//! Which files are C libraries, and which is musl: told from their names, and of static programs from what is inside.
//!
//! Beside `collect`, `model` and `store` because all need it.

use unspool_image::Image;

/// Whether a file is a C library, by its name: `libc.so.6`, `libc-2.31.so`, `ld-musl-x86_64.so.1`.
pub fn is_c_library(path: &str) -> bool {
    let name = base(path);
    let old = name.strip_prefix("libc-");
    name.starts_with("libc.so")
        || name.starts_with("ld-musl")
        || name.starts_with("libc.musl")
        || old.is_some_and(|version| version.starts_with(|c: char| c.is_ascii_digit()))
}

/// Whether threads are made and begin in a file: in a C library, or in glibc's libpthread of old.
pub fn has_threads(path: &str) -> bool {
    is_c_library(path) || base(path).starts_with("libpthread")
}

/// Whether a C library is musl, by its name: `ld-musl-x86_64.so.1`, or as Debian has it, `x86_64-linux-musl/libc.so`.
pub fn is_musl(path: &str) -> bool {
    let name = base(path);
    is_c_library(path) && (name.contains("musl") || name == "libc.so" && path.contains("-musl/"))
}

/// Whether musl is inside a static program, by a function that all its waits go through (src/thread/__timedwait.c).
pub fn has_musl_inside(image: &Image) -> bool {
    !image.symbols().named("__timedwait_cp").is_empty()
}

fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert!(is_c_library("/lib/libc-2.31.so") && is_c_library("ld-musl-x86_64.so.1"));
        assert!(!is_c_library("/lib/libc-client.so.2007e") && !is_c_library("libcrypt.so.1"));
        assert!(has_threads("/lib/libpthread-2.31.so") && !is_c_library("libpthread.so.0"));
        assert!(
            is_musl("/lib/ld-musl-armhf.so.1") && is_musl("/usr/lib/x86_64-linux-musl/libc.so")
        );
        assert!(!is_musl("/opt/musl/libc.so.6") && !is_musl("/srv/musl-server"));
    }
}
