//! Sorted rows of one source: row starts in one dense array to search, rules interned beside them.
//!
//! Apart from [`crate::Table`] because each source builds its own `Rows` and the analysis of code builds its
//! rows later than the others, when first asked.

use std::collections::HashMap;

use crate::rule::{Cfa, Expression, Place, Recipe, Row, Rule, Source};

/// Marks addresses between rows.
const GAP: u32 = u32::MAX;

/// Rows of one source, ready for lookup.
#[derive(Debug)]
pub(crate) struct Rows {
    source: Source,
    /// svma of the first row; starts are relative to it.
    base: u64,
    starts: Vec<u32>,
    recipes: Vec<u32>,
    pool: Pool,
}

/// What rows share.
#[derive(Debug, Default)]
struct Pool {
    recipes: Vec<Recipe>,
    saved: Vec<Box<[(u8, Place)]>>,
    expressions: Vec<Box<[u8]>>,
}

impl Rows {
    /// The row that holds for `svma`.
    pub(crate) fn lookup(&self, svma: u64) -> Option<Row<'_>> {
        let relative = u32::try_from(svma.checked_sub(self.base)?).ok()?;
        let after = self.starts.partition_point(|&start| start <= relative);
        self.row(after.checked_sub(1)?)
    }

    /// All rows in order of address.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Row<'_>> {
        (0..self.starts.len()).filter_map(|index| self.row(index))
    }

    fn row(&self, index: usize) -> Option<Row<'_>> {
        let recipe = self.pool.recipes.get(self.recipes[index] as usize)?;
        Some(Row {
            start: self.base + u64::from(self.starts[index]),
            end: self.base + u64::from(*self.starts.get(index + 1)?),
            source: self.source,
            rule: Rule {
                cfa: recipe.cfa,
                ra: recipe.ra,
                saved: &self.pool.saved[recipe.saved as usize],
                signal_frame: recipe.signal_frame,
                signed: recipe.signed,
            },
        })
    }

    /// The bytes of an expression named by one of these rows.
    pub(crate) fn expression(&self, expression: Expression) -> &[u8] {
        self.pool
            .expressions
            .get(expression.0 as usize)
            .map_or(&[], |bytes| bytes)
    }

    /// Number of rows and of distinct rules.
    pub(crate) fn size(&self) -> (usize, usize) {
        (self.starts.len(), self.pool.recipes.len())
    }
}

/// A rule as a source states it, before interning.
#[derive(Clone, Debug)]
pub(crate) struct Draft<'a> {
    pub(crate) cfa: Cfa,
    pub(crate) ra: Place,
    pub(crate) saved: &'a [(u8, Place)],
    pub(crate) signal_frame: bool,
    pub(crate) signed: bool,
}

/// Collects rows in any order.
#[derive(Debug)]
pub(crate) struct Builder {
    source: Source,
    rows: Vec<(u64, u64, u32)>,
    pool: Pool,
    recipes: HashMap<Recipe, u32>,
    saved: HashMap<Box<[(u8, Place)]>, u32>,
    expressions: HashMap<Box<[u8]>, u32>,
}

impl Builder {
    pub(crate) fn new(source: Source) -> Self {
        Builder {
            source,
            rows: Vec::new(),
            pool: Pool::default(),
            recipes: HashMap::new(),
            saved: HashMap::new(),
            expressions: HashMap::new(),
        }
    }

    /// Keep an expression's bytes.
    pub(crate) fn expression(&mut self, bytes: &[u8]) -> Expression {
        if let Some(&id) = self.expressions.get(bytes) {
            return Expression(id);
        }
        let id = self.pool.expressions.len() as u32;
        self.pool.expressions.push(bytes.into());
        self.expressions.insert(bytes.into(), id);
        Expression(id)
    }

    /// Add a row for `start..end`; where rows overlap, the one added first stays.
    pub(crate) fn push(&mut self, start: u64, end: u64, draft: &Draft<'_>) {
        if start >= end {
            return;
        }
        let saved = match self.saved.get(draft.saved) {
            Some(&id) => id,
            None => {
                let id = self.pool.saved.len() as u32;
                self.pool.saved.push(draft.saved.into());
                self.saved.insert(draft.saved.into(), id);
                id
            }
        };
        let recipe = Recipe {
            cfa: draft.cfa,
            ra: draft.ra,
            saved,
            signal_frame: draft.signal_frame,
            signed: draft.signed,
        };
        let pool = &mut self.pool;
        let id = *self.recipes.entry(recipe).or_insert_with(|| {
            pool.recipes.push(recipe);
            pool.recipes.len() as u32 - 1
        });
        self.rows.push((start, end, id));
    }

    pub(crate) fn finish(mut self) -> Rows {
        // Stable: of rows with equal starts the first added stays first.
        self.rows.sort_by_key(|row| row.0);
        let base = self.rows.first().map_or(0, |row| row.0);
        let mut starts: Vec<u32> = Vec::with_capacity(self.rows.len() + 1);
        let mut recipes: Vec<u32> = Vec::with_capacity(self.rows.len() + 1);
        let mut covered = base;
        for (start, end, recipe) in self.rows {
            let start = start.max(covered);
            // Images of 4 GiB and more of text do not exist; a row so far away is damage.
            let (Ok(from), Ok(to)) = (u32::try_from(start - base), u32::try_from(end - base))
            else {
                continue;
            };
            if from >= to {
                continue;
            }
            if starts.last() == Some(&from) {
                // The gap that the previous row opened at its end.
                starts.pop();
                recipes.pop();
            }
            if recipes.last() != Some(&recipe) {
                starts.push(from);
                recipes.push(recipe);
            }
            starts.push(to);
            recipes.push(GAP);
            covered = base + u64::from(to);
        }
        Rows {
            source: self.source,
            base,
            starts,
            recipes,
            pool: self.pool,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(offset: i32) -> Draft<'static> {
        Draft {
            cfa: Cfa::Register {
                register: 7,
                offset,
            },
            ra: Place::AtCfa(-8),
            saved: &[],
            signal_frame: false,
            signed: false,
        }
    }

    fn offset_at(rows: &Rows, svma: u64) -> Option<i32> {
        match rows.lookup(svma)?.rule.cfa {
            Cfa::Register { offset, .. } => Some(offset),
            _ => None,
        }
    }

    #[test]
    fn gaps_overlaps_and_neighbours() {
        let mut builder = Builder::new(Source::Cfi);
        builder.push(0x200, 0x210, &draft(2));
        builder.push(0x100, 0x110, &draft(1));
        builder.push(0x108, 0x120, &draft(9));
        builder.push(0x210, 0x220, &draft(2));
        let rows = builder.finish();
        assert_eq!(offset_at(&rows, 0xff), None);
        assert_eq!(offset_at(&rows, 0x100), Some(1));
        assert_eq!(offset_at(&rows, 0x10f), Some(1));
        assert_eq!(offset_at(&rows, 0x110), Some(9));
        assert_eq!(offset_at(&rows, 0x120), None);
        assert_eq!(offset_at(&rows, 0x21f), Some(2));
        assert_eq!(offset_at(&rows, 0x220), None);
        assert_eq!(rows.lookup(0x205).unwrap().end, 0x220);
    }

    #[test]
    fn an_empty_set_has_no_rows() {
        let rows = Builder::new(Source::Cfi).finish();
        assert!(rows.lookup(0).is_none());
        assert_eq!(rows.iter().count(), 0);
    }
}
