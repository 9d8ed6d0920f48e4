//! The breakpoints planted in the target, and what a hit at each means.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use unspool_capture::{Probe, ProbeKind};
use unspool_rsp::{Breakpoint, Client, TraceAction};

use super::Error;
use super::abi::Abi;
use super::calls::Site;
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
    /// Another program is about to take the place of this one, and with it the memory where hits wait that were noted without a stop. A
    /// stop there has them taken out.
    Exec,
    /// A probe of the capture.
    Probe { id: u32, kind: ProbeKind },
}

impl Purpose {
    /// One of the two is enough at one place.
    fn is_like(self, other: Purpose) -> bool {
        match (self, other) {
            (Purpose::Probe { kind, .. }, Purpose::Probe { kind: other, .. }) => {
                kind == other || !kind.is_of_calls() && !other.is_of_calls()
            }
            (one, other) => one == other,
        }
    }
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
    /// So many bytes there may be moved (`movable`).
    pub(super) movable: u8,
    pub(super) thumb: bool,
    pub(super) function: String,
    pub(super) module: Option<u32>,
}

/// All planted breakpoints, by address; there may be several purposes at one.
#[derive(Debug, Default)]
pub(super) struct Probes {
    planted: BTreeMap<u64, Vec<Planted>>,
    /// Where tracepoints are, by their numbers, and in which function.
    tracepoints: HashMap<u32, (u64, String)>,
    last_id: u32,
    /// The server has tracepoints, and a trace is under way.
    pub(super) tracing: bool,
    /// It may note hits without a stop where instructions may be moved.
    pub(super) fast: bool,
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

    pub(super) fn at(&self, address: u64) -> &[Planted] {
        self.planted.get(&address).map_or(&[], Vec::as_slice)
    }

    /// What a tracepoint is for.
    pub(super) fn traced(&self, number: u32) -> Option<Planted> {
        let here = self.at(self.tracepoints.get(&number)?.0).iter();
        let mut found = here.filter(|planted| planted.tracepoint.is_some_and(|(n, _)| n == number));
        found.next().copied()
    }

    /// The functions that some tracepoints are in, each once.
    pub(super) fn functions(&self, numbers: &[u32]) -> Vec<&str> {
        let places = numbers.iter().filter_map(|n| self.tracepoints.get(n));
        let names: BTreeSet<&str> = places.map(|(_, function)| function.as_str()).collect();
        names.into_iter().collect()
    }

    /// Whether anything of that kind is planted.
    pub(super) fn has(&self, kind: ProbeKind) -> bool {
        self.planted
            .values()
            .flatten()
            .any(|planted| matches!(planted.purpose, Purpose::Probe { kind: k, .. } if k == kind))
    }

    /// Plants what is no probe of the capture: what only the recording itself needs.
    pub(super) fn plant_own(
        &mut self,
        client: &mut Client,
        abi: &Abi,
        purpose: Purpose,
        place: &Place,
    ) -> Result<(), Error> {
        let tracing = || (tracing::actions(abi, purpose), None);
        self.insert(client, abi, place, |_| purpose, tracing)
            .map(drop)
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
        let purpose = |id| Purpose::Probe { id, kind };
        let tracing = || (tracing::actions(abi, purpose(0)), None);
        if self.insert(client, abi, place, purpose, tracing)? {
            self.describe(sink, kind, place, &[]);
        }
        Ok(())
    }

    /// Plants a probe of calls: `site` says what is done there, `ends` which calls may end there. Gives its id.
    #[allow(
        clippy::too_many_arguments,
        reason = "where, what and what for, and the three things that are changed by it"
    )]
    pub(super) fn plant_call(
        &mut self,
        client: &mut Client,
        abi: &Abi,
        sink: &mut Sink,
        kind: ProbeKind,
        place: &Place,
        site: Site,
        ends: &[u32],
    ) -> Result<Option<u32>, Error> {
        let tracing = || (site.trace_actions(abi), site.trace_condition(abi));
        let purpose = |id| Purpose::Probe { id, kind };
        if !self.insert(client, abi, place, purpose, tracing)? {
            return Ok(None);
        }
        self.describe(sink, kind, place, ends);
        Ok(Some(self.last_id))
    }

    fn describe(&self, sink: &mut Sink, kind: ProbeKind, place: &Place, ends: &[u32]) {
        sink.record(Probe {
            id: self.last_id,
            function: place.function.clone(),
            avma: place.address,
            module: place.module,
            kind: kind.into(),
            ends: ends.to_vec(),
        });
    }

    fn insert(
        &mut self,
        client: &mut Client,
        abi: &Abi,
        place: &Place,
        purpose: impl FnOnce(u32) -> Purpose,
        tracing: impl FnOnce() -> (Vec<TraceAction>, Option<Vec<u8>>),
    ) -> Result<bool, Error> {
        let purpose = purpose(self.last_id + 1);
        let here = self.at(place.address);
        if here.iter().any(|planted| planted.purpose.is_like(purpose)) {
            return Ok(false);
        }
        let stops = here.iter().any(|planted| planted.tracepoint.is_none());
        let halfword = if place.thumb {
            memory::read(client, place.address, 2)
                .map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]))
        } else {
            None
        };
        // Code that cannot be read cannot be patched either; the server will say so.
        let thumb = place.thumb.then(|| halfword.unwrap_or(0));
        let breakpoint = match here.first() {
            Some(planted) => planted.breakpoint,
            None => abi.breakpoint(place.address, thumb),
        };
        let mut tracepoint = None;
        if self.tracing && (purpose != Purpose::Linker || self.observing) {
            self.last_tracepoint += 1;
            let number = self.last_tracepoint;
            let at = place.address | u64::from(place.thumb);
            let (actions, condition) = tracing();
            client.insert_tracepoint(number, at, place.movable, condition.as_deref(), &actions)?;
            tracepoint = Some((number, at));
            let function = place.function.clone();
            self.tracepoints.insert(number, (place.address, function));
        } else if !stops {
            client.insert_breakpoint(breakpoint)?;
        }
        self.last_id += u32::from(matches!(purpose, Purpose::Probe { .. }));
        self.planted
            .entry(place.address)
            .or_default()
            .push(Planted {
                breakpoint,
                purpose,
                tracepoint,
            });
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
            let mut stops = false;
            for planted in self.planted.remove(&address).unwrap_or_default() {
                // The server cannot restore bytes that are not there, and need not.
                let _ = match planted.tracepoint {
                    Some((number, at)) => {
                        self.tracepoints.remove(&number);
                        client.remove_tracepoint(number, at)
                    }
                    None if std::mem::replace(&mut stops, true) => Ok(()),
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
        let stops = |here: &Vec<Planted>| {
            let mut stops = here.iter().filter(|planted| planted.tracepoint.is_none());
            stops.next().map(|planted| planted.breakpoint)
        };
        let tickets: Vec<_> = self
            .planted
            .values()
            .filter_map(stops)
            .map(|breakpoint| batch.remove_breakpoint(breakpoint))
            .collect();
        let mut answers = batch.send()?;
        self.clear();
        for ticket in tickets {
            answers.take(ticket)?;
        }
        Ok(())
    }

    /// All breakpoints that are planted.
    pub(super) fn breakpoints(&self) -> Vec<Breakpoint> {
        self.planted
            .values()
            .filter_map(|here| here.first())
            .map(|planted| planted.breakpoint)
            .collect()
    }

    /// Forgets everything: the memory it was in is no more.
    pub(super) fn clear(&mut self) {
        self.tracepoints.clear();
        self.planted.clear();
    }
}
