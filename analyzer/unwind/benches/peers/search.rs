//! The reference for the blocks: the same rows in one sorted array with binary search, and rules as
//! plain structures.

use unspool_unwind::{Cfa, ModuleMap, Place, Position};

/// The rows of one module.
pub(crate) struct Sorted {
    starts: Vec<u32>,
    rules: Vec<u32>,
    base: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Rule {
    register: u8,
    cfa: i32,
    ra: i32,
    /// 0 if not saved.
    fp: i32,
}

/// The rows of all modules, by module id.
pub(crate) struct Plain {
    modules: Vec<Sorted>,
    rules: Vec<Rule>,
}

impl Plain {
    pub(crate) fn new(modules: &ModuleMap) -> Plain {
        let mut plain = Plain {
            modules: Vec::new(),
            rules: vec![Rule {
                register: 255,
                cfa: 0,
                ra: 0,
                fp: 0,
            }],
        };
        let mut known = std::collections::HashMap::new();
        for module in modules.modules() {
            let mut sorted = Sorted {
                starts: Vec::new(),
                rules: Vec::new(),
                base: 0,
            };
            let mut end = 0;
            for row in module.table.rows_of_all() {
                if sorted.starts.is_empty() {
                    sorted.base = row.start;
                } else if end != row.start {
                    sorted.starts.push((end - sorted.base) as u32);
                    sorted.rules.push(0);
                }
                end = row.end;
                let rule = match (row.rule.cfa, row.rule.ra) {
                    (Cfa::Register { register, offset }, Place::AtCfa(ra)) => Rule {
                        register,
                        cfa: offset,
                        ra,
                        fp: row
                            .rule
                            .saved
                            .iter()
                            .find_map(|saved| match *saved {
                                (6, Place::AtCfa(at)) => Some(at),
                                _ => None,
                            })
                            .unwrap_or(0),
                    },
                    _ => plain.rules[0],
                };
                let id = *known.entry(rule).or_insert_with(|| {
                    plain.rules.push(rule);
                    plain.rules.len() as u32 - 1
                });
                sorted.starts.push((row.start - sorted.base) as u32);
                sorted.rules.push(id);
            }
            plain.modules.push(sorted);
        }
        plain
    }

    /// One step of an x86-64 stack: the caller's pc, sp and rbp.
    #[inline]
    pub(crate) fn step(
        &self,
        modules: &ModuleMap,
        at: &Position,
        read: &mut impl FnMut(u64) -> Option<u64>,
    ) -> Option<(u64, u64, u64)> {
        let (module, svma) = modules.find(at.address_for_lookup())?;
        let sorted = self.modules.get(module.id as usize)?;
        let relative = svma.wrapping_sub(sorted.base) as u32;
        let after = sorted.starts.partition_point(|&start| start <= relative);
        let rule = self.rules[*sorted.rules.get(after.checked_sub(1)?)? as usize];
        let fp = at.fp()?;
        let base = match rule.register {
            7 => at.sp,
            6 => fp,
            _ => return None,
        };
        let cfa = base.wrapping_add_signed(rule.cfa.into());
        let pc = read(cfa.wrapping_add_signed(rule.ra.into()))?;
        if cfa <= at.sp {
            return None;
        }
        let fp = match rule.fp {
            0 => fp,
            offset => read(cfa.wrapping_add_signed(offset.into()))?,
        };
        Some((pc, cfa, fp))
    }
}
