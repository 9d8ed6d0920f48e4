//! An observer's session: it inspects and traces the target while another client, or none, controls
//! it (`unspool-stub`, docs/reference/protocol.md, "Several clients").

use std::time::{Duration, Instant};

use crate::client::Client;
use crate::connection::Received;
use crate::error::Error;
use crate::hex;
use crate::registers::Registers;
use crate::thread::ThreadId;

/// The registers and the stack of a thread at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThreadStack {
    /// The thread.
    pub thread: ThreadId,
    /// Its general registers, as a complete `g` packet in which the others are unknown. `None` if
    /// the thread could not be read, probably because it has ended.
    pub registers: Option<Vec<u8>>,
    /// Its stack, from the stack pointer upward.
    pub stack: Vec<u8>,
}

/// A thread's processor times since it started, as its kernel counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThreadTimes {
    /// The thread.
    pub tid: u64,
    /// Time on a processor, in nanoseconds.
    pub on_cpu_ns: u64,
    /// Time spent waiting for a processor, in nanoseconds.
    pub runnable_ns: u64,
}

impl Client {
    /// Whether the server accepted this client as an observer, as
    /// [`ClientOptions::observe`](crate::ClientOptions::observe) requested. Requests then also work
    /// while the target runs.
    pub fn is_observer(&self) -> bool {
        self.features.has("UnspoolObserve")
    }

    /// Whether the server supports [`Client::stacks`].
    pub fn has_stacks(&self) -> bool {
        self.features.has("qUnspoolStacks")
    }

    /// The processor times of all threads, and the time of the reply on the server's monotonic
    /// clock. `None` if the server or its kernel does not provide them. `timeout` limits each
    /// reply.
    pub fn thread_times(
        &mut self,
        timeout: Duration,
    ) -> Result<Option<(u64, Vec<ThreadTimes>)>, Error> {
        if !self.features.has("qUnspoolTimes") {
            return Ok(None);
        }
        self.with_timeout(timeout, Client::all_thread_times)
    }

    /// The other processes that run in the program's memory. `None` if the server or its kernel
    /// cannot tell.
    pub fn memory_users(&mut self) -> Result<Option<Vec<u64>>, Error> {
        if !self.features.has("qUnspoolMemoryUsers") {
            return Ok(None);
        }
        let reply = self.request("qUnspoolMemoryUsers")?;
        let text = match reply.text() {
            Ok(text) => text,
            Err(Error::Remote { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let users = || -> Option<Vec<u64>> {
            let pids = text.strip_prefix('l')?.split_terminator(';');
            pids.map(hex::number).collect()
        };
        let malformed = || reply.malformed("`l` and process ids");
        users().map(Some).ok_or_else(malformed)
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

    /// Resumes the target if no client controls it. `Ok(false)` if a client does, because it
    /// decides.
    pub fn let_run(&mut self) -> Result<bool, Error> {
        match self.request("QUnspoolGo")?.ok() {
            Ok(()) => Ok(true),
            Err(Error::Remote { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Checks the link: sends a small request if the server has sent nothing for `silence`.
    ///
    /// An error means that the server did not answer within `timeout`, or that the connection
    /// failed. Without requests, a link that is down shows in no other way.
    pub fn check_link(&mut self, silence: Duration, timeout: Duration) -> Result<(), Error> {
        if self.connection.silence() < silence {
            return Ok(());
        }
        self.with_timeout(timeout, |client| client.request("qC"))
            .map(drop)
    }

    /// Runs `ask` with another time limit for replies.
    fn with_timeout<T>(&mut self, timeout: Duration, ask: impl FnOnce(&mut Client) -> T) -> T {
        let usual = self.connection.timeout();
        self.connection.set_timeout(timeout);
        let answer = ask(self);
        self.connection.set_timeout(usual);
        answer
    }

    /// Whether the server supports [`Client::signal`].
    pub fn has_signal(&self) -> bool {
        self.features.has("QUnspoolSignal")
    }

    /// Sends a signal (gdb's number) to the program that the server started for us: SIGINT, SIGTERM
    /// or SIGKILL.
    pub fn signal(&mut self, signal: u8) -> Result<(), Error> {
        self.request(format!("QUnspoolSignal:{signal:x}"))?.ok()
    }

    /// Releases a thread that waits for this client. `Ok(false)` if it no longer waits.
    pub fn release(&mut self, tid: u64) -> Result<bool, Error> {
        match self.request(format!("QUnspoolRelease:{tid:x}"))?.ok() {
            Ok(()) => Ok(true),
            Err(Error::Remote { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads notifications for at most `timeout`. Returns whether there were any.
    /// [`Client::take_notices`] returns them.
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
                // There is no open request.
                Some(Received::Packet(payload)) => {
                    self.print(&payload);
                }
            }
        }
    }

    /// The registers and up to `length` bytes of the stack of these threads. Each thread is read at
    /// one moment; a running thread is stopped for some microseconds.
    pub fn stacks(
        &mut self,
        threads: &[ThreadId],
        length: usize,
    ) -> Result<Vec<ThreadStack>, Error> {
        // The number of threads that fit one reply in the worst case, so that no thread is
        // requested twice.
        let each = 12 + self.description.size() + length;
        let at_once = (self.features.packet_size() / 2 / each).clamp(1, MAX_THREADS_PER_REQUEST);
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
                    // The remaining threads are requested again, in order.
                    break;
                }
            }
        }
        Ok(all)
    }

    /// The registers with these numbers, from the complete `g` packet of [`Client::stacks`].
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

/// Maximum number of threads in one request.
const MAX_THREADS_PER_REQUEST: usize = 256;
/// Number of requests sent before the first reply is read.
const WINDOW: usize = 64;

fn request(threads: &[ThreadId], length: usize) -> Vec<u8> {
    let mut packet = format!("qUnspoolStacks:{length:x}");
    for thread in threads {
        packet.push_str(&format!(";{:x}", thread.tid));
    }
    packet.into_bytes()
}

/// Decodes `lNOW;TID,ON-CPU,RUNNABLE;...`, or `m` if there are more. Thread ids increase from
/// `after` on.
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

/// Decodes the threads in a reply, which are the first of the requested ones.
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
        // A reply with repeated ids would cause endless requests.
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
