//! Where jump tables lead. How the code computes the target is known from the state at the jump; how many entries
//! there are, from the comparison before it.

use std::collections::BTreeSet;

use super::effect::{Flow, Limit, TableForm, Target};
use super::listing::Listing;
use super::state::{Context, JumpTable, State, Value};

/// No jump table has more entries.
const MOST_ENTRIES: u32 = 4096;
/// How far before the jump the comparison is looked for, in instructions.
const NEAR: u32 = 14;

/// Where a resolved jump leads.
#[derive(Clone, Debug, Default)]
pub(super) struct Targets {
    /// Positions in the function.
    pub(super) inside: Vec<u32>,
    /// Addresses outside.
    pub(super) outside: Vec<u64>,
}

impl Targets {
    pub(super) fn is_empty(&self) -> bool {
        self.inside.is_empty() && self.outside.is_empty()
    }
}

/// Where the jump at `at` leads; nowhere if that is not known.
pub(super) fn targets(listing: &Listing, context: &Context<'_>, at: u32, state: &State) -> Targets {
    let Some(instruction) = listing.at(at) else {
        return Targets::default();
    };
    let here = listing.svma(at);
    match instruction.flow {
        Flow::Table(table) => {
            let base = table.svma.or_else(|| match state.register(table.base) {
                Value::Constant(value) => Some(u64::from(value)),
                _ => None,
            });
            let Some(base) = base else {
                return Targets::default();
            };
            let pointer = context.machine.slot as u8;
            let text = context.text;
            let entries = Entries::new(listing, context, at);
            match table.form {
                TableForm::Bytes => {
                    entries.collect(base, 1, |place| Some(here + 4 + 2 * text.number(place, 1)?))
                }
                TableForm::Halfwords => {
                    entries.collect(base, 2, |place| Some(here + 4 + 2 * text.number(place, 2)?))
                }
                TableForm::Addresses => entries.collect(base, pointer, |place| {
                    let address = text.pointer(place)?;
                    Some(if pointer == 4 { address & !1 } else { address })
                }),
                TableForm::Slot => Targets {
                    inside: text
                        .pointer(base)
                        .and_then(|svma| {
                            listing.position(Target {
                                svma,
                                thumb: listing.thumb,
                            })
                        })
                        .into_iter()
                        .collect(),
                    outside: Vec::new(),
                },
                TableForm::Branches => {
                    if entries.bound.is_none() {
                        return Targets::default();
                    }
                    entries.collect(base, 4, Some)
                }
            }
        }
        Flow::Indirect(Some(register)) => match state.register(register) {
            Value::Target(number) | Value::Loaded(number) => context
                .tables
                .get(usize::from(number))
                .map_or(Targets::default(), |table| {
                    computed(listing, context, at, table)
                }),
            Value::Constant(value) if value != 0 => {
                let target = Target {
                    svma: u64::from(value) & !1,
                    thumb: listing.thumb,
                };
                Targets {
                    inside: listing.position(target).into_iter().collect(),
                    outside: Vec::new(),
                }
            }
            _ => Targets::default(),
        },
        _ => Targets::default(),
    }
}

fn computed(listing: &Listing, context: &Context<'_>, at: u32, table: &JumpTable) -> Targets {
    let size = table.entry.size;
    let thumb_bit = if listing.thumb { 1 } else { 0 };
    Entries::new(listing, context, at).collect(table.table, size, |place| {
        let value = if size == context.machine.slot as u8 {
            context.text.pointer(place)?
        } else {
            context.text.number(place, size)?
        };
        let unused = 64 - 8 * u32::from(size.clamp(1, 8));
        let value = if table.entry.signed {
            (value << unused) as i64 >> unused
        } else {
            value as i64
        };
        let target = table
            .target
            .wrapping_add_signed(value << table.shift.min(3));
        Some(
            if context.machine.slot == 4 {
                target & 0xffff_ffff
            } else {
                target
            } & !thumb_bit,
        )
    })
}

/// The entries that the code before a jump allows.
struct Entries<'l> {
    listing: &'l Listing,
    context: &'l Context<'l>,
    /// The largest index.
    bound: Option<u32>,
}

impl<'l> Entries<'l> {
    fn new(listing: &'l Listing, context: &'l Context<'l>, at: u32) -> Self {
        let mut bound = None;
        let mut back = at;
        let mut seen = 0;
        while back > 0 && seen < NEAR && at - back < 8 * NEAR {
            back -= 1;
            let Some(earlier) = listing.at(back) else {
                continue;
            };
            seen += 1;
            // The index may have been moved to another register since; the nearest comparison is the range check.
            match earlier.limit {
                Some(Limit::Compare(value)) => {
                    bound = Some(value);
                    break;
                }
                Some(Limit::Mask(value)) if value < MOST_ENTRIES && bound.is_none() => {
                    bound = Some(value);
                    break;
                }
                _ => {}
            }
        }
        Entries {
            listing,
            context,
            bound,
        }
    }

    /// Without a comparison, the table ends where its nearest target starts.
    fn collect(&self, base: u64, size: u8, target: impl Fn(u64) -> Option<u64>) -> Targets {
        let others = self.context.bases.iter().copied();
        let other = others.filter(|&other| other > base).min();
        let mut limit = self
            .context
            .text
            .object_end(base)
            .min(other.unwrap_or(u64::MAX));
        let mut targets = BTreeSet::new();
        let mut outside = BTreeSet::new();
        let count = self.bound.map_or(MOST_ENTRIES, |bound| {
            bound.saturating_add(1).min(MOST_ENTRIES)
        });
        for entry in 0..count {
            let place = base.wrapping_add(u64::from(entry) * u64::from(size));
            if self.bound.is_none() && place.saturating_add(u64::from(size)) > limit {
                break;
            }
            let Some(svma) = target(place) else { break };
            let Some(position) = self.listing.position(Target {
                svma,
                thumb: self.listing.thumb,
            }) else {
                // Addresses, unlike offsets, are seen to be those of code; parts of functions are elsewhere.
                let whole = u64::from(size) == self.context.machine.pointer();
                if whole && self.context.text.is_text(svma) {
                    outside.insert(svma);
                } else if self.bound.is_none() {
                    break;
                }
                continue;
            };
            if self.listing.is_inside(position) {
                if self.bound.is_none() {
                    break;
                }
                continue;
            }
            if svma > base {
                limit = limit.min(svma);
            }
            targets.insert(position);
        }
        Targets {
            inside: targets.into_iter().collect(),
            outside: outside.into_iter().collect(),
        }
    }
}
