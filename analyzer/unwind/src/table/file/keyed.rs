//! Writing tables, and believing only those that were made of this very image by this very code.

use std::ops::Range;
use std::sync::atomic::Ordering;

use unspool_image::{Arch, Image};

use super::MAGIC;
use crate::rows::array;
use crate::rule::Source;
use crate::table::maker::Maker;
use crate::table::{CompileOptions, Table};

impl Table {
    /// The table as it is by now, for [`Table::from_bytes`] and [`Table::from_slice`].
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let key = self.maker.as_ref();
        put(
            &mut body,
            &key.map_or(Vec::new(), |maker| key_of(&maker.image, &maker.options)),
        );
        let arch = Arch::ALL.iter().position(|arch| *arch == self.arch);
        body.extend((arch.unwrap_or(usize::MAX) as u64).to_le_bytes());
        let order: Vec<u8> = self.order.iter().map(|source| *source as u8).collect();
        put(&mut body, &order);
        put_ranges(&mut body, &self.layout.segments);
        put_ranges(&mut body, &self.layout.text);
        body.extend((self.notes.len() as u64).to_le_bytes());
        for note in &self.notes {
            put(&mut body, note.text.as_bytes());
        }
        self.stated.write(&mut body);
        body.extend(u64::from(self.whole.get().is_some()).to_le_bytes());
        if let Some(whole) = self.whole.get() {
            whole.write(&mut body);
            let beside_exidx = self.code.is_some() || self.size(Source::Exidx).0 > 0;
            let code = self.rows(Source::Code).filter(|_| beside_exidx);
            body.extend(u64::from(code.is_some()).to_le_bytes());
            if let Some(code) = code {
                code.write(&mut body);
            }
            let doubts = self.doubts.get().map_or(&[][..], |doubts| doubts);
            body.extend((doubts.len() as u64).to_le_bytes());
            for doubt in doubts {
                let words = [doubt.start, doubt.end, doubt.first];
                body.extend(words.iter().flat_map(|word| word.to_le_bytes()));
            }
        }
        let mut bytes = MAGIC.to_vec();
        bytes.extend(u64::from(crc32c::crc32c(&body)).to_le_bytes());
        bytes.extend(body);
        bytes
    }

    /// The table that [`Table::to_bytes`] gave, without compiling or analysing anything. `None` if the bytes are
    /// damaged, or were made of another image, with other options, or by another build of this crate.
    pub fn from_bytes(image: &Image, options: &CompileOptions, bytes: &[u8]) -> Option<Table> {
        let body = bytes.strip_prefix(MAGIC)?;
        let (checksum, mut body) = body.split_first_chunk::<8>()?;
        if u64::from_le_bytes(*checksum) != u64::from(crc32c::crc32c(body)) {
            return None;
        }
        if array(&mut body, 1).ok()? != key_of(image, options) {
            return None;
        }
        let read = Table::read(&mut body)?;
        let mut table = Table::new(read.stated, read.notes, Maker::new(image, options));
        if (&table.layout, table.arch, &table.order) != (&read.layout, read.arch, &read.order) {
            return None;
        }
        (table.whole, table.code, table.doubts) = (read.whole, read.code, read.doubts);
        table.was_kept();
        Some(table)
    }

    /// What it was made of, if that is known.
    pub(crate) fn origin(&self) -> Option<(&Image, &CompileOptions)> {
        let maker = self.maker.as_ref()?;
        Some((&maker.image, &maker.options))
    }

    /// Whether there is more than was kept.
    pub(crate) fn has_news(&self) -> bool {
        self.maker
            .as_ref()
            .is_some_and(|maker| maker.kept.load(Ordering::Relaxed) < self.extent())
    }

    pub(crate) fn was_kept(&self) {
        if let Some(maker) = &self.maker {
            maker.kept.store(self.extent(), Ordering::Relaxed);
        }
    }

    fn extent(&self) -> u8 {
        1 + u8::from(self.whole.get().is_some())
    }
}

/// What a table was made of, and by which code. The sections' checksums tell a damaged or doctored file from
/// the one that its build-id names.
fn key_of(image: &Image, options: &CompileOptions) -> Vec<u8> {
    let mut key = env!("UNWIND_REVISION").as_bytes().to_vec();
    key.extend(image.arch().name().as_bytes());
    put(&mut key, image.build_id().map_or(&[], |id| id.as_bytes()));
    key.extend((image.bytes().len() as u64).to_le_bytes());
    for name in [".eh_frame", ".ARM.exidx"] {
        let section = image.section(name);
        let sum = section.map_or(0, |section| crc32c::crc32c(&section.data));
        key.extend(sum.to_le_bytes());
    }
    key.extend(variant(image, options));
    key
}

/// Tells tables of one image apart: options and debug file.
pub(crate) fn variant(image: &Image, options: &CompileOptions) -> Vec<u8> {
    let mut variant = vec![
        u8::from(options.cfi),
        u8::from(options.exidx),
        u8::from(options.code),
        u8::from(options.symbols),
    ];
    variant.extend(options.prefer.iter().map(|source| *source as u8 + 2));
    if let Some(debug) = image.debug_image() {
        variant.extend((debug.bytes().len() as u64).to_le_bytes());
        variant.extend(debug.build_id().map_or(&[][..], |id| id.as_bytes()));
    }
    variant
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u64).to_le_bytes());
    out.extend(bytes);
}

fn put_ranges(out: &mut Vec<u8>, ranges: &[Range<u64>]) {
    out.extend((ranges.len() as u64).to_le_bytes());
    for range in ranges {
        out.extend(range.start.to_le_bytes());
        out.extend(range.end.to_le_bytes());
    }
}
