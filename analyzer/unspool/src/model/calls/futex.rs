//! What a futex system call does, by its arguments: word, operation, value (futex(2);
//! linux/futex.h).

/// Its number alone, without `FUTEX_PRIVATE_FLAG` 128 and `FUTEX_CLOCK_REALTIME` 256.
fn operation(args: &[u64]) -> Option<u64> {
    args.get(1).map(|operation| operation & 0x7f)
}

/// Whether it waits: `FUTEX_WAIT` 0, `FUTEX_LOCK_PI` 6, `FUTEX_WAIT_BITSET` 9,
/// `FUTEX_WAIT_REQUEUE_PI` 11, `FUTEX_LOCK_PI2` 13. What is not known is taken to.
pub(crate) fn waits(args: &[u64]) -> bool {
    matches!(operation(args), None | Some(0 | 6 | 9 | 11 | 13))
}

/// Whether it waits for a limited time: the fourth argument points to that.
pub(crate) fn is_timed(args: &[u64]) -> bool {
    waits(args) && args.get(3).is_some_and(|limit| *limit != 0)
}

/// The value that it waits for its word to lose; nothing where the kernel hands over a lock.
pub(crate) fn expected(args: &[u64]) -> Option<u32> {
    let hands_over = matches!(operation(args), Some(6 | 13));
    let value = args.get(2).filter(|_| !hands_over)?;
    Some((value & 0xffff_ffff) as u32)
}

/// Whether it is `FUTEX_WAIT_BITSET` 9.
pub(crate) fn has_bits(args: &[u64]) -> bool {
    operation(args) == Some(9)
}

/// How many it wakes at its word, at most: `FUTEX_WAKE` 1, `FUTEX_WAKE_OP` 5, `FUTEX_UNLOCK_PI` 7,
/// `FUTEX_WAKE_BITSET` 10. Those that move waiters to another word, `FUTEX_REQUEUE` 3 and the like,
/// do not say which.
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
