//! Times in which the recorder stopped threads, or may have done so. It halted the program to
//! prepare it, or the server had to wait for a processor.
//!
//! A stopped thread keeps its locks, and others may wait for them. So the program may not have
//! caused the part of a wait or hold that lies in such a time. The analysis does not ask which
//! thread was stopped, because the reason of a wait is not always known.

use unspool_capture::{Record, StallCause};

/// The recorder's stalls, in order of time.
#[derive(Debug, Default)]
pub(super) struct RecorderStalls {
    /// Start and end of each span, and the total length of earlier spans: sorted, without overlap.
    spans: Vec<(u64, u64, u64)>,
    /// Total length of the stalls that were not halts of the whole program.
    late_ns: u64,
    /// Total length of stops too short to be recorded individually.
    short_ns: u64,
}

impl RecorderStalls {
    pub(super) fn of(records: &[Record]) -> RecorderStalls {
        let mut all = Vec::new();
        let mut late = Vec::new();
        let mut short_ns = 0;
        for record in records {
            match record {
                Record::Stood(stood) if stood.from_ns < stood.to_ns => {
                    all.push((stood.from_ns, stood.to_ns));
                    if stood.cause() != StallCause::Halted {
                        late.push((stood.from_ns, stood.to_ns));
                    }
                }
                Record::ShortStops(stops) => short_ns = stops.total_ns,
                _ => {}
            }
        }
        let late = union(late);
        RecorderStalls {
            spans: union(all),
            late_ns: until(&late, u64::MAX),
            short_ns,
        }
    }

    /// Length of the stalls between two moments.
    pub(super) fn within(&self, from: u64, to: u64) -> u64 {
        until(&self.spans, to).saturating_sub(until(&self.spans, from))
    }

    /// Length of all stalls, short stops included.
    pub(super) fn total(&self) -> u64 {
        until(&self.spans, u64::MAX).saturating_add(self.short_ns)
    }

    /// Time in which the server was late. Halts do not count, because they say nothing about the
    /// load of the machine.
    pub(super) fn late_ns(&self) -> u64 {
        self.late_ns
    }
}

/// Merges overlapping spans.
fn union(mut told: Vec<(u64, u64)>) -> Vec<(u64, u64, u64)> {
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
    spans
}

fn until(spans: &[(u64, u64, u64)], ns: u64) -> u64 {
    let after = spans.partition_point(|span| span.0 < ns);
    let last = after.checked_sub(1).and_then(|at| spans.get(at));
    last.map_or(0, |(from, to, before)| before + ns.min(*to) - from)
}

#[cfg(test)]
mod tests {
    use unspool_capture::{ShortStops, Stood};

    use super::*;

    fn stood(from_ns: u64, to_ns: u64, cause: StallCause) -> Record {
        Record::Stood(Stood {
            from_ns,
            to_ns,
            cause: cause.into(),
        })
    }

    #[test]
    fn times_that_overlap_count_once() {
        let told = [(50, 60), (10, 20), (15, 30), (9, 3)];
        let told = told.map(|(from, to)| stood(from, to, StallCause::Unspecified));
        let stalls = RecorderStalls::of(&told);
        assert_eq!((stalls.total(), stalls.late_ns()), (30, 30));
        let within = |from, to| stalls.within(from, to);
        assert_eq!((within(0, 10), within(0, 12), within(12, 25)), (0, 2, 13));
        assert_eq!((within(30, 50), within(25, 55), within(55, 90)), (0, 10, 5));
        assert_eq!((within(60, 10), RecorderStalls::default().total()), (0, 0));
    }

    #[test]
    fn halts_and_short_stops_are_part_of_the_total() {
        let short = |total_ns| {
            Record::ShortStops(ShortStops {
                time_ns: 0,
                count: 1,
                total_ns,
            })
        };
        let told = [
            short(3),
            stood(10, 20, StallCause::Halted),
            stood(15, 40, StallCause::Unspecified),
            short(7),
        ];
        let stalls = RecorderStalls::of(&told);
        assert_eq!((stalls.total(), stalls.late_ns()), (37, 25));
        assert_eq!(stalls.within(10, 15), 5);
    }
}
