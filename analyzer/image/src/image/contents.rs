//! The bytes of a file, read when needed.
//!
//! A browser has 280 MB and the debug file of a C library 30 MB, but one inspection of a program
//! needs a few hundred kilobytes of either. Files are read, not mapped, so that a file that shrinks
//! while it is open causes an error instead of a signal.
//!
//! Bytes stay in place once they are read, so that callers can borrow them. They are in two forms:
//! pages for the small pieces that lookups need, and ranges for whole sections.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

/// Files up to this size are read at once.
const SMALL_FILE: u64 = 256 << 10;
/// Maximum number of files that stay open. A process may have 1024 descriptors by default.
const MAX_OPEN_FILES: usize = 256;
/// Size of a page, the unit in which small pieces are read.
const PAGE: u64 = 64 << 10;
/// Number of bytes of the next page that each page repeats, so that a small piece lies in one page.
const OVERLAP: u64 = 4 << 10;
/// Size of a read whose bytes are not kept.
const CHUNK: usize = 1 << 20;

/// Offset basis and prime of FNV-1a, 64 bits.
const FNV: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

static OPEN_FILES: AtomicUsize = AtomicUsize::new(0);

/// A file that changed within this time before it was opened may change again without a new
/// timestamp.
const SETTLE_TIME: Duration = Duration::from_secs(2);

/// The bytes of one file.
pub(crate) struct Contents {
    len: u64,
    source: Source,
    /// The identity by metadata, without reading the file. `None` if the file changed so recently
    /// that its timestamp proves nothing.
    stamp: Option<Identity>,
    identity: OnceLock<Identity>,
}

/// An identity of a file's content. A damaged copy with the same build-id has another identity.
///
/// Device, inode, size and time of change identify a file that has not changed recently, so that
/// Unspool need not read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    words: [u64; 4],
}

impl Identity {
    /// The bytes, for use as a key.
    pub fn to_bytes(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(self.words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The identity by device, inode, size and time of change (ctime, which no program can set).
    fn of_place(metadata: &Metadata) -> Option<Identity> {
        let (seconds, nanoseconds) = (metadata.ctime(), metadata.ctime_nsec());
        let changed = Duration::new(seconds.try_into().ok()?, nanoseconds.try_into().ok()?);
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .ok()?;
        let settled = now
            .checked_sub(changed)
            .is_some_and(|age| age > SETTLE_TIME);
        settled.then(|| Identity {
            words: [
                metadata.dev(),
                metadata.ino(),
                metadata.len(),
                changed.as_nanos() as u64,
            ],
        })
    }
}

enum Source {
    Memory(Arc<[u8]>),
    File(Lazy),
}

struct Lazy {
    file: File,
    pages: Box<[Page]>,
    ranges: Ranges,
}

/// A page that has been read; `None` if it could not be read.
type Page = OnceLock<Option<Box<[u8]>>>;

/// A list that only grows, so that its elements can be borrowed.
#[derive(Default)]
struct Ranges(OnceLock<Box<Node>>);

struct Node {
    offset: u64,
    bytes: Arc<[u8]>,
    next: Ranges,
}

/// Bytes with shared ownership, which do not borrow from the file.
#[derive(Clone, Debug)]
pub(crate) struct SharedBytes {
    pub(crate) whole: Arc<[u8]>,
    pub(crate) range: Range<usize>,
}

impl SharedBytes {
    pub(crate) fn bytes(&self) -> &[u8] {
        self.whole.get(self.range.clone()).unwrap_or(&[])
    }
}

impl Default for SharedBytes {
    fn default() -> SharedBytes {
        Arc::<[u8]>::from([]).into()
    }
}

impl From<Arc<[u8]>> for SharedBytes {
    fn from(whole: Arc<[u8]>) -> SharedBytes {
        SharedBytes {
            range: 0..whole.len(),
            whole,
        }
    }
}

impl From<Arc<[u8]>> for Contents {
    fn from(bytes: Arc<[u8]>) -> Contents {
        Contents {
            len: bytes.len() as u64,
            source: Source::Memory(bytes),
            stamp: None,
            identity: OnceLock::new(),
        }
    }
}

impl Contents {
    /// Takes an open file. If it is not a regular file, it is read to its end.
    pub(crate) fn open(mut file: File) -> io::Result<Contents> {
        let metadata = file.metadata()?;
        let len = metadata.len();
        let many = OPEN_FILES.load(Ordering::Relaxed) >= MAX_OPEN_FILES;
        if !metadata.is_file() || len == 0 {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            return Ok(Contents::from(Arc::<[u8]>::from(bytes)));
        }
        let stamp = Identity::of_place(&metadata);
        if len <= SMALL_FILE || many {
            return Ok(Contents {
                stamp,
                ..Contents::from(read(&file, 0, len)?)
            });
        }
        OPEN_FILES.fetch_add(1, Ordering::Relaxed);
        let pages = usize::try_from(len.div_ceil(PAGE)).unwrap_or(0);
        Ok(Contents {
            len,
            source: Source::File(Lazy {
                file,
                pages: (0..pages).map(|_| OnceLock::new()).collect(),
                ranges: Ranges::default(),
            }),
            stamp,
            identity: OnceLock::new(),
        })
    }

    /// The identity of these bytes. Reads all of them if the file has changed recently.
    pub(crate) fn identity(&self) -> Identity {
        *self.identity.get_or_init(|| {
            self.stamp.unwrap_or_else(|| {
                let mut sum = flate2::Crc::new();
                let mut hash = FNV;
                let read = self.visit(&mut |bytes| {
                    sum.update(bytes);
                    let (words, rest) = bytes.as_chunks::<8>();
                    let words = words.iter().map(|word| u64::from_le_bytes(*word));
                    let rest = rest.iter().map(|byte| u64::from(*byte));
                    for word in words.chain(rest) {
                        hash = (hash ^ word).wrapping_mul(FNV_PRIME).rotate_left(23);
                    }
                });
                Identity {
                    // No device has the number in the first word.
                    words: [
                        u64::MAX,
                        u64::from(sum.sum()),
                        self.len,
                        hash ^ u64::from(read.is_err()),
                    ],
                }
            })
        })
    }

    /// Size of the file in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// `size` bytes at `offset`, if the file has them.
    pub(crate) fn get(&self, offset: u64, size: u64) -> Option<&[u8]> {
        let end = offset.checked_add(size).filter(|end| *end <= self.len)?;
        match &self.source {
            Source::Memory(bytes) => {
                bytes.get(usize::try_from(offset).ok()?..usize::try_from(end).ok()?)
            }
            Source::File(lazy) if size <= OVERLAP => {
                if size == 0 {
                    return Some(&[]);
                }
                let (page, start) = lazy.page(offset, self.len)?;
                let from = usize::try_from(offset - start).ok()?;
                page.get(from..from + usize::try_from(size).ok()?)
            }
            Source::File(lazy) => {
                let (bytes, range) = lazy.range(offset, size)?;
                bytes.get(range)
            }
        }
    }

    /// The bytes from `offset` on that are in memory, at least 4 KiB unless the file ends.
    pub(crate) fn tail(&self, offset: u64) -> Option<&[u8]> {
        match &self.source {
            Source::Memory(bytes) => bytes.get(usize::try_from(offset).ok()?..),
            Source::File(lazy) => {
                let (page, start) = lazy.page(offset, self.len)?;
                page.get(usize::try_from(offset - start).ok()?..)
            }
        }
    }

    /// Copies the bytes from `offset` on into `into`, and does not keep them. Returns their number,
    /// which is smaller than `into` at the end of the file.
    pub(crate) fn copy(&self, offset: u64, into: &mut [u8]) -> usize {
        let left = usize::try_from(self.len.saturating_sub(offset)).unwrap_or(usize::MAX);
        let len = into.len().min(left);
        let into = &mut into[..len];
        let copied = match &self.source {
            Source::Memory(bytes) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX);
                let bytes = bytes.get(start..).and_then(|bytes| bytes.get(..len));
                bytes.map(|bytes| into.copy_from_slice(bytes)).is_some()
            }
            Source::File(lazy) => lazy.file.read_exact_at(into, offset).is_ok(),
        };
        if copied { len } else { 0 }
    }

    /// The same bytes as [`Contents::get`], with shared ownership.
    pub(crate) fn shared(&self, offset: u64, size: u64) -> Option<SharedBytes> {
        let end = offset.checked_add(size).filter(|end| *end <= self.len)?;
        match &self.source {
            Source::Memory(bytes) => Some(SharedBytes {
                whole: bytes.clone(),
                range: usize::try_from(offset).ok()?..usize::try_from(end).ok()?,
            }),
            Source::File(lazy) => {
                let (bytes, range) = lazy.range(offset, size)?;
                Some(SharedBytes {
                    whole: bytes.clone(),
                    range,
                })
            }
        }
    }

    /// Passes all bytes to `visit`, in order, and keeps no additional ones in memory.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn visit(&self, visit: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        let lazy = match &self.source {
            Source::Memory(bytes) => {
                visit(bytes);
                return Ok(());
            }
            Source::File(lazy) => lazy,
        };
        let mut chunk = vec![0; CHUNK];
        let mut offset = 0;
        while offset < self.len {
            let size = chunk
                .len()
                .min(usize::try_from(self.len - offset).unwrap_or(CHUNK));
            lazy.file.read_exact_at(&mut chunk[..size], offset)?;
            visit(&chunk[..size]);
            offset += size as u64;
        }
        Ok(())
    }

    /// Number of pages read. `None` if the whole file is in memory.
    #[cfg(test)]
    fn pages_read(&self) -> Option<usize> {
        match &self.source {
            Source::Memory(_) => None,
            Source::File(lazy) => Some(
                lazy.pages
                    .iter()
                    .filter(|page| page.get().is_some())
                    .count(),
            ),
        }
    }
}

impl<'a> object::ReadRef<'a> for &'a Contents {
    fn len(self) -> Result<u64, ()> {
        Ok(self.len)
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        self.get(offset, size).ok_or(())
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        let size = range.end.checked_sub(range.start).ok_or(())?;
        let bytes = self.get(range.start, size).ok_or(())?;
        let end = memchr::memchr(delimiter, bytes).ok_or(())?;
        Ok(&bytes[..end])
    }
}

impl Lazy {
    /// The page that contains `offset`, and the page's offset in the file.
    fn page(&self, offset: u64, len: u64) -> Option<(&[u8], u64)> {
        let index = offset / PAGE;
        let start = index * PAGE;
        let page = self
            .pages
            .get(usize::try_from(index).ok()?)?
            .get_or_init(|| {
                let size = (len - start).min(PAGE + OVERLAP);
                let mut bytes = vec![0; usize::try_from(size).ok()?].into_boxed_slice();
                self.file.read_exact_at(&mut bytes, start).ok()?;
                Some(bytes)
            });
        Some((page.as_deref()?, start))
    }

    fn range(&self, offset: u64, size: u64) -> Option<(&Arc<[u8]>, Range<usize>)> {
        let within = |node: &Node| {
            let skip = usize::try_from(offset.checked_sub(node.offset)?).ok()?;
            let end = skip.checked_add(usize::try_from(size).ok()?)?;
            (end <= node.bytes.len()).then_some(skip..end)
        };
        let mut list = &self.ranges;
        loop {
            let node = match list.0.get() {
                Some(node) => node,
                None => {
                    let bytes = read(&self.file, offset, size).ok()?;
                    list.0.get_or_init(|| {
                        Box::new(Node {
                            offset,
                            bytes,
                            next: Ranges::default(),
                        })
                    })
                }
            };
            match within(node) {
                Some(range) => return Some((&node.bytes, range)),
                None => list = &node.next,
            }
        }
    }
}

impl Drop for Lazy {
    fn drop(&mut self) {
        OPEN_FILES.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Reads bytes into memory that they stay in.
fn read(file: &File, offset: u64, size: u64) -> io::Result<Arc<[u8]>> {
    let size = usize::try_from(size).map_err(|_| io::Error::from(ErrorKind::OutOfMemory))?;
    let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, size).collect();
    if let Some(bytes) = Arc::get_mut(&mut bytes) {
        file.read_exact_at(bytes, offset)?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// A file of `len` bytes, each of which depends on its offset.
    fn file(len: usize) -> (tempfile::NamedTempFile, Vec<u8>) {
        let bytes: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), &bytes).expect("written");
        (file, bytes)
    }

    #[test]
    fn a_large_file_gives_the_bytes_that_it_has_and_reads_no_others() {
        let (path, bytes) = file(1_000_003);
        let contents = Contents::open(File::open(path.path()).expect("a file")).expect("opens");
        assert_eq!(contents.len(), 1_000_003);
        assert_eq!(contents.pages_read(), Some(0));
        for (offset, size) in [(0, 4), (65_530, 12), (131_071, 4096), (999_999, 4), (7, 0)] {
            let end = offset + size;
            assert_eq!(
                contents.get(offset as u64, size as u64),
                Some(&bytes[offset..end])
            );
        }
        assert_eq!(contents.pages_read(), Some(3));
        assert_eq!(contents.get(5, 500_000), Some(&bytes[5..500_005]));
        assert_eq!(contents.get(100, 5000), Some(&bytes[100..5100]));
        assert_eq!(
            contents.pages_read(),
            Some(3),
            "large pieces are read by themselves"
        );
        let shared = contents.shared(300_000, 400_000).expect("in the file");
        assert_eq!(shared.bytes(), &bytes[300_000..700_000]);
        let rest = contents.tail(65_535).expect("in the file");
        assert!(rest.len() >= OVERLAP as usize && bytes[65_535..].starts_with(rest));
        assert_eq!(contents.tail(1_000_000), Some(&bytes[1_000_000..]));
        let mut some = [0; 100];
        assert_eq!(contents.copy(999_999, &mut some), 4);
        assert_eq!(some[..4], bytes[999_999..]);
        let mut all = Vec::new();
        contents
            .visit(&mut |chunk| all.extend_from_slice(chunk))
            .expect("reads");
        assert_eq!(all, bytes);
    }

    #[test]
    fn bytes_beyond_the_file_are_absent() {
        for len in [10, 300_000] {
            let (path, _) = file(len);
            let contents = Contents::open(File::open(path.path()).expect("a file")).expect("opens");
            assert_eq!(contents.get(len as u64, 1), None);
            assert_eq!(contents.get(len as u64 - 1, 2), None);
            assert_eq!(contents.get(u64::MAX, 2), None);
            assert_eq!(contents.get(0, u64::MAX), None);
            assert_eq!(contents.tail(len as u64 + PAGE), None);
            assert!(contents.shared(1, len as u64).is_none());
            assert_eq!(contents.get(len as u64, 0), Some(&[][..]));
        }
    }

    #[test]
    fn recently_changed_files_are_identified_by_content() {
        let (one, bytes) = file(300_000);
        let (other, _) = file(300_000);
        let identity = |path: &Path| {
            Contents::open(File::open(path).expect("a file"))
                .expect("opens")
                .identity()
        };
        assert_eq!(identity(one.path()), identity(other.path()));
        let mut changed = bytes.clone();
        changed[123_456] ^= 1;
        std::fs::write(other.path(), &changed).expect("written");
        assert_ne!(identity(one.path()), identity(other.path()));
        let in_memory = |bytes: Vec<u8>| Contents::from(Arc::<[u8]>::from(bytes)).identity();
        assert_eq!(in_memory(bytes), identity(one.path()));
        // This program was built some time ago, or is identified by its bytes.
        let own = std::env::current_exe().expect("a path");
        assert_eq!(identity(&own), identity(&own));
        std::thread::sleep(SETTLE_TIME + Duration::from_millis(100));
        let settled = identity(other.path());
        assert_eq!(settled, identity(other.path()));
        assert_ne!(settled, in_memory(changed.clone()));
        changed[0] ^= 1;
        std::fs::write(other.path(), &changed).expect("written");
        assert_eq!(identity(other.path()), in_memory(changed));
    }

    #[test]
    fn a_file_that_shrinks_gives_less_and_no_signal() {
        let (path, bytes) = file(400_000);
        let contents = Contents::open(File::open(path.path()).expect("a file")).expect("opens");
        assert_eq!(contents.get(0, 8), Some(&bytes[..8]));
        std::fs::write(path.path(), &bytes[..1000]).expect("written");
        assert_eq!(contents.get(0, 8), Some(&bytes[..8]), "it was read before");
        assert_eq!(contents.get(200_000, 8), None);
        assert_eq!(contents.get(100_000, 10_000), None);
        assert!(contents.visit(&mut |_| ()).is_err());
    }
}
