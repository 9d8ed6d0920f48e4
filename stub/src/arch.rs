//! The architecture that this server is compiled for: registers, trap instructions, trap reports.
//!
//! Only this module asks the compiler for the architecture. The files in `arch/` hold the same
//! constants and functions in the same order. Other modules use them by these names, and use
//! register layouts only through the table.

// All are compiled everywhere, so that the decoders are tested on every host.
#[allow(dead_code, unused_imports, reason = "one of them is used")]
mod aarch64;
#[allow(dead_code, unused_imports, reason = "one of them is used")]
mod arm;
pub(crate) mod fast;
#[allow(dead_code, reason = "some are only in the handler's code")]
pub(crate) mod handler_layout;
mod table;
pub(crate) mod watch;
#[allow(dead_code, reason = "ARM has no collectors")]
mod words;
#[allow(dead_code, unused_imports, reason = "one of them is used")]
mod x86_64;

cfg_select! {
    target_arch = "x86_64" => { use x86_64 as machine; }
    target_arch = "aarch64" => { use aarch64 as machine; }
    target_arch = "arm" => { use arm as machine; }
}

cfg_select! {
    target_arch = "x86_64" => {
        /// Reads the processor's clock, as collectors do.
        macro_rules! ticks { () => { core::arch::x86_64::_rdtsc() } }
    }
    target_arch = "aarch64" => {
        /// Reads the processor's clock, as collectors do.
        macro_rules! ticks { () => {{
            let ticks: u64;
            core::arch::asm!("isb", "mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack));
            ticks
        }} }
    }
    target_arch = "arm" => {
        /// Reads the processor's clock, as collectors do.
        macro_rules! ticks { () => {{
            let (low, high): (u32, u32);
            core::arch::asm!("isb", "mrrc p15, 1, {}, {}, c14", out(reg) low, out(reg) high, options(nomem, nostack));
            u64::from(high) << 32 | u64::from(low)
        }} }
    }
}
pub(crate) use ticks;

#[cfg(test)]
pub(crate) use machine::stepped;
pub(crate) use machine::{
    BLOCKED, CAN_STEP, DESCRIBED, Described, EXPEDITED, NAME, PC, SAMPLED, SETS, SLOT_REACH, SP,
    STACK_WORDS, TEXT_MAY_CHANGE, THREAD_POINTER, TLS_BELOW_POINTER, TRAP_ADVANCE, Word,
    before_write, call, can_watch, collector, displace, emulate, goes_back, is_system_call,
    is_trap_report, may_displace, may_return_to, next_places, place, system_call, trap,
    trap_handler, triggered, was_interrupted, watch,
};
pub(crate) use table::{Place, Register, layout};

/// The registers that show the system call of a blocked thread, as bits in the kernel's mask for
/// samples.
pub(crate) struct BlockedRegisters {
    /// All of them, ascending.
    pub(crate) bits: &'static [u32],
    /// Indexes in `bits`: the program counter, the first two arguments, the call's number, and the
    /// link register.
    pub(crate) pc: usize,
    pub(crate) args: [usize; 2],
    pub(crate) number: Option<usize>,
    pub(crate) link: Option<usize>,
    /// The numbers of the calls whose callers a client looks for, if a register has the number.
    pub(crate) futex: &'static [u64],
}

/// The register set that a register belongs to.
pub(crate) fn register_set_of(number: usize) -> Option<usize> {
    let register = layout().register(number);
    register.map(|register| register.place.set)
}

/// Whether this result of a system call means that the kernel will restart the call. No program
/// ever sees it: `ERESTARTSYS`, `ERESTARTNOINTR`, `ERESTARTNOHAND`, `ERESTART_RESTARTBLOCK`.
fn is_restart_result(result: i64) -> bool {
    matches!(result, -514..=-512 | -516)
}

/// Whether a thread's general registers are unchanged. Ignores the words that the kernel may
/// change by itself: the processor's status (A64's SSBS is set when a thread continues after
/// another one) and the kernel's record of the last system call.
pub(crate) fn unmoved(now: &[u8], before: &[u8]) -> bool {
    let words = |set: &[u8]| -> Vec<Option<Word>> {
        let words = set.chunks(size_of::<Word>()).enumerate();
        let words = words.filter(|(index, _)| !machine::KERNELS.contains(index));
        let word = |word: &[u8]| word.first_chunk().copied().map(Word::from_le_bytes);
        words.map(|(_, bytes)| word(bytes)).collect()
    };
    words(now) == words(before)
}

/// Moves the program counter in the general registers.
pub(crate) fn move_pc(general: &mut [u8], by: u64) {
    let place = layout().register(PC).map(|register| register.place);
    let word = place.and_then(|place| general.get_mut(place.offset..place.offset + place.size));
    if let Some(word) = word {
        let mut value = [0; 8];
        value[..word.len()].copy_from_slice(word);
        let moved = u64::from_le_bytes(value).wrapping_add(by).to_le_bytes();
        word.copy_from_slice(&moved[..word.len()]);
    }
}

/// An address in the type that the modules above use.
#[allow(
    clippy::useless_conversion,
    reason = "not useless where addresses have 32 bits"
)]
pub(crate) fn wide(address: Word) -> u64 {
    address.into()
}

/// The program's memory, as its instructions see it.
pub(crate) trait Memory {
    /// Reads all of `into`; `false` if not all can be read.
    fn load(&self, address: u64, into: &mut [u8]) -> bool;
    /// Writes all of `bytes` where the program itself may; `false` if it may not.
    fn store(&self, address: u64, bytes: &[u8]) -> bool;
}

/// A copy of an instruction that can be executed at another address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Displaced {
    /// The code in the slot: one instruction, then a jump to the original's successor.
    pub(crate) code: Vec<u8>,
    /// The original's length.
    pub(crate) length: usize,
}

#[cfg(all(test, target_arch = "x86_64"))]
#[path = "arch/x86_64/against_processor.rs"]
mod against_processor;

#[cfg(all(test, target_arch = "arm"))]
#[path = "arch/in_place/a32_t32.rs"]
mod cases;
#[cfg(all(test, target_arch = "aarch64"))]
#[path = "arch/in_place/a64.rs"]
mod cases;
#[cfg(all(test, any(target_arch = "arm", target_arch = "aarch64")))]
mod in_place;
#[cfg(test)]
mod test_process;
#[cfg(all(test, target_arch = "arm"))]
#[path = "arch/in_place/unpredictable.rs"]
mod unpredictable;
