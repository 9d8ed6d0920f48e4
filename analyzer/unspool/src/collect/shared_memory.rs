//! Memory that processes of this machine share.

use std::fmt;
use std::fs;

use crate::maps;

/// A place in a file that processes map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedPlace {
    file: (String, u64),
    path: String,
    offset: u64,
}

impl fmt::Display for SharedPlace {
    /// `/dev/shm/queue+0x40`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{:#x}", self.path, self.offset)
    }
}

/// The memory of a process that other processes may share.
#[derive(Debug)]
pub struct SharedMemory {
    /// `/proc/PID/maps`
    maps: String,
}

impl SharedMemory {
    /// The shared memory of a process; empty if it cannot be read.
    pub fn of(pid: u32) -> SharedMemory {
        SharedMemory {
            maps: fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default(),
        }
    }

    fn files(&self) -> impl Iterator<Item = maps::FileMapping<'_>> {
        maps::files(&self.maps).filter(|file| file.shared)
    }

    /// The place at an address.
    pub fn place(&self, address: u64) -> Option<SharedPlace> {
        let file = self.files().find(|file| file.range.contains(&address))?;
        let path = file.path.strip_suffix(" (deleted)").unwrap_or(file.path);
        Some(SharedPlace {
            file: (file.device.to_owned(), file.inode),
            path: path.to_owned(),
            offset: file.offset.checked_add(address - file.range.start)?,
        })
    }

    /// True if the process has a place, too.
    pub fn has(&self, place: &SharedPlace) -> bool {
        self.files().any(|file| {
            let within = place.offset.checked_sub(file.offset);
            let length = file.range.end - file.range.start;
            (file.device, file.inode) == (place.file.0.as_str(), place.file.1)
                && within.is_some_and(|within| within < length)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_shared_files() {
        let of = |maps: &str| SharedMemory {
            maps: maps.to_owned(),
        };
        let one = of("\
            1000-3000 rw-s 00001000 00:01 77   /memfd:locks (deleted)\n\
            5000-6000 rw-p 00000000 08:01 78   /lib/c\n");
        let place = one.place(0x2040).unwrap();
        assert_eq!(place.to_string(), "/memfd:locks+0x2040");
        assert_eq!((one.place(0x3000), one.place(0x5000)), (None, None));
        assert!(one.has(&place));
        let maps = |line: &str| of(line).has(&place);
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
}
