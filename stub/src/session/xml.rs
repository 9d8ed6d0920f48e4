//! Escapes text for XML.

use std::fmt::Write;

/// `bytes` as the value of an attribute. Bytes that are not UTF-8 or not allowed in XML become `?`.
pub(crate) fn attribute(bytes: &[u8]) -> String {
    let mut text = String::new();
    for character in String::from_utf8_lossy(bytes).chars() {
        match character {
            '<' | '>' | '&' | '"' | '\'' => {
                let _ = write!(text, "&#{};", character as u32);
            }
            '\u{fffd}' => text.push('?'),
            _ if character.is_control() => text.push('?'),
            _ => text.push(character),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::attribute;

    #[test]
    fn names_cannot_break_out() {
        assert_eq!(attribute(b"a\"<b>&\xff\n"), "a&#34;&#60;b&#62;&#38;??");
    }
}
