//! Features: our `qSupported` request and the server's answer.

use std::collections::BTreeMap;

/// The features this client announces (RSP, "General Query Packets", `qSupported`).
pub(crate) const ANNOUNCED: &str = "qSupported:multiprocess+;swbreak+;hwbreak+;fork-events+;\
     vfork-events+;exec-events+;vContSupported+;QThreadEvents+;no-resumed+;\
     xmlRegisters=i386,arm,aarch64";

/// The packet size if the server states none (gdb's default).
const DEFAULT_PACKET_SIZE: usize = 400;
/// Accepted packet sizes. Below, no `g` reply fits; above, the value cannot be right.
const PACKET_SIZE_RANGE: std::ops::RangeInclusive<usize> = 64..=0x4_0000;

/// The server's answer to `qSupported`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Features {
    /// `name+` is `Some("")`, `name=value` is `Some(value)`, `name-` and `name?` are `None`.
    entries: BTreeMap<String, Option<String>>,
}

impl Features {
    /// Decodes `PacketSize=3fff;qXfer:auxv:read+;...`. Entries without `+ - ? =` are ignored.
    pub fn decode(reply: &str) -> Features {
        let entries = reply
            .split(';')
            .filter_map(|entry| {
                if let Some((name, value)) = entry.split_once('=') {
                    return Some((name.to_owned(), Some(value.to_owned())));
                }
                let name = entry.get(..entry.len().checked_sub(1)?)?.to_owned();
                match entry.as_bytes().last()? {
                    b'+' => Some((name, Some(String::new()))),
                    b'-' | b'?' => Some((name, None)),
                    _ => None,
                }
            })
            .collect();
        Features { entries }
    }

    /// Whether the server has the feature (`name+` or `name=value`).
    pub fn has(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    /// The feature's value; empty for `name+`.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.entries.get(name)?.as_deref()
    }

    /// Maximum length of a packet's payload in bytes.
    pub fn packet_size(&self) -> usize {
        self.value("PacketSize")
            .and_then(crate::hex::number)
            .and_then(|size| usize::try_from(size).ok())
            .unwrap_or(DEFAULT_PACKET_SIZE)
            .clamp(*PACKET_SIZE_RANGE.start(), *PACKET_SIZE_RANGE.end())
    }

    /// All features of the server with their values, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries
            .iter()
            .filter_map(|(name, value)| Some((name.as_str(), value.as_deref()?)))
    }
}
