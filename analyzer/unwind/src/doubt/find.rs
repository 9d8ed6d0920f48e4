//! Finds the functions whose call frame information their code contradicts.

use std::collections::BTreeMap;

use super::Doubt;
use crate::rows::Rows;
use crate::rule::{Cfa, Place, Rule};

/// Minimum of contradicted bytes. Fewer are an epilogue or two, which compilers also get wrong.
const MIN_CONTRADICTED: u64 = 12;

#[derive(Default)]
struct Tally {
    agreed: u64,
    contradicted: u64,
    first: u64,
    end: u64,
}

/// The functions in which `code` contradicts most of what `cfi` states. `function_start` returns
/// the start of the function that contains an address.
pub(crate) fn doubts(
    cfi: &Rows,
    code: &Rows,
    function_start: &dyn Fn(u64) -> Option<u64>,
) -> Vec<Doubt> {
    let mut tallies: BTreeMap<u64, Tally> = BTreeMap::new();
    let mut code = code.iter().peekable();
    for stated in cfi.iter() {
        while code.next_if(|row| row.end <= stated.start).is_some() {}
        while let Some(found) = code.peek().filter(|row| row.start < stated.end) {
            let (start, end) = (found.start.max(stated.start), found.end.min(stated.end));
            if let (Some(agrees), Some(function)) =
                (compare(&stated.rule, &found.rule), function_start(start))
            {
                let tally = tallies.entry(function).or_default();
                tally.end = end;
                if agrees {
                    tally.agreed += end - start;
                } else {
                    if tally.contradicted == 0 {
                        tally.first = start;
                    }
                    tally.contradicted += end - start;
                }
            }
            // The next stated row may lie in the same row of the code.
            if found.end > stated.end {
                break;
            }
            code.next();
        }
    }
    tallies
        .into_iter()
        .filter(|(_, tally)| {
            tally.contradicted >= MIN_CONTRADICTED && tally.contradicted > tally.agreed
        })
        // A part of a function that was taken for a whole one differs from its first instruction
        // on.
        .filter(|(start, tally)| tally.first > *start)
        .map(|(start, tally)| Doubt {
            start,
            end: tally.end,
            first: tally.first,
        })
        .collect()
}

/// Whether both rules say the same. `None` if they cannot be compared.
fn compare(stated: &Rule<'_>, found: &Rule<'_>) -> Option<bool> {
    let (
        Cfa::Register { register, offset },
        Cfa::Register {
            register: other,
            offset: by,
        },
    ) = (stated.cfa, found.cfa)
    else {
        return None;
    };
    if register != other {
        return None;
    }
    let same_ra = match (stated.ra, found.ra) {
        (Place::AtCfa(one), Place::AtCfa(two)) => one == two,
        _ => true,
    };
    Some(offset == by && same_ra)
}
