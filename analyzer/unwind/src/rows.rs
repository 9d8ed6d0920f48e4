//! Sorted rows of an image in their final form.
//!
//! ```text
//! address - base ──┬─ high bits ──> index ──> offset of the piece's block
//!                  └─ low bits ───> compared with the low bits of addresses in the block
//!                                                                         │
//!    rules, most used first:   quick word (8 bytes) <─────────────────────┤
//!                              full rule  (4 bytes and shared lists) <────┘
//! ```
//!
//! A block covers a few hundred bytes of text (`blocks`), so a lookup takes three dependent loads,
//! whatever the size of the image. All parts are numbers without addresses or pointers, so that
//! they can be written to disk unchanged (`file`).
//!
//! Separate from [`crate::Table`] because each source builds its own `Rows`, and because the code
//! analysis builds its rows later than the others.

mod blocks;
#[cfg(feature = "std")]
mod build;
mod file;
mod quick;
#[cfg(feature = "std")]
mod runs;

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use unspool_image::Arch;

use blocks::{Blocks, GAP};
#[cfg(feature = "std")]
pub(crate) use build::{Builder, Change, Draft, RestId};
pub(crate) use file::{Damage, array, number};
pub(crate) use quick::{At, Quick, THUMB_FP};

use crate::once::Once;
use crate::rule::{Cfa, Expression, Place, Row, Rule, Source};

/// Marks an entry of `more` that refers to `wide`.
const WIDE: u32 = 1 << 31;
/// Marks the head of a list whose entries take three words.
const WIDE_LIST: u32 = 1 << 31;

/// Rows in the form that lookups search.
#[derive(Debug)]
pub(crate) struct Rows {
    arch: Arch,
    /// svma of the first row.
    base: u64,
    /// Which rule holds at each address, relative to `base`.
    blocks: Blocks,
    /// By rule.
    quick: Vec<u64>,
    /// By rule: the index of its saved registers in `lists`, or `WIDE | n`.
    more: Vec<u32>,
    /// Full rules that do not fit a quick word, three words each: CFA, return address, list and
    /// flags.
    wide: Vec<u64>,
    /// Lists of saved registers: a head with the count, then one `register:6 kind:4 payload:22` for
    /// each.
    lists: Vec<u32>,
    /// The end of each expression's bytes.
    expression_ends: Vec<u32>,
    expression_bytes: Vec<u8>,
    /// Used only while packing: the index of each interned list.
    list_at: Vec<u32>,
    pool: Once<Pool>,
}

/// Rules in their public form, computed when first needed.
#[derive(Debug, Default)]
struct Pool {
    recipes: Vec<Recipe>,
    saved: Vec<(u8, Place)>,
}

#[derive(Clone, Copy, Debug)]
struct Recipe {
    cfa: Cfa,
    ra: Place,
    saved: (u32, u32),
    source: Source,
    signal_frame: bool,
    signed: bool,
}

impl Rows {
    /// No rows.
    pub(crate) fn empty(arch: Arch, base: u64) -> Rows {
        Rows {
            arch,
            base,
            blocks: Blocks::empty(),
            quick: vec![Quick::SLOW.0],
            more: vec![0],
            wide: Vec::new(),
            lists: vec![0],
            expression_ends: Vec::new(),
            expression_bytes: Vec::new(),
            list_at: Vec::new(),
            pool: Once::new(),
        }
    }

    /// The row for `svma`.
    pub(crate) fn lookup(&self, svma: u64) -> Option<Row<'_>> {
        let spot = self.blocks.find(svma.wrapping_sub(self.base))?;
        let rule = self.blocks.rule(spot)?;
        let (start, end) = self.blocks.extent(spot).filter(|_| rule != GAP)?;
        self.row(start, end, rule)
    }

    /// The quick word of the row for `svma`, and whether the row may end directly after `svma`. The
    /// second value is true only before an address without a row, or with a rule of one of two
    /// kinds: it needs its full form, or has the return address in a register. `None` if there is
    /// no row.
    #[inline(always)]
    pub(crate) fn quick(&self, svma: u64) -> Option<(Quick, bool)> {
        let relative = svma.wrapping_sub(self.base);
        let spot = self.blocks.find(relative)?;
        let rule = self.blocks.rule(spot)?;
        if rule == GAP {
            return None;
        }
        let ends = self.blocks.may_end(spot, relative) && self.ends(rule, relative);
        Some((Quick(*self.quick.get(rule as usize)?), ends))
    }

    #[cold]
    fn ends(&self, rule: u32, relative: u64) -> bool {
        let next = self.blocks.find(relative.wrapping_add(1));
        let next = next.and_then(|spot| self.blocks.rule(spot));
        next != Some(rule) && {
            let quick = next.and_then(|next| self.quick.get(next as usize));
            quick.is_none_or(|quick| Quick(*quick).is_slow() || Quick(*quick).ra(0) == At::Same)
        }
    }

    /// The source of the row for `svma`.
    pub(crate) fn source(&self, svma: u64) -> Option<Source> {
        match self.quick(svma)? {
            (quick, _) if quick.is_slow() => self.lookup(svma).map(|row| row.source),
            (quick, _) => Some(quick.source()),
        }
    }

    /// Whether there is no row at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.quick.len() == 1
    }

    /// All rows in order of address.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Row<'_>> {
        let starts = self.blocks.iter();
        let ends = self.blocks.iter().skip(1);
        starts
            .zip(ends)
            .filter(|((_, rule), _)| *rule != GAP)
            .filter_map(|((start, rule), (end, _))| self.row(start, end, rule))
    }

    /// The bytes of an expression that one of these rows refers to.
    pub(crate) fn expression(&self, expression: Expression) -> &[u8] {
        let id = expression.0 as usize;
        let Some(&end) = self.expression_ends.get(id) else {
            return &[];
        };
        let start = id
            .checked_sub(1)
            .and_then(|before| self.expression_ends.get(before));
        let start = start.copied().unwrap_or(0);
        self.expression_bytes
            .get(start as usize..end as usize)
            .unwrap_or(&[])
    }

    /// The number of rows, including gaps, and of distinct rules.
    pub(crate) fn size(&self) -> (usize, usize) {
        (self.blocks.iter().count(), self.quick.len() - 1)
    }

    /// Size in bytes, in memory and on disk.
    pub(crate) fn bytes(&self) -> usize {
        self.blocks.bytes()
            + 4 * (self.more.len() + self.lists.len())
            + 8 * (self.quick.len() + self.wide.len())
            + 4 * self.expression_ends.len()
            + self.expression_bytes.len()
    }

    /// The row with this rule and these bounds relative to `base`.
    fn row(&self, start: u64, end: u64, rule: u32) -> Option<Row<'_>> {
        let pool = self.pool.get_or_init(|| self.unpack());
        let recipe = pool.recipes.get(rule as usize)?;
        let (first, last) = recipe.saved;
        Some(Row {
            start: self.base.wrapping_add(start),
            end: self.base.wrapping_add(end),
            source: recipe.source,
            rule: Rule {
                cfa: recipe.cfa,
                ra: recipe.ra,
                saved: pool.saved.get(first as usize..last as usize)?,
                signal_frame: recipe.signal_frame,
                signed: recipe.signed,
            },
        })
    }
}

/// Packs and unpacks full rules.
impl Rows {
    /// Puts the saved registers interned as `id` into `lists`. Returns their index.
    fn pack_saved(&mut self, id: u32, list: &[u64]) -> u32 {
        if list.is_empty() {
            return 0;
        }
        let id = id as usize;
        if self.list_at.len() <= id {
            self.list_at.resize(id + 1, 0);
        }
        if self.list_at[id] != 0 {
            return self.list_at[id];
        }
        let at = self.lists.len() as u32;
        let short: Option<Vec<u32>> = list.iter().map(|&word| short(word)).collect();
        match short {
            Some(short) => {
                self.lists.push(short.len() as u32);
                self.lists.extend(short);
            }
            None => {
                self.lists.push(list.len() as u32 | WIDE_LIST);
                for word in list {
                    self.lists.extend([*word as u32, (word >> 32) as u32]);
                }
            }
        }
        self.list_at[id] = at;
        at
    }

    fn push_rule(&mut self, quick: Quick, cfa: u64, ra: u64, flags: u64, saved: u32) {
        self.quick.push(quick.0);
        let known = Cfa::unpack(cfa) != Cfa::Unknown;
        if quick.is_slow() || !known {
            self.more.push((self.wide.len() / 3) as u32 | WIDE);
            self.wide.extend([cfa, ra, u64::from(saved) << 32 | flags]);
        } else {
            self.more.push(saved);
        }
    }

    fn unpack(&self) -> Pool {
        let mut pool = Pool::default();
        let log = self.arch.address_size().ilog2();
        let mut lists = BTreeMap::new();
        for (&quick, &more) in self.quick.iter().zip(&self.more) {
            let quick = Quick(quick);
            let mut recipe = Recipe {
                cfa: Cfa::Unknown,
                ra: Place::Undefined,
                saved: (0, 0),
                source: quick.source(),
                signal_frame: false,
                signed: quick.signed(),
            };
            let mut list = more;
            if more & WIDE == 0 {
                recipe.cfa = Cfa::Register {
                    register: quick.register(),
                    offset: quick.cfa_offset(log) as i32,
                };
                recipe.ra = match quick.ra(log) {
                    At::Same => Place::Same,
                    At::Cfa(offset) => Place::AtCfa(offset as i32),
                    _ => Place::Undefined,
                };
            } else if let Some(&[cfa, ra, rest]) = self
                .wide
                .get(3 * (more & !WIDE) as usize..)
                .and_then(|wide| wide.first_chunk::<3>())
            {
                recipe.cfa = Cfa::unpack(cfa);
                recipe.ra = Place::unpack(ra);
                recipe.source = Source::from_number(rest >> 2);
                recipe.signal_frame = rest & 1 != 0;
                recipe.signed = rest & 2 != 0;
                list = (rest >> 32) as u32;
            }
            recipe.saved = *lists.entry(list).or_insert_with(|| {
                let first = pool.saved.len() as u32;
                self.unpack_saved(list, &mut pool.saved);
                (first, pool.saved.len() as u32)
            });
            pool.recipes.push(recipe);
        }
        pool
    }

    fn unpack_saved(&self, at: u32, into: &mut Vec<(u8, Place)>) {
        let Some((&head, rest)) = self.lists.get(at as usize..).and_then(<[u32]>::split_first)
        else {
            return;
        };
        let count = (head & !WIDE_LIST) as usize;
        if head & WIDE_LIST == 0 {
            into.extend(rest.iter().take(count).map(|&word| long(word)));
        } else {
            into.extend(rest.chunks_exact(2).take(count).map(|pair| {
                let word = u64::from(pair[0]) | u64::from(pair[1]) << 32;
                let place = Place::unpack(word & !(0xff << 56));
                ((word >> 56) as u8, place)
            }));
        }
    }
}

/// One saved register as `register:6 kind:4 payload:22`, if it fits. For a place relative to a
/// register, 6 bits of the payload are that register.
fn short(word: u64) -> Option<u32> {
    let (number, kind) = ((word >> 56) as u32, (word >> 40 & 0xf) as u32);
    let (register, payload) = ((word >> 32 & 0xff) as u32, word as u32 as i32);
    let bits = if register == 0 { 22 } else { 16 };
    let fits = payload >= -(1 << (bits - 1)) && payload < 1 << (bits - 1);
    let head = number << 26 | kind << 22;
    // Kinds 4 and 5 include a register.
    let with_register = matches!(kind, 4 | 5);
    if number >= 64 || register >= 64 || !fits || with_register && payload != payload << 16 >> 16 {
        return None;
    }
    let payload = payload as u32;
    Some(if with_register {
        head | register << 16 | payload & 0xffff
    } else {
        head | payload & 0x3f_ffff
    })
}

fn long(word: u32) -> (u8, Place) {
    let kind = u64::from(word >> 22 & 0xf);
    let (register, payload) = if matches!(kind, 4 | 5) {
        (word >> 16 & 0x3f, (word << 16) as i32 >> 16)
    } else {
        (0, (word << 10) as i32 >> 10)
    };
    let packed = kind << 40 | u64::from(register) << 32 | u64::from(payload as u32);
    ((word >> 26) as u8, Place::unpack(packed))
}

#[cfg(test)]
mod tests;
