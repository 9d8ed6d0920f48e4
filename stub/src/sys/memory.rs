//! The memory of another process.
//!
//! Reads use process_vm_readv(2), which needs one call and no descriptor. They fall back on
//! `/proc/PID/mem`, which also reads pages that the program itself may not read. Writes use
//! `/proc/PID/mem`, because text is not writable. The open file refers to the same memory after the
//! first thread has ended, and must be reopened after an exec.

use std::fs::{File, OpenOptions};
use std::io::{IoSlice, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{Ordering, fence};

use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::unistd::Pid;

use super::Tid;

const PAGE: u64 = 4096;

/// A word of 32 bits in the memory of a process that need not be traced yet.
pub(crate) fn word(process: Tid, address: u64) -> Option<u32> {
    let mut bytes = [0; 4];
    let remote = RemoteIoVec {
        base: usize::try_from(address).ok()?,
        len: bytes.len(),
    };
    let pid = Pid::from_raw(process.0);
    let read = process_vm_readv(pid, &mut [IoSliceMut::new(&mut bytes)], &[remote]);
    (read == Ok(bytes.len())).then(|| u32::from_le_bytes(bytes))
}

/// The memory of one process.
pub(crate) struct Memory {
    process: Tid,
    file: File,
}

impl Memory {
    /// Opens the memory of a traced process.
    pub(crate) fn open(process: Tid) -> std::io::Result<Memory> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(format!("/proc/{process}/mem"))?;
        Ok(Memory { process, file })
    }

    /// The process whose memory this is.
    pub(crate) fn process(&self) -> Tid {
        self.process
    }

    /// Reads up to the first unreadable address. It is an error if no byte can be read.
    pub(crate) fn read(&self, address: u64, into: &mut [u8]) -> Result<usize, Errno> {
        if into.is_empty() {
            return Ok(0);
        }
        let wanted = into.len();
        let mut done = 0;
        if let Ok(start) = usize::try_from(address) {
            let remote = [RemoteIoVec {
                base: start,
                len: wanted,
            }];
            let pid = Pid::from_raw(self.process.0);
            done = process_vm_readv(pid, &mut [IoSliceMut::new(into)], &remote).unwrap_or(0);
        }
        while done < wanted {
            let at = address.wrapping_add(done as u64);
            let chunk = ((PAGE - at % PAGE) as usize).min(wanted - done);
            match self.file.read_at(&mut into[done..done + chunk], at) {
                Ok(n) if n > 0 => done += n,
                _ => break,
            }
        }
        if done == 0 { Err(Errno::EIO) } else { Ok(done) }
    }

    /// Reads `size` bytes at each of these addresses, and concatenates them. `false` if not all can
    /// be read.
    pub(crate) fn read_many(&self, addresses: &[u64], size: usize, into: &mut [u8]) -> bool {
        let remote: Vec<RemoteIoVec> = addresses
            .iter()
            .map(|base| RemoteIoVec {
                base: *base as usize,
                len: size,
            })
            .collect();
        let pid = Pid::from_raw(self.process.0);
        let all = size * addresses.len();
        if process_vm_readv(pid, &mut [IoSliceMut::new(into)], &remote) == Ok(all) {
            return true;
        }
        let parts = addresses.iter().zip(into.chunks_mut(size));
        parts.fold(true, |done, (address, part)| {
            done && self.read(*address, part) == Ok(size)
        })
    }

    /// Writes a word at each of these addresses, each word atomically. The writes are ordered after
    /// all earlier reads and writes of this process.
    pub(crate) fn write_words(&self, addresses: &[u64], word: u64) {
        fence(Ordering::SeqCst);
        let bytes = word.to_le_bytes();
        let pid = Pid::from_raw(self.process.0);
        let remote: Vec<RemoteIoVec> = addresses
            .iter()
            .map(|base| RemoteIoVec {
                base: *base as usize,
                len: bytes.len(),
            })
            .collect();
        let local = bytes.repeat(addresses.len());
        if process_vm_writev(pid, &[IoSlice::new(&local)], &remote) != Ok(local.len()) {
            for address in addresses {
                let _ = self.write(*address, &bytes);
            }
        }
    }

    /// Writes all bytes with the permissions of the program itself. Returns whether it succeeded.
    pub(crate) fn store(&self, address: u64, bytes: &[u8]) -> bool {
        let remote = usize::try_from(address).map(|base| RemoteIoVec {
            base,
            len: bytes.len(),
        });
        let pid = Pid::from_raw(self.process.0);
        remote.is_ok_and(|remote| {
            process_vm_writev(pid, &[IoSlice::new(bytes)], &[remote]) == Ok(bytes.len())
        })
    }

    /// Writes code that other threads may be executing. They see all or nothing of up to an aligned
    /// word, because the kernel copies aligned words at once, but shorter pieces byte by byte.
    pub(crate) fn write_code(&self, address: u64, bytes: &[u8]) -> Result<(), Errno> {
        let aligned = address & !3;
        let offset = (address - aligned) as usize;
        let mut word = [0; 4];
        if let Some(room) = word.get(offset..offset + bytes.len()).map(<[u8]>::len)
            && room < word.len()
            && self.read(aligned, &mut word) == Ok(word.len())
        {
            word[offset..offset + bytes.len()].copy_from_slice(bytes);
            return self.write(aligned, &word);
        }
        self.write(address, bytes)
    }

    /// Writes all bytes, regardless of the protection of the pages.
    pub(crate) fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.file
            .write_all_at(bytes, address)
            .map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))
    }
}
