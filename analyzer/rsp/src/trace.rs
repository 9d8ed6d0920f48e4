//! Tracepoint actions in the form of `QTDP` packets, and frames in the form of trace files (GDB
//! manual, "Trace File Format").

use std::fmt;
use std::time::Duration;

use crate::hex;

/// An action at a hit: the data to collect.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceAction {
    /// The registers with these numbers.
    Registers(Vec<u32>),
    /// The data that an agent expression collects (GDB manual, "Agent Expressions").
    Expression(Vec<u8>),
}

impl fmt::Display for TraceAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceAction::Registers(numbers) => {
                let highest = numbers.iter().max().copied().unwrap_or(0) as usize;
                let mut mask = vec![0u8; highest / 8 + 1];
                for number in numbers {
                    // The mask starts with the highest registers.
                    let byte = mask.len() - 1 - *number as usize / 8;
                    mask[byte] |= 1 << (number % 8);
                }
                write!(f, "R{}", hex::encode(&mask))
            }
            TraceAction::Expression(code) => write!(f, "X{:x},{}", code.len(), hex::encode(code)),
        }
    }
}

/// A place whose hits are recorded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tracepoint {
    /// Its number.
    pub number: u32,
    /// The address. On ARM an odd address means Thumb.
    pub address: u64,
    /// Number of bytes from the address on that may be moved: whole instructions that no jump
    /// enters in the middle. With enough of them, a server can record hits without a stop.
    pub movable: u8,
    /// An agent expression. A hit counts only if its value is not zero.
    pub condition: Option<Vec<u8>>,
    /// The data to collect.
    pub actions: Vec<TraceAction>,
}

impl Tracepoint {
    /// The packets that define the tracepoint. It is enabled last, so that no hit finds it
    /// incomplete.
    pub(crate) fn packets(&self, fast: bool) -> Vec<Vec<u8>> {
        let Tracepoint {
            number,
            address,
            movable,
            condition,
            actions,
        } = self;
        let condition = condition.as_ref().map_or(String::new(), |code| {
            format!(":X{:x},{}", code.len(), hex::encode(code))
        });
        let fast = match movable {
            1.. if fast => format!(":F{movable:x}"),
            _ => String::new(),
        };
        let mut packets = vec![format!(
            "QTDP:{number:x}:{address:x}:D:0:0{fast}{condition}-"
        )];
        for (index, action) in actions.iter().enumerate() {
            let more = if index + 1 < actions.len() { "-" } else { "" };
            packets.push(format!("QTDP:-{number:x}:{address:x}:{action}{more}"));
        }
        packets.push(format!("QTEnable:{number:x}:{address:x}"));
        packets.into_iter().map(String::into_bytes).collect()
    }
}

/// Number of variables in most frames.
const USUAL_VARIABLES: usize = 8;
/// Largest size in bytes of a memory block, whose length has 16 bits.
const MAX_BLOCK: usize = 0xffff;

/// The data collected at one hit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceFrame {
    /// The tracepoint's number.
    pub tracepoint: u32,
    /// Registers in the layout of the `g` packet, zero where not collected. It ends at the last
    /// collected register, or later.
    pub registers: Vec<u8>,
    /// Memory, in the order of collection. The blocks of a larger area are one.
    pub memory: Vec<(u64, Vec<u8>)>,
    /// Trace state variables.
    pub variables: Vec<(u32, i64)>,
    /// The time at which the server sent the frame, on its monotonic clock in nanoseconds.
    pub sent_ns: u64,
    /// Time since it arrived.
    pub since: Duration,
}

impl TraceFrame {
    /// A variable's value, if it was collected.
    pub fn variable(&self, number: u32) -> Option<i64> {
        let found = self.variables.iter().find(|(other, _)| *other == number);
        found.map(|(_, value)| *value)
    }

    /// Decodes consecutive frames. `registers` is the size of a `g` packet. Drops an incomplete
    /// frame.
    pub(crate) fn decode(bytes: &[u8], registers: usize) -> Vec<TraceFrame> {
        let mut frames = Vec::new();
        let mut rest = Reader(bytes);
        while let Some((tracepoint, length)) = rest.number::<2>().zip(rest.number::<4>()) {
            let Some(blocks) = usize::try_from(length).ok().and_then(|n| rest.take(n)) else {
                break;
            };
            let mut frame = TraceFrame {
                tracepoint: tracepoint as u32,
                variables: Vec::with_capacity(USUAL_VARIABLES),
                ..TraceFrame::default()
            };
            if frame.fill(Reader(blocks), registers).is_some() {
                frames.push(frame);
            }
        }
        frames
    }

    fn fill(&mut self, mut blocks: Reader<'_>, registers: usize) -> Option<()> {
        while let Some([kind]) = blocks.take(1) {
            match kind {
                b'R' => self.registers = blocks.take(registers)?.to_vec(),
                b'P' => {
                    let (offset, length) = (blocks.number::<2>()?, blocks.number::<2>()?);
                    let bytes = blocks.take(usize::try_from(length).ok()?)?;
                    let offset = usize::try_from(offset).ok()?;
                    let end = offset + bytes.len();
                    if self.registers.len() < end {
                        self.registers.resize(end, 0);
                    }
                    self.registers[offset..end].copy_from_slice(bytes);
                }
                b'M' => {
                    let (address, length) = (blocks.number::<8>()?, blocks.number::<2>()?);
                    let bytes = blocks.take(usize::try_from(length).ok()?)?;
                    match self.memory.last_mut().filter(|last| goes_on(last, address)) {
                        Some((_, before)) => before.extend_from_slice(bytes),
                        None => self.memory.push((address, bytes.to_vec())),
                    }
                }
                b'V' => {
                    let (number, value) = (blocks.number::<4>()?, blocks.number::<8>()?);
                    self.variables.push((number as u32, value.cast_signed()));
                }
                _ => return None,
            }
        }
        Some(())
    }
}

/// True if a block at `address` belongs to the memory before it. Servers send larger memory in
/// blocks of the largest size.
fn goes_on((start, bytes): &(u64, Vec<u8>), address: u64) -> bool {
    !bytes.is_empty()
        && bytes.len().is_multiple_of(MAX_BLOCK)
        && start.wrapping_add(bytes.len() as u64) == address
}

/// Bytes that have not been read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    /// A little-endian number of `N` bytes, as on all supported targets.
    fn number<const N: usize>(&mut self) -> Option<u64> {
        let bytes = self.take(N)?;
        Some(
            bytes
                .iter()
                .rev()
                .fold(0, |n, byte| n << 8 | u64::from(*byte)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_as_packets() {
        let registers = TraceAction::Registers(vec![0, 7, 16]);
        assert_eq!(registers.to_string(), "R010081");
        assert_eq!(
            TraceAction::Expression(vec![0x22, 0x27]).to_string(),
            "X2,2227"
        );
    }

    #[test]
    fn tracepoints_as_packets() {
        let tracepoint = Tracepoint {
            number: 10,
            address: 0x401,
            movable: 6,
            condition: Some(vec![0x22, 1, 0x27]),
            actions: vec![
                TraceAction::Registers(vec![0]),
                TraceAction::Expression(vec![0x27]),
            ],
        };
        let packets = |fast| {
            let packets = tracepoint.packets(fast).into_iter();
            packets.map(|packet| String::from_utf8(packet).unwrap())
        };
        assert!(packets(true).eq([
            "QTDP:a:401:D:0:0:F6:X3,220127-",
            "QTDP:-a:401:R01-",
            "QTDP:-a:401:X1,27",
            "QTEnable:a:401",
        ]));
        assert_eq!(
            packets(false).next().unwrap(),
            "QTDP:a:401:D:0:0:X3,220127-"
        );
    }

    #[test]
    fn frames() {
        let mut bytes = vec![
            3, 0, 21, 0, 0, 0, b'R', 1, 2, 3, 4, b'M', 0, 16, 0, 0, 0, 0, 0, 0,
        ];
        bytes.extend([5, 0, 9, 9, 9, 9, 9]);
        bytes[2] = 21;
        bytes.extend([
            4, 0, 13, 0, 0, 0, b'V', 2, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255,
        ]);
        let frames = TraceFrame::decode(&bytes, 4);
        assert_eq!(frames.len(), 2, "{frames:?}");
        assert_eq!(frames[0].registers, [1, 2, 3, 4]);
        assert_eq!(frames[0].memory, [(0x1000, vec![9; 5])]);
        assert_eq!(frames[1].variable(2), Some(-1));
        for end in 0..bytes.len() {
            assert!(TraceFrame::decode(&bytes[..end], 4).len() < 2);
        }
    }

    #[test]
    fn parts_of_registers() {
        let blocks = b"P\x00\x00\x02\x00ab\x50\x04\x00\x01\x00c";
        let frame = [&[1, 0, 13, 0, 0, 0][..], blocks].concat();
        let frames = TraceFrame::decode(&frame, 8);
        assert_eq!(frames[0].registers, b"ab\0\0c");
        for end in 0..frame.len() {
            assert!(TraceFrame::decode(&frame[..end], 8).is_empty());
        }
    }

    #[test]
    fn blocks_of_a_larger_area_are_one() {
        let block = |address: u64, size: u16| {
            let head = [&[b'M'][..], &address.to_le_bytes(), &size.to_le_bytes()];
            [head.concat(), vec![7; size.into()]].concat()
        };
        let blocks = [
            block(0x1000, 0xffff),
            block(0x10fff, 0xffff),
            block(0x20ffe, 2),
            // It follows, but the area has ended.
            block(0x21000, 3),
        ];
        let blocks = blocks.concat();
        let length = u32::try_from(blocks.len()).unwrap();
        let frame = [&[1, 0][..], &length.to_le_bytes(), &blocks].concat();
        let frames = TraceFrame::decode(&frame, 4);
        let sizes: Vec<(u64, usize)> = frames[0].memory.iter().map(|m| (m.0, m.1.len())).collect();
        assert_eq!(sizes, [(0x1000, 0x20000), (0x21000, 3)]);
    }
}
