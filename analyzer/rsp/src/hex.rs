//! Hexadecimal numbers and byte strings, as most packets use them.

/// Encodes bytes as lower-case digit pairs.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        for nibble in [byte >> 4, byte & 15] {
            text.push(char::from_digit(u32::from(nibble), 16).unwrap_or('0'));
        }
    }
    text
}

/// Decodes digit pairs. `None` if a digit is missing or invalid.
pub(crate) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs
        .iter()
        .map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?))
        .collect()
}

/// The value of one digit.
pub(crate) fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|d| d as u8)
}

/// Decodes an unsigned number of 1 to 16 digits, without sign or prefix (`u64::from_str_radix`
/// would accept a `+`).
pub(crate) fn number(text: &str) -> Option<u64> {
    if !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    u64::from_str_radix(text, 16).ok()
}
