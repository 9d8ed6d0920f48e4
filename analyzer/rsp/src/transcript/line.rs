//! One line of a transcript or a script, which share this form.
//!
//! ```text
//! [SECONDS] VERB [TEXT]
//!     0.000212 -> qSupported:multiprocess+
//! ```
//!
//! Apart because a transcript can be edited into a script, so both must read it in the same way.

use std::time::Duration;

/// A line whose text is not decoded yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    /// The time since the start of the session.
    pub(crate) time: Option<Duration>,
    /// `->`, `<-`, `interrupt` ...
    pub(crate) verb: &'a str,
    /// The text after the verb, trimmed.
    pub(crate) text: &'a str,
}

/// Splits a line; `None` for empty lines and comments (`#`).
pub(crate) fn split(line: &str) -> Option<Line<'_>> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let (first, rest) = word(line);
    let seconds = first
        .bytes()
        .all(|b| b.is_ascii_digit() || b == b'.')
        .then(|| first.parse().ok())
        .flatten()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let (verb, text) = match seconds {
        Some(_) => word(rest),
        None => (first, rest),
    };
    Some(Line {
        time: seconds,
        verb,
        text,
    })
}

fn word(text: &str) -> (&str, &str) {
    match text.split_once(char::is_whitespace) {
        Some((word, rest)) => (word, rest.trim_start()),
        None => (text, ""),
    }
}

/// A payload as text: printable ASCII unchanged, all else escaped (docs/reference/rsp-scripts.md).
pub(crate) fn encode(payload: &[u8]) -> String {
    let mut text = String::with_capacity(payload.len());
    for (at, byte) in payload.iter().enumerate() {
        let edge = at == 0 || at + 1 == payload.len();
        match byte {
            b'\n' => text.push_str("\\n"),
            b'\\' | b'{' | b'}' => text.extend(['\\', char::from(*byte)]),
            b' ' if !edge => text.push(' '),
            b'!'..=b'~' => text.push(char::from(*byte)),
            byte => text.push_str(&format!("\\x{byte:02x}")),
        }
    }
    text
}

/// A piece of a line's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// Literal bytes.
    Literal(Vec<u8>),
    /// The text between braces, which only scripts have.
    Braces(&'a str),
}

/// Decodes a line's text into pieces. The error is the problem.
pub(crate) fn decode(text: &str) -> Result<Vec<Piece<'_>>, String> {
    let mut pieces = Vec::new();
    let mut literal = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        match first {
            '\\' => {
                let (byte, len) = escaped(rest)?;
                literal.push(byte);
                rest = &rest[len..];
            }
            '{' => {
                let end = closing(rest).ok_or("a `{` without its `}`")?;
                if !literal.is_empty() {
                    pieces.push(Piece::Literal(std::mem::take(&mut literal)));
                }
                pieces.push(Piece::Braces(rest[1..end].trim()));
                rest = &rest[end + 1..];
            }
            '}' => return Err("a `}` without its `{`; write `\\}` for the byte".into()),
            ' '..='~' => {
                literal.push(first as u8);
                rest = &rest[1..];
            }
            other => {
                return Err(format!(
                    "the character {other:?}; write its bytes as `\\xNN`"
                ));
            }
        }
    }
    if !literal.is_empty() {
        pieces.push(Piece::Literal(literal));
    }
    Ok(pieces)
}

/// Decodes a text without braces.
pub(crate) fn decode_literal(text: &str) -> Result<Vec<u8>, String> {
    match decode(text)?.as_slice() {
        [] => Ok(Vec::new()),
        [Piece::Literal(bytes)] => Ok(bytes.clone()),
        _ => Err("`{...}`, which only scripts may have; write `\\{` for the byte".into()),
    }
}

/// The position of the `}` that closes the braces at the start of `text`. Ignores `}` within
/// quotes.
fn closing(text: &str) -> Option<usize> {
    let mut quoted = false;
    text.bytes().position(|b| {
        quoted ^= b == b'"';
        b == b'}' && !quoted
    })
}

/// The byte for an escape sequence at the start of `text`, and the length of the sequence.
fn escaped(text: &str) -> Result<(u8, usize), String> {
    match text.as_bytes().get(1) {
        Some(byte @ (b'\\' | b'{' | b'}')) => Ok((*byte, 2)),
        Some(b'n') => Ok((b'\n', 2)),
        Some(b'x') => {
            let digits = text.as_bytes().get(2..4).and_then(crate::hex::decode);
            match digits.as_deref() {
                Some([byte]) => Ok((*byte, 4)),
                _ => Err("`\\x` without two hexadecimal digits".into()),
            }
        }
        _ => Err("a `\\` that begins none of `\\\\ \\{ \\} \\n \\xNN`".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_payload_survives() {
        let all: Vec<u8> = (0..=255).collect();
        for payload in [
            &all[..],
            b"",
            b" ",
            b"  a b  ",
            b"{name}",
            b"\\x41",
            b"#",
            b"-> x",
        ] {
            let text = encode(payload);
            assert!(text.is_ascii() && text.trim() == text, "{text:?}");
            let line = format!("  1.5 -> {text}\n");
            let line = split(&line).unwrap();
            assert_eq!(
                (line.verb, line.time),
                ("->", Some(Duration::from_millis(1500)))
            );
            assert_eq!(decode_literal(line.text).unwrap(), payload);
        }
    }

    #[test]
    fn a_printable_packet_reads_as_it_is() {
        assert_eq!(encode(b"vCont;s:p1.2;c"), "vCont;s:p1.2;c");
        assert_eq!(encode(b"b}\x03"), "b\\}\\x03");
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, problem) in [
            ("a{b", "a `{` without its `}`"),
            ("a}", "a `}` without its `{`; write `\\}` for the byte"),
            ("\\x4", "`\\x` without two hexadecimal digits"),
            ("\\", "a `\\` that begins none of `\\\\ \\{ \\} \\n \\xNN`"),
            ("\\x4é", "`\\x` without two hexadecimal digits"),
        ] {
            assert_eq!(decode(text).unwrap_err(), problem);
        }
        assert!(decode("é").unwrap_err().contains("write its bytes"));
        assert!(decode_literal("a{b}").unwrap_err().contains("only scripts"));
    }
}
