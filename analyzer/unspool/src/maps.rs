//! The files that a local process has mapped.

use std::fs;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The end of the name of a file that was deleted or replaced (proc(5)).
const DELETED: &str = " (deleted)";

/// A part of a file in memory: a line of `/proc/PID/maps` (proc(5)), `55d7-55d9 r-xp 00002000 08:01
/// 1234   /bin/sh`.
pub(crate) struct FileMapping<'l> {
    pub(crate) range: Range<u64>,
    /// Offset in the file of the first byte.
    pub(crate) offset: u64,
    pub(crate) executable: bool,
    /// Other processes that map the file see changes of the memory.
    pub(crate) shared: bool,
    /// The file's device, as the kernel prints it, and its inode number.
    pub(crate) device: &'l str,
    pub(crate) inode: u64,
    pub(crate) path: &'l str,
}

impl FileMapping<'_> {
    /// True if the path no longer leads to the file: it was deleted or another file replaced it.
    pub(crate) fn is_deleted(&self) -> bool {
        self.path.ends_with(DELETED)
    }

    /// The kernel's paths of a deleted file of a process, best first. The first needs
    /// CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE; the second is the program's.
    pub(crate) fn kernel_paths(&self, pid: u64) -> [String; 2] {
        let Range { start, end } = self.range;
        [
            format!("/proc/{pid}/map_files/{start:x}-{end:x}"),
            format!("/proc/{pid}/exe"),
        ]
    }

    /// A path by which the file can be read on this machine: its own, or the kernel's if it was
    /// deleted or belongs to another mount namespace.
    pub(crate) fn readable(&self, pid: u64) -> String {
        if self.is_deleted() {
            let [mapped, program] = self.kernel_paths(pid);
            let is_program = || {
                let link = fs::read_link(&program);
                link.is_ok_and(|link| link == Path::new(self.path))
            };
            return match identity(&mapped).is_none() && is_program() {
                true => program,
                false => mapped,
            };
        }
        let rooted = format!("/proc/{pid}/root{}", self.path);
        match (identity(self.path), identity(&rooted)) {
            (here, Some(there)) if here != Some(there) => rooted,
            _ => self.path.to_owned(),
        }
    }
}

/// The path that a mapped file had before it was deleted or replaced.
pub(crate) fn without_mark(path: &str) -> &str {
    path.strip_suffix(DELETED).unwrap_or(path)
}

/// Device and inode of the file that a path leads to.
fn identity(path: &str) -> Option<(u64, u64)> {
    let file = fs::metadata(path).ok()?;
    Some((file.dev(), file.ino()))
}

/// The mapping of a file that contains an address, by the text of `/proc/PID/maps`.
pub(crate) fn file_at(maps: &str, avma: u64) -> Option<FileMapping<'_>> {
    files(maps).find(|file| file.range.contains(&avma))
}

/// A path of the file that a process of this machine has mapped at an address, by the text of
/// `/proc/PID/maps`. `None` if `path` leads to the file.
pub(crate) fn file_behind(maps: &str, pid: u64, path: &str, avma: u64) -> Option<String> {
    let mapping = file_at(maps, avma)?;
    let file = mapping.readable(pid);
    let at_path = identity(&format!("/proc/{pid}/root{path}"));
    match identity(&file) {
        Some(mapped) => (at_path != Some(mapped)).then_some(file),
        None => mapping.is_deleted().then_some(file),
    }
}

/// The addresses of a line of `/proc/PID/maps`, and the rest of the line: permissions, offset,
/// device, inode, name.
pub(crate) fn parse(line: &str) -> Option<(Range<u64>, &str)> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let address = |text| u64::from_str_radix(text, 16).ok();
    Some((address(start)?..address(end)?, rest))
}

/// All file mappings in the text of `/proc/PID/maps`, by address.
pub(crate) fn files(maps: &str) -> impl Iterator<Item = FileMapping<'_>> {
    maps.lines().filter_map(|line| {
        let (range, rest) = parse(line)?;
        Some(FileMapping {
            range,
            offset: u64::from_str_radix(rest.split(' ').nth(1)?, 16).ok()?,
            executable: rest.as_bytes().get(2) == Some(&b'x'),
            shared: rest.as_bytes().get(3) == Some(&b's'),
            device: rest.split(' ').nth(2)?,
            inode: rest.split(' ').nth(3)?.parse().ok()?,
            path: &rest[rest.find('/')?..],
        })
    })
}

/// The addresses among `addresses` that are in memory which no other process shares, by the text of
/// `/proc/PID/maps`.
pub(crate) fn private(maps: &str, mut addresses: Vec<u64>) -> Vec<u64> {
    let all = maps.lines().filter_map(parse);
    let is_private = |rest: &str| rest.as_bytes().get(3) == Some(&b'p');
    let ranges = all.filter_map(|(range, rest)| is_private(rest).then_some(range));
    let ranges: Vec<Range<u64>> = ranges.collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses.retain(|address| {
        let after = ranges.partition_point(|range| range.end <= *address);
        ranges
            .get(after)
            .is_some_and(|range| range.contains(address))
    });
    addresses
}

/// Executable memory without a file of the disk, in the text of `/proc/PID/maps`, by address: what
/// JIT compilers and other code generators map. Some map it twice, by memfd_create(2). V8 also maps
/// a part of its own file, which `is_module` names, a second time.
pub(crate) fn generated_code(
    maps: &str,
    is_module: impl Fn(&str) -> bool,
) -> impl Iterator<Item = Range<u64>> {
    maps.lines().filter_map(move |line| {
        let (range, rest) = parse(line)?;
        let name = rest.split_whitespace().nth(4).unwrap_or_default();
        let is_kernels = ["[vdso]", "[vsyscall]", "[vectors]", "[sigpage]"].contains(&name);
        let is_shared = ["/memfd:", "/dev/zero", "/SYSV"]
            .iter()
            .any(|prefix| name.starts_with(prefix));
        let is_file = name.starts_with('/') && !is_shared && !is_module(name);
        let is_executable = rest.as_bytes().get(2) == Some(&b'x');
        let is_generated = is_executable && !is_kernels && !is_file;
        is_generated.then_some(range)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinguishes_code_data_and_anonymous_mappings() {
        let code = "55d7c000-55d9c000 r-xp 00002000 08:01 1234   /opt/a b/libc.so.6";
        let only = |line: &str| -> Option<(Range<u64>, bool, String)> {
            let mut all = files(line);
            let first = all
                .next()
                .map(|file| (file.range, file.executable, file.path.to_owned()));
            assert!(all.next().is_none());
            first
        };
        let range = 0x55d7_c000..0x55d9_c000;
        let path = "/opt/a b/libc.so.6".to_owned();
        assert_eq!(only(code), Some((range.clone(), true, path.clone())));
        let data = code.replace("r-xp", "r--p");
        assert_eq!(only(&data), Some((range, false, path)));
        assert_eq!(
            only("7ffd1000-7ffd3000 r-xp 00000000 00:00 0   [vdso]"),
            None
        );
    }

    #[test]
    fn generated_code_has_no_file() {
        let maps = "\
            1000-2000 r-xp 00000000 08:01 12 /bin/sh\n\
            2000-3000 rwxp 00000000 00:00 0 \n\
            3000-4000 rw-p 00000000 00:00 0 [heap]\n\
            4000-5000 r-xs 00001000 00:01 7 /memfd:jit (deleted)\n\
            5000-6000 r-xp 00000000 00:00 0 [anon:code]\n\
            6000-7000 r-xp 00000000 00:00 0 [vdso]\n\
            7000-8000 r-xp 00000000 08:01 13 /bin/node\n";
        let found: Vec<_> = generated_code(maps, |name| name == "/bin/node").collect();
        let expected = [0x2000, 0x4000, 0x5000, 0x7000];
        assert_eq!(found, expected.map(|start| start..start + 0x1000));
    }
}
