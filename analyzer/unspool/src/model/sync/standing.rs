//! When threads may have stood for the recorder, longer than noting what they do takes: the server had to wait for a processor.
//!
//! Who stands holds its locks meanwhile, and all others may wait for that; what of a wait or a hold lies in such times need not be the
//! program's doing. Which thread stood does not matter, for who waits for whom, and why, is not always known.

use unspool_capture::Record;

/// Such times.
#[derive(Debug, Default)]
pub(super) struct Standing {
    /// From, to, and how much there was before: in order, and apart from each other.
    spans: Vec<(u64, u64, u64)>,
}

impl Standing {
    pub(super) fn of(records: &[Record]) -> Standing {
        let told = records.iter().filter_map(|record| match record {
            Record::Stood(stood) if stood.from_ns < stood.to_ns => {
                Some((stood.from_ns, stood.to_ns))
            }
            _ => None,
        });
        let mut told: Vec<(u64, u64)> = told.collect();
        told.sort_unstable();
        let mut spans: Vec<(u64, u64, u64)> = Vec::new();
        for (from, to) in told {
            match spans.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => spans.push((from, to, 0)),
            }
        }
        let mut before = 0;
        for span in &mut spans {
            span.2 = before;
            before += span.1 - span.0;
        }
        Standing { spans }
    }

    /// How much of the time between two moments.
    pub(super) fn within(&self, from: u64, to: u64) -> u64 {
        self.until(to).saturating_sub(self.until(from))
    }

    /// All of it.
    pub(super) fn total(&self) -> u64 {
        self.until(u64::MAX)
    }

    fn until(&self, ns: u64) -> u64 {
        let after = self.spans.partition_point(|span| span.0 < ns);
        let last = after.checked_sub(1).and_then(|at| self.spans.get(at));
        last.map_or(0, |(from, to, before)| before + ns.min(*to) - from)
    }
}

#[cfg(test)]
mod tests {
    use unspool_capture::Stood;

    use super::*;

    #[test]
    fn times_that_overlap_count_once() {
        let stood = |(from_ns, to_ns)| Record::Stood(Stood { from_ns, to_ns });
        let told = [(50, 60), (10, 20), (15, 30), (9, 3)].map(stood);
        let standing = Standing::of(&told);
        assert_eq!(standing.total(), 30);
        let within = |from, to| standing.within(from, to);
        assert_eq!((within(0, 10), within(0, 12), within(12, 25)), (0, 2, 13));
        assert_eq!((within(30, 50), within(25, 55), within(55, 90)), (0, 10, 5));
        assert_eq!((within(60, 10), Standing::default().total()), (0, 0));
    }
}
