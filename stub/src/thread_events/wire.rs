//! Numbers of variable length in notifications (docs/reference/protocol.md, "The schedule").

/// Appends seven bits per byte, lowest first. The highest bit of a byte says that another byte
/// follows.
pub(crate) fn number(mut value: u64, bytes: &mut Vec<u8>) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Appends the change of the time since the previous record, and remembers the time.
pub(crate) fn change(time_ns: u64, last_ns: &mut u64, bytes: &mut Vec<u8>) {
    let change = time_ns.wrapping_sub(*last_ns).cast_signed();
    *last_ns = time_ns;
    // Zigzag encoding: small numbers of either sign become small numbers: 0, -1, 1, -2, ...
    number((change << 1 ^ change >> 63).cast_unsigned(), bytes);
}
