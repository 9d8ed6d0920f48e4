//! The system calls in which threads were blocked, from the registers in the schedule's records.
//!
//! The files behind the descriptors of programs on other machines are not known.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use unspool_capture::{BlockingCall, FutexPlace};
use unspool_image::{Arch, Image};
use unspool_rsp::BlockPlace;
use unspool_unwind::Table;

use super::code_of_processes::ProcessCodes;
use super::descriptors::{Descriptor, Descriptors};
use super::futex_places::FutexPlaces;
use super::modules::Modules;
use super::other_processes::{Located, OtherProcesses};
use super::session::Session;
use crate::platform::call_number::{self, CallNumber, Passed, Work};
use crate::platform::syscall::{CODE_BEFORE, Call, number_before, number_of};
use crate::primitives;

/// Maximum number of different calls in a recording. Further ones have no name.
const MAX_CALLS: u64 = 1 << 16;

/// Largest number that can be one of a system call.
const MAX_NUMBER: u64 = 0xffff;

/// Maximum number of answers from the program's code. Without further ones, calls have no name.
const MAX_ANSWERS: usize = 1 << 14;
/// Maximum number of functions that pass the number on.
const MAX_CALLERS: usize = 4;

/// The calls that the recording has so far.
#[derive(Debug, Default)]
pub(super) struct BlockingCalls {
    /// By the place of the code. Outer `None`: the thread is in no call. Inner `None`: the number
    /// is unknown.
    numbers: HashMap<Spot, Option<Option<CallNumber>>>,
    passed: HashMap<Return, Option<CallNumber>>,
    /// The work for these answers.
    work: Work,
    ids: HashMap<CallKey, u64>,
    places: FutexPlaces,
    /// Number of calls, which is the last id.
    count: u64,
    descriptors: Descriptors,
    /// By thread id, waits that have not ended and whose file is not known.
    unnamed: HashMap<u64, Unnamed>,
}

/// A wait for a file that is not known yet.
#[derive(Debug)]
struct Unnamed {
    call: Call,
    name: &'static str,
    descriptor: Descriptor,
    /// A look during the wait, if it lasts until then: its time, and the file.
    looked: Option<(u64, String)>,
    /// The thread is not one of the program.
    is_other: bool,
}

/// A place in code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Spot {
    /// A module of the program, and an address in its file.
    Module(u32, u64),
    /// A file of other processes, and an offset in it.
    File(usize, u64),
}

/// A number that a function got from its caller, with the function's place and that to which it
/// returns.
type Return = (Spot, Passed, Spot);

/// The key of a call: its number, its first two arguments and its file.
type CallKey = (Option<u64>, [u64; 2], String);

/// A process that is not the program, by its id.
type Other<'a> = (&'a OtherProcesses, u64);

/// Records of one notification. The files behind descriptors are read once for all of them.
pub(super) struct Batch<'a> {
    calls: &'a mut BlockingCalls,
    program: Option<Program<'a>>,
}

struct Program<'a> {
    arch: Arch,
    session: &'a Session,
    modules: &'a Modules,
    codes: &'a mut ProcessCodes,
    /// Process id and memory of a local program.
    local: Option<(u64, Option<File>)>,
}

impl BlockingCalls {
    /// Returns a batch for the records of one notification.
    pub(super) fn batch<'a>(
        &'a mut self,
        (session, modules): (&'a Session, &'a Modules),
        codes: &'a mut ProcessCodes,
    ) -> Batch<'a> {
        let pid = session.pid.filter(|_| session.local);
        self.descriptors.expire();
        Batch {
            calls: self,
            program: Some(Program {
                arch: session.abi.arch,
                session,
                modules,
                codes,
                local: pid.map(|pid| (pid, None)),
            }),
        }
    }

    /// Returns a batch that finds no calls, because it has no program.
    #[cfg(test)]
    pub(super) fn without_program(&mut self) -> Batch<'_> {
        Batch {
            calls: self,
            program: None,
        }
    }

    /// The ids of the calls in which threads are blocked when the schedule ends, by thread, as far
    /// as a look has shown their files. Those of other processes if `other` is set.
    pub(super) fn at_end(&mut self, other: bool, new: &mut Vec<BlockingCall>) -> Vec<(u64, u64)> {
        let unnamed = self.unnamed.extract_if(|_, wait| wait.is_other == other);
        let mut unnamed: Vec<(u64, Unnamed)> = unnamed.collect();
        unnamed.sort_by_key(|(tid, _)| *tid);
        let named = unnamed.into_iter().filter_map(|(tid, wait)| {
            let (_, file) = wait.looked.clone()?;
            Some((tid, self.id(wait.key(file), wait.call.args[0], new)?))
        });
        named.collect()
    }

    /// The id of a call whose first argument is `first`. Appends the call to `new` if the recording
    /// does not have it.
    fn id(&mut self, key: CallKey, first: u64, new: &mut Vec<BlockingCall>) -> Option<u64> {
        if let Some(id) = self.ids.get(&key) {
            return Some(*id);
        }
        let id = self.next_id()?;
        let (number, [_, second], file) = key.clone();
        self.add(id, number, [first, second], file, new);
        self.ids.insert(key, id);
        Some(id)
    }

    fn add(
        &mut self,
        id: u64,
        number: Option<u64>,
        args: [u64; 2],
        file: String,
        new: &mut Vec<BlockingCall>,
    ) {
        new.push(BlockingCall {
            id,
            number,
            args: args.to_vec(),
            file,
        });
        self.count = id;
    }

    fn next_id(&self) -> Option<u64> {
        (self.count < MAX_CALLS).then_some(self.count + 1)
    }

    /// The places of futex calls that are not written yet.
    pub(super) fn new_places(&mut self, codes: &mut ProcessCodes) -> Vec<FutexPlace> {
        self.places.take_new(codes)
    }
}

impl Unnamed {
    fn key(&self, file: String) -> CallKey {
        (Some(self.call.number), [self.call.args[0], 0], file)
    }
}

impl Batch<'_> {
    /// Forgets the descriptors of another process, because it has ended or is a new one.
    pub(super) fn forget_descriptors(&mut self, pid: u64) {
        self.calls.descriptors.forget(pid);
    }

    /// Ends the wait of a thread, with a record of that time. Returns the id of its call if a look
    /// during the wait has shown the file, and the call's entry does not have it.
    pub(super) fn end_wait(
        &mut self,
        tid: u64,
        ns: u64,
        new: &mut Vec<BlockingCall>,
    ) -> Option<u64> {
        let wait = self.calls.unnamed.remove(&tid)?;
        let (look_ns, file) = wait.looked.as_ref()?;
        if *look_ns > ns {
            return None;
        }
        let key = wait.key(file.clone());
        self.calls.id(key, wait.call.args[0], new)
    }

    /// Forgets the waits that lost records may have ended.
    pub(super) fn forget_waits(&mut self) {
        self.calls.unnamed.clear();
    }

    /// Looks at the files of the waits that have not ended, after the last record.
    pub(super) fn look(&mut self) {
        let BlockingCalls {
            descriptors,
            unnamed,
            ..
        } = &mut *self.calls;
        for wait in unnamed.values_mut().filter(|wait| wait.looked.is_none()) {
            let seen = descriptors.look(wait.descriptor);
            let file = seen.and_then(|seen| seen.file_for(wait.name).zip(Some(seen.last_ns())));
            wait.looked = file.map(|(file, look_ns)| (look_ns, file.to_owned()));
        }
    }

    /// The id of the call in which a thread is blocked from `begin_ns` on; 0 if it is in none, or
    /// if its code is not known. Appends the call to `new` if the recording does not have it.
    /// `other` is the process if it is not the program.
    pub(super) fn id_of(
        &mut self,
        (tid, begin_ns): (u64, u64),
        place: &BlockPlace,
        other: Option<Other<'_>>,
        new: &mut Vec<BlockingCall>,
    ) -> u64 {
        let Some(program) = &mut self.program else {
            return 0;
        };
        let spot = program.locate(place.pc, other);
        let numbers = &mut self.calls.numbers;
        let known = spot.and_then(|spot| numbers.get(&spot).copied());
        let number = known.unwrap_or_else(|| {
            let code = spot.and_then(|spot| program.code_of_file_before(spot, other));
            let is_of_file = code.is_some();
            let code = code.or_else(|| match other {
                Some(_) => None,
                None => program.local_code_before(place.pc),
            })?;
            let number = number_before(program.arch, place.number, &code);
            let spot = spot.filter(|_| is_of_file && numbers.len() < MAX_ANSWERS);
            let number = number.map(|constant| match (constant, spot) {
                (Some(constant), _) => Some(CallNumber::Constant(constant)),
                (None, Some(spot)) => {
                    let (image, table, svma) = program.file(spot, other)?;
                    let of_primitive = futex_of_primitive(program.arch, image, svma);
                    of_primitive.or_else(|| call_number::find(image, table, svma, &self.calls.work))
                }
                (None, None) => None,
            });
            if let Some(spot) = spot {
                numbers.insert(spot, number);
            }
            number
        });
        let Some(number) = number else {
            return 0;
        };
        // Where a register keeps the number, one instruction serves for several calls.
        let number = place
            .number
            .or_else(|| {
                let (passed, work) = (&mut self.calls.passed, &self.calls.work);
                program.number(place, (spot?, other), number?, passed, work)
            })
            .filter(|number| *number <= MAX_NUMBER);
        let call = number.map(|number| Call::with_first(number, &place.args));
        let name = call.and_then(|call| call.name(program.arch));
        let descriptor = call.and_then(|call| call.descriptor(program.arch));
        let is_futex = call.is_some_and(|call| call.futex(program.arch).is_some());
        if is_futex {
            let code = ((program.session, program.modules), &mut *program.codes);
            let next = self.calls.next_id();
            let id = next.and_then(|next| self.calls.places.id(place, other, code, next));
            if let Some(id) = id {
                if next == Some(id) {
                    self.calls.add(id, number, place.args, String::new(), new);
                }
                return id;
            }
        }
        // Programs may have too many futexes to keep them apart.
        let [first, second] = place.args;
        let (first, key_args) = match (descriptor, is_futex) {
            (Some(_), _) => (first, [first, 0]),
            (None, true) => (first, [0, second]),
            (None, false) => (0, [0, 0]),
        };
        let mut file = String::new();
        let pid = program.pid(other).filter(|_| descriptor.is_some());
        if let Some(((call, name), (descriptor, pid))) = call.zip(name).zip(descriptor.zip(pid)) {
            let descriptor = (pid, descriptor);
            let seen = self.calls.descriptors.look(descriptor);
            let seen = seen.filter(|seen| seen.covers(begin_ns));
            match seen.and_then(|seen| seen.file_for(name)) {
                Some(known) => file = known.to_owned(),
                None => {
                    let wait = Unnamed {
                        call,
                        name,
                        descriptor,
                        looked: None,
                        is_other: other.is_some(),
                    };
                    self.calls.unnamed.insert(tid, wait);
                }
            }
        }
        let id = self.calls.id((number, key_args, file), first, new);
        id.unwrap_or(0)
    }
}

impl Program<'_> {
    /// Where an address of the program or of another process is in a file.
    fn locate(&self, address: u64, other: Option<Other<'_>>) -> Option<Spot> {
        if let Some((others, pid)) = other
            && let Located::File(file, offset) = others.locate(pid, address)?
        {
            return Some(Spot::File(file, offset));
        }
        let mapped = self.modules.at(address)?;
        let svma = address.wrapping_sub(mapped.bias);
        Some(Spot::Module(mapped.id, svma))
    }

    /// The file of a place, and the address in it.
    fn file<'f>(
        &'f self,
        spot: Spot,
        other: Option<Other<'f>>,
    ) -> Option<(&'f Image, &'f Table, u64)> {
        match spot {
            Spot::Module(id, svma) => {
                let mapped = self.modules.get(id)?;
                Some((mapped.image.as_ref()?, mapped.table()?, svma))
            }
            Spot::File(file, offset) => {
                let (modules, local) = (self.modules, self.local.is_some());
                let found = other?.0.file((file, offset), modules, local);
                found.filter(|(image, ..)| image.arch() == self.arch)
            }
        }
    }

    /// The code before a place, from its file. In memory, a probe may have replaced the instruction
    /// that loads the number.
    fn code_of_file_before(&self, spot: Spot, other: Option<Other<'_>>) -> Option<Vec<u8>> {
        let (image, _, svma) = self.file(spot, other)?;
        // A shorter piece at the start of a segment.
        let sizes = [CODE_BEFORE, 8, 4].into_iter();
        let mut code = sizes.filter_map(|size| {
            let start = svma.checked_sub(size as u64)?;
            image.bytes_at(start, size).map(<[u8]>::to_vec)
        });
        code.next()
    }

    /// The number of the call in which a thread is blocked, where a word of its stack shows it.
    fn number(
        &self,
        place: &BlockPlace,
        (spot, other): (Spot, Option<Other<'_>>),
        code: CallNumber,
        passed: &mut HashMap<Return, Option<CallNumber>>,
        work: &Work,
    ) -> Option<u64> {
        let word = |distance: u64| *place.stack.get(usize::try_from(distance / 8).ok()?)?;
        let (mut code, mut callee) = (code, spot);
        for _ in 0..=MAX_CALLERS {
            let here = match code {
                CallNumber::Constant(number) => return Some(number),
                CallNumber::OnStack(distance) => return word(distance),
                CallNumber::Passed(here) => here,
            };
            let back = word(here.return_address()?)?;
            let caller = self.locate(back, other)?;
            let key = (callee, here, caller);
            let answer = match passed.get(&key) {
                Some(answer) => *answer,
                None if passed.len() >= MAX_ANSWERS => None,
                None => *passed.entry(key).or_insert_with(|| {
                    let (callee, callee_table, _) = self.file(callee, other)?;
                    let (caller, caller_table, after) = self.file(caller, other)?;
                    let (callee, caller) = ((callee, callee_table), (caller, caller_table));
                    call_number::find_passed(here, callee, caller, after, work)
                }),
            };
            (code, callee) = (answer?, caller);
        }
        None
    }

    fn local_code_before(&mut self, pc: u64) -> Option<Vec<u8>> {
        let (pid, memory) = self.local.as_mut()?;
        if memory.is_none() {
            *memory = File::open(format!("/proc/{pid}/mem")).ok();
        }
        let start = pc.saturating_sub(CODE_BEFORE as u64);
        let mut code = vec![0; (pc - start) as usize];
        memory.as_ref()?.read_exact_at(&mut code, start).ok()?;
        Some(code)
    }

    /// The id of a process of this machine.
    fn pid(&self, other: Option<Other<'_>>) -> Option<u64> {
        let (program, _) = self.local.as_ref()?;
        Some(other.map_or(*program, |(_, pid)| pid))
    }
}

/// The number of the futex call, for the code of a function that threads wait in: glibc's
/// `pthread_barrier_wait` keeps the number in a register.
fn futex_of_primitive(arch: Arch, image: &Image, svma: u64) -> Option<CallNumber> {
    let symbol = image.symbols().containing(svma.checked_sub(1)?)?;
    let primitive = primitives::find(symbol.name)?;
    let number = number_of(arch, "futex").filter(|_| primitive.may_wait());
    number.map(CallNumber::Constant)
}
