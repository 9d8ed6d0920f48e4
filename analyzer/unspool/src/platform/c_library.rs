//! Recognizes C libraries, and musl among them: by their names, and in static programs by a symbol.
//!
//! Beside `collect`, `model` and `store` because all three need it.

use unspool_image::Image;

/// True if a file is a C library, by its name: `libc.so.6`, `libc-2.31.so`, `ld-musl-x86_64.so.1`.
pub fn is_c_library(path: &str) -> bool {
    let name = base(path);
    let old = name.strip_prefix("libc-");
    name.starts_with("libc.so")
        || name.starts_with("ld-musl")
        || name.starts_with("libc.musl")
        || old.is_some_and(|version| version.starts_with(|c: char| c.is_ascii_digit()))
}

/// True if a file creates and starts threads: a C library, or the libpthread of older glibc
/// versions.
pub fn has_threads(path: &str) -> bool {
    is_c_library(path) || base(path).starts_with("libpthread")
}

/// Maximum number of frames from clone(2) to `pthread_create`, both included.
pub const MAX_CREATION_FRAMES: usize = 6;

/// True for the names of `pthread_create` in C libraries. Other functions with similar names may
/// have other arguments.
pub fn creates_threads(function: &str) -> bool {
    matches!(
        function,
        "pthread_create" | "__pthread_create" | "__pthread_create_2_1"
    )
}

/// True if a C library is musl, by its name: `ld-musl-x86_64.so.1`, or in Debian
/// `x86_64-linux-musl/libc.so`.
pub fn is_musl(path: &str) -> bool {
    let name = base(path);
    is_c_library(path) && (name.contains("musl") || name == "libc.so" && path.contains("-musl/"))
}

/// True if a static program contains musl, by a function that all its waits use
/// (src/thread/__timedwait.c).
pub fn has_musl_inside(image: &Image) -> bool {
    !image.symbols().named("__timedwait_cp").is_empty()
}

/// True if a function of a C, C++ or Rust library ends no wait of another thread, by its name.
/// Locks that the library itself takes for a moment do not count, because it records their holders.
pub fn ends_no_wait(symbol: &str) -> bool {
    const FUNCTIONS: [&str; 73] = [
        // Sleeping, and waiting for the kernel.
        "nanosleep",
        "clock_nanosleep",
        "usleep",
        "sleep",
        "pause",
        "poll",
        "ppoll",
        "select",
        "pselect",
        "epoll_wait",
        "epoll_pwait",
        "sched_yield",
        "sigwait",
        "sigtimedwait",
        "sigwaitinfo",
        // Time and identity.
        "clock_gettime",
        "gettimeofday",
        "time",
        "localtime_r",
        "gmtime_r",
        "strftime",
        "getpid",
        "gettid",
        "pthread_self",
        "errno_location",
        "getrusage",
        "rand",
        "random",
        "rand_r",
        "random_r",
        // Memory.
        "malloc",
        "calloc",
        "realloc",
        "free",
        "memcpy",
        "memmove",
        "memset",
        "memcmp",
        "memchr",
        "Znwm",
        "Znwj",
        "ZdlPv",
        "ZdlPvm",
        "ZdlPvj",
        // Text and files. A pipe or a socket may wake a thread, but not one that waits at an
        // object.
        "strlen",
        "strcmp",
        "strncmp",
        "strcpy",
        "strncpy",
        "strerror",
        "snprintf",
        "sprintf",
        "vsnprintf",
        "printf",
        "fprintf",
        "vfprintf",
        "printf_chk",
        "fprintf_chk",
        "snprintf_chk",
        "sprintf_chk",
        "puts",
        "putchar",
        "fputs",
        "fputc",
        "fwrite",
        "fflush",
        "write",
        "read",
        "open",
        "close",
        "lseek",
        "fread",
        "fgets",
    ];
    // Demangled Rust names. Newer versions have them in `functions`.
    let rust = [
        "std::thread::sleep",
        "std::thread::functions::sleep",
        "std::io::stdio::_print",
        "std::io::stdio::_eprint",
    ];
    if rust.contains(&symbol) || symbol.starts_with("std::sys::thread::unix::sleep") {
        return true;
    }
    let name = symbol
        .strip_prefix("__GI_")
        .unwrap_or(symbol)
        .trim_start_matches('_');
    let name = name.strip_suffix("_2").unwrap_or(name);
    let name = name.strip_suffix("64").unwrap_or(name);
    FUNCTIONS.contains(&name)
        || symbol.starts_with("_ZNSt6chrono3_V212") && symbol.ends_with("3nowEv")
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
        assert!(ends_no_wait("__GI___clock_nanosleep") && ends_no_wait("__errno_location"));
        assert!(!ends_no_wait("pthread_cond_signal") && !ends_no_wait("syscall"));
        assert!(!is_musl("/opt/musl/libc.so.6") && !is_musl("/srv/musl-server"));
    }
}
