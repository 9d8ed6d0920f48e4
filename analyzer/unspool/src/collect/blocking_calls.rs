//! The system calls in which threads were blocked, from the registers in the schedule's records.
//!
//! Only a local program's files and code can be read while it runs. Of other programs, the number
//! of the call is known where a register keeps it.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use unspool_capture::BlockingCall;
use unspool_image::Arch;
use unspool_rsp::BlockPlace;

use super::session::Session;
use crate::platform::syscall::{CODE_BEFORE, Call, number_before};

/// Maximum number of different calls in a recording. Further ones have no name.
const MAX_CALLS: usize = 1 << 16;

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
    numbers: HashMap<u64, Option<Option<u64>>>,
    ids: HashMap<CallKey, u64>,
    /// The last known file of each descriptor, for when it is closed or the program has ended.
    files: HashMap<i32, String>,
}

/// The key of a call: its number, its first two arguments and its file.
type CallKey = (Option<u64>, [u64; 2], String);

/// Records of one notification. The files behind descriptors are read once for all of them.
pub(super) struct Batch<'a> {
    calls: &'a mut BlockingCalls,
    program: Option<Program>,
    files: HashMap<i32, String>,
}

struct Program {
    arch: Arch,
    /// Process id and memory of a local program.
    local: Option<(u64, Option<File>)>,
}

impl BlockingCalls {
    /// Returns a batch for the records of one notification.
    pub(super) fn batch(&mut self, session: &Session) -> Batch<'_> {
        let pid = session.pid.filter(|_| session.local);
        Batch {
            calls: self,
            program: Some(Program {
                arch: session.abi.arch,
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
        let number = *numbers
            .entry(place.pc)
            .or_insert_with(|| program.number(place));
        let Some(number) = number else {
            return 0;
        };
        // Where a register keeps the number, one instruction serves for several calls.
        let number = place.number.or(number);
        let mut args = [0; 6];
        args[..2].copy_from_slice(&place.args);
        let call = number.map(|number| Call { number, args });
        let name = call.and_then(|call| call.name(program.arch));
        let descriptor = call.and_then(|call| call.descriptor(program.arch));
        let is_futex = call.is_some_and(|call| call.futex(program.arch).is_some());
        let args = match (descriptor, is_futex) {
            (Some(_), _) => [place.args[0], 0],
            (None, true) => place.args,
            (None, false) => [0, 0],
        };
        let last_files = &mut self.calls.files;
        let file = descriptor.map(|descriptor| {
            let file = self.files.entry(descriptor);
            let read = || match program.file(descriptor) {
                Some(file) => {
                    last_files.insert(descriptor, file.clone());
                    file
                }
                None => last_files.get(&descriptor).cloned().unwrap_or_default(),
            };
            file.or_insert_with(read).clone()
        });
        // A socket call whose descriptor names another file: the program has reused the descriptor.
        let fits = |file: &String| {
            !name.is_some_and(|name| ON_SOCKETS.contains(&name)) || file.starts_with("socket:")
        };
        let key = (number, args, file.filter(fits).unwrap_or_default());
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

impl Program {
    /// The number of the thread's system call. `None` if the thread is in no call: it waits for a
    /// page, or was stopped. Code that cannot be read counts as a call.
    fn number(&mut self, place: &BlockPlace) -> Option<Option<u64>> {
        match self.code_before(place.pc) {
            Some(code) => number_before(self.arch, place.number, &code),
            None => Some(place.number),
        }
    }

    fn code_before(&mut self, pc: u64) -> Option<Vec<u8>> {
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
        let path = fs::read_link(format!("/proc/{pid}/fd/{descriptor}")).ok()?;
        Some(path.to_string_lossy().into_owned())
    }
}
