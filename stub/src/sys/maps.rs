//! The mappings of a process, from `/proc/PID/maps` (proc(5)).

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::os::fd::AsRawFd;

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

/// The mapping that contains an address, of all mappings in the order of their addresses.
pub(crate) fn find<'a, 'b>(all: &'b [Mapping<'a>], address: u64) -> Option<&'b Mapping<'a>> {
    let at = all.partition_point(|mapping| mapping.range.end <= address);
    let mapping = all.get(at);
    mapping.filter(|mapping| mapping.range.contains(&address))
}

/// The question about one mapping, and the kernel's answer: `struct procmap_query` (linux/fs.h).
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    query_flags: u64,
    query_address: u64,
    start: u64,
    end: u64,
    flags: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    device: [u32; 2],
    name_size: u32,
    build_id_size: u32,
    name: u64,
    build_id: u64,
}

/// `_IOWR('f', 17, struct procmap_query)`, since Linux 6.11.
const PROCMAP_QUERY: u32 = 0xc068_6611;

/// The mapping of the stack that contains `sp`.
///
/// A process has two mappings for each thread, so reading all of them for each thread would take
/// time quadratic in the number of threads. The kernel looks one up, or else the file is read only
/// as far as necessary: the kernel places a new stack below all others.
pub(crate) fn stack(process: Tid, sp: u64) -> Option<StackMapping> {
    let file = File::open(format!("/proc/{process}/maps")).ok()?;
    query(&file, sp).or_else(|| stack_in(BufReader::new(file), sp))
}

/// The kernel's answer. `None` if no mapping contains `sp` or the kernel has no such answers.
fn query(file: &File, sp: u64) -> Option<StackMapping> {
    let mut name = [0; libc::PATH_MAX as usize];
    let mut query = Query {
        size: size_of::<Query>() as u64,
        query_address: sp,
        name_size: name.len() as u32,
        name: name.as_mut_ptr() as u64,
        ..Query::default()
    };
    // SAFETY: the kernel writes to the query, and at most `name_size` bytes to `name`.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), PROCMAP_QUERY as _, &raw mut query) };
    // The name's size includes a NUL, and is 0 without a name.
    let length = (query.name_size as usize).saturating_sub(1);
    (result == 0).then(|| StackMapping {
        range: query.start..query.end,
        grows: name.get(..length) == Some(FIRST_STACK.as_bytes()),
    })
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
        let all: Vec<Mapping<'_>> = mappings(text).collect();
        for address in [0x7eff, 0x7f00, 0x8eff, 0x8f00, 0x9000, 0x9fff, 0xa000] {
            let found = find(&all, address).map(|mapping| &mapping.range);
            assert_eq!(
                found,
                around(text, address).as_ref().map(|mapping| &mapping.range)
            );
        }
    }

    /// Kernels before 6.11 cannot answer.
    #[test]
    fn the_kernels_answers_are_those_of_the_file() {
        let local = 0_u8;
        let file = File::open("/proc/self/maps").expect("the mappings");
        let text = std::fs::read_to_string("/proc/self/maps").expect("the mappings");
        let first = mappings(&text).find(|mapping| mapping.path == FIRST_STACK);
        let first = first.expect("the first stack").range.end - 8;
        for sp in [&raw const local as u64, first] {
            let Some(answer) = query(&file, sp) else {
                continue;
            };
            let read = stack_in(text.as_bytes(), sp).expect("a stack");
            assert_eq!(
                (answer.range.end, answer.grows),
                (read.range.end, read.grows)
            );
            assert!(answer.range.contains(&sp));
        }
        assert!(query(&file, 8).is_none());
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
