//! Memory that processes of this machine share.

use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::DirEntryExt;

use super::local_process::LocalProcess;
use super::pipes::numbers;
use crate::maps;

/// A place in a file that processes map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedPlace {
    file: (String, u64),
    path: String,
    offset: u64,
}

/// Names for places, over all processes that are shown together.
#[derive(Debug, Default)]
pub struct SharedNames {
    /// The files of each path. All anonymous memory has the path `/dev/zero`.
    files: HashMap<String, Vec<(String, u64)>>,
}

impl SharedNames {
    /// `/dev/shm/queue+0x40`, or `/dev/zero+0x40 #2` for the second file with this path.
    pub fn name(&mut self, place: &SharedPlace) -> String {
        let SharedPlace { file, path, offset } = place;
        let files = self.files.entry(path.clone()).or_default();
        let known = files.iter().position(|known| known == file);
        let at = known.unwrap_or_else(|| {
            files.push(file.clone());
            files.len() - 1
        });
        match at {
            0 => format!("{path}+{offset:#x}"),
            _ => format!("{path}+{offset:#x} #{}", at + 1),
        }
    }
}

impl SharedPlace {
    /// Finds the thread that has stored its id at this place, among the threads of all processes
    /// that map it. Each of them may be in a PID namespace of its own. `None` if no process that
    /// can be seen has the thread.
    ///
    /// # Errors
    /// Returns the reason why the thread is not known.
    pub fn thread_of(&self, id: u64) -> Result<Option<u64>, &'static str> {
        let mut found = Vec::new();
        let mut is_hidden = false;
        for pid in numbers("/proc").filter_map(|pid| u32::try_from(pid).ok()) {
            let process = LocalProcess::new(pid);
            let thread = || process.thread_of_own_id(id);
            let Some(task) = process.living_task() else {
                continue;
            };
            match fs::read_to_string(format!("{task}/maps")) {
                Ok(maps) if SharedMemory::parse(&maps).has(self) => found.extend(thread()),
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                    is_hidden |= thread().is_some();
                }
                _ => {}
            }
        }
        match found[..] {
            [_, _, ..] => Err("its owner's id means different threads in different PID namespaces"),
            _ if is_hidden => Err("its owner may be in a process that Unspool may not examine"),
            [thread] => Ok(Some(thread)),
            [] => Ok(None),
        }
    }
}

/// The memory of a process that other processes may share.
#[derive(Debug)]
pub struct SharedMemory {
    mappings: Vec<Mapping>,
}

#[derive(Debug)]
struct Mapping {
    range: Range<u64>,
    /// The place at its start.
    start: SharedPlace,
    /// The file no longer has the name under which it was mapped.
    is_renamed: bool,
}

/// The present path of a file that had another name in the same folder. sem_open(3) creates a
/// semaphore under a temporary name.
fn present_path(root: &str, path: &str, inode: u64) -> Option<String> {
    let (folder, _) = path.rsplit_once('/').filter(|it| !it.0.is_empty())?;
    let entries = fs::read_dir(format!("{root}{folder}")).ok()?;
    let mut found = entries.flatten().filter(|entry| entry.ino() == inode);
    let name = found.next()?.file_name().into_string().ok()?;
    Some(format!("{folder}/{name}"))
}

impl SharedMemory {
    /// The shared memory of a process; empty if it cannot be read.
    pub fn of(pid: u32) -> SharedMemory {
        let task = LocalProcess::new(pid).living_task();
        let Some(task) = task else {
            return SharedMemory::parse("");
        };
        let maps = fs::read_to_string(format!("{task}/maps"));
        let mut memory = SharedMemory::parse(&maps.unwrap_or_default());
        for mapping in memory.mappings.iter_mut().filter(|it| it.is_renamed) {
            let (_, inode) = mapping.start.file;
            let now = present_path(&format!("{task}/root"), &mapping.start.path, inode);
            if let Some(path) = now {
                mapping.start.path = path;
            }
        }
        memory
    }

    fn parse(maps: &str) -> SharedMemory {
        let shared = maps::files(maps).filter(|file| file.shared);
        let mappings = shared.map(|file| Mapping {
            is_renamed: file.is_deleted(),
            range: file.range,
            start: SharedPlace {
                file: (file.device.to_owned(), file.inode),
                path: maps::without_mark(file.path).to_owned(),
                offset: file.offset,
            },
        });
        SharedMemory {
            mappings: mappings.collect(),
        }
    }

    /// The place at an address.
    pub fn place(&self, address: u64) -> Option<SharedPlace> {
        let mut mappings = self.mappings.iter();
        let mapping = mappings.find(|mapping| mapping.range.contains(&address))?;
        let start = &mapping.start;
        Some(SharedPlace {
            offset: start.offset.checked_add(address - mapping.range.start)?,
            ..start.clone()
        })
    }

    /// True if the process has a place, too.
    pub fn has(&self, place: &SharedPlace) -> bool {
        self.mappings.iter().any(|Mapping { range, start, .. }| {
            let within = place.offset.checked_sub(start.offset);
            start.file == place.file && within.is_some_and(|at| at < range.end - range.start)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_shared_files() {
        let one = SharedMemory::parse(
            "\
            1000-3000 rw-s 00001000 00:01 77   /memfd:locks (deleted)\n\
            5000-6000 rw-p 00000000 08:01 78   /lib/c\n",
        );
        let place = one.place(0x2040).unwrap();
        let mut names = SharedNames::default();
        assert_eq!(names.name(&place), "/memfd:locks+0x2040");
        assert_eq!((one.place(0x3000), one.place(0x5000)), (None, None));
        assert!(one.has(&place));
        let maps = |line: &str| SharedMemory::parse(line).has(&place);
        assert!(maps(
            "9000-b000 rw-s 00002000 00:01 77   /memfd:locks (deleted)"
        ));
        assert!(!maps(
            "9000-a000 rw-s 00003000 00:01 77   /memfd:locks (deleted)"
        ));
        assert!(!maps(
            "9000-b000 rw-s 00002000 00:01 79   /memfd:locks (deleted)"
        ));
        assert!(!maps(
            "9000-b000 rw-p 00002000 00:01 77   /memfd:locks (deleted)"
        ));
    }

    #[test]
    fn files_with_the_same_path_have_numbers() {
        let memory = SharedMemory::parse(
            "\
            1000-2000 rw-s 00000000 00:01 7   /dev/zero (deleted)\n\
            2000-3000 rw-s 00000000 00:01 8   /dev/zero (deleted)\n",
        );
        let mut names = SharedNames::default();
        let mut name = |address| names.name(&memory.place(address).unwrap());
        assert_eq!(name(0x1000), "/dev/zero+0x0");
        assert_eq!(name(0x2000), "/dev/zero+0x0 #2");
        assert_eq!(name(0x1040), "/dev/zero+0x40");
    }

    #[test]
    fn renamed_files_have_their_present_name() {
        let folder = std::env::temp_dir().join(format!("renamed-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let [before, now] = ["before", "now"].map(|name| folder.join(name));
        fs::write(&before, "").unwrap();
        fs::rename(&before, &now).unwrap();
        let inode = std::os::unix::fs::MetadataExt::ino(&fs::metadata(&now).unwrap());
        let present = |inode| present_path("", before.to_str().unwrap(), inode);
        let (same, other) = (present(inode), present(u64::MAX));
        fs::remove_dir_all(folder).unwrap();
        assert_eq!((same.as_deref(), other), (now.to_str(), None));
        assert_eq!(present_path("", "/memfd:locks", 1), None);
    }
}
