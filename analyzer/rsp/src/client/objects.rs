//! Reads special objects of the target with `qXfer` (RSP, "General Query Packets").

use crate::client::Client;
use crate::error::Error;
use crate::library::{self, Library};

/// Maximum size of an object, in bytes.
const MAX_OBJECT: usize = 64 << 20;

impl Client {
    /// Reads a whole object (`qXfer:object:read:annex`). Returns [`Error::Unsupported`] without a
    /// request if the server did not announce the object.
    pub fn transfer(&mut self, object: &str, annex: &str) -> Result<Vec<u8>, Error> {
        let feature = format!("qXfer:{object}:read");
        if !self.features.has(&feature) {
            return Err(Error::Unsupported { packet: feature });
        }
        // One byte is for the letter.
        let length = self.features.packet_size() - 1;
        let mut bytes = Vec::new();
        loop {
            let offset = bytes.len();
            let reply = self.request(format!("{feature}:{annex}:{offset:x},{length:x}"))?;
            let expected = "`m` or `l` and escaped data";
            let (letter, data) = reply.binary(expected)?;
            match letter {
                b'l' => {
                    bytes.extend(data);
                    return Ok(bytes);
                }
                // `m` promises more data. If it had none, this loop might never end.
                b'm' if !data.is_empty() => bytes.extend(data),
                _ => return Err(reply.malformed(expected)),
            }
            if bytes.len() > MAX_OBJECT {
                return Err(Error::TooLarge {
                    what: format!("the target's object {object}"),
                    limit: MAX_OBJECT as u64,
                });
            }
        }
    }

    /// The loaded libraries (`libraries-svr4`), without the program itself.
    pub fn libraries(&mut self) -> Result<Vec<Library>, Error> {
        let object = self.transfer("libraries-svr4", "")?;
        library::decode(&String::from_utf8_lossy(&object)).map_err(|problem| {
            malformed_object("qXfer:libraries-svr4:read", "a library list", &problem)
        })
    }

    /// The auxiliary vector as (type, value), without its end marker.
    pub fn auxv(&mut self) -> Result<Vec<(u64, u64)>, Error> {
        let object = self.transfer("auxv", "")?;
        let size = self.description.pointer_size().clamp(1, 8);
        let word = |bytes: &[u8]| {
            let mut word = [0; 8];
            word.iter_mut()
                .zip(bytes)
                .for_each(|(to, from)| *to = *from);
            u64::from_le_bytes(word)
        };
        Ok(object
            .chunks_exact(2 * size)
            .map(|entry| {
                let (kind, value) = entry.split_at(size);
                (word(kind), word(value))
            })
            // AT_NULL (System V ABI, "Auxiliary Vector").
            .take_while(|(kind, _)| *kind != 0)
            .collect())
    }

    /// Path of the program on the target. `None` if the server does not know it.
    pub fn exec_file(&mut self, pid: Option<u64>) -> Result<Option<String>, Error> {
        let annex = pid.map(|pid| format!("{pid:x}")).unwrap_or_default();
        match self.transfer("exec-file", &annex) {
            Ok(path) if path.is_empty() => Ok(None),
            Ok(path) => Ok(Some(String::from_utf8_lossy(&path).into_owned())),
            Err(error) if error.is_unsupported() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

pub(super) fn malformed_object(packet: &str, expected: &'static str, problem: &str) -> Error {
    Error::Malformed {
        packet: packet.to_owned(),
        expected,
        reply: problem.to_owned(),
    }
}
