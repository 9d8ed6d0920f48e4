//! Replies decoded by kind: `OK`, text, hexadecimal, binary, and the two forms of refusal.

use crate::connection::shown;
use crate::error::{Error, RemoteError};

/// The reply to one request, together with the request for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    request: String,
    name: String,
    payload: Vec<u8>,
}

impl Reply {
    pub(crate) fn new(request: &[u8], payload: Vec<u8>) -> Reply {
        Reply {
            request: shown(request),
            name: name(request),
            payload,
        }
    }

    /// The payload as received.
    pub(crate) fn into_payload(self) -> Vec<u8> {
        self.payload
    }

    /// The payload. An error if it is empty ("unsupported") or an error reply.
    pub(crate) fn payload(&self) -> Result<&[u8], Error> {
        if self.payload.is_empty() {
            return Err(Error::Unsupported {
                packet: self.name.clone(),
            });
        }
        match remote_error(&self.payload) {
            Some(error) => Err(Error::Remote {
                packet: self.request.clone(),
                error,
            }),
            None => Ok(&self.payload),
        }
    }

    /// The payload as text. Invalid UTF-8 is replaced, because names may contain any bytes.
    pub(crate) fn text(&self) -> Result<String, Error> {
        Ok(String::from_utf8_lossy(self.payload()?).into_owned())
    }

    /// Checks for `OK`.
    pub(crate) fn ok(&self) -> Result<(), Error> {
        match self.payload()? {
            b"OK" => Ok(()),
            _ => Err(self.malformed("`OK`")),
        }
    }

    /// Decodes digit pairs.
    pub(crate) fn hex(&self) -> Result<Vec<u8>, Error> {
        crate::hex::decode(self.payload()?).ok_or_else(|| self.malformed("hexadecimal digits"))
    }

    /// Decodes a letter followed by escaped binary data.
    pub(crate) fn binary(&self, expected: &'static str) -> Result<(u8, Vec<u8>), Error> {
        let (letter, data) = self
            .payload()?
            .split_first()
            .ok_or_else(|| self.malformed(expected))?;
        match crate::packet::unescape(data) {
            Some(data) => Ok((*letter, data)),
            None => Err(self.malformed(expected)),
        }
    }

    /// The error for a reply of another form than expected.
    pub(crate) fn malformed(&self, expected: &'static str) -> Error {
        Error::Malformed {
            packet: self.request.clone(),
            expected,
            reply: shown(&self.payload),
        }
    }
}

/// A packet's name without its arguments.
fn name(request: &[u8]) -> String {
    let len = match request.first() {
        Some(b'v' | b'q' | b'Q') => {
            let skip = if request.starts_with(b"vFile:") { 6 } else { 0 };
            let rest = request.get(skip..).unwrap_or_default();
            let end = rest.iter().position(|b| b":;,".contains(b));
            skip + end.unwrap_or(rest.len())
        }
        Some(b'Z' | b'z' | b'H') => 2,
        _ => 1,
    };
    shown(request.get(..len).unwrap_or(request))
}

/// A server's message, reduced to printable text.
fn printable(message: &[u8]) -> String {
    let text = String::from_utf8_lossy(message);
    let mut printable = String::with_capacity(text.len());
    for character in text.chars() {
        match character.is_control() {
            true => printable.extend(character.escape_debug()),
            false => printable.push(character),
        }
    }
    printable
}

/// Decodes `E NN` or `E.message` (RSP, "Standard Replies"). Hexadecimal data that starts with E has
/// an even number of digits, so it is neither.
fn remote_error(payload: &[u8]) -> Option<RemoteError> {
    match payload {
        [b'E', b'.', message @ ..] => Some(RemoteError::Message(printable(message))),
        [b'E', high, low] => {
            let code = crate::hex::decode(&[*high, *low])?;
            Some(RemoteError::Code(*code.first()?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(payload: &[u8]) -> Reply {
        Reply::new(b"m1000,4", payload.to_vec())
    }

    #[test]
    fn the_ways_to_say_no() {
        let unsupported = reply(b"").ok().unwrap_err();
        assert!(unsupported.is_unsupported());
        let code = reply(b"E01").hex().unwrap_err().to_string();
        assert_eq!(
            code,
            "the server answered `m1000,4` with error 0x01; see what the server printed"
        );
        let text = reply(b"E.no such thread").ok().unwrap_err().to_string();
        assert_eq!(text, "the server refused `m1000,4`: no such thread");
    }

    #[test]
    fn packets_are_named_without_their_arguments() {
        for (request, expected) in [
            ("vFile:open:2f,0,0", "vFile:open"),
            ("vCont;c:p1.1", "vCont"),
            ("qRcmd,6869", "qRcmd"),
            ("QThreadEvents:1", "QThreadEvents"),
            ("qfThreadInfo", "qfThreadInfo"),
            ("Z0,401000,1", "Z0"),
            ("Hgp1.2", "Hg"),
            ("m1000,4", "m"),
            ("?", "?"),
        ] {
            assert_eq!(name(request.as_bytes()), expected);
        }
    }

    #[test]
    fn data_that_look_like_errors_are_data() {
        assert_eq!(reply(b"E0E1").hex().unwrap(), [0xe0, 0xe1]);
        assert_eq!(reply(b"lE01").binary("l").unwrap(), (b'l', b"E01".to_vec()));
    }

    #[test]
    fn malformed_replies_show_both_sides() {
        let message = reply(b"0x1").hex().unwrap_err().to_string();
        assert!(
            message.starts_with("expected hexadecimal digits in answer to `m1000,4`, got `0x1`;"),
            "{message}"
        );
        assert!(reply(b"mab}").binary("`m`").is_err());
        assert!(reply(b"nope").ok().is_err());
    }
}
