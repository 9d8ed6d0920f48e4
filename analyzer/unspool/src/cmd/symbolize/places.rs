//! Finds the places in a line of text that stand for addresses.
//!
//! Separate from the lookup because it needs only the text. It takes bytes, because logs hold
//! anything.

use std::ops::Range;

use unspool_image::BuildId;

/// A place in a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place<'t> {
    /// The bytes to replace.
    pub(super) range: Range<usize>,
    pub(super) kind: Kind<'t>,
    /// The build-id of the file, if the text states it.
    pub(super) build_id: Option<BuildId>,
    /// True if the address is that after a call.
    pub(super) is_return_address: bool,
}

/// The forms of places.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind<'t> {
    /// `NAME+0xOFFSET` or `NAME+0xOFFSET/0xSIZE`, of a function or a file.
    Offset {
        name: &'t str,
        offset: u64,
        size: Option<u64>,
    },
    /// `MODULE(FUNCTION+0xOFFSET)` or, with an empty function, `MODULE(+0xOFFSET)`.
    InModule {
        module: &'t str,
        function: &'t str,
        offset: u64,
    },
    /// `MODULE() [0xADDRESS]` or `MODULE[0xADDRESS]`, of a program with fixed addresses.
    InProgram { module: &'t str, address: u64 },
    /// `[<ADDRESS>]`, perhaps followed by `(FUNCTION)`.
    Address {
        address: u64,
        function: Option<&'t str>,
    },
}

/// Words before a place that state the address of an instruction, not of a return.
const EXACT: [&[u8]; 7] = [
    b"RIP",
    b"EIP",
    b"PC is at",
    b"pc : ",
    b"WARNING:",
    b"BUG:",
    b"#",
];

/// All places in a line, in order.
pub(super) fn all(line: &[u8]) -> Vec<Place<'_>> {
    let mut places: Vec<Place<'_>> = Vec::new();
    let mut at = 0;
    while let Some(next) = memchr::memchr2(b'+', b'[', &line[at..]) {
        let from = places.last().map_or(0, |place| place.range.end);
        let here = at + next;
        let place = match line[here] {
            b'+' => offset(line, from, here),
            _ => address(line, here).or_else(|| in_program(line, from, here)),
        };
        at = here + 1;
        if let Some(place) = place {
            at = at.max(place.range.end);
            places.push(place);
        }
    }
    places
}

/// The place around a `+`.
fn offset(line: &[u8], from: usize, plus: usize) -> Option<Place<'_>> {
    let (offset, mut end) = prefixed_hex(line, plus + 1)?;
    let mut size = None;
    if line.get(end) == Some(&b'/')
        && let Some((value, after)) = prefixed_hex(line, end + 1)
    {
        (size, end) = (Some(value), after);
    }
    if line.get(end).is_some_and(|byte| is_word(*byte)) {
        return None;
    }
    let start = token_start(line, from, plus);
    let is_enclosed = start > from && line[start - 1] == b'(';
    // backtrace_symbols(3): the path comes directly before the parenthesis.
    if is_enclosed && size.is_none() && line.get(end) == Some(&b')') {
        let path = token_start(line, from, start - 1);
        if path < start - 1 {
            return Some(Place {
                range: start..end,
                kind: Kind::InModule {
                    module: text(&line[path..start - 1])?,
                    function: text(&line[start..plus])?,
                    offset,
                },
                build_id: None,
                is_return_address: offset > 0,
            });
        }
    }
    // `RIP: 0010:function`
    let segment = line[start..plus].iter().rposition(|byte| *byte == b':');
    let mut start = match segment {
        Some(colon) if line[start..start + colon].iter().all(u8::is_ascii_hexdigit) => {
            start + colon + 1
        }
        _ => start,
    };
    // A path with blanks, in parentheses.
    if line.get(end) == Some(&b')')
        && let Some(open) = line[from..plus].iter().rposition(|byte| *byte == b'(')
        && line.get(from + open + 1) == Some(&b'/')
    {
        start = from + open + 1;
    }
    let name = text(&line[start..plus]).filter(|name| !name.is_empty())?;
    let before = &line[..start];
    let is_exact = EXACT
        .iter()
        .any(|word| memchr::memmem::find(before, word).is_some());
    Some(Place {
        range: start..end,
        kind: Kind::Offset { name, offset, size },
        build_id: build_id(&line[end..]),
        is_return_address: offset > 0 && !is_exact && !name.contains('/'),
    })
}

/// The place at a `[`.
fn address(line: &[u8], open: usize) -> Option<Place<'_>> {
    let digits = open + 2;
    if line.get(open + 1) != Some(&b'<') {
        return None;
    }
    let (address, end) = hex(line, digits)?;
    if line.get(end..end + 2)? != b">]" || end - digits < 8 {
        return None;
    }
    let end = end + 2;
    let rest = &line[end..];
    let follows = rest.strip_prefix(b" ").unwrap_or(rest);
    let (follows, is_enclosed) = match follows.strip_prefix(b"(") {
        Some(inside) => (inside, true),
        None => (follows, false),
    };
    let len = follows.iter().take_while(|byte| is_name(**byte)).count();
    // The function with its offset follows, and says the same.
    if memchr::memmem::find(&follows[..len], b"+0x").is_some() {
        return None;
    }
    let function = is_enclosed && follows.get(len) == Some(&b')');
    let before = &line[..open];
    let is_exact = before.ends_with(b"pc : ") || before.ends_with(b"PC is at ");
    Some(Place {
        range: open..end,
        kind: Kind::Address {
            address,
            function: if function {
                text(&follows[..len])
            } else {
                None
            },
        },
        build_id: None,
        is_return_address: !is_exact,
    })
}

/// The place before or at a `[`, as backtrace_symbols(3) and backtrace_symbols_fd(3) write
/// functions without an exported name.
fn in_program(line: &[u8], from: usize, open: usize) -> Option<Place<'_>> {
    let (address, end) = prefixed_hex(line, open + 1)?;
    if line.get(end) != Some(&b']') {
        return None;
    }
    let (path_end, range) = match line[from..open].strip_suffix(b"() ") {
        Some(before) => {
            let path_end = from + before.len();
            (path_end, path_end + 1..path_end + 1)
        }
        None => (open, open + 1..end),
    };
    let start = token_start(line, from, path_end);
    let module = text(&line[start..path_end]).filter(|module| !module.is_empty())?;
    Some(Place {
        range,
        kind: Kind::InProgram { module, address },
        build_id: None,
        is_return_address: true,
    })
}

/// The build-id in ` (BuildId: 0123...)`, which sanitizers print after a place.
fn build_id(after: &[u8]) -> Option<BuildId> {
    let digits = after.strip_prefix(b") (BuildId: ")?;
    let end = digits.iter().position(|byte| *byte == b')')?;
    text(&digits[..end])?.parse().ok()
}

/// Where the word that ends at `end` begins.
fn token_start(line: &[u8], from: usize, end: usize) -> usize {
    let len = line[from..end]
        .iter()
        .rev()
        .take_while(|byte| is_name(**byte))
        .count();
    end - len
}

/// Bytes of function names and paths.
fn is_name(byte: u8) -> bool {
    !byte.is_ascii_whitespace() && !byte.is_ascii_control() && !b"()[]<>{},;\"'`=|".contains(&byte)
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

/// The number after `0x` at a position, and where it ends.
fn prefixed_hex(line: &[u8], at: usize) -> Option<(u64, usize)> {
    line.get(at..)?.strip_prefix(b"0x")?;
    hex(line, at + 2)
}

fn hex(line: &[u8], at: usize) -> Option<(u64, usize)> {
    let digits = line.get(at..)?;
    let len = digits
        .iter()
        .take_while(|byte| byte.is_ascii_hexdigit())
        .count();
    let value = u64::from_str_radix(text(&digits[..len])?, 16).ok()?;
    Some((value, at + len))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(line: &[u8]) -> (&[u8], Kind<'_>, bool) {
        let mut places = all(line);
        assert_eq!(places.len(), 1, "{:?}", line.escape_ascii().to_string());
        let place = places.remove(0);
        (&line[place.range], place.kind, place.is_return_address)
    }

    fn function(name: &str, offset: u64, size: Option<u64>) -> Kind<'_> {
        Kind::Offset { name, offset, size }
    }

    #[test]
    fn kernel_traces() {
        let (place, kind, is_return) = only(b"[ 1.5] ? schedule+0x5a/0xb0 [mod]\n");
        assert_eq!(place, b"schedule+0x5a/0xb0");
        assert_eq!(kind, function("schedule", 0x5a, Some(0xb0)));
        assert!(is_return);
        let (place, kind, is_return) = only(b"RIP: 0010:do_exit+0x1/0x2\n");
        assert_eq!(place, b"do_exit+0x1/0x2");
        assert_eq!(kind, function("do_exit", 1, Some(2)));
        assert!(!is_return);
    }

    #[test]
    fn arm_oopses() {
        let (_, kind, is_return) = only(b"PC is at cpu_die+0x10/0x34");
        assert_eq!(
            (kind, is_return),
            (function("cpu_die", 0x10, Some(0x34)), false)
        );
        let (_, _, is_return) = only(b"LR is at cpu_die+0x10/0x34");
        assert!(is_return);
        let line = b"[<c0010abc>] (unwind_backtrace) from [<c000d0e8>] (show_stack+0x18/0x1c)";
        let places = all(line);
        let texts: Vec<&[u8]> = places
            .iter()
            .map(|place| &line[place.range.clone()])
            .collect();
        assert_eq!(texts, [&b"[<c0010abc>]"[..], b"show_stack+0x18/0x1c"]);
        let function = Some("unwind_backtrace");
        let address = 0xc001_0abc;
        assert_eq!(places[0].kind, Kind::Address { address, function });
        let places = all(b"pc : [<c0101010>]    lr : [<c0202020>]    psr: 60000013");
        let returns: Vec<bool> = places.iter().map(|place| place.is_return_address).collect();
        assert_eq!(returns, [false, true]);
    }

    #[test]
    fn backtraces_of_glibc() {
        let (place, kind, is_return) = only(b"./prog(main+0x12) [0x55d0]\n");
        assert_eq!(place, b"main+0x12");
        let module = "./prog";
        let function = "main";
        let offset = 0x12;
        assert_eq!(
            kind,
            Kind::InModule {
                module,
                function,
                offset
            }
        );
        assert!(is_return);
        let (place, kind, _) = only(b"prog(+0x1139) [0x55d0]");
        assert_eq!(place, b"+0x1139");
        let (module, function, offset) = ("prog", "", 0x1139);
        assert_eq!(
            kind,
            Kind::InModule {
                module,
                function,
                offset
            }
        );
    }

    #[test]
    fn backtraces_of_programs_with_fixed_addresses() {
        let program = |module| Kind::InProgram {
            module,
            address: 0x40_11a7,
        };
        let (place, kind, is_return) = only(b"log: ./prog() [0x4011a7]\n");
        assert_eq!(
            (place, kind, is_return),
            (&b""[..], program("./prog"), true)
        );
        let (place, kind, is_return) = only(b"/opt/prog[0x4011a7]\n");
        assert_eq!(
            (place, kind, is_return),
            (&b"0x4011a7"[..], program("/opt/prog"), true)
        );
    }

    #[test]
    fn sanitizers() {
        let line = b"    #1 0x7f0 in f (/opt/a b/x.so+0x1f) (BuildId: 00ff)";
        let places = all(line);
        assert_eq!(places.len(), 1);
        assert_eq!(&line[places[0].range.clone()], b"/opt/a b/x.so+0x1f");
        assert_eq!(places[0].build_id, BuildId::new(&[0, 255]));
        assert!(!places[0].is_return_address);
    }

    #[test]
    fn other_text_has_no_places() {
        for line in [
            &b"a+b"[..],
            b"x + 0x12",
            b"f+0x",
            b"f+0x12zz",
            b"f+0x1ffffffffffffffff",
            b"+0x12",
            b"[<1234>] [<zzzzzzzz>]",
            b"\xff\xfe+0x12",
            b"[<c0101010",
            b"[0x4011a7] (x)[0x4011a7]",
            b"prog [0x4011a7] prog[0x4011a7",
            b"prog[0x] prog[4011a7]",
        ] {
            assert_eq!(all(line), [], "{:?}", line.escape_ascii().to_string());
        }
    }
}
