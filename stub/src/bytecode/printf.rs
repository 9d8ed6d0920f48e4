//! Format strings in the agent expressions of gdb's `dprintf`: the format of C's printf, with the
//! escapes of C source.
//!
//! gdb checks the format, but the client is not trusted. Values are integers, addresses, and
//! strings in the program.

/// Maximum width and precision of a directive, in characters.
const MAX_WIDTH: usize = 4096;

/// The formatted text. `string` reads a string of the program. `None` if the format is invalid, or
/// if values are missing.
pub(super) fn format(
    format: &[u8],
    values: &[i64],
    string: &mut dyn FnMut(u64) -> Vec<u8>,
) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let mut values = values.iter().copied();
    let mut rest = format.iter().copied().peekable();
    while let Some(byte) = rest.next() {
        match byte {
            b'\\' => text.push(escaped(&mut rest)?),
            b'%' => {
                let directive = Directive::read(&mut rest)?;
                match directive.conversion {
                    b'%' => text.push(b'%'),
                    _ => directive.write(values.next()?, string, &mut text)?,
                }
            }
            byte => text.push(byte),
        }
    }
    Some(text)
}

type Bytes<'a> = std::iter::Peekable<std::iter::Copied<std::slice::Iter<'a, u8>>>;

/// The character of an escape sequence; the backslash has been read.
fn escaped(rest: &mut Bytes<'_>) -> Option<u8> {
    Some(match rest.next()? {
        b'a' => 7,
        b'b' => 8,
        b'e' => 27,
        b'f' => 12,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 11,
        other => other,
    })
}

/// A directive after a percent sign.
#[derive(Default)]
struct Directive {
    left: bool,
    zeros: bool,
    /// The character before a number that is not negative.
    sign: Option<u8>,
    prefixed: bool,
    width: usize,
    precision: Option<usize>,
    bits: u32,
    conversion: u8,
}

impl Directive {
    fn read(rest: &mut Bytes<'_>) -> Option<Directive> {
        let mut read = Directive::default();
        while let Some(flag) = rest.next_if(|byte| b"-0+ #'".contains(byte)) {
            match flag {
                b'-' => read.left = true,
                b'0' => read.zeros = true,
                b'#' => read.prefixed = true,
                b'\'' => {}
                sign => read.sign = read.sign.max(Some(sign)),
            }
        }
        read.width = number(rest);
        if rest.next_if_eq(&b'.').is_some() {
            read.precision = Some(number(rest));
        }
        let mut length = Vec::new();
        while let Some(letter) = rest.next_if(|byte| b"lz".contains(byte)) {
            length.push(letter);
        }
        read.bits = match &length[..] {
            b"" => 32,
            b"l" | b"z" => usize::BITS,
            b"ll" => 64,
            _ => return None,
        };
        read.conversion = rest.next()?;
        Some(read)
    }

    fn write(
        &self,
        value: i64,
        string: &mut dyn FnMut(u64) -> Vec<u8>,
        text: &mut Vec<u8>,
    ) -> Option<()> {
        let unused = 64 - self.bits;
        let unsigned = value.cast_unsigned() << unused >> unused;
        let (before, body) = match self.conversion {
            b'd' | b'i' => {
                let value = value << unused >> unused;
                let sign = if value < 0 { Some(b'-') } else { self.sign };
                (
                    sign.into_iter().collect(),
                    self.digits(value.unsigned_abs(), 10),
                )
            }
            b'u' => (Vec::new(), self.digits(unsigned, 10)),
            b'o' => {
                let digits = self.digits(unsigned, 8);
                let lacks_zero = self.prefixed && digits.first() != Some(&b'0');
                (vec![b'0'; usize::from(lacks_zero)], digits)
            }
            b'x' | b'X' if self.prefixed && unsigned != 0 => {
                (vec![b'0', self.conversion], self.digits(unsigned, 16))
            }
            b'x' | b'X' => (Vec::new(), self.digits(unsigned, 16)),
            b'p' if value == 0 => (Vec::new(), b"(nil)".to_vec()),
            b'p' => (b"0x".to_vec(), self.digits(value.cast_unsigned(), 16)),
            b'c' => (Vec::new(), vec![value as u8]),
            b's' => {
                let mut bytes = match value {
                    0 => b"(null)".to_vec(),
                    at => string(at.cast_unsigned()),
                };
                bytes.truncate(self.precision.unwrap_or(usize::MAX));
                (Vec::new(), bytes)
            }
            _ => return None,
        };
        let padding = self.width.saturating_sub(before.len() + body.len());
        let is_number = !matches!(self.conversion, b'c' | b's');
        let zeros = self.zeros && !self.left && self.precision.is_none() && is_number;
        let pad = |text: &mut Vec<u8>, on: bool, with: u8| {
            if on {
                text.resize(text.len() + padding, with);
            }
        };
        pad(text, !self.left && !zeros, b' ');
        text.extend(before);
        pad(text, zeros, b'0');
        text.extend(body);
        pad(text, self.left, b' ');
        Some(())
    }

    /// The digits of a number, at least as many as the precision.
    fn digits(&self, mut value: u64, base: u64) -> Vec<u8> {
        let letters = if self.conversion == b'X' { b'A' } else { b'a' };
        let mut digits = Vec::new();
        while value != 0 || digits.len() < self.precision.unwrap_or(1) {
            let digit = (value % base) as u8;
            digits.push(if digit < 10 {
                b'0' + digit
            } else {
                letters - 10 + digit
            });
            value /= base;
        }
        digits.reverse();
        digits
    }
}

fn number(rest: &mut Bytes<'_>) -> usize {
    let mut number = 0;
    while let Some(digit) = rest.next_if(u8::is_ascii_digit) {
        number = (10 * number + usize::from(digit - b'0')).min(MAX_WIDTH);
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directive(text: &str) -> Directive {
        let mut bytes = text.as_bytes().iter().copied().peekable();
        bytes.next();
        Directive::read(&mut bytes).unwrap()
    }

    /// Compares with C's own printf.
    #[test]
    fn as_c_prints() {
        let numbers = [
            0,
            1,
            -1,
            7,
            -3,
            255,
            -32769,
            0x1234_5678,
            i64::from(i32::MIN),
            i64::MAX,
            i64::MIN,
        ];
        let flags = ["", "-", "0", "+", " ", "#", "-+", "0#", "+0", " -", "+ "];
        let widths = ["", "1", "12", ".0", ".7", "12.3", "3.12"];
        let lengths = ["", "l", "ll", "z"];
        let mut tried = 0;
        for flags in flags {
            for width in widths {
                for length in lengths {
                    for conversion in ["d", "i", "u", "x", "X", "o"] {
                        let text = format!("<%{flags}{width}{length}{conversion}>");
                        for value in numbers {
                            let wide = directive(&text[1..]).bits == 64;
                            let expected = crate::sys::printed(&text, value, wide);
                            let ours = format(text.as_bytes(), &[value], &mut |_| Vec::new());
                            assert_eq!(ours.as_deref(), Some(&expected[..]), "{text} {value}");
                            tried += 1;
                        }
                    }
                }
            }
        }
        assert_eq!(tried, 11 * 7 * 4 * 6 * 11);
    }

    #[test]
    fn strings_and_escapes() {
        let ours = |text: &str, values: &[i64]| {
            let mut read = |at: u64| format!("string {at}").into_bytes();
            let text = format(text.as_bytes(), values, &mut read)?;
            Some(String::from_utf8(text).unwrap())
        };
        for (text, values, expected) in [
            (
                "%s|%.3s|%12s|%-12s|",
                &[1, 2, 3, 4][..],
                "string 1|str|    string 3|string 4    |",
            ),
            ("%s %p %p %c%%", &[0, 0, 0x1f, 65], "(null) (nil) 0x1f A%"),
            (
                "%10p|%-6p|%3c|%-3c|",
                &[16, 16, 66, 67],
                "      0x10|0x10  |  B|C  |",
            ),
            (r#"\t\"\\\e\x"#, &[], "\t\"\\\u{1b}x"),
        ] {
            assert_eq!(ours(text, values).as_deref(), Some(expected));
        }
        for nonsense in ["%", "%d %d", "%f", "%ls%n", "%hd", "\\", "%*d", "%-"] {
            assert_eq!(ours(nonsense, &[1]), None, "{nonsense}");
        }
        assert!(ours("%99999999d", &[1]).unwrap().len() == MAX_WIDTH);
    }
}
