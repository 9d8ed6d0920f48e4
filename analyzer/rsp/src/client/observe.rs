//! A session beside another client's: the target is looked at and traced while somebody else, or nobody, controls it
//! (our stub, docs/reference/protocol.md, "Several clients").

use std::time::{Duration, Instant};

use crate::client::Client;
use crate::connection::Received;
use crate::error::Error;
use crate::hex;
use crate::registers::Registers;
use crate::thread::ThreadId;

/// A thread as it was at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThreadStack {
    /// Whose it is.
    pub thread: ThreadId,
    /// Its general registers, in a whole `g` packet of which the rest is not known; `None` if it could not be looked at: it
    /// has ended, most likely.
    pub registers: Option<Vec<u8>>,
    /// Its stack from the stack pointer upward.
    pub stack: Vec<u8>,
}

/// What a thread has had of the processors since it began, by its kernel's account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThreadTimes {
    /// Whose times they are.
    pub tid: u64,
    /// How long it was on a processor, nanoseconds.
    pub on_cpu_ns: u64,
    /// How long it waited for a processor, nanoseconds.
    pub runnable_ns: u64,
}

impl Client {
    /// Whether the server took us for an observer, as [`ClientOptions::observe`](crate::ClientOptions::observe) asked: then the
    /// target may be asked things while it runs.
    pub fn is_observer(&self) -> bool {
        self.features.has("UnspoolObserve")
    }

    /// Whether [`Client::stacks`] can be asked for.
    pub fn has_stacks(&self) -> bool {
        self.features.has("qUnspoolStacks")
    }

    /// What all threads have had of the processors, and when the server asked, by its monotonic clock. `None`: neither it nor its kernel
    /// says. Each answer may take `timeout`.
    pub fn thread_times(
        &mut self,
        timeout: Duration,
    ) -> Result<Option<(u64, Vec<ThreadTimes>)>, Error> {
        if !self.features.has("qUnspoolTimes") {
            return Ok(None);
        }
        self.with_timeout(timeout, Client::all_thread_times)
    }

    fn all_thread_times(&mut self) -> Result<Option<(u64, Vec<ThreadTimes>)>, Error> {
        let mut all: Vec<ThreadTimes> = Vec::new();
        let mut asked_ns = None;
        loop {
            let after = all.last().map_or(0, |last| last.tid);
            let reply = self.request(format!("qUnspoolTimes:{after:x}"))?;
            let text = match reply.text() {
                Ok(text) => text,
                Err(Error::Remote { .. }) => return Ok(None),
                Err(error) => return Err(error),
            };
            let malformed = || reply.malformed("`m` or `l`, a time, and threads with greater ids");
            let (more, now_ns, threads) = times(&text, after).ok_or_else(malformed)?;
            asked_ns.get_or_insert(now_ns);
            let any = !threads.is_empty();
            all.extend(threads);
            if !(more && any) {
                return Ok(Some((asked_ns.unwrap_or(now_ns), all)));
            }
        }
    }

    /// Lets the target run, if nobody controls it. `Ok(false)`: somebody does, and decides.
    pub fn let_run(&mut self) -> Result<bool, Error> {
        match self.request("QUnspoolGo")?.ok() {
            Ok(()) => Ok(true),
            Err(Error::Remote { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Asks the server for something small if it has sent nothing for `silence`. An error: it does not answer within `timeout`, or the
    /// connection fails. A link that is down shows in no other way as long as there is nothing to ask.
    pub fn check_link(&mut self, silence: Duration, timeout: Duration) -> Result<(), Error> {
        if self.connection.silence() < silence {
            return Ok(());
        }
        self.with_timeout(timeout, |client| client.request("qC"))
            .map(drop)
    }

    /// Does something with another limit for the time that an answer may take.
    fn with_timeout<T>(&mut self, timeout: Duration, ask: impl FnOnce(&mut Client) -> T) -> T {
        let usual = self.connection.timeout();
        self.connection.set_timeout(timeout);
        let answer = ask(self);
        self.connection.set_timeout(usual);
        answer
    }

    /// Whether [`Client::signal`] works.
    pub fn has_signal(&self) -> bool {
        self.features.has("QUnspoolSignal")
    }

    /// Sends a signal (gdb's number) to the program that we had the server start: SIGINT, SIGTERM or SIGKILL.
    pub fn signal(&mut self, signal: u8) -> Result<(), Error> {
        self.request(format!("QUnspoolSignal:{signal:x}"))?.ok()
    }

    /// Lets a thread go on that waits for us. `Ok(false)`: it does not wait any more.
    pub fn release(&mut self, tid: u64) -> Result<bool, Error> {
        match self.request(format!("QUnspoolRelease:{tid:x}"))?.ok() {
            Ok(()) => Ok(true),
            Err(Error::Remote { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads what the server tells, for at most `timeout`; whether there was anything.
    /// [`Client::take_notices`] has it.
    pub fn listen(&mut self, timeout: Duration) -> Result<bool, Error> {
        let deadline = Instant::now() + timeout;
        let mut any = false;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self
                .connection
                .receive(Some(if any { Duration::ZERO } else { left }))?
            {
                None => return Ok(any),
                Some(Received::Notification(payload)) => {
                    any = true;
                    self.connection.keep(payload);
                }
                // Nothing was asked.
                Some(Received::Packet(payload)) => {
                    self.print(&payload);
                }
            }
        }
    }

    /// Registers, and up to `length` bytes of the stack, of these threads, each at one moment; running threads are
    /// stopped for that, for some microseconds.
    pub fn stacks(
        &mut self,
        threads: &[ThreadId],
        length: usize,
    ) -> Result<Vec<ThreadStack>, Error> {
        // As many as one reply has room for, whatever the bytes are; then nothing need be asked again.
        let each = 12 + self.description.size() + length;
        let at_once = (self.features.packet_size() / 2 / each).clamp(1, AT_ONCE);
        let mut all = Vec::with_capacity(threads.len());
        let mut rest = threads;
        while !rest.is_empty() {
            let groups = rest.chunks(at_once).take(WINDOW);
            let packets: Vec<Vec<u8>> = groups.clone().map(|some| request(some, length)).collect();
            let replies = self.requests(&packets)?;
            for (asked, reply) in groups.zip(&replies) {
                let malformed = || reply.malformed("`b` and threads, each whole");
                let (b'b', bytes) = reply.binary("`b` and escaped data")? else {
                    return Err(malformed());
                };
                let got = decode(asked, &bytes).ok_or_else(malformed)?;
                if got.is_empty() {
                    return Err(malformed());
                }
                let whole = got.len() == asked.len();
                rest = rest.get(got.len()..).unwrap_or_default();
                all.extend(got);
                if !whole {
                    // What comes behind is asked for again, in its order.
                    break;
                }
            }
        }
        Ok(all)
    }

    /// The registers that [`Client::stacks`] brought: of a whole `g` packet those with these numbers.
    pub fn some_registers(&self, all: &[u8], numbers: &[u32]) -> Registers {
        let mut registers = Registers::unknown();
        for number in numbers {
            if let Some(register) = self.description.register_numbered(*number)
                && let Some(bytes) = all.get(register.range())
            {
                registers.set(register, bytes);
            }
        }
        registers
    }
}

/// As many threads as one request may name.
const AT_ONCE: usize = 256;
/// How many requests are sent before the first reply is read.
const WINDOW: usize = 64;

fn request(threads: &[ThreadId], length: usize) -> Vec<u8> {
    let mut packet = format!("qUnspoolStacks:{length:x}");
    for thread in threads {
        packet.push_str(&format!(";{:x}", thread.tid));
    }
    packet.into_bytes()
}

/// `lNOW;TID,ON-CPU,RUNNABLE;...`, or `m`: there are more. Ids rise from `after` on.
fn times(text: &str, mut after: u64) -> Option<(bool, u64, Vec<ThreadTimes>)> {
    let more = text.starts_with('m');
    let mut parts = text.strip_prefix(['l', 'm'])?.split(';');
    let now_ns = hex::number(parts.next()?)?;
    let thread = |part: &str| {
        let mut numbers = part.split(',').map(hex::number);
        let mut next = || numbers.next().flatten();
        let times = ThreadTimes {
            tid: next()?,
            on_cpu_ns: next()?,
            runnable_ns: next()?,
        };
        let rises = times.tid > std::mem::replace(&mut after, times.tid);
        rises.then_some(times)
    };
    let threads: Option<Vec<ThreadTimes>> = parts.map(thread).collect();
    Some((more, now_ns, threads?))
}

/// A reply's threads, which are the first of those that were asked for.
fn decode(asked: &[ThreadId], bytes: &[u8]) -> Option<Vec<ThreadStack>> {
    let mut all = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (head, after) = rest.split_first_chunk::<12>()?;
        let word = |at: usize| {
            let bytes = head.get(at..at + 4)?.first_chunk::<4>()?;
            Some(u32::from_le_bytes(*bytes))
        };
        let (registers, stack) = (word(4)? as usize, word(8)? as usize);
        let (registers, after) = after.split_at_checked(registers)?;
        let (stack, after) = after.split_at_checked(stack)?;
        let thread = *asked.get(all.len())?;
        if thread.tid != u64::from(word(0)?) {
            return None;
        }
        all.push(ThreadStack {
            thread,
            registers: Some(registers.to_vec()).filter(|bytes| !bytes.is_empty()),
            stack: stack.to_vec(),
        });
        rest = after;
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_threads() {
        let one = ThreadTimes {
            tid: 0x10,
            on_cpu_ns: 0xff,
            runnable_ns: 0,
        };
        assert_eq!(times("l7", 0), Some((false, 7, vec![])));
        assert_eq!(times("m7;10,ff,0", 3), Some((true, 7, vec![one])));
        // A server that goes round in circles would be asked for ever.
        assert_eq!(times("m7;10,ff,0", 0x10), None);
        for wrong in [
            "",
            "7",
            "l",
            "l7;",
            "l7;10,ff",
            "l7;10,,0",
            "l7;11,1,1;10,1,1",
        ] {
            assert_eq!(times(wrong, 0), None, "{wrong}");
        }
    }

    #[test]
    fn replies() {
        let thread = |tid| ThreadId { pid: None, tid };
        let bytes = [
            &[7, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 1, 2, 3, 4, 5][..],
            &[9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        ]
        .concat();
        let asked = [thread(7), thread(9), thread(8)];
        let got = decode(&asked, &bytes).unwrap();
        assert_eq!(got.len(), 2);
        assert_eq!(got[0].registers, Some(vec![1, 2]));
        assert_eq!(got[0].stack, [3, 4, 5]);
        assert_eq!(got[1].registers, None);
        for end in 0..bytes.len() {
            let part = decode(&asked, &bytes[..end]);
            assert!(part.is_none_or(|part| part.len() < 2), "{end}");
        }
        assert_eq!(decode(&asked[1..], &bytes), None);
    }
}
