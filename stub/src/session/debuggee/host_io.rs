//! Files of the target, for reading only (`vFile`).

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};

use gdbstub::target::ext::host_io::{
    FsKind, HostIo, HostIoClose, HostIoCloseOps, HostIoErrno, HostIoError, HostIoFstat,
    HostIoFstatOps, HostIoOpen, HostIoOpenFlags, HostIoOpenMode, HostIoOpenOps, HostIoPread,
    HostIoPreadOps, HostIoPwrite, HostIoPwriteOps, HostIoReadlink, HostIoReadlinkOps, HostIoResult,
    HostIoSetfs, HostIoSetfsOps, HostIoStat, HostIoUnlink, HostIoUnlinkOps,
};

use super::{Debuggee, part};
use crate::arch;
use crate::session::framing::PACKET_SIZE;

/// More open files than any client needs.
const LIMIT: usize = 256;

impl Debuggee {
    fn file(&self, number: u32) -> HostIoResult<&File, Debuggee> {
        let file = self.files.get(&number);
        file.ok_or(HostIoError::Errno(HostIoErrno::EBADF))
    }
}

/// The protocol's number for an error of the system's.
fn refused<E>(error: &std::io::Error) -> HostIoError<E> {
    HostIoError::Errno(match error.raw_os_error() {
        Some(libc::EPERM) => HostIoErrno::EPERM,
        Some(libc::ENOENT) => HostIoErrno::ENOENT,
        Some(libc::EIO) => HostIoErrno::EIO,
        Some(libc::EBADF) => HostIoErrno::EBADF,
        Some(libc::EACCES) => HostIoErrno::EACCES,
        Some(libc::EBUSY) => HostIoErrno::EBUSY,
        Some(libc::ENODEV) => HostIoErrno::ENODEV,
        Some(libc::ENOTDIR) => HostIoErrno::ENOTDIR,
        Some(libc::EISDIR) => HostIoErrno::EISDIR,
        Some(libc::EINVAL) => HostIoErrno::EINVAL,
        Some(libc::ENFILE) => HostIoErrno::ENFILE,
        Some(libc::EMFILE) => HostIoErrno::EMFILE,
        Some(libc::ENAMETOOLONG) => HostIoErrno::ENAMETOOLONG,
        _ => HostIoErrno::EUNKNOWN,
    })
}

impl HostIo for Debuggee {
    fn support_open(&mut self) -> Option<HostIoOpenOps<'_, Self>> {
        Some(self)
    }

    fn support_close(&mut self) -> Option<HostIoCloseOps<'_, Self>> {
        Some(self)
    }

    fn support_pread(&mut self) -> Option<HostIoPreadOps<'_, Self>> {
        Some(self)
    }

    fn support_pwrite(&mut self) -> Option<HostIoPwriteOps<'_, Self>> {
        Some(self)
    }

    fn support_fstat(&mut self) -> Option<HostIoFstatOps<'_, Self>> {
        Some(self)
    }

    fn support_unlink(&mut self) -> Option<HostIoUnlinkOps<'_, Self>> {
        Some(self)
    }

    fn support_readlink(&mut self) -> Option<HostIoReadlinkOps<'_, Self>> {
        Some(self)
    }

    fn support_setfs(&mut self) -> Option<HostIoSetfsOps<'_, Self>> {
        Some(self)
    }
}

impl HostIoOpen for Debuggee {
    fn open(
        &mut self,
        filename: &[u8],
        flags: HostIoOpenFlags,
        _mode: HostIoOpenMode,
    ) -> HostIoResult<u32, Self> {
        let writes = HostIoOpenFlags::O_WRONLY
            | HostIoOpenFlags::O_RDWR
            | HostIoOpenFlags::O_CREAT
            | HostIoOpenFlags::O_TRUNC
            | HostIoOpenFlags::O_APPEND;
        if flags.intersects(writes) {
            return Err(HostIoError::Errno(HostIoErrno::EROFS));
        }
        if self.files.len() >= LIMIT {
            return Err(HostIoError::Errno(HostIoErrno::EMFILE));
        }
        // Not to wait for the other end of a pipe, nor to become a terminal's owner.
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
            .open(OsStr::from_bytes(filename))
            .map_err(|error| refused(&error))?;
        let number = (3..).find(|number| !self.files.contains_key(number));
        let number = number.unwrap_or(u32::MAX);
        self.files.insert(number, file);
        Ok(number)
    }
}

impl HostIoClose for Debuggee {
    fn close(&mut self, number: u32) -> HostIoResult<(), Self> {
        self.file(number)?;
        self.files.remove(&number);
        Ok(())
    }
}

impl HostIoPread for Debuggee {
    fn pread(
        &mut self,
        number: u32,
        count: usize,
        offset: u64,
        buf: &mut [u8],
    ) -> HostIoResult<usize, Self> {
        // Every byte may need an escape.
        let count = count.min(PACKET_SIZE / 2 - 32).min(buf.len());
        let file = self.file(number)?;
        file.read_at(&mut buf[..count], offset)
            .map_err(|error| refused(&error))
    }
}

impl HostIoPwrite for Debuggee {
    fn pwrite(
        &mut self,
        _number: u32,
        _offset: arch::Word,
        _data: &[u8],
    ) -> HostIoResult<arch::Word, Self> {
        Err(HostIoError::Errno(HostIoErrno::EROFS))
    }
}

impl HostIoUnlink for Debuggee {
    fn unlink(&mut self, _filename: &[u8]) -> HostIoResult<(), Self> {
        Err(HostIoError::Errno(HostIoErrno::EROFS))
    }
}

impl HostIoFstat for Debuggee {
    fn fstat(&mut self, number: u32) -> HostIoResult<HostIoStat, Self> {
        let metadata = self.file(number)?.metadata().map_err(|e| refused(&e))?;
        Ok(HostIoStat {
            st_dev: metadata.dev() as u32,
            st_ino: metadata.ino() as u32,
            st_mode: HostIoOpenMode::from_bits_truncate(metadata.mode()),
            st_nlink: metadata.nlink() as u32,
            st_uid: metadata.uid(),
            st_gid: metadata.gid(),
            st_rdev: metadata.rdev() as u32,
            st_size: metadata.size(),
            st_blksize: metadata.blksize(),
            st_blocks: metadata.blocks(),
            st_atime: metadata.atime() as u32,
            st_mtime: metadata.mtime() as u32,
            st_ctime: metadata.ctime() as u32,
        })
    }
}

impl HostIoReadlink for Debuggee {
    fn readlink(&mut self, filename: &[u8], buf: &mut [u8]) -> HostIoResult<usize, Self> {
        let link =
            std::fs::read_link(OsStr::from_bytes(filename)).map_err(|error| refused(&error))?;
        Ok(part(link.as_os_str().as_bytes(), 0, usize::MAX, buf))
    }
}

impl HostIoSetfs for Debuggee {
    /// Everything is read from this server's own file system.
    fn setfs(&mut self, _fs: FsKind) -> HostIoResult<(), Self> {
        Ok(())
    }
}
