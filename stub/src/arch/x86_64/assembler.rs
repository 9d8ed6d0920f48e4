//! Assembles collectors.

/// Code under construction, with labels and references to them.
#[derive(Default)]
pub(super) struct Assembler {
    pub(super) code: Vec<u8>,
    /// Four-byte fields to be filled with the distance from the field's end to the label.
    references: Vec<(usize, Label)>,
    labels: Vec<(Label, usize)>,
}

/// A place that code refers to before or after it is known.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Label {
    Known,
    Again,
    Got,
    Leave,
    Copy,
    Slow,
}

impl Assembler {
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.code.extend_from_slice(bytes);
    }

    pub(super) fn put_32(&mut self, bytes: &[u8], value: u32) {
        self.put(bytes);
        self.put(&value.to_le_bytes());
    }

    pub(super) fn put_64(&mut self, bytes: &[u8], value: u64) {
        self.put(bytes);
        self.put(&value.to_le_bytes());
    }

    pub(super) fn jump(&mut self, bytes: &[u8], to: Label) {
        self.put(bytes);
        self.references.push((self.code.len(), to));
        self.put(&[0; 4]);
    }

    /// Removes the code from this offset on. No label may be there.
    pub(super) fn forget_from(&mut self, start: usize) {
        self.code.truncate(start);
        self.references.retain(|(field, _)| *field < start);
    }

    pub(super) fn here(&mut self, label: Label) {
        self.labels.push((label, self.code.len()));
    }

    pub(super) fn link(&mut self) -> Option<()> {
        for (field, to) in &self.references {
            let (_, target) = self.labels.iter().find(|(label, _)| label == to)?;
            let distance = *target as i32 - (*field as i32 + 4);
            self.code[*field..field + 4].copy_from_slice(&distance.to_le_bytes());
        }
        Some(())
    }
}

pub(super) const JE: &[u8] = &[0x0f, 0x84];
pub(super) const JNE: &[u8] = &[0x0f, 0x85];
pub(super) const JB: &[u8] = &[0x0f, 0x82];
pub(super) const JAE: &[u8] = &[0x0f, 0x83];
pub(super) const JA: &[u8] = &[0x0f, 0x87];
pub(super) const JL: &[u8] = &[0x0f, 0x8c];
pub(super) const JMP: &[u8] = &[0xe9];
