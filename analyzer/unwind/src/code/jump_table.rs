//! Resolves jump tables. The state at the jump shows how the code computes the target, and the
//! comparison before it shows how many entries there are.

use std::collections::BTreeSet;
use std::ops::Range;

use super::effect::{Effect, Flow, Instruction, Limit, TableForm, Target};
use super::listing::{ALWAYS, Listing};
use super::state::{Context, JumpTable, State, Value};

/// Maximum number of entries in a jump table.
const MAX_ENTRIES: u32 = 4096;
/// Number of instructions before the jump in which to look for the comparison.
const COMPARISON_DISTANCE: u32 = 14;

/// The targets of a resolved jump.
#[derive(Clone, Debug, Default)]
pub(super) struct Targets {
    /// Positions inside the function.
    pub(super) inside: Vec<u32>,
    /// Addresses outside the function.
    pub(super) outside: Vec<u64>,
    /// The address range of the table's entries, which are data.
    pub(super) entries: Range<u64>,
}

impl Targets {
    pub(super) fn is_empty(&self) -> bool {
        self.inside.is_empty() && self.outside.is_empty()
    }
}

/// The targets of the jump at `at`; empty if they are unknown.
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
                    ..Targets::default()
                },
                TableForm::Instructions(shift) => entries.instructions(base, shift),
            }
        }
        Flow::Return => match state.register(context.machine.ra) {
            Value::Target(number) | Value::Loaded(number) => context
                .tables
                .get(usize::from(number))
                .map_or(Targets::default(), |table| {
                    computed(listing, context, at, table)
                }),
            _ => Targets::default(),
        },
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
                    ..Targets::default()
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
    /// The highest index, if known.
    bound: Option<u32>,
}

impl<'l> Entries<'l> {
    fn new(listing: &'l Listing, context: &'l Context<'l>, at: u32) -> Self {
        let mut bound = None;
        let mut back = at;
        let mut seen = 0;
        while back > 0 && seen < COMPARISON_DISTANCE && at - back < 8 * COMPARISON_DISTANCE {
            back -= 1;
            let Some(earlier) = listing.at(back) else {
                continue;
            };
            seen += 1;
            // The index may have moved to another register since. The nearest comparison is the
            // range check.
            match earlier.limit {
                Some(Limit::Compare(value)) => {
                    bound = Some(value);
                    break;
                }
                Some(Limit::Mask(value)) if value < MAX_ENTRIES && bound.is_none() => {
                    bound = Some(value);
                    break;
                }
                Some(Limit::Loaded) => break,
                _ => {}
            }
        }
        Entries {
            listing,
            context,
            bound,
        }
    }

    /// Targets in code: one jump for each index, or a run of instructions whose first few are
    /// skipped.
    fn instructions(&self, base: u64, shift: u8) -> Targets {
        let step = 1u64 << shift.clamp(2, 12);
        let sp = self.context.machine.sp;
        let mut targets = Targets::default();
        let decode = |at| self.context.text.decode(at, self.listing.thumb);
        let is_jump =
            |found: &Instruction| found.condition == ALWAYS && matches!(found.flow, Flow::Jump(_));
        let jumps = decode(base).is_some_and(|first| is_jump(&first));
        // The program counter reads as the address after the next instruction. A run may begin with
        // the next.
        let next = base.wrapping_sub(4);
        let base = if !jumps && decode(next).is_some_and(|next| next.flow == Flow::Next) {
            next
        } else {
            base
        };
        let mut at = base;
        while targets.inside.len() < MAX_ENTRIES as usize
            && let Some(found) = decode(at)
            && let Some(position) = self.listing.position(Target {
                svma: at,
                thumb: self.listing.thumb,
            })
        {
            let always = found.condition == ALWAYS;
            let index = (at - base) / step;
            // The number of skipped instructions was computed, so an earlier comparison is about
            // something else.
            let beyond = self.bound.is_some_and(|bound| index > u64::from(bound));
            if jumps && (beyond || !is_jump(&found) && self.bound.is_none()) {
                break;
            }
            if (at - base) % step == 0 {
                targets.inside.push(position);
            }
            at += u64::from(found.len);
            let moves = found
                .effects()
                .iter()
                .any(|effect| matches!(effect, Effect::Add { to, .. } if *to == sp));
            if !jumps && (moves || always && found.flow != Flow::Next) {
                break;
            }
        }
        targets
    }

    /// Targets in a table. Without a comparison, the table ends where its nearest target starts.
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
        let mut end = base;
        let count = self.bound.map_or(MAX_ENTRIES, |bound| {
            bound.saturating_add(1).min(MAX_ENTRIES)
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
                // Only absolute addresses can be recognized as code. They may lead to parts
                // elsewhere.
                let whole = u64::from(size) == self.context.machine.pointer();
                if whole && self.context.text.is_code(svma) {
                    outside.insert(svma);
                    end = place + u64::from(size);
                } else if self.bound.is_none() && svma != self.listing.end {
                    // Clang omits the range check if the value cannot occur, and lets impossible
                    // entries lead to the function's end.
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
            end = place + u64::from(size);
        }
        Targets {
            inside: targets.into_iter().collect(),
            outside: outside.into_iter().collect(),
            entries: base..end,
        }
    }
}
