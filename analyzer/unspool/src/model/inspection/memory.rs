//! The program's memory as first read, and as read again.

use std::collections::BTreeMap;

use unspool_capture::Record;

/// All memory of a capture except the stacks.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Reads at each address, in order of time.
    reads: BTreeMap<u64, Vec<Read>>,
    longest: u64,
}

#[derive(Debug)]
struct Read {
    time_ns: u64,
    bytes: Vec<u8>,
}

impl Memory {
    pub(super) fn of<'a>(records: impl Iterator<Item = &'a Record>) -> Memory {
        let mut memory = Memory::default();
        for record in records {
            if let Record::Memory(read) = record {
                memory.longest = memory.longest.max(read.bytes.len() as u64);
                memory.reads.entry(read.address).or_default().push(Read {
                    time_ns: read.time_ns,
                    bytes: read.bytes.clone(),
                });
            }
        }
        memory
    }

    /// True if memory from this address on was requested, mapped or not.
    pub(super) fn was_asked(&self, address: u64) -> bool {
        self.reads.contains_key(&address)
    }

    /// The bytes at an address, as first read.
    pub(super) fn bytes(&self, address: u64, len: usize) -> Option<&[u8]> {
        self.first(address, len).map(|(_, bytes)| bytes)
    }

    /// Time of the first read of these bytes.
    pub(super) fn time_ns(&self, address: u64, len: usize) -> Option<u64> {
        self.first(address, len).map(|(read, _)| read.time_ns)
    }

    pub(super) fn word(&self, address: u64) -> Option<u32> {
        let bytes = self.bytes(address, 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    }

    pub(super) fn pointer(&self, address: u64, size: usize) -> Option<u64> {
        let mut value = [0; 8];
        value
            .get_mut(..size)?
            .copy_from_slice(self.bytes(address, size)?);
        Some(u64::from_le_bytes(value))
    }

    /// True if the bytes were read again after this time, and never differed.
    pub(super) fn is_confirmed(&self, address: u64, len: usize, after_ns: u64) -> bool {
        let all: Vec<(&Read, &[u8])> = self.parts(address, len).collect();
        let again = all.iter().any(|(read, _)| read.time_ns >= after_ns);
        let mut pairs = all.windows(2);
        all.len() > 1 && again && pairs.all(|pair| pair[0].1 == pair[1].1)
    }

    fn first(&self, address: u64, len: usize) -> Option<(&Read, &[u8])> {
        self.parts(address, len)
            .min_by_key(|(read, _)| read.time_ns)
    }

    /// Reads that contain all of the given bytes, with these bytes.
    fn parts(&self, address: u64, len: usize) -> impl Iterator<Item = (&Read, &[u8])> {
        self.around(address).flat_map(move |(at, reads)| {
            let parts = reads
                .iter()
                .map(move |read| Some((read, part(read, at, len)?)));
            parts.flatten()
        })
    }

    /// Reads that may contain an address, and its offset in them.
    fn around(&self, address: u64) -> impl Iterator<Item = (usize, &Vec<Read>)> {
        let first = address.saturating_sub(self.longest);
        let before = self.reads.range(first..=address).rev();
        before
            .filter_map(move |(start, reads)| Some((usize::try_from(address - start).ok()?, reads)))
    }
}

fn part(read: &Read, at: usize, len: usize) -> Option<&[u8]> {
    read.bytes.get(at..at.checked_add(len)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(time_ns: u64, address: u64, bytes: &[u8]) -> Record {
        Record::Memory(unspool_capture::Memory {
            time_ns,
            address,
            bytes: bytes.to_vec(),
        })
    }

    #[test]
    fn later_reads_only_confirm_the_first() {
        let records = [
            read(5, 102, &[9, 9, 9]),
            read(1, 100, &[1, 2, 3, 4]),
            read(7, 100, &[1, 2]),
            read(3, 200, &[]),
        ];
        let memory = Memory::of(records.iter());
        assert_eq!(memory.bytes(102, 2), Some(&[3, 4][..]));
        assert_eq!(memory.bytes(103, 2), Some(&[9, 9][..]));
        assert_eq!(memory.bytes(104, 2), None);
        assert!(memory.is_confirmed(100, 2, 6) && !memory.is_confirmed(100, 2, 8));
        assert!(!memory.is_confirmed(102, 2, 0));
        assert!(memory.was_asked(200) && memory.bytes(200, 1).is_none());
    }
}
