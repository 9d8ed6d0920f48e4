//! Files of clients: which files they may open, whether they may write, and which are open.
//!
//! With a root directory, neither a client's paths nor links in them can lead out of that
//! directory, because the stub opens them with openat2(2). Linux before 5.6 lacks that call. There
//! the stub resolves the path first and then opens it, so a process that can write in the directory
//! could change the path in between.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};

/// Maximum number of open files of one client.
const MAX_OPEN_FILES: usize = 256;

/// Permissions of clients for files.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Permission {
    /// Directory that contains all paths of clients.
    pub(crate) root: Option<PathBuf>,
    /// Clients may write, create and remove files.
    pub(crate) write: bool,
}

/// The files of one client.
pub(crate) struct Files {
    permission: Permission,
    open: HashMap<u32, File>,
}

impl Files {
    /// Files of a client, none open.
    pub(super) fn new(permission: Permission) -> Files {
        Files {
            permission,
            open: HashMap::new(),
        }
    }

    /// Files of another client with the same permissions, none open.
    pub(crate) fn for_another(&self) -> Files {
        Files::new(self.permission.clone())
    }

    /// The open file with this number.
    pub(super) fn get(&self, number: u32) -> Result<&File, Error> {
        let file = self.open.get(&number);
        file.ok_or_else(|| Error::from_raw_os_error(libc::EBADF))
    }

    /// Closes a file.
    pub(super) fn close(&mut self, number: u32) -> Result<(), Error> {
        self.get(number)?;
        self.open.remove(&number);
        Ok(())
    }

    /// Opens a file with open(2)'s flags, and returns its number.
    pub(super) fn open(&mut self, name: &[u8], flags: i32, mode: u32) -> Result<u32, Error> {
        if flags & libc::O_ACCMODE != libc::O_RDONLY || flags & (libc::O_CREAT | libc::O_TRUNC) != 0
        {
            self.may_write()?;
        }
        if self.open.len() >= MAX_OPEN_FILES {
            return Err(Error::from_raw_os_error(libc::EMFILE));
        }
        // Neither wait for the other end of a pipe, nor make a terminal the controlling one.
        let flags = flags | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
        let path = Path::new(OsStr::from_bytes(name));
        let file = match &self.permission.root {
            Some(root) => beneath(root, path, flags, mode)?,
            None => plain(path, flags, mode)?,
        };
        let number = (3..).find(|number| !self.open.contains_key(number));
        let number = number.unwrap_or(u32::MAX);
        self.open.insert(number, file);
        Ok(number)
    }

    /// The target of a symbolic link, as stored in the link.
    pub(super) fn read_link(&self, name: &[u8]) -> Result<PathBuf, Error> {
        let path = Path::new(OsStr::from_bytes(name));
        match &self.permission.root {
            Some(root) => {
                let (parent, name) = split(path)?;
                let parent = beneath(root, parent, libc::O_PATH | libc::O_DIRECTORY, 0)?;
                Ok(nix::fcntl::readlinkat(parent.as_fd(), name)?.into())
            }
            None => std::fs::read_link(path),
        }
    }

    /// Removes a file.
    pub(super) fn remove(&self, name: &[u8]) -> Result<(), Error> {
        self.may_write()?;
        let path = Path::new(OsStr::from_bytes(name));
        match &self.permission.root {
            Some(root) => {
                let (parent, name) = split(path)?;
                let parent = beneath(root, parent, libc::O_PATH | libc::O_DIRECTORY, 0)?;
                Ok(unlinkat(parent.as_fd(), name, UnlinkatFlags::NoRemoveDir)?)
            }
            None => std::fs::remove_file(path),
        }
    }

    /// Returns an error unless clients may write files.
    pub(super) fn may_write(&self) -> Result<(), Error> {
        if self.permission.write {
            Ok(())
        } else {
            Err(Error::from_raw_os_error(libc::EROFS))
        }
    }
}

fn split(path: &Path) -> Result<(&Path, &OsStr), Error> {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => Ok((parent, name)),
        _ => Err(ErrorKind::InvalidInput.into()),
    }
}

fn plain(path: &Path, flags: i32, mode: u32) -> Result<File, Error> {
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
    OpenOptions::new()
        .read(flags & libc::O_ACCMODE != libc::O_WRONLY)
        .write(writes)
        .create(flags & libc::O_CREAT != 0 && writes)
        .truncate(flags & libc::O_TRUNC != 0 && writes)
        .mode(mode)
        // The options set these flags themselves.
        .custom_flags(flags & !(libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC))
        .open(path)
}

fn beneath(root: &Path, path: &Path, flags: i32, mode: u32) -> Result<File, Error> {
    let directory = File::open(root)?;
    let relative = path.strip_prefix("/").unwrap_or(path);
    let relative = if relative.as_os_str().is_empty() {
        Path::new(".")
    } else {
        relative
    };
    let creates = flags & libc::O_CREAT != 0;
    let how = OpenHow::new()
        .flags(OFlag::from_bits_truncate(flags))
        .mode(Mode::from_bits_truncate(if creates { mode } else { 0 }))
        .resolve(ResolveFlag::RESOLVE_IN_ROOT);
    match openat2(directory.as_fd(), relative, how) {
        Ok(descriptor) => Ok(descriptor.into()),
        Err(Errno::ENOSYS) => {
            let root = root.canonicalize()?;
            let (parent, name) = split(path)?;
            let parent = root.join(parent.strip_prefix("/").unwrap_or(parent));
            let mut whole = parent.canonicalize()?.join(name);
            if let Ok(target) = whole.canonicalize() {
                whole = target;
            }
            if !whole.starts_with(&root) {
                return Err(ErrorKind::NotFound.into());
            }
            plain(&whole, flags | libc::O_NOFOLLOW, mode)
        }
        Err(errno) => Err(errno.into()),
    }
}
