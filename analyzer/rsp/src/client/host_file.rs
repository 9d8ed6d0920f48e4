//! Files of the target, read through the server (RSP, "Host I/O Packets").

use crate::client::Client;
use crate::error::Error;

/// A file of the target, open for reading. Closed when dropped.
pub struct HostFile<'a> {
    client: &'a mut Client,
    fd: u64,
    path: String,
}

/// What `vFile:fstat` tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostFileStatus {
    /// Type and permission bits.
    pub mode: u32,
    /// Length in bytes.
    pub size: u64,
    /// Last modification, seconds since 1970.
    pub modified: u32,
}

impl Client {
    /// Reads a whole file of at most `limit` bytes (`vFile:open`, `pread`, `close`).
    pub fn read_file(&mut self, path: &str, limit: u64) -> Result<Vec<u8>, Error> {
        todo!()
    }
    /// Opens a file for reading parts of it.
    pub fn open_file(&mut self, path: &str) -> Result<HostFile<'_>, Error> {
        todo!()
    }
    /// Where a symbolic link points (`vFile:readlink`).
    pub fn read_link(&mut self, path: &str) -> Result<String, Error> {
        todo!()
    }
}

impl HostFile<'_> {
    /// Reads up to `len` bytes at `offset`; fewer only at the end of the file.
    pub fn read_at(&mut self, offset: u64, len: usize) -> Result<Vec<u8>, Error> {
        todo!()
    }
    /// Length, mode and time.
    pub fn status(&mut self) -> Result<HostFileStatus, Error> {
        todo!()
    }
    /// Closes it and reports what goes wrong.
    pub fn close(self) -> Result<(), Error> {
        todo!()
    }
}
