//! What differs between the machines these trials run on. They run where they were built, and on
//! boards without a compiler: there the environment says where the server and the programs are.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// The program counter, by the number it has in packets.
pub const PC: u32 = if cfg!(target_arch = "arm") {
    15
} else if cfg!(target_arch = "aarch64") {
    32
} else {
    16
};

/// The stack pointer.
pub const SP: u32 = if cfg!(target_arch = "arm") {
    13
} else if cfg!(target_arch = "aarch64") {
    31
} else {
    7
};

/// The first argument of a function.
pub const ARGUMENT: u32 = if cfg!(target_arch = "x86_64") { 5 } else { 0 };

/// `exit_group`.
pub const EXIT_GROUP: u32 = if cfg!(target_arch = "arm") {
    248
} else if cfg!(target_arch = "aarch64") {
    94
} else {
    231
};

/// The register that tells by bit 5 whether a thread executes T32 (CPSR), where there is that.
pub const STATE: Option<u32> = if cfg!(target_arch = "arm") {
    Some(25)
} else {
    None
};

/// A thread makes the system call that it was interrupted in by its instruction again; others go on
/// in the kernel.
pub const CALLS_AGAIN: bool = cfg!(target_arch = "aarch64");

/// The return address is at the stack pointer when a function begins.
pub const RETURNS_BY_STACK: bool = cfg!(target_arch = "x86_64");

/// A debug register triggers before the access that it watches, which has yet to be made.
pub const WATCHES_BEFORE: bool = !cfg!(target_arch = "x86_64");

/// A program that is traced has a handler for traps, for the time after its tracer's death.
pub const HANDLES_TRAPS: bool = cfg!(target_arch = "x86_64");

/// The size of a pointer, in bytes.
pub const POINTER: usize = size_of::<usize>();

/// The server, where it was built.
pub const STUB: &str = env!("CARGO_BIN_EXE_unspool-stub");

/// The server.
pub fn stub() -> PathBuf {
    let elsewhere = std::env::var_os("UNSPOOL_STUB");
    elsewhere.map_or_else(|| STUB.into(), PathBuf::from)
}

/// Where programs are that have been built elsewhere, named as `programs::file_name` does.
pub fn programs() -> Option<PathBuf> {
    std::env::var_os("UNSPOOL_PROGRAMS").map(PathBuf::from)
}

/// A directory for what trials write.
pub fn scratch() -> PathBuf {
    let built_for = Path::new(env!("CARGO_TARGET_TMPDIR"));
    if programs().is_some() {
        return std::env::temp_dir();
    }
    built_for.to_owned()
}

/// The kind of a breakpoint packet at the programs' instructions: T32's are of 2 bytes.
pub fn kind() -> u32 {
    let stated = std::env::var("UNSPOOL_TRAP_KIND").ok();
    let own = if cfg!(target_arch = "x86_64") { 1 } else { 4 };
    stated.map_or(own, |kind| kind.parse().expect("a breakpoint kind"))
}

/// Where a function is whose pointer this is: T32's have their lowest bit set.
pub fn code(pointer: u64) -> u64 {
    pointer & if cfg!(target_arch = "arm") { !1 } else { !0 }
}

/// A general register in a block of all registers.
pub fn register(block: &[u8], number: u32) -> u64 {
    let at = number as usize * POINTER;
    let bytes = block[at..at + POINTER].iter().rev();
    bytes.fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// Trials run elsewhere on machines that are emulated.
pub fn is_emulated() -> bool {
    programs().is_some()
}

/// Scales a repeat count: an emulated machine does a tenth.
pub fn many(count: u32) -> u32 {
    if is_emulated() { count / 10 } else { count }
}

/// How long to wait for what ought to come: ten thousand threads, on a machine with much else to
/// do; one that is emulated takes longer.
pub fn patience() -> Duration {
    Duration::from_secs(if is_emulated() { 200 } else { 100 })
}
