//! The parts that all records of the kernel's perf events have in common (`enum perf_event_type` in
//! the kernel's `include/uapi/linux/perf_event.h`).

/// Record types, `PERF_RECORD_*`.
pub(crate) const LOST: u32 = 2;
pub(crate) const SAMPLE: u32 = 9;

/// `struct perf_event_header`: type (4), misc (2), size (2).
pub(crate) const HEADER: usize = 8;
/// TID (8), TIME (8), CPU (8) at the end of each record except samples.
pub(crate) const SAMPLE_ID: usize = 24;

/// Values of REGS_USER's first word: 0 if the thread has no registers, 1 for those of a 32-bit
/// program, 2 for those of a 64-bit program (`enum perf_sample_regs_abi`).
pub(crate) const LAST_ABI: u32 = 2;
/// Other processes may run programs of the other size, which have other registers and system calls.
pub(crate) const OWN_ABI: u32 = usize::BITS / 32;

/// The size in a record's header. `None` if it is smaller than a header.
pub(crate) fn size_of_record(header: [u8; HEADER]) -> Option<usize> {
    let size = usize::from(u16::from_le_bytes([header[6], header[7]]));
    (size >= HEADER).then_some(size)
}

/// The `misc` field of a record's header.
pub(crate) fn misc(bytes: &[u8]) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(4..6)?.try_into().ok()?))
}

pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

pub(crate) fn long(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}
