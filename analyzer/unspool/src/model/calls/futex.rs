//! Decodes a futex system call from its arguments: word, operation, value (futex(2);
//! linux/futex.h).

/// The operation's number, without `FUTEX_PRIVATE_FLAG` 128 and `FUTEX_CLOCK_REALTIME` 256.
fn operation(args: &[u64]) -> Option<u64> {
    args.get(1).map(|operation| operation & 0x7f)
}

/// True if it waits: `FUTEX_WAIT` 0, `FUTEX_LOCK_PI` 6, `FUTEX_WAIT_BITSET` 9,
/// `FUTEX_WAIT_REQUEUE_PI` 11, `FUTEX_LOCK_PI2` 13. An unknown operation counts as a wait.
pub(crate) fn waits(args: &[u64]) -> bool {
    matches!(operation(args), None | Some(0 | 6 | 9 | 11 | 13))
}

/// True if the wait has a timeout, which the fourth argument points to.
pub(crate) fn is_timed(args: &[u64]) -> bool {
    waits(args) && args.get(3).is_some_and(|limit| *limit != 0)
}

/// The expected value of the word; none if the kernel hands over a lock.
pub(crate) fn expected(args: &[u64]) -> Option<u32> {
    let hands_over = matches!(operation(args), Some(6 | 13));
    let value = args.get(2).filter(|_| !hands_over)?;
    Some((value & 0xffff_ffff) as u32)
}

/// True for `FUTEX_WAIT_BITSET` 9.
pub(crate) fn has_bits(args: &[u64]) -> bool {
    operation(args) == Some(9)
}

/// Maximum number of threads that it wakes at its word: `FUTEX_WAKE` 1, `FUTEX_WAKE_OP` 5,
/// `FUTEX_UNLOCK_PI` 7, `FUTEX_WAKE_BITSET` 10. Calls that move waiters to another word,
/// `FUTEX_REQUEUE` 3 and the like, give no number.
pub(crate) fn wakes(args: &[u64]) -> Option<u64> {
    match operation(args)? {
        1 | 5 | 10 => {
            let count = args.get(2).copied().unwrap_or(0) as i32;
            // The kernel wakes one thread even if the count is 0.
            Some(u64::try_from(count).unwrap_or(0).max(1))
        }
        7 => Some(1),
        _ => None,
    }
}
