//! The breakpoints planted in the target, and what a hit at each means.

use std::collections::BTreeMap;
use std::ops::Range;

use unspool_capture::{Probe, ProbeKind};
use unspool_rsp::{Breakpoint, Client};

use super::Error;
use super::abi::Abi;
use super::memory;
use super::sink::Sink;
use super::tracing;

/// Functions that are watched, by what they do. Versions of one function at several addresses are
/// all watched; C11's and C++'s threads come through them, too.
pub(super) const FUNCTIONS: [(ProbeKind, &[&str]); 3] = [
    (ProbeKind::Create, &["pthread_create"]),
    (
        ProbeKind::Join,
        &[
            "pthread_join",
            "pthread_tryjoin_np",
            "pthread_timedjoin_np",
            "pthread_clockjoin_np",
            "__pthread_timedjoin_np64",
            "__pthread_clockjoin_np64",
        ],
    ),
    (ProbeKind::Detach, &["pthread_detach"]),
];

/// What a planted breakpoint is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The dynamic linker calls here around changes to its list.
    Linker,
    /// A thread is given a name.
    Name,
    /// A probe of the capture.
    Probe { id: u32, kind: ProbeKind },
}

/// One planted breakpoint.
#[derive(Debug, Clone, Copy)]
pub(super) struct Planted {
    pub(super) breakpoint: Breakpoint,
    pub(super) purpose: Purpose,
    /// The server notes hits by itself: the tracepoint's number and address.
    pub(super) tracepoint: Option<(u32, u64)>,
}

/// A place to plant at.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) address: u64,
    pub(super) thumb: bool,
    pub(super) function: String,
    pub(super) module: Option<u32>,
}

/// All planted breakpoints, by address.
#[derive(Debug, Default)]
pub(super) struct Probes {
    planted: BTreeMap<u64, Planted>,
    last_id: u32,
    /// The server has tracepoints, and a trace is under way.
    pub(super) tracing: bool,
    /// Nothing else may be planted: somebody else controls the program.
    observing: bool,
    last_tracepoint: u32,
}

impl Probes {
    /// Nothing is planted yet.
    pub(super) fn new(observing: bool) -> Self {
        Self {
            observing,
            ..Self::default()
        }
    }

    pub(super) fn at(&self, address: u64) -> Option<Planted> {
        self.planted.get(&address).copied()
    }

    /// What a tracepoint is for, and where.
    pub(super) fn traced(&self, number: u32) -> Option<(u64, Planted)> {
        let mut all = self.planted.iter();
        let found = all.find(|(_, planted)| planted.tracepoint.is_some_and(|(n, _)| n == number));
        found.map(|(address, planted)| (*address, *planted))
    }

    /// Whether anything of that kind is planted.
    pub(super) fn has(&self, kind: ProbeKind) -> bool {
        self.planted
            .values()
            .any(|planted| matches!(planted.purpose, Purpose::Probe { kind: k, .. } if k == kind))
    }

    /// Plants the breakpoint that the dynamic linker's notifications are caught by.
    pub(super) fn plant_linker(
        &mut self,
        client: &mut Client,
        abi: &Abi,
        place: &Place,
    ) -> Result<(), Error> {
        self.insert(client, abi, place, |_| Purpose::Linker)
            .map(drop)
    }

    /// Plants where threads are given names.
    pub(super) fn plant_name(
        &mut self,
        client: &mut Client,
        abi: &Abi,
        place: &Place,
    ) -> Result<(), Error> {
        self.insert(client, abi, place, |_| Purpose::Name).map(drop)
    }

    /// Plants a probe, unless there is one at that place already.
    pub(super) fn plant(
        &mut self,
        client: &mut Client,
        abi: &Abi,
        sink: &mut Sink,
        kind: ProbeKind,
        place: &Place,
    ) -> Result<(), Error> {
        if self.insert(client, abi, place, |id| Purpose::Probe { id, kind })? {
            self.describe(sink, kind, place);
        }
        Ok(())
    }

    fn describe(&self, sink: &mut Sink, kind: ProbeKind, place: &Place) {
        sink.record(Probe {
            id: self.last_id,
            function: place.function.clone(),
            avma: place.address,
            module: place.module,
            kind: kind.into(),
        });
    }

    fn insert(
        &mut self,
        client: &mut Client,
        abi: &Abi,
        place: &Place,
        purpose: impl FnOnce(u32) -> Purpose,
    ) -> Result<bool, Error> {
        if self.planted.contains_key(&place.address) {
            return Ok(false);
        }
        let halfword = if place.thumb {
            memory::read(client, place.address, 2)
                .map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]))
        } else {
            None
        };
        // Code that cannot be read cannot be patched either; the server will say so.
        let thumb = place.thumb.then(|| halfword.unwrap_or(0));
        let breakpoint = abi.breakpoint(place.address, thumb);
        let purpose = purpose(self.last_id + 1);
        let mut tracepoint = None;
        if self.tracing && (purpose != Purpose::Linker || self.observing) {
            self.last_tracepoint += 1;
            let at = place.address | u64::from(place.thumb);
            let actions = tracing::actions(abi, purpose);
            client.insert_tracepoint(self.last_tracepoint, at, &actions)?;
            tracepoint = Some((self.last_tracepoint, at));
        } else {
            client.insert_breakpoint(breakpoint)?;
        }
        self.last_id += u32::from(matches!(purpose, Purpose::Probe { .. }));
        self.planted.insert(
            place.address,
            Planted {
                breakpoint,
                purpose,
                tracepoint,
            },
        );
        Ok(true)
    }

    /// Forgets what was planted in memory that is unmapped, and has the server forget it.
    pub(super) fn unmapped(&mut self, client: &mut Client, range: &Range<u64>) {
        let gone: Vec<u64> = self
            .planted
            .range(range.clone())
            .map(|(address, _)| *address)
            .collect();
        for address in gone {
            if let Some(planted) = self.planted.remove(&address) {
                // The server cannot restore bytes that are not there, and need not.
                let _ = match planted.tracepoint {
                    Some((number, at)) => client.remove_tracepoint(number, at),
                    None => client.remove_breakpoint(planted.breakpoint),
                };
            }
        }
    }

    /// Removes everything. Gives an error if the server could not.
    pub(super) fn remove_all(&mut self, client: &mut Client) -> Result<(), Error> {
        if std::mem::take(&mut self.tracing) {
            client.trace_stop()?;
        }
        let mut batch = client.batch();
        let tickets: Vec<_> = self
            .planted
            .values()
            .filter(|planted| planted.tracepoint.is_none())
            .map(|planted| batch.remove_breakpoint(planted.breakpoint))
            .collect();
        let mut answers = batch.send()?;
        self.planted.clear();
        for ticket in tickets {
            answers.take(ticket)?;
        }
        Ok(())
    }

    /// All breakpoints that are planted.
    pub(super) fn breakpoints(&self) -> Vec<Breakpoint> {
        self.planted
            .values()
            .map(|planted| planted.breakpoint)
            .collect()
    }

    /// Forgets everything: the memory it was in is no more.
    pub(super) fn clear(&mut self) {
        self.planted.clear();
    }
}
