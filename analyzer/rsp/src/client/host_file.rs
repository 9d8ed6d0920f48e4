//! Reads files of the target through the server (RSP, "Host I/O Packets").

use crate::client::Client;
use crate::error::Error;
use crate::reply::Reply;

/// Number of requests sent before the first reply is read.
const WINDOW: usize = 8;
/// Fraction of the packet size to request. Escapes lengthen arbitrary data by 1/64.
const REQUEST_FRACTION: (usize, usize) = (7, 8);

/// A file of the target, open for reading. It is closed when dropped.
pub struct HostFile<'a> {
    client: &'a mut Client,
    fd: u64,
    path: String,
    open: bool,
}

/// The result of `vFile:fstat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostFileStatus {
    /// Type and permission bits.
    pub mode: u32,
    /// Length in bytes.
    pub size: u64,
    /// Last modification, in seconds since 1970.
    pub modified: u32,
}

impl Client {
    /// Reads a whole file of at most `limit` bytes (`vFile:open`, `pread`, `close`).
    pub fn read_file(&mut self, path: &str, limit: u64) -> Result<Vec<u8>, Error> {
        let mut file = self.open_file(path)?;
        // One more byte detects a longer file. Files in /proc have size 0, so reading is the only
        // way.
        let most = usize::try_from(limit.saturating_add(1)).unwrap_or(usize::MAX);
        let bytes = file.read_at(0, most)?;
        if bytes.len() as u64 > limit {
            return Err(Error::TooLarge {
                what: format!("the target's file {path}"),
                limit,
            });
        }
        file.close()?;
        Ok(bytes)
    }

    /// Opens a file, to read parts of it.
    pub fn open_file(&mut self, path: &str) -> Result<HostFile<'_>, Error> {
        let name = crate::hex::encode(path.as_bytes());
        // O_RDONLY is 0 (RSP, "Open Flags").
        let reply = self.request(format!("vFile:open:{name},0,0"))?;
        let (fd, _) = result(&reply, "open", path)?;
        Ok(HostFile {
            client: self,
            fd,
            path: path.to_owned(),
            open: true,
        })
    }

    /// The target of a symbolic link (`vFile:readlink`).
    pub fn read_link(&mut self, path: &str) -> Result<String, Error> {
        let name = crate::hex::encode(path.as_bytes());
        let reply = self.request(format!("vFile:readlink:{name}"))?;
        let (_, link) = result(&reply, "read the link", path)?;
        Ok(String::from_utf8_lossy(&link).into_owned())
    }
}

impl HostFile<'_> {
    /// Reads up to `len` bytes at `offset`. Returns fewer only at the end of the file.
    pub fn read_at(&mut self, offset: u64, len: usize) -> Result<Vec<u8>, Error> {
        let size = self.client.features.packet_size() * REQUEST_FRACTION.0 / REQUEST_FRACTION.1;
        let mut bytes = Vec::new();
        // Send only one request until the file has proved to be longer than one piece, because most
        // files are small.
        let mut window = 1;
        while bytes.len() < len {
            let base = bytes.len();
            let sizes: Vec<usize> = (0..window)
                .map(|index| len.saturating_sub(base + index * size).min(size))
                .take_while(|size| *size > 0)
                .collect();
            let packets: Vec<_> = (0..)
                .zip(&sizes)
                .map(|(index, count): (u64, _)| {
                    let at = offset + base as u64 + index * size as u64;
                    format!("vFile:pread:{:x},{count:x},{at:x}", self.fd).into_bytes()
                })
                .collect();
            let replies = self.client.requests(&packets)?;
            for (reply, asked) in replies.iter().zip(&sizes) {
                let (count, mut data) = result(reply, "read", &self.path)?;
                data.truncate(*asked);
                if data.len() as u64 != count.min(*asked as u64) {
                    return Err(reply.malformed("as many bytes as the reply says"));
                }
                if data.is_empty() {
                    return Ok(bytes);
                }
                bytes.extend_from_slice(&data);
                // A short piece leaves a gap before the next one, so the next piece is requested
                // again.
                if data.len() < *asked {
                    break;
                }
            }
            window = WINDOW;
        }
        Ok(bytes)
    }

    /// Length, mode and modification time.
    pub fn status(&mut self) -> Result<HostFileStatus, Error> {
        let reply = self.client.request(format!("vFile:fstat:{:x}", self.fd))?;
        let (_, data) = result(&reply, "look at", &self.path)?;
        // struct stat, big-endian: 7 words, then st_size, st_blksize, st_blocks (8 bytes each),
        // then three times, 64 bytes in total (RSP, "struct stat").
        let word = |at: usize| {
            let bytes = data.get(at..at + 4)?.try_into().ok()?;
            Some(u32::from_be_bytes(bytes))
        };
        let long = |at: usize| {
            let bytes = data.get(at..at + 8)?.try_into().ok()?;
            Some(u64::from_be_bytes(bytes))
        };
        match (word(8), long(28), word(56)) {
            (Some(mode), Some(size), Some(modified)) => Ok(HostFileStatus {
                mode,
                size,
                modified,
            }),
            _ => Err(reply.malformed("a struct stat of 64 bytes")),
        }
    }

    /// Closes the file and returns any error.
    pub fn close(mut self) -> Result<(), Error> {
        self.close_once()
    }

    fn close_once(&mut self) -> Result<(), Error> {
        if !std::mem::take(&mut self.open) {
            return Ok(());
        }
        let reply = self.client.request(format!("vFile:close:{:x}", self.fd))?;
        result(&reply, "close", &self.path).map(|_| ())
    }
}

impl Drop for HostFile<'_> {
    fn drop(&mut self) {
        // A caller that needs the error calls `close`.
        let _ = self.close_once();
    }
}

/// Decodes `F result[,errno][;attachment]`, with hexadecimal numbers.
fn result(reply: &Reply, operation: &'static str, path: &str) -> Result<(u64, Vec<u8>), Error> {
    const EXPECTED: &str = "`F`, a number and perhaps data";
    let (letter, _) = reply.binary(EXPECTED)?;
    let payload = reply.payload()?;
    if letter != b'F' {
        return Err(reply.malformed(EXPECTED));
    }
    let mut parts = payload
        .get(1..)
        .unwrap_or_default()
        .splitn(2, |b| *b == b';');
    let numbers = std::str::from_utf8(parts.next().unwrap_or_default()).unwrap_or_default();
    let attachment = parts.next().unwrap_or_default();
    let (value, errno) = numbers.split_once(',').unwrap_or((numbers, ""));
    if value.starts_with('-') {
        return Err(Error::File {
            operation,
            path: path.to_owned(),
            reason: reason(errno),
        });
    }
    let value = crate::hex::number(value).ok_or_else(|| reply.malformed(EXPECTED))?;
    let data = crate::packet::unescape(attachment).ok_or_else(|| reply.malformed(EXPECTED))?;
    Ok((value, data))
}

/// The names of the protocol's error numbers (RSP, "Errno Values").
fn reason(errno: &str) -> String {
    let text = match crate::hex::number(errno) {
        Some(1) => "operation not permitted",
        Some(2) => "no such file or directory",
        Some(4) => "interrupted",
        Some(9) => "bad file descriptor",
        Some(13) => "permission denied",
        Some(14) => "bad address",
        Some(16) => "busy",
        Some(17) => "it exists",
        Some(19) => "no such device",
        Some(20) => "not a directory",
        Some(21) => "it is a directory",
        Some(22) => "invalid argument",
        Some(23 | 24) => "too many open files",
        Some(27) => "file too large",
        Some(28) => "no space left",
        Some(29) => "it cannot seek",
        Some(30) => "read-only file system",
        Some(88) => "not implemented",
        Some(91) => "name too long",
        _ => return format!("the server does not say why (errno `{errno}`)"),
    };
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(payload: &[u8]) -> Result<(u64, Vec<u8>), Error> {
        result(
            &Reply::new(b"vFile:pread:5,10,0", payload.to_vec()),
            "read",
            "/x",
        )
    }

    #[test]
    fn results_with_and_without_data() {
        assert_eq!(decode(b"F5").unwrap(), (5, vec![]));
        assert_eq!(decode(b"F0;").unwrap(), (0, vec![]));
        assert_eq!(decode(b"F4;a;}\x03}]").unwrap(), (4, b"a;#}".to_vec()));
    }

    #[test]
    fn failures_in_words() {
        assert_eq!(
            decode(b"F-1,2").unwrap_err().to_string(),
            "cannot read /x on the target: no such file or directory; check the path there"
        );
        assert!(
            decode(b"F-1")
                .unwrap_err()
                .to_string()
                .contains("does not say why")
        );
        assert!(decode(b"").unwrap_err().is_unsupported());
        for wrong in [&b"F"[..], b"Fz", b"G5", b"F5;}"] {
            assert!(
                matches!(decode(wrong), Err(Error::Malformed { .. })),
                "{wrong:?}"
            );
        }
    }
}
