//! ARM mapping symbols, which mark the text as A32, T32, A64 or data.
//!
//! Separate from the symbols because they name nothing. Spec: ELF for the Arm Architecture
//! (aaelf32), 5.5.5 "Mapping symbols"; aaelf64, 5.5.4.

/// The content of text that a mapping symbol marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CodeKind {
    /// A32 (`$a`) or A64 (`$x`) instructions.
    Arm,
    /// T32 instructions (`$t`).
    Thumb,
    /// Data in text (`$d`): literal pools, jump tables.
    Data,
}

impl CodeKind {
    /// The kind for `$a`, or `$a.` followed by anything.
    pub(super) fn from_name(name: &[u8]) -> Option<CodeKind> {
        let [b'$', letter, rest @ ..] = name else {
            return None;
        };
        if !matches!(rest, [] | [b'.', ..]) {
            return None;
        }
        match letter {
            b'a' | b'x' => Some(CodeKind::Arm),
            b't' => Some(CodeKind::Thumb),
            b'd' => Some(CodeKind::Data),
            _ => None,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Mapping {
    starts: Vec<(u64, CodeKind)>,
}

impl Mapping {
    pub(super) fn new(mut starts: Vec<(u64, CodeKind)>) -> Mapping {
        // A stable sort: of several at one address the last in the table is valid; the others cover
        // no bytes.
        starts.sort_by_key(|(svma, _)| *svma);
        starts.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                kept.1 = next.1;
            }
            same || next.1 == kept.1
        });
        Mapping { starts }
    }

    pub(super) fn at(&self, svma: u64) -> Option<CodeKind> {
        let end = self.starts.partition_point(|(start, _)| *start <= svma);
        Some(self.starts.get(end.checked_sub(1)?)?.1)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, CodeKind)> + '_ {
        self.starts.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_up_to_the_next_start() {
        let map = Mapping::new(vec![
            (0x20, CodeKind::Data),
            (0x10, CodeKind::Thumb),
            (0x18, CodeKind::Thumb),
            (0x30, CodeKind::Arm),
        ]);
        assert_eq!(map.at(0xf), None);
        assert_eq!(map.at(0x1f), Some(CodeKind::Thumb));
        assert_eq!(map.at(0x20), Some(CodeKind::Data));
        assert_eq!(map.at(0x1000), Some(CodeKind::Arm));
        assert_eq!(map.iter().count(), 3);
    }

    #[test]
    fn names() {
        assert_eq!(CodeKind::from_name(b"$t.12"), Some(CodeKind::Thumb));
        assert_eq!(CodeKind::from_name(b"$x"), Some(CodeKind::Arm));
        assert_eq!(CodeKind::from_name(b"$tail"), None);
        assert_eq!(CodeKind::from_name(b"main"), None);
    }
}
