//! The breakpoints and tracepoints planted in the program, and the purpose of each.

use std::collections::{BTreeMap, HashMap};
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

/// Length in bytes of the longest system call instruction and the longest instruction before it.
const MAX_CALL_LENGTH: u64 = 17;

/// One planted breakpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Planted {
    pub(super) breakpoint: Breakpoint,
    pub(super) purpose: Purpose,
    /// Number and address of the tracepoint, if the server records hits by itself.
    pub(super) tracepoint: Option<(u32, u64)>,
}

/// A tracepoint that the server has, or had until its memory was unmapped.
#[derive(Debug)]
struct Traced {
    planted: Planted,
    function: String,
    is_removed: bool,
}

/// A request that waits for the next [`send`](Probes::send).
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
    /// The place already has a breakpoint.
    Nothing,
}

/// A place where the server refused to plant a probe.
#[derive(Debug)]
pub(super) struct Refused {
    /// The id of the missing probe.
    pub(super) id: Option<u32>,
    pub(super) place: Place,
    pub(super) error: unspool_rsp::Error,
}

/// All planted breakpoints by address. One address may have several purposes.
#[derive(Debug, Default)]
pub(super) struct Probes {
    planted: BTreeMap<u64, Vec<Planted>>,
    /// Requests for the next batch. One batch holds them all, because threads may wait until all
    /// probes are planted.
    unsent: Vec<Unsent>,
    /// The tracepoints, by number. Removed ones stay, because their last notices come later.
    tracepoints: HashMap<u32, Traced>,
    last_id: u32,
    /// The server has tracepoints, and a trace is in progress.
    pub(super) tracing: bool,
    /// The server may record hits by jumps at movable instructions.
    pub(super) fast: bool,
    /// Another client may control the program, so only tracepoints are allowed.
    observing: bool,
    last_tracepoint: u32,
    /// Tracepoints were added or removed since the last [`take_changed`](Self::take_changed).
    changed: bool,
}

impl Probes {
    /// Creates a set without probes.
    pub(super) fn new(observing: bool) -> Self {
        Self {
            observing,
            ..Self::default()
        }
    }

    pub(super) fn at(&self, address: u64) -> &[Planted] {
        self.planted.get(&address).map_or(&[], Vec::as_slice)
    }

    /// Finds the probe before the system call in which a thread with this program counter waits.
    /// Returns the probe's id and address.
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

    /// The probe to which a tracepoint belongs.
    pub(super) fn traced(&self, number: u32) -> Option<Planted> {
        Some(self.tracepoints.get(&number)?.planted)
    }

    /// The function that contains a tracepoint.
    pub(super) fn function(&self, number: u32) -> Option<&str> {
        Some(&self.tracepoints.get(&number)?.function)
    }

    /// True if a probe of this kind is planted.
    pub(super) fn has(&self, kind: ProbeKind) -> bool {
        self.planted
            .values()
            .flatten()
            .any(|planted| matches!(planted.purpose, Purpose::Probe { kind: k, .. } if k == kind))
    }

    /// Plants a probe that only the recorder itself needs with the next [`send`](Self::send). It
    /// does not appear in the capture.
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

    /// Plants a probe with the next [`send`](Self::send), unless the place already has one.
    pub(super) fn plant(&mut self, client: &mut Client, abi: &Abi, kind: ProbeKind, place: &Place) {
        let purpose = self.next_probe(kind);
        let tracing = || (tracepoints::actions(abi, purpose, &place.function), None);
        self.insert(client, abi, place, purpose, &[], tracing);
    }

    /// Plants a probe of a call with the next [`send`](Self::send), and returns its id. `site`
    /// describes the code there, `ends` lists the probes of the calls that may end there.
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
            // For a tracepoint the server finds out the size. Code that cannot be read cannot be
            // patched either, and the server reports that.
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
            self.last_tracepoint = self.unused_number();
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
            let traced = Traced {
                planted,
                function: place.function.clone(),
                is_removed: false,
            };
            self.tracepoints.insert(tracepoint.number, traced);
        }
        let here = self.planted.entry(place.address).or_default();
        // A breakpoint comes before tracepoints, because the stepper passes the first entry and
        // needs it exactly as planted.
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

    /// Makes the server plant all unsent probes. Returns the refused ones, and forgets them.
    pub(super) fn send(
        &mut self,
        client: &mut Client,
        sink: &mut Sink,
    ) -> Result<Vec<Refused>, Error> {
        let unsent = std::mem::take(&mut self.unsent);
        let is_tracepoint = |unsent: &Unsent| matches!(unsent.request, Request::Tracepoint(_));
        self.changed |= unsent.iter().any(is_tracepoint);
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

    /// Like [`send`](Self::send), but treats a refused probe as an error.
    pub(super) fn send_all(&mut self, client: &mut Client, sink: &mut Sink) -> Result<(), Error> {
        match self.send(client, sink)?.into_iter().next() {
            Some(refused) => Err(refused.error.into()),
            None => Ok(()),
        }
    }

    fn forget(&mut self, client: &mut Client, unsent: &Unsent) {
        if let Some((number, at)) = unsent.planted.tracepoint {
            // The tracepoint may be enabled without all of its actions.
            let _ = client.remove_tracepoint(number, at);
            self.tracepoints.remove(&number);
        }
        let here = self.planted.entry(unsent.place.address).or_default();
        here.retain(|planted| *planted != unsent.planted);
        if here.is_empty() {
            self.planted.remove(&unsent.place.address);
        }
    }

    /// True if tracepoints were added or removed since the last call.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Forgets the probes in unmapped memory, and makes the server forget them.
    pub(super) fn unmapped(&mut self, client: &mut Client, range: &Range<u64>) {
        let gone: Vec<u64> = self
            .planted
            .range(range.clone())
            .map(|(address, _)| *address)
            .collect();
        for address in gone {
            let mut stops = false;
            for planted in self.planted.remove(&address).unwrap_or_default() {
                // The server cannot restore bytes that are no longer mapped, and need not.
                let _ = match planted.tracepoint {
                    Some((number, at)) => {
                        if let Some(traced) = self.tracepoints.get_mut(&number) {
                            traced.is_removed = true;
                        }
                        self.changed = true;
                        client.remove_tracepoint(number, at)
                    }
                    None if std::mem::replace(&mut stops, true) => Ok(()),
                    None => client.remove_breakpoint(planted.breakpoint),
                };
            }
        }
    }

    /// The next number without a tracepoint. Frames have 16 bits for it.
    fn unused_number(&self) -> u32 {
        let next = |number: u32| number % u32::from(u16::MAX) + 1;
        let is_used = |number| self.tracepoints.get(&number).is_some_and(|t| !t.is_removed);
        let mut number = next(self.last_tracepoint);
        // The server accepts fewer tracepoints than there are numbers.
        while is_used(number) && number != self.last_tracepoint {
            number = next(number);
        }
        number
    }

    /// Removes all probes. Fails if the server cannot.
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

    /// All planted breakpoints.
    pub(super) fn breakpoints(&self) -> Vec<Breakpoint> {
        self.planted
            .values()
            .filter_map(|here| here.first())
            .map(|planted| planted.breakpoint)
            .collect()
    }

    /// Forgets all probes, because their memory no longer exists.
    pub(super) fn clear(&mut self) {
        self.tracepoints.clear();
        self.planted.clear();
        self.unsent.clear();
    }
}
