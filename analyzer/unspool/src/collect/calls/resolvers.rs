//! Which version of a function the program uses, where one of several is chosen while it runs (`STT_GNU_IFUNC`): `memcpy` of glibc, for one.
//!
//! The symbol is that of the function that chooses. It is called when a library is loaded, or when something in it is first needed; what
//! it chose is in the target's memory then, in a slot of the library or of one that uses it. Where no slot has it yet, the
//! choosing function is watched, and its thread waits until what it chose is instrumented.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use unspool_capture::Severity;
use unspool_image::Arch;
use unspool_rsp::{Client, Registers, ThreadId};

use super::super::Error;
use super::super::abi::Abi;
use super::super::memory;
use super::super::modules::{Mapped, Modules};
use super::super::probes::{Place, Purpose};
use super::super::recorder::Recorder;
use super::plan::{self, Undecided};
use super::{condition, listed_functions};

/// So many names are said; a pattern may have hundreds.
const MAX_NAMES: usize = 8;

/// A function's address in its image, and whether it is Thumb code.
pub(super) type Start = (u64, bool);

/// A function that chooses, and has not been seen to.
#[derive(Debug, Clone)]
struct Resolver {
    /// What is used by this name is chosen.
    name: String,
    path: String,
    /// Where it was found out of the program's sight: in the kernel's vDSO.
    outside: bool,
}

/// Functions that choose, where they return, and what they have not been seen to choose.
#[derive(Debug, Default)]
pub(super) struct Resolvers {
    /// By their addresses.
    undecided: BTreeMap<u64, Resolver>,
    /// Where one returns, and A32's condition under which it does; what several share tells nothing.
    returns: BTreeMap<u64, Vec<(u64, u8)>>,
    /// By their addresses, what their functions are called.
    names: BTreeMap<u64, String>,
}

impl Resolvers {
    /// The process runs another program.
    pub(super) fn clear(&mut self) {
        *self = Resolvers::default();
    }

    /// A library is no more: what it did not choose stays worth saying.
    pub(super) fn unmapped(&mut self, range: &Range<u64>) {
        self.returns.retain(|at, _| !range.contains(at));
        self.names.retain(|at, _| !range.contains(at));
    }
}

/// What was chosen of functions that `wanted` has the names of, by the address of what chooses. Nothing is said of what no slot tells.
pub(super) fn of(
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
        let Some((address, thumb)) = value.map(|value| code(abi, value)) else {
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

/// What a slot holds, if it is not what its file says: then nobody has chosen yet.
fn slot(client: &mut Client, abi: &Abi, mapped: &Mapped, svma: u64) -> Option<u64> {
    let address = abi.wrap(svma.wrapping_add(mapped.bias));
    let bytes = memory::read(client, address, abi.pointer)?;
    let value = abi.pointer_at(&bytes, 0)?;
    let in_file = mapped.image.as_ref()?.bytes_at(svma, abi.pointer);
    let in_file = in_file.and_then(|bytes| abi.pointer_at(bytes, 0));
    // What is bound when it is first used leads to the linker until then, from where the image is mapped.
    let untouched =
        in_file.is_some_and(|was| value == was || value == abi.wrap(was.wrapping_add(mapped.bias)));
    (!untouched).then_some(value)
}

/// The address of the code that a pointer leads to, and whether it is Thumb code (aaelf32 5.5.3: bit 0).
fn code(abi: &Abi, pointer: u64) -> (u64, bool) {
    let thumb = abi.arch == Arch::Arm && pointer & 1 == 1;
    (pointer - u64::from(thumb), thumb)
}

impl Recorder {
    /// Has those that choose watched where they return.
    pub(super) fn watch_resolvers(
        &mut self,
        id: u32,
        undecided: &[Undecided],
    ) -> Result<(), Error> {
        let Some(mapped) = self.modules.get(id) else {
            return Ok(());
        };
        let abi = &self.session.abi;
        let place = |svma: u64| abi.wrap(svma.wrapping_add(mapped.bias));
        for one in undecided {
            let chooser = Resolver {
                name: one.name.clone(),
                path: mapped.path.clone(),
                outside: false,
            };
            let address = place(one.svma);
            let resolvers = &mut self.calls.resolvers;
            resolvers.names.insert(address, one.name.clone());
            resolvers.undecided.insert(address, chooser);
            for back in &one.returns {
                let returns = resolvers.returns.entry(place(back.svma)).or_default();
                returns.push((address, back.condition));
                let place = Place {
                    address: place(back.svma),
                    movable: 0,
                    thumb: back.thumb,
                    function: one.name.clone(),
                    module: Some(id),
                };
                let client = &mut self.session.client;
                self.probes
                    .plant_own(client, abi, Purpose::Resolver, &place);
            }
        }
        let (client, sink) = (&mut self.session.client, &mut self.sink);
        // Of what is refused nothing will be seen, which is said in the end.
        self.probes.send(client, sink).map(|_| ())
    }

    /// A thread waits where a function returns that chooses: what it chose is instrumented before anybody calls it.
    pub(in crate::collect) fn on_resolver(
        &mut self,
        pc: u64,
        registers: &Registers,
    ) -> Result<(), Error> {
        let abi = &self.session.abi;
        let Some([(chooser, at)]) = self.calls.resolvers.returns.get(&pc).map(Vec::as_slice) else {
            return Ok(());
        };
        let (chooser, at) = (*chooser, *at);
        let flags = abi.flags(registers);
        let value = abi.result(registers);
        let Some(value) = value.filter(|_| flags.is_none_or(|flags| condition::holds(flags, at)))
        else {
            return Ok(());
        };
        let (address, thumb) = code(abi, value);
        let Some(mapped) = self.modules.at(address) else {
            return Ok(());
        };
        let resolvers = &mut self.calls.resolvers;
        if mapped.path == "[vdso]" {
            if let Some(chooser) = resolvers.undecided.get_mut(&chooser) {
                chooser.outside = true;
            }
            return Ok(());
        }
        let Some(name) = resolvers.names.get(&chooser).cloned() else {
            return Ok(());
        };
        resolvers.undecided.remove(&chooser);
        let svma = abi.wrap(address.wrapping_sub(mapped.bias));
        let fast = self.fast();
        let plan = plan::of_one(self.modules.store(), mapped, (svma, thumb), &name, fast);
        let id = mapped.id;
        self.carry_out(id, plan)?;
        self.ask_for_places()
    }

    /// The same in a thread that waits for an observer.
    pub(in crate::collect) fn on_resolver_held(&mut self, tid: u64, pc: u64) -> Result<(), Error> {
        let pid = self.session.pid;
        let looked = self.session.client.stacks(&[ThreadId { pid, tid }], 0)?;
        let registers = looked.into_iter().next().and_then(|one| one.registers);
        let registers = registers.map(|registers| self.session.abi.traced(&registers));
        registers.map_or(Ok(()), |registers| self.on_resolver(pc, &registers))
    }

    /// Says of which functions nothing was recorded because nobody was seen to choose.
    pub(super) fn note_resolvers(&mut self) {
        let list = |outside: bool| -> String {
            let undecided = self.calls.resolvers.undecided.values();
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
                "no calls are recorded of {unseen}: there are several versions, of which one is chosen when a library that calls it is loaded \
                 or first calls it, and while recording nothing chose one. Either nothing calls it, or what calls it chose before the \
                 recording began"
            );
            self.sink.note(Severity::Warning, text);
        }
        if !outside.is_empty() {
            let text = format!(
                "no calls are recorded of {outside}: the version that was chosen is the kernel's own (vDSO), where nothing is recorded"
            );
            self.sink.note(Severity::Warning, text);
        }
    }
}
