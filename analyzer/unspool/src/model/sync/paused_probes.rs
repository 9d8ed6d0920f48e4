//! Times in which waits may be missing, because the probes that record them were paused.

use std::collections::HashSet;

use unspool_capture::{GapKind, ProbeKind, Record};

/// Parts of a recording in which a thread may have waited though no wait was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PausedProbes {
    /// Start and end of each span, nanoseconds since the recording began: sorted, without overlap.
    spans: Vec<(u64, u64)>,
}

impl PausedProbes {
    pub(super) fn of(records: &[Record], end_ns: u64) -> PausedProbes {
        let probes = || {
            records.iter().filter_map(|record| match record {
                Record::Probe(probe) => Some(probe),
                _ => None,
            })
        };
        let of_kind = |kind| -> HashSet<u32> {
            let those = probes().filter(|probe| probe.kind() == kind);
            those.map(|probe| probe.id).collect()
        };
        // A thread that waits in a function also makes the system call.
        let mut watched = of_kind(ProbeKind::FutexWait);
        if watched.is_empty() {
            watched = of_kind(ProbeKind::Enter);
        }
        let mut paused: HashSet<u32> = HashSet::new();
        let mut spans = Vec::new();
        let mut since = 0;
        for record in records {
            let Record::Gap(gap) = record else { continue };
            let was_blind = !paused.is_empty();
            match gap.kind() {
                GapKind::Paused if watched.contains(&gap.probe) => {
                    paused.insert(gap.probe);
                }
                GapKind::Resumed => {
                    paused.remove(&gap.probe);
                }
                _ => {}
            }
            match (was_blind, paused.is_empty()) {
                (false, false) => since = gap.time_ns,
                (true, true) => spans.push((since, gap.time_ns.max(since))),
                _ => {}
            }
        }
        if !paused.is_empty() {
            spans.push((since, end_ns.max(since)));
        }
        PausedProbes { spans }
    }

    /// True if waits may be missing in at least half of this time.
    pub(in crate::model) fn covers(&self, from_ns: u64, to_ns: u64) -> bool {
        let first = self.spans.partition_point(|(_, to)| *to <= from_ns);
        let here = self.spans[first..]
            .iter()
            .take_while(|(from, _)| *from < to_ns);
        let unseen: u64 = here
            .map(|(from, to)| to_ns.min(*to).saturating_sub(from_ns.max(*from)))
            .sum();
        unseen > 0 && unseen >= to_ns.saturating_sub(from_ns).div_ceil(2)
    }
}

#[cfg(test)]
mod tests {
    use unspool_capture::{Gap, Probe};

    use super::*;

    fn probe(id: u32, kind: ProbeKind) -> Record {
        Record::Probe(Probe {
            id,
            kind: kind.into(),
            ..Probe::default()
        })
    }

    fn gap(probe: u32, kind: GapKind, time_ns: u64) -> Record {
        Record::Gap(Gap {
            probe,
            kind: kind.into(),
            time_ns,
        })
    }

    #[test]
    fn pauses_of_the_waiting_probes_are_unseen_until_all_are_resumed() {
        let records = [
            probe(1, ProbeKind::FutexWait),
            probe(2, ProbeKind::FutexWait),
            probe(3, ProbeKind::Enter),
            gap(3, GapKind::Paused, 5),
            gap(1, GapKind::Paused, 10),
            gap(2, GapKind::Paused, 20),
            gap(1, GapKind::Resumed, 30),
            gap(2, GapKind::Resumed, 40),
            gap(1, GapKind::Paused, 90),
        ];
        let paused = PausedProbes::of(&records, 100);
        assert_eq!(paused.spans, [(10, 40), (90, 100)]);
        assert!(paused.covers(0, 40) && paused.covers(15, 20) && paused.covers(80, 100));
        assert!(!paused.covers(0, 12) && !paused.covers(40, 90) && !paused.covers(50, 95));
    }
}
