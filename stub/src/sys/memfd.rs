//! Memory that the program and the stub both map, so that reading it needs no system call.
//!
//! It stands apart because the program writes it at any time. This file alone accesses it, and
//! hands out copies.

use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;

use super::Tid;

/// The stub's mapping of a memory file.
pub(crate) struct SharedMemory {
    base: NonNull<u8>,
    size: usize,
}

impl SharedMemory {
    /// Maps a memory file that a process has open (memfd_create(2)), and seals its size: an access
    /// behind a file's end would kill the program.
    pub(crate) fn open(process: Tid, descriptor: i32, size: u64) -> Result<SharedMemory, Errno> {
        let errno =
            |error: std::io::Error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(format!("/proc/{process}/fd/{descriptor}"))
            .map_err(errno)?;
        file.set_len(size).map_err(errno)?;
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: the request takes numbers and touches no memory of ours.
        Errno::result(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) })?;
        let size = usize::try_from(size).map_err(|_| Errno::ENOMEM)?;
        // SAFETY: the kernel chooses an address at which nothing is.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(base.cast::<u8>()).filter(|_| base != libc::MAP_FAILED) {
            Some(base) => Ok(SharedMemory { base, size }),
            None => Err(Errno::last()),
        }
    }

    /// Reads the word at an aligned offset, with acquire ordering. Returns 0 behind the end.
    #[inline]
    pub(crate) fn load(&self, offset: u64) -> u64 {
        let word = self.word(offset);
        word.map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Writes that word. Who sees it sees all that was written before.
    #[inline]
    pub(crate) fn store(&self, offset: u64, value: u64) {
        if let Some(word) = self.word(offset) {
            word.store(value, Ordering::SeqCst);
        }
    }

    #[inline]
    fn word(&self, offset: u64) -> Option<&AtomicU64> {
        let offset = usize::try_from(offset).ok()?;
        let fits = offset.is_multiple_of(8) && offset.checked_add(8)? <= self.size;
        // SAFETY: it is inside the mapping, which lives as long as `self`, and aligned. The program
        // accesses these words atomically, too.
        fits.then(|| unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) })
    }

    /// Copies bytes out. Bytes that the program writes meanwhile have any value.
    #[inline]
    pub(crate) fn copy(&self, offset: u64, into: &mut [u8]) -> bool {
        let start = usize::try_from(offset).ok();
        let fits = |start: usize| {
            start
                .checked_add(into.len())
                .is_some_and(|end| end <= self.size)
        };
        let Some(start) = start.filter(|start| fits(*start)) else {
            return false;
        };
        // SAFETY: the source is inside the mapping, and `into` is ours. Any bytes are valid.
        unsafe {
            let from = self.base.as_ptr().add(start);
            ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len());
        }
        true
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and no reference into it is left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.size) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn both_see_it() {
        let flags = nix::sys::memfd::MFdFlags::MFD_ALLOW_SEALING;
        let file = nix::sys::memfd::memfd_create("shared", flags).expect("a file");
        let process = Tid(std::process::id().cast_signed());
        let open = || SharedMemory::open(process, file.as_raw_fd(), 8192);
        let (one, other) = (open().expect("a mapping"), open());
        // Its size is sealed.
        assert_eq!(other.err(), Some(Errno::EPERM));
        one.store(8, 0x0102_0304_0506_0708);
        assert_eq!((one.load(8), one.load(16)), (0x0102_0304_0506_0708, 0));
        let mut bytes = [0; 4];
        assert!(one.copy(8, &mut bytes));
        assert_eq!(u32::from_le_bytes(bytes), 0x0506_0708);
        // Behind the end, and not aligned.
        assert!(one.copy(8188, &mut bytes) && !one.copy(8189, &mut bytes));
        assert!(!one.copy(u64::MAX, &mut bytes));
        one.store(8192, 1);
        one.store(4, 1);
        assert_eq!((one.load(8192), one.load(4)), (0, 0));
    }
}
