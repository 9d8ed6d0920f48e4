//! The mappings of a process, from `/proc/PID/maps` (proc(5)).

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Range;

use super::{Tid, proc_file};

/// The name of the first thread's stack.
const FIRST_STACK: &str = "[stack]";

/// One line of the file.
#[derive(Debug)]
pub(crate) struct Mapping<'a> {
    pub(crate) range: Range<u64>,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    pub(crate) executable: bool,
    /// Start of the mapping in the file, in bytes.
    pub(crate) offset: u64,
    /// Empty, a name in brackets, or the path of the file.
    pub(crate) path: &'a str,
}

/// The mapping of a thread's stack.
#[derive(Debug)]
pub(crate) struct StackMapping {
    pub(crate) range: Range<u64>,
    /// It is the first thread's stack, which grows.
    pub(crate) grows: bool,
}

/// Reads the file. Empty if the process or its first thread has ended.
pub(crate) fn read(process: Tid) -> String {
    // File names may contain any bytes.
    let bytes = proc_file::read(format!("/proc/{process}/maps"));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// All mappings, in the order of their addresses.
pub(crate) fn mappings(text: &str) -> impl Iterator<Item = Mapping<'_>> {
    text.lines().filter_map(mapping)
}

/// The mapping that contains an address.
pub(crate) fn around(text: &str, address: u64) -> Option<Mapping<'_>> {
    mappings(text).find(|mapping| mapping.range.contains(&address))
}

/// The mapping of the stack that contains `sp`.
///
/// Reads the file only up to there. The kernel places a new stack below all others, so this takes
/// the same time however many threads there are.
pub(crate) fn stack(process: Tid, sp: u64) -> Option<StackMapping> {
    let file = File::open(format!("/proc/{process}/maps")).ok()?;
    stack_in(BufReader::new(file), sp)
}

fn stack_in(file: impl BufRead, sp: u64) -> Option<StackMapping> {
    for line in file.split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        let found = mapping(&line).filter(|mapping| sp < mapping.range.end);
        if let Some(Mapping { range, path, .. }) = found {
            let grows = path == FIRST_STACK;
            return range.contains(&sp).then_some(StackMapping { range, grows });
        }
    }
    None
}

fn mapping(line: &str) -> Option<Mapping<'_>> {
    let mut words = line.splitn(6, ' ');
    let (range, rights, offset) = (words.next()?, words.next()?, words.next()?);
    let (start, end) = range.split_once('-')?;
    let number = |digits| u64::from_str_radix(digits, 16).ok();
    Some(Mapping {
        range: number(start)?..number(end)?,
        readable: rights.contains('r'),
        writable: rights.contains('w'),
        executable: rights.contains('x'),
        offset: number(offset)?,
        path: words.nth(2).unwrap_or_default().trim(),
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn lines() {
        let text = "7f00-8f00 r-xp 00001000 fe:00 1234                     /usr/lib/a b.so\n\
                    9000-a000 rw-p 00000000 00:00 0 \n";
        let mapping = around(text, 0x8eff).expect("a mapping");
        assert_eq!(mapping.path, "/usr/lib/a b.so");
        assert_eq!((mapping.range, mapping.offset), (0x7f00..0x8f00, 0x1000));
        assert!(mapping.executable && !mapping.writable);
        let data = around(text, 0x9000).expect("a mapping");
        assert!(data.path.is_empty() && data.writable && !data.executable);
        assert!(around(text, 0x8f00).is_none());
    }

    #[test]
    fn a_stack_is_read_no_further_than_necessary() {
        let text = "7000-9000 rw-p 00000000 00:00 0 \n\
                    a000-c000 rw-p 00000000 00:00 0                          [stack]\n";
        let (first, rest) = text.split_at(text.find('a').unwrap_or(0));
        let mut rest = rest.as_bytes();
        let found = stack_in(first.as_bytes().chain(&mut rest), 0x7100).expect("a stack");
        assert_eq!((found.range, found.grows), (0x7000..0x9000, false));
        assert!(!rest.is_empty());
        let found = stack_in(text.as_bytes(), 0xa100).expect("a stack");
        assert_eq!((found.range, found.grows), (0xa000..0xc000, true));
        assert!(stack_in(text.as_bytes(), 0x9100).is_none());
        assert!(stack_in(text.as_bytes(), 0xc000).is_none());
    }
}
