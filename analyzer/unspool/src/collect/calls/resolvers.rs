//! Resolvers of ifuncs (`STT_GNU_IFUNC`): functions that choose one of several versions, such as
//! glibc's `memcpy`, while the program runs.
//!
//! The symbol's address is the resolver. The dynamic linker calls it when it loads a library or
//! binds the symbol, and stores the choice in a slot of the library or of its user. If no slot
//! holds the choice yet, the recorder watches the resolver's returns. The resolver's thread then
//! waits until the chosen function has probes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use unspool_capture::Severity;
use unspool_rsp::{Client, Registers};

use super::super::error::Error;
use super::super::function_names::listed_functions;
use super::super::memory;
use super::super::modules::{Mapped, Modules};
use super::super::place::{Place, Purpose};
use super::super::probes::Probes;
use super::super::session::Session;
use super::super::sink::Sink;
use super::plan::{Start, Undecided};
use crate::platform::abi::Abi;
use crate::platform::condition;

/// Maximum number of functions that a note names. A pattern may match hundreds.
const MAX_NAMES: usize = 8;

/// A resolver that has not chosen yet.
#[derive(Debug, Clone)]
struct Resolver {
    /// The name of the function whose version it chooses.
    name: String,
    path: String,
    /// It chose a function of the kernel's vDSO, which cannot be recorded.
    outside: bool,
}

/// A function that a resolver has chosen.
#[derive(Debug)]
pub(super) struct Resolved {
    pub(super) module: u32,
    pub(super) start: Start,
    /// The name of the resolver's symbol.
    pub(super) name: String,
}

/// The resolvers of selected functions, and their return addresses.
#[derive(Debug, Default)]
pub(super) struct Resolvers {
    /// Resolvers without a known choice, by address.
    undecided: BTreeMap<u64, Resolver>,
    /// The resolver and A32's condition for each return. A return shared by several resolvers
    /// identifies none.
    returns: BTreeMap<u64, Vec<(u64, u8)>>,
    /// The functions' names, by the addresses of their resolvers.
    names: BTreeMap<u64, String>,
}

impl Resolvers {
    /// Forgets all resolvers when the process executes another program.
    pub(super) fn clear(&mut self) {
        *self = Resolvers::default();
    }

    /// Forgets the returns in an unmapped library. The final note still names undecided functions.
    pub(super) fn unmapped(&mut self, range: &Range<u64>) {
        self.returns.retain(|at, _| !range.contains(at));
        self.names.retain(|at, _| !range.contains(at));
    }

    /// Watches the returns of resolvers.
    pub(super) fn watch(
        &mut self,
        probes: &mut Probes,
        session: &mut Session,
        sink: &mut Sink,
        mapped: &Mapped,
        undecided: &[Undecided],
    ) -> Result<(), Error> {
        let abi = &session.abi;
        let place = |svma: u64| abi.wrap(svma.wrapping_add(mapped.bias));
        for one in undecided {
            let chooser = Resolver {
                name: one.name.clone(),
                path: mapped.path.clone(),
                outside: false,
            };
            let address = place(one.svma);
            self.names.insert(address, one.name.clone());
            self.undecided.insert(address, chooser);
            for back in &one.returns {
                let returns = self.returns.entry(place(back.svma)).or_default();
                returns.push((address, back.condition));
                let place = Place {
                    address: place(back.svma),
                    movable: 0,
                    thumb: back.thumb,
                    function: one.name.clone(),
                    module: Some(mapped.id),
                };
                let client = &mut session.client;
                probes.plant_own(client, abi, Purpose::Resolver, &place);
            }
        }
        // The note at the end names resolvers that the server refused to watch.
        probes.send(&mut session.client, sink).map(|_| ())
    }

    /// The function chosen by the resolver whose thread is about to return at `pc`.
    pub(super) fn resolved(
        &mut self,
        abi: &Abi,
        modules: &Modules,
        pc: u64,
        registers: &Registers,
    ) -> Option<Resolved> {
        let Some([(chooser, at)]) = self.returns.get(&pc).map(Vec::as_slice) else {
            return None;
        };
        let (chooser, at) = (*chooser, *at);
        let flags = abi.flags(registers);
        let value = abi.result(registers);
        let value = value.filter(|_| flags.is_none_or(|flags| condition::holds(flags, at)))?;
        let (address, thumb) = abi.platform.split_code_pointer(value);
        let mapped = modules.at(address)?;
        if mapped.path == "[vdso]" {
            if let Some(chooser) = self.undecided.get_mut(&chooser) {
                chooser.outside = true;
            }
            return None;
        }
        let name = self.names.get(&chooser).cloned()?;
        self.undecided.remove(&chooser);
        Some(Resolved {
            module: mapped.id,
            start: (abi.wrap(address.wrapping_sub(mapped.bias)), thumb),
            name,
        })
    }

    /// Notes the functions whose calls are not recorded because no resolver chose a version.
    pub(super) fn note(&self, sink: &mut Sink) {
        let list = |outside: bool| -> String {
            let undecided = self.undecided.values();
            let names = undecided.filter(|one| one.outside == outside).map(|one| {
                let file = one.path.rsplit('/').next().unwrap_or_default();
                format!("{} of {file}", one.name)
            });
            let names = names.collect::<BTreeSet<_>>();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            listed_functions(&names, MAX_NAMES)
        };
        let (unseen, outside) = (list(false), list(true));
        if !unseen.is_empty() {
            let text = format!(
                "no calls were recorded of {unseen}: there are several versions, and the dynamic \
                 linker did not choose one during the recording. Either nothing calls the \
                 function, or its callers were linked before the recording began"
            );
            sink.note(Severity::Warning, text);
        }
        if !outside.is_empty() {
            let text = format!(
                "no calls were recorded of {outside}: the dynamic linker chose the kernel's \
                 version (vDSO), in which Unspool cannot place probes"
            );
            sink.note(Severity::Warning, text);
        }
    }
}

/// The functions that the resolvers have already chosen, by the address of the resolver. Reads them
/// from the slots.
pub(super) fn chosen(
    client: &mut Client,
    abi: &Abi,
    mapped: &Mapped,
    modules: &Modules,
    wanted: &dyn Fn(&str) -> bool,
) -> BTreeMap<u64, Start> {
    let mut chosen = BTreeMap::new();
    let Some(image) = &mapped.image else {
        return chosen;
    };
    let text = image.text_ranges();
    let mut note = |resolver: u64, value: Option<u64>| {
        let Some((address, thumb)) = value.map(|value| abi.platform.split_code_pointer(value))
        else {
            return;
        };
        let svma = abi.wrap(address.wrapping_sub(mapped.bias));
        if svma != resolver && text.iter().any(|range| range.contains(&svma)) {
            chosen.entry(resolver).or_insert((svma, thumb));
        }
    };
    for choice in image.ifuncs() {
        let value = slot(client, abi, mapped, choice.slot_svma);
        note(choice.resolver_svma, value);
    }
    let choosing = image.symbols().functions().filter(|symbol| symbol.is_ifunc);
    let by_name: BTreeMap<&str, u64> = choosing
        .filter(|symbol| wanted(symbol.name))
        .map(|symbol| (symbol.name, symbol.svma))
        .collect();
    if by_name.is_empty() {
        return chosen;
    }
    for user in modules.iter() {
        for (at, name) in user.image.iter().flat_map(|image| image.slots()) {
            if let Some(resolver) = by_name.get(name.as_str()) {
                let value = slot(client, abi, user, at);
                note(*resolver, value);
            }
        }
    }
    chosen
}

/// The value of a slot; `None` if it is still the file's value, because no resolver has chosen.
fn slot(client: &mut Client, abi: &Abi, mapped: &Mapped, svma: u64) -> Option<u64> {
    let address = abi.wrap(svma.wrapping_add(mapped.bias));
    let bytes = memory::read(client, address, abi.pointer)?;
    let value = abi.pointer_at(&bytes, 0)?;
    let in_file = mapped.image.as_ref()?.bytes_at(svma, abi.pointer);
    let in_file = in_file.and_then(|bytes| abi.pointer_at(bytes, 0));
    // With lazy binding, a slot points into the PLT, relative to the load address, until first use.
    let untouched =
        in_file.is_some_and(|was| value == was || value == abi.wrap(was.wrapping_add(mapped.bias)));
    (!untouched).then_some(value)
}
