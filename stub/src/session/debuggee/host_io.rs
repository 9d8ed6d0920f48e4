//! Files on the target (`vFile`), as far as the command line allows them.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};

use gdbstub::target::ext::host_io::{
    FsKind, HostIo, HostIoClose, HostIoCloseOps, HostIoErrno, HostIoError, HostIoFstat,
    HostIoFstatOps, HostIoOpen, HostIoOpenFlags, HostIoOpenMode, HostIoOpenOps, HostIoPread,
    HostIoPreadOps, HostIoPwrite, HostIoPwriteOps, HostIoReadlink, HostIoReadlinkOps, HostIoResult,
    HostIoSetfs, HostIoSetfsOps, HostIoStat, HostIoUnlink, HostIoUnlinkOps,
};

use super::{Debuggee, part};
use crate::arch;
use crate::session::framing::PACKET_SIZE;

/// Converts a system error to the protocol's error number.
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
        Some(libc::EROFS) => HostIoErrno::EROFS,
        Some(libc::EEXIST) => HostIoErrno::EEXIST,
        Some(libc::ENOSPC) => HostIoErrno::ENOSPC,
        Some(libc::EFBIG) => HostIoErrno::EFBIG,
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
        mode: HostIoOpenMode,
    ) -> HostIoResult<u32, Self> {
        // The protocol has its own flag values (GDB manual, "Open Flags").
        let kinds = [
            (HostIoOpenFlags::O_WRONLY, libc::O_WRONLY),
            (HostIoOpenFlags::O_RDWR, libc::O_RDWR),
            (HostIoOpenFlags::O_APPEND, libc::O_APPEND),
            (HostIoOpenFlags::O_CREAT, libc::O_CREAT),
            (HostIoOpenFlags::O_TRUNC, libc::O_TRUNC),
            (HostIoOpenFlags::O_EXCL, libc::O_EXCL),
        ];
        let asked = kinds.iter().filter(|(kind, _)| flags.contains(*kind));
        let flags = asked.fold(libc::O_RDONLY, |all, (_, flag)| all | flag);
        let opened = self.files.open(filename, flags, mode.bits() & 0o777);
        opened.map_err(|error| refused(&error))
    }
}

impl HostIoClose for Debuggee {
    fn close(&mut self, number: u32) -> HostIoResult<(), Self> {
        self.files.close(number).map_err(|error| refused(&error))
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
        let file = self.files.get(number).map_err(|error| refused(&error))?;
        file.read_at(&mut buf[..count], offset)
            .map_err(|error| refused(&error))
    }
}

impl HostIoPwrite for Debuggee {
    fn pwrite(
        &mut self,
        number: u32,
        offset: arch::Word,
        data: &[u8],
    ) -> HostIoResult<arch::Word, Self> {
        let file = self.files.get(number).map_err(|error| refused(&error))?;
        let written = file.write_at(data, arch::wide(offset));
        written
            .map(|count| count as arch::Word)
            .map_err(|error| refused(&error))
    }
}

impl HostIoUnlink for Debuggee {
    fn unlink(&mut self, filename: &[u8]) -> HostIoResult<(), Self> {
        self.files.remove(filename).map_err(|error| refused(&error))
    }
}

impl HostIoFstat for Debuggee {
    fn fstat(&mut self, number: u32) -> HostIoResult<HostIoStat, Self> {
        let file = self.files.get(number);
        let metadata = file.and_then(|file| file.metadata());
        let metadata = metadata.map_err(|error| refused(&error))?;
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
        let link = self.files.read_link(filename);
        let link = link.map_err(|error| refused(&error))?;
        Ok(part(link.as_os_str().as_bytes(), 0, usize::MAX, buf))
    }
}

impl HostIoSetfs for Debuggee {
    /// Accepts every file system: all files are in this server's own.
    fn setfs(&mut self, _fs: FsKind) -> HostIoResult<(), Self> {
        Ok(())
    }
}
