//! Differences between the machines on which these tests run. Tests run on the build machine, and
//! on boards without a compiler. There the environment names the server and the programs.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// Number of the program counter in packets.
pub const PC: u32 = if cfg!(target_arch = "arm") {
    15
} else if cfg!(target_arch = "aarch64") {
    32
} else {
    16
};

/// Number of the stack pointer.
pub const SP: u32 = if cfg!(target_arch = "arm") {
    13
} else if cfg!(target_arch = "aarch64") {
    31
} else {
    7
};

/// Number of the register with a function's first argument.
pub const ARGUMENT: u32 = if cfg!(target_arch = "x86_64") { 5 } else { 0 };

/// Number of the system call `exit_group`.
pub const EXIT_GROUP: u32 = if cfg!(target_arch = "arm") {
    248
} else if cfg!(target_arch = "aarch64") {
    94
} else {
    231
};

/// Number of the register whose bit 5 says that a thread executes T32 (CPSR), if there is one.
pub const STATE: Option<u32> = if cfg!(target_arch = "arm") {
    Some(25)
} else {
    None
};

/// An interrupted thread executes its system call instruction again. On other machines it continues
/// in the kernel.
pub const CALLS_AGAIN: bool = cfg!(target_arch = "aarch64");

/// On entry to a function the return address is at the stack pointer.
pub const RETURNS_BY_STACK: bool = cfg!(target_arch = "x86_64");

/// A debug register triggers before the watched access happens.
pub const WATCHES_BEFORE: bool = !cfg!(target_arch = "x86_64");

/// A traced program has a trap handler that works after its tracer's death.
pub const HANDLES_TRAPS: bool = cfg!(target_arch = "x86_64");

/// Size of a pointer in bytes.
pub const POINTER: usize = size_of::<usize>();

/// Path of the server on the build machine.
pub const STUB: &str = env!("CARGO_BIN_EXE_unspool-stub");

/// Path of the server.
pub fn stub() -> PathBuf {
    let elsewhere = std::env::var_os("UNSPOOL_STUB");
    elsewhere.map_or_else(|| STUB.into(), PathBuf::from)
}

/// Directory of the programs that were built elsewhere, with the names of `programs::build`.
pub fn programs() -> Option<PathBuf> {
    std::env::var_os("UNSPOOL_PROGRAMS").map(PathBuf::from)
}

/// Directory for files that tests write.
pub fn scratch() -> PathBuf {
    let built_for = Path::new(env!("CARGO_TARGET_TMPDIR"));
    if programs().is_some() {
        return std::env::temp_dir();
    }
    built_for.to_owned()
}

/// The kind in breakpoint packets for the programs' instructions; T32 instructions have 2 bytes.
pub fn kind() -> u32 {
    let stated = std::env::var("UNSPOOL_TRAP_KIND").ok();
    let own = if cfg!(target_arch = "x86_64") { 1 } else { 4 };
    stated.map_or(own, |kind| kind.parse().expect("a breakpoint kind"))
}

/// The address of a function from a pointer to it: pointers to T32 functions have the lowest bit
/// set.
pub fn code(pointer: u64) -> u64 {
    pointer & if cfg!(target_arch = "arm") { !1 } else { !0 }
}

/// The value of a general register in a block of all registers.
pub fn register(block: &[u8], number: u32) -> u64 {
    let at = number as usize * POINTER;
    let bytes = block[at..at + POINTER].iter().rev();
    bytes.fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// True on a machine that is emulated: only those run programs from elsewhere.
pub fn is_emulated() -> bool {
    programs().is_some()
}

/// Scales a repeat count: an emulated machine does a tenth.
pub fn many(count: u32) -> u32 {
    if is_emulated() { count / 10 } else { count }
}

/// Time limit for an expected event. Allows for ten thousand threads on a busy machine, and for
/// twice that time on an emulated machine.
pub fn event_timeout() -> Duration {
    Duration::from_secs(if is_emulated() { 200 } else { 100 })
}
