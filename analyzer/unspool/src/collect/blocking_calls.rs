//! The system calls in which threads were blocked, from the registers in the schedule's records.
//!
//! The files behind the descriptors of programs on other machines are not known.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use unspool_capture::BlockingCall;
use unspool_image::Arch;
use unspool_rsp::BlockPlace;

use super::kernel_state::file_of;
use super::modules::Modules;
use super::session::Session;
use crate::platform::call_number::{self, CallNumber, Passed, Work};
use crate::platform::syscall::{CODE_BEFORE, Call, number_before};

/// Maximum number of different calls in a recording. Further ones have no name.
const MAX_CALLS: usize = 1 << 16;

/// Largest number that can be one of a system call.
const MAX_NUMBER: u64 = 0xffff;

/// Maximum number of answers from the program's code. Without further ones, calls have no name.
const MAX_ANSWERS: usize = 1 << 14;
/// Maximum number of functions that pass the number on.
const MAX_CALLERS: usize = 4;

/// Calls that work on sockets only.
const ON_SOCKETS: &[&str] = &[
    "accept", "accept4", "connect", "recv", "recvfrom", "recvmsg", "recvmmsg", "send", "sendto",
    "sendmsg", "sendmmsg",
];

/// The calls that the recording has so far.
#[derive(Debug, Default)]
pub(super) struct BlockingCalls {
    /// By program counter. Outer `None`: the thread is in no call. Inner `None`: the number is
    /// unknown.
    numbers: HashMap<u64, Option<Option<CallNumber>>>,
    passed: HashMap<Return, Option<CallNumber>>,
    /// The work for these answers, and for those that were forgotten.
    work: Work,
    ids: HashMap<CallKey, u64>,
    /// The last known file of each descriptor, for when it is closed or the program has ended.
    files: HashMap<i32, String>,
}

/// A number that a function got from its caller, with the function's module and return address.
type Return = (u32, Passed, u64);

/// The key of a call: its number, its first two arguments and its file.
type CallKey = (Option<u64>, [u64; 2], String);

/// Records of one notification. The files behind descriptors are read once for all of them.
pub(super) struct Batch<'a> {
    calls: &'a mut BlockingCalls,
    program: Option<Program<'a>>,
    files: HashMap<i32, String>,
}

struct Program<'a> {
    arch: Arch,
    modules: &'a Modules,
    /// Process id and memory of a local program.
    local: Option<(u64, Option<File>)>,
}

impl BlockingCalls {
    /// Forgets calls by their addresses, because modules have changed.
    pub(super) fn forget_code(&mut self) {
        self.numbers.clear();
        self.passed.clear();
    }

    /// Returns a batch for the records of one notification.
    pub(super) fn batch<'a>(&'a mut self, session: &Session, modules: &'a Modules) -> Batch<'a> {
        let pid = session.pid.filter(|_| session.local);
        Batch {
            calls: self,
            program: Some(Program {
                arch: session.abi.arch,
                modules,
                local: pid.map(|pid| (pid, None)),
            }),
            files: HashMap::new(),
        }
    }

    /// Returns a batch that finds no calls, because it has no program.
    #[cfg(test)]
    pub(super) fn without_program(&mut self) -> Batch<'_> {
        Batch {
            calls: self,
            program: None,
            files: HashMap::new(),
        }
    }
}

impl Batch<'_> {
    /// The id of the call in which a thread is blocked; 0 if it is in none. Appends the call to
    /// `new` if the recording does not have it.
    pub(super) fn id_of(&mut self, place: &BlockPlace, new: &mut Vec<BlockingCall>) -> u64 {
        let Some(program) = &mut self.program else {
            return 0;
        };
        let numbers = &mut self.calls.numbers;
        let known = numbers.get(&place.pc).copied();
        let number = known.unwrap_or_else(|| match program.code_before(place.pc) {
            Some(code) => {
                let number = number_before(program.arch, place.number, &code);
                let has_room = numbers.len() < MAX_ANSWERS;
                let number = number.map(|constant| match constant {
                    Some(constant) => Some(CallNumber::Constant(constant)),
                    None if !has_room => None,
                    None => program.number_of_file_before(place.pc, &self.calls.work),
                });
                if has_room {
                    numbers.insert(place.pc, number);
                }
                number
            }
            // A thread that is in no call has any value in the register.
            None => Some(None),
        });
        let Some(number) = number else {
            return 0;
        };
        // Where a register keeps the number, one instruction serves for several calls.
        let number = place
            .number
            .or_else(|| program.number(place, number?, &mut self.calls.passed, &self.calls.work))
            .filter(|number| *number <= MAX_NUMBER);
        let mut args = [0; 6];
        args[..2].copy_from_slice(&place.args);
        let call = number.map(|number| Call { number, args });
        let name = call.and_then(|call| call.name(program.arch));
        let descriptor = call.and_then(|call| call.descriptor(program.arch));
        let is_futex = call.is_some_and(|call| call.futex(program.arch).is_some());
        // Programs have too many futexes to keep them apart.
        let [first, second] = place.args;
        let (args, key_args) = match (descriptor, is_futex) {
            (Some(_), _) => ([first, 0], [first, 0]),
            (None, true) => ([first, second], [0, second]),
            (None, false) => ([0, 0], [0, 0]),
        };
        let last_files = &mut self.calls.files;
        let file = descriptor.map(|descriptor| {
            let file = self.files.entry(descriptor);
            let read = || match program.file(descriptor) {
                Some(file) => match last_files.insert(descriptor, file.clone()) {
                    // The thread may have waited for either file.
                    Some(before) if before != file => String::new(),
                    _ => file,
                },
                None => last_files.get(&descriptor).cloned().unwrap_or_default(),
            };
            file.or_insert_with(read).clone()
        });
        // A socket call whose descriptor names another file: the program has reused the descriptor.
        let fits = |file: &String| {
            !name.is_some_and(|name| ON_SOCKETS.contains(&name)) || file.starts_with("socket:")
        };
        let key = (number, key_args, file.filter(fits).unwrap_or_default());
        let ids = &mut self.calls.ids;
        if let Some(id) = ids.get(&key) {
            return *id;
        }
        if ids.len() >= MAX_CALLS {
            return 0;
        }
        let id = ids.len() as u64 + 1;
        new.push(BlockingCall {
            id,
            number,
            args: args.to_vec(),
            file: key.2.clone(),
        });
        ids.insert(key, id);
        id
    }
}

impl Program<'_> {
    /// The code before a program counter, from the program's files or its memory. In memory, a
    /// probe may have replaced the instruction that loads the number.
    fn code_before(&mut self, pc: u64) -> Option<Vec<u8>> {
        self.code_of_file_before(pc)
            .or_else(|| self.local_code_before(pc))
    }

    fn code_of_file_before(&self, pc: u64) -> Option<Vec<u8>> {
        let mapped = self.modules.at(pc)?;
        let svma = pc.wrapping_sub(mapped.bias);
        let image = mapped.image.as_ref()?;
        // A shorter piece at the start of a segment.
        let sizes = [CODE_BEFORE, 8, 4].into_iter();
        let mut code = sizes.filter_map(|size| {
            let start = svma.checked_sub(size as u64)?;
            image.bytes_at(start, size).map(<[u8]>::to_vec)
        });
        code.next()
    }

    /// Where the program's files keep the number of the call before a program counter.
    fn number_of_file_before(&self, pc: u64, work: &Work) -> Option<CallNumber> {
        let mapped = self.modules.at(pc)?;
        let (image, table) = (mapped.image.as_ref()?, mapped.table()?);
        call_number::find(image, table, pc.wrapping_sub(mapped.bias), work)
    }

    /// The number of the call in which a thread is blocked, where a word of its stack shows it.
    fn number(
        &self,
        place: &BlockPlace,
        code: CallNumber,
        passed: &mut HashMap<Return, Option<CallNumber>>,
        work: &Work,
    ) -> Option<u64> {
        let word = |distance: u64| *place.stack.get(usize::try_from(distance / 8).ok()?)?;
        let (mut code, mut at) = (code, place.pc);
        for _ in 0..=MAX_CALLERS {
            let here = match code {
                CallNumber::Constant(number) => return Some(number),
                CallNumber::OnStack(distance) => return word(distance),
                CallNumber::Passed(here) => here,
            };
            let back = word(here.return_address()?)?;
            let callee = self.modules.at(at)?;
            let key = (callee.id, here, back);
            let answer = match passed.get(&key) {
                Some(answer) => *answer,
                None if passed.len() >= MAX_ANSWERS => None,
                None => *passed.entry(key).or_insert_with(|| {
                    let caller = self.modules.at(back)?;
                    let after = back.wrapping_sub(caller.bias);
                    let [callee, caller] =
                        [callee, caller].map(|mapped| mapped.image.as_ref().zip(mapped.table()));
                    call_number::find_passed(here, callee?, caller?, after, work)
                }),
            };
            (code, at) = (answer?, back);
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

    fn file(&self, descriptor: i32) -> Option<String> {
        let (pid, _) = self.local.as_ref()?;
        file_of(*pid, descriptor)
    }
}
