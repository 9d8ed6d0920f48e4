//! The breakpoints and tracepoints planted in the program, and what a hit at each means.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use unspool_capture::{Probe, ProbeKind};
use unspool_rsp::{Breakpoint, Client, TraceAction, Tracepoint};

use super::calls::site::Site;
use super::error::Error;
use super::memory;
use super::place::{Place, Purpose};
use super::sink::Sink;
use super::tracepoints;
use crate::platform::abi::Abi;

/// Bytes of the longest system call instruction and the longest instruction before it.
const MAX_CALL_LENGTH: u64 = 17;

/// One planted breakpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Planted {
    pub(super) breakpoint: Breakpoint,
    pub(super) purpose: Purpose,
    /// The server records hits by itself: the tracepoint's number and address.
    pub(super) tracepoint: Option<(u32, u64)>,
}

/// A request that waits for the next `send`.
#[derive(Debug)]
struct Unsent {
    place: Place,
    planted: Planted,
    request: Request,
    probe: Option<Probe>,
}

#[derive(Debug)]
enum Request {
    Tracepoint(Tracepoint),
    Breakpoint,
    /// A breakpoint stands there already.
    Nothing,
}

/// A place where the server cannot plant anything.
#[derive(Debug)]
pub(super) struct Refused {
    /// The probe that is not there.
    pub(super) id: Option<u32>,
    pub(super) place: Place,
    pub(super) error: unspool_rsp::Error,
}

/// All planted breakpoints, by address; there may be several purposes at one.
#[derive(Debug, Default)]
pub(super) struct Probes {
    planted: BTreeMap<u64, Vec<Planted>>,
    /// Sent in one batch, because threads may wait until all are planted.
    unsent: Vec<Unsent>,
    /// Where tracepoints are, by their numbers, and in which function.
    tracepoints: HashMap<u32, (u64, String)>,
    last_id: u32,
    /// The server has tracepoints, and a trace is under way.
    pub(super) tracing: bool,
    /// The server may record hits by jumps where instructions are movable.
    pub(super) fast: bool,
    /// Another client may control the program, so only tracepoints may be planted.
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

    /// The probe at the beginning of a system call that a thread is in, which will go on at `pc` or just behind that; and its place.
    pub(super) fn wait_before(&self, pc: u64) -> Option<(u32, u64)> {
        let mut nearby = self
            .planted
            .range(pc.saturating_sub(MAX_CALL_LENGTH)..=pc)
            .rev();
        let begins = |planted: &Planted| match planted.purpose {
            Purpose::Probe {
                id,
                kind: ProbeKind::FutexWait,
            } => Some(id),
            _ => None,
        };
        nearby.find_map(|(at, here)| Some((here.iter().find_map(begins)?, *at)))
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

    /// Has something planted by the next [`send`](Self::send) that is no probe of the capture: what only the recording itself needs.
    pub(super) fn plant_own(
        &mut self,
        client: &mut Client,
        abi: &Abi,
        purpose: Purpose,
        place: &Place,
    ) {
        let tracing = || (tracepoints::actions(abi, purpose, &place.function), None);
        self.insert(client, abi, place, purpose, &[], tracing);
    }

    /// Has a probe planted by the next [`send`](Self::send), unless there is one at that place already.
    pub(super) fn plant(&mut self, client: &mut Client, abi: &Abi, kind: ProbeKind, place: &Place) {
        let purpose = self.next_probe(kind);
        let tracing = || (tracepoints::actions(abi, purpose, &place.function), None);
        self.insert(client, abi, place, purpose, &[], tracing);
    }

    /// The same with a probe of calls: `site` says what is done there, `ends` which calls may end there. Gives its id.
    pub(super) fn plant_call(
        &mut self,
        client: &mut Client,
        abi: &Abi,
        kind: ProbeKind,
        place: &Place,
        site: Site,
        ends: &[u32],
    ) -> Option<u32> {
        let purpose = self.next_probe(kind);
        let tracing = || (site.trace_actions(abi), site.trace_condition(abi));
        let is_new = self.insert(client, abi, place, purpose, ends, tracing);
        is_new.then_some(self.last_id)
    }

    fn next_probe(&self, kind: ProbeKind) -> Purpose {
        let id = self.last_id + 1;
        Purpose::Probe { id, kind }
    }

    fn insert(
        &mut self,
        client: &mut Client,
        abi: &Abi,
        place: &Place,
        purpose: Purpose,
        ends: &[u32],
        tracing: impl FnOnce() -> (Vec<TraceAction>, Option<Vec<u8>>),
    ) -> bool {
        let here = self.at(place.address);
        if here.iter().any(|planted| planted.purpose.is_like(purpose)) {
            return false;
        }
        let stops = here.iter().find(|planted| planted.tracepoint.is_none());
        let stops = stops.map(|planted| planted.breakpoint);
        let traced = self.tracing && (!purpose.waits() || self.observing);
        let breakpoint = stops.unwrap_or_else(|| {
            // Of a tracepoint the server finds that out. Code that cannot be read cannot be patched either; the server will say so.
            let read = place.thumb && !traced;
            let halfword = read.then(|| memory::read(client, place.address, 2));
            let halfword = halfword.flatten().map_or(0, |bytes| {
                bytes
                    .first_chunk()
                    .map_or(0, |two| u16::from_le_bytes(*two))
            });
            abi.breakpoint(place.address, place.thumb.then_some(halfword))
        });
        let tracepoint = traced.then(|| {
            self.last_tracepoint += 1;
            let (actions, condition) = tracing();
            Tracepoint {
                number: self.last_tracepoint,
                address: place.address | u64::from(place.thumb),
                movable: place.movable,
                condition,
                actions,
            }
        });
        let probe = match purpose {
            Purpose::Probe { id, kind } => Some(Probe {
                id,
                function: place.function.clone(),
                avma: place.address,
                module: place.module,
                kind: kind.into(),
                ends: ends.to_vec(),
            }),
            _ => None,
        };
        self.last_id += u32::from(probe.is_some());
        let planted = Planted {
            breakpoint,
            purpose,
            tracepoint: tracepoint.as_ref().map(|t| (t.number, t.address)),
        };
        if let Some(tracepoint) = &tracepoint {
            let function = place.function.clone();
            self.tracepoints
                .insert(tracepoint.number, (place.address, function));
        }
        let here = self.planted.entry(place.address).or_default();
        // What stops the program comes first: it is stepped over as it was planted.
        let index = if traced { here.len() } else { 0 };
        here.insert(index, planted);
        self.unsent.push(Unsent {
            place: place.clone(),
            planted,
            request: match tracepoint {
                Some(tracepoint) => Request::Tracepoint(tracepoint),
                None if stops.is_none() => Request::Breakpoint,
                None => Request::Nothing,
            },
            probe,
        });
        true
    }

    /// Has the server plant what is to be planted. Gives what it refused; that is as if it had never been asked for.
    pub(super) fn send(
        &mut self,
        client: &mut Client,
        sink: &mut Sink,
    ) -> Result<Vec<Refused>, Error> {
        let unsent = std::mem::take(&mut self.unsent);
        let mut batch = client.batch();
        let tickets: Vec<_> = unsent
            .iter()
            .map(|unsent| match &unsent.request {
                Request::Tracepoint(tracepoint) => Some(batch.insert_tracepoint(tracepoint)),
                Request::Breakpoint => Some(batch.insert_breakpoint(unsent.planted.breakpoint)),
                Request::Nothing => None,
            })
            .collect();
        let mut answers = batch.send()?;
        let mut refused = Vec::new();
        for (unsent, ticket) in unsent.into_iter().zip(tickets) {
            match ticket.map_or(Ok(()), |ticket| answers.take(ticket)) {
                Ok(()) => {
                    if let Some(probe) = unsent.probe {
                        sink.record(probe);
                    }
                }
                Err(error) if error.is_fatal() => return Err(error.into()),
                Err(error) => {
                    self.forget(client, &unsent);
                    refused.push(Refused {
                        id: unsent.probe.map(|probe| probe.id),
                        place: unsent.place,
                        error,
                    });
                }
            }
        }
        Ok(refused)
    }

    /// The same; what is refused is an error.
    pub(super) fn send_all(&mut self, client: &mut Client, sink: &mut Sink) -> Result<(), Error> {
        match self.send(client, sink)?.into_iter().next() {
            Some(refused) => Err(refused.error.into()),
            None => Ok(()),
        }
    }

    fn forget(&mut self, client: &mut Client, unsent: &Unsent) {
        if let Some((number, at)) = unsent.planted.tracepoint {
            // It may be enabled without all of its actions.
            let _ = client.remove_tracepoint(number, at);
            self.tracepoints.remove(&number);
        }
        let here = self.planted.entry(unsent.place.address).or_default();
        here.retain(|planted| *planted != unsent.planted);
        if here.is_empty() {
            self.planted.remove(&unsent.place.address);
        }
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
        self.unsent.clear();
    }
}
