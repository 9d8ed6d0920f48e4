//! The entries of a section of call frame information: lengths, CIEs, FDEs and their pointers. See
//! DWARF 5, 6.4.1, and for `.eh_frame` LSB 5.0, 10.6.

use super::Section;
use crate::cursor::Cursor;

/// A pointer encoding: a `DW_EH_PE_*` byte and the base addresses it may refer to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Encoding {
    pub(crate) byte: u8,
    pub(crate) pointer: usize,
    /// Start of the text, and of the section that data-relative pointers refer to.
    pub(crate) text: u64,
}

const OMIT: u8 = 0xff;
const INDIRECT: u8 = 0x80;

impl Encoding {
    /// Reads a pointer at `at`, which has the address `place`. For an indirect pointer, returns the
    /// address of the pointer.
    #[inline]
    pub(crate) fn read(self, at: &mut Cursor<'_>, place: u64) -> Option<u64> {
        // pcrel | sdata4, in nearly all files
        if self.byte == 0x1b {
            return Some(self.wrap(place.wrapping_add(at.signed(4)?)));
        }
        let base = match self.byte & 0x70 {
            0x00 => 0,
            0x10 => place,
            0x20 => self.text,
            // datarel has no meaning in .eh_frame; funcrel and aligned are not used.
            _ => return None,
        };
        let value = self.value(at)?;
        Some(self.wrap(base.wrapping_add(value)))
    }

    /// The value without its base, as in the length of an FDE.
    #[inline]
    fn value(self, at: &mut Cursor<'_>) -> Option<u64> {
        match self.byte & 0x0f {
            0x00 => at.unsigned(self.pointer),
            0x01 => at.uleb(),
            0x02 => at.unsigned(2),
            0x03 => at.unsigned(4),
            0x04 | 0x0c => at.unsigned(8),
            0x08 => at.signed(self.pointer),
            0x09 => at.sleb().map(|value| value as u64),
            0x0a => at.signed(2),
            0x0b => at.signed(4),
            _ => None,
        }
    }

    fn wrap(self, address: u64) -> u64 {
        if self.pointer == 4 {
            address & 0xffff_ffff
        } else {
            address
        }
    }
}

/// A Common Information Entry: what many FDEs share.
#[derive(Clone, Debug)]
pub(crate) struct Cie<'a> {
    pub(crate) code_factor: u64,
    pub(crate) data_factor: i64,
    /// Column of the return address.
    pub(crate) ra: u64,
    pub(crate) encoding: Encoding,
    /// FDEs have augmentation data.
    augmented: bool,
    segment: usize,
    pub(crate) signal_frame: bool,
    pub(crate) instructions: &'a [u8],
}

/// A Frame Description Entry: the entry of one function or a part of one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fde<'a> {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) instructions: &'a [u8],
    /// Offset of the instructions in the section.
    pub(crate) position: usize,
}

/// The bounds of an entry in its section.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Offset of the first byte after the CIE pointer or id.
    content: usize,
    pub(crate) end: usize,
    /// Offset of the CIE that an FDE refers to. `None` if this entry is a CIE.
    pub(crate) cie: Option<usize>,
}

/// The reason why the list of entries ends before the section does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The length reaches past the end of the section.
    Length,
    /// The CIE pointer reaches past the end of the section.
    Pointer,
}

/// The entry at `at`. `Ok(None)` at the end of the section.
#[inline]
pub(crate) fn entry(section: &Section<'_>, at: usize) -> Result<Option<Entry>, (usize, Broken)> {
    let mut cursor = Cursor::at(section.data, at);
    if cursor.is_empty() {
        return Ok(None);
    }
    let (mut size, mut length) = (4, cursor.unsigned(4));
    if length == Some(0xffff_ffff) {
        (size, length) = (8, cursor.unsigned(8));
    }
    if length == Some(0) {
        // A zero length terminates .eh_frame. In .debug_frame it is padding.
        if !section.debug {
            return Ok(None);
        }
        let end = cursor.position();
        return Ok(Some(Entry {
            content: end,
            end,
            cie: None,
        }));
    }
    let start = cursor.position();
    let end = length
        .and_then(|length| start.checked_add(usize::try_from(length).ok()?))
        .filter(|&end| end <= section.data.len())
        .ok_or((0, Broken::Length))?;
    // In .eh_frame the pointer always has 4 bytes, whatever the size of the length.
    let width = if section.debug { size } else { 4 };
    let pointer = cursor.unsigned(width).filter(|_| cursor.position() <= end);
    let pointer = pointer.ok_or((end, Broken::Pointer))?;
    let all_ones = u64::MAX >> (64 - 8 * width as u32);
    let cie = match (section.debug, pointer) {
        (false, 0) => None,
        (true, id) if id == all_ones => None,
        (true, offset) => Some(usize::try_from(offset).map_err(|_| (end, Broken::Pointer))?),
        (false, back) => Some(
            usize::try_from(back)
                .ok()
                .and_then(|back| start.checked_sub(back))
                .ok_or((end, Broken::Pointer))?,
        ),
    };
    Ok(Some(Entry {
        content: cursor.position(),
        end,
        cie,
    }))
}

/// Reads the CIE at `at`. The error says what is wrong with it.
pub(crate) fn cie<'a>(
    section: &Section<'a>,
    at: usize,
    pointer: usize,
    text: u64,
) -> Result<Cie<'a>, &'static str> {
    let entry = entry(section, at)
        .ok()
        .flatten()
        .filter(|entry| entry.cie.is_none())
        .ok_or("its CIE pointer leads to no CIE")?;
    let data = section.data.get(..entry.end).unwrap_or(&[]);
    let mut cursor = Cursor::at(data, entry.content);
    const CUT: &str = "its CIE is cut off";
    let version = cursor.u8().ok_or(CUT)?;
    if !matches!(version, 1 | 3 | 4) {
        return Err("its CIE has an unknown version");
    }
    let rest = cursor.rest();
    let end = rest.iter().position(|&byte| byte == 0).ok_or(CUT)?;
    let augmentation = &rest[..end];
    cursor.take(end + 1).ok_or(CUT)?;
    let mut encoding = Encoding {
        byte: 0,
        pointer,
        text,
    };
    let mut segment = 0;
    // Old GCC writes a pointer here that only its own runtime uses.
    if augmentation.starts_with(b"eh") {
        cursor.take(pointer).ok_or(CUT)?;
    }
    if version == 4 {
        encoding.pointer = usize::from(cursor.u8().ok_or(CUT)?);
        segment = usize::from(cursor.u8().ok_or(CUT)?);
        if !matches!(encoding.pointer, 2 | 4 | 8) || segment > 8 {
            return Err("its CIE has an unknown address size");
        }
    }
    let code_factor = cursor.uleb().ok_or(CUT)?;
    let data_factor = cursor.sleb().ok_or(CUT)?;
    let ra = if version == 1 {
        cursor.u8().map(u64::from)
    } else {
        cursor.uleb()
    };
    let ra = ra.ok_or(CUT)?;
    let augmented = augmentation.first() == Some(&b'z');
    let mut signal_frame = false;
    if augmented {
        let len = cursor.uleb().and_then(|len| usize::try_from(len).ok());
        let end = len.and_then(|len| cursor.position().checked_add(len));
        let end = end.filter(|&end| end <= data.len()).ok_or(CUT)?;
        for &letter in &augmentation[1..] {
            match letter {
                b'R' => encoding.byte = cursor.u8().ok_or(CUT)?,
                b'L' => drop(cursor.u8().ok_or(CUT)?),
                b'P' => {
                    let byte = cursor.u8().ok_or(CUT)?;
                    let personality = Encoding { byte, ..encoding };
                    if byte != OMIT {
                        personality.value(&mut cursor).ok_or(CUT)?;
                    }
                }
                b'S' => signal_frame = true,
                // AArch64: return addresses are signed with key B; frames are tagged.
                b'B' | b'G' => {}
                // The rest of the augmentation is unknown, but its length is known.
                _ => break,
            }
        }
        cursor = Cursor::at(data, end);
    } else if augmentation.iter().all(|letter| b"SBG".contains(letter)) {
        // `S` has no data and so needs no length; glibc writes its CIEs this way.
        signal_frame = augmentation.contains(&b'S');
    } else if augmentation != b"eh" {
        return Err("its CIE has an unknown augmentation");
    }
    if encoding.byte & INDIRECT != 0 || encoding.byte == OMIT {
        return Err("its CIE has an unusable pointer encoding");
    }
    Ok(Cie {
        code_factor,
        data_factor,
        ra,
        encoding,
        augmented,
        segment,
        signal_frame,
        instructions: cursor.rest(),
    })
}

impl<'a> Cie<'a> {
    /// Reads the FDE at `entry`, which refers to this CIE. `None` if it is cut off.
    #[inline]
    pub(crate) fn fde(&self, section: &Section<'a>, entry: &Entry) -> Option<Fde<'a>> {
        let mut cursor = Cursor::at(section.data.get(..entry.end)?, entry.content);
        cursor.take(self.segment)?;
        let place = section.svma.wrapping_add(cursor.position() as u64);
        let start = self.encoding.read(&mut cursor, place)?;
        let length = self.encoding.value(&mut cursor)?;
        if self.augmented {
            cursor.block()?;
        }
        Some(Fde {
            start,
            end: start.saturating_add(length),
            instructions: cursor.rest(),
            position: cursor.position(),
        })
    }
}
