//! Several requests in one write: one round trip instead of many.
//!
//! ```no_run
//! # fn f(client: &mut unspool_rsp::Client, thread: unspool_rsp::ThreadId, sp: u64)
//! #     -> Result<(), unspool_rsp::Error> {
//! let mut batch = client.batch();
//! let registers = batch.registers(thread);
//! let stack = batch.read_memory(sp, 2048);
//! let mut answers = batch.send()?;
//! let registers = answers.take(registers)?;
//! let stack = answers.take(stack)?;
//! # Ok(()) }
//! ```

use std::marker::PhantomData;

use crate::breakpoint::Breakpoint;
use crate::client::execution::Action;
use crate::client::memory::{Piece, some};
use crate::client::{Client, one_write};
use crate::error::Error;
use crate::registers::Registers;
use crate::reply::Reply;
use crate::thread::ThreadId;
use crate::trace::Tracepoint;

/// Requests to send together.
///
/// Without acknowledgements (`QStartNoAckMode`), all go out in one write before the first reply is
/// read. With acknowledgements they are sent one by one. All are sent, in the given order, whatever
/// the earlier replies are.
pub struct Batch<'a> {
    client: &'a mut Client,
    packets: Vec<Vec<u8>>,
    questions: Vec<Question>,
    /// The current thread after all requests so far.
    selected: Option<ThreadId>,
}

/// Refers to the answer to one request of a [`Batch`].
#[derive(Debug)]
pub struct Ticket<T> {
    index: usize,
    kind: PhantomData<fn() -> T>,
}

/// The answers to a [`Batch`].
pub struct Answers {
    answers: Vec<Option<Result<Answer, Error>>>,
}

/// The types of answers in a batch: [`Registers`], memory (`Vec<u8>`), or `()`.
pub trait Answered: Sized + sealed::Sealed {
    #[doc(hidden)]
    fn from_answer(answer: Answer) -> Option<Self>;
}

#[doc(hidden)]
#[derive(Debug)]
pub enum Answer {
    Registers(Registers),
    Memory(Vec<u8>),
    Done,
}

/// The kind of request, which decides how its replies are read.
enum Question {
    Registers { thread: ThreadId, packets: usize },
    Memory { address: u64, pieces: Vec<Piece> },
    Plain { packets: usize },
}

impl Client {
    /// Starts a batch.
    pub fn batch(&mut self) -> Batch<'_> {
        let selected = self.selected;
        Batch {
            client: self,
            packets: Vec::new(),
            questions: Vec::new(),
            selected,
        }
    }
}

impl Batch<'_> {
    /// Like [`Client::registers`].
    pub fn registers(&mut self, thread: ThreadId) -> Ticket<Registers> {
        let mut packets = 1;
        if self.selected != Some(thread) {
            self.packets.push(format!("Hg{thread}").into_bytes());
            self.selected = Some(thread);
            packets += 1;
        }
        self.packets.push(b"g".to_vec());
        self.ask(Question::Registers { thread, packets })
    }

    /// Like [`Client::read_memory`], but a short read is not continued.
    pub fn read_memory(&mut self, address: u64, len: usize) -> Ticket<Vec<u8>> {
        let pieces = self.client.pieces(address, len);
        for piece in &pieces {
            self.packets.push(self.client.read_packet(*piece));
        }
        self.ask(Question::Memory { address, pieces })
    }

    /// Like [`Client::insert_breakpoint`].
    pub fn insert_breakpoint(&mut self, breakpoint: Breakpoint) -> Ticket<()> {
        self.packets.push(format!("Z{breakpoint}").into_bytes());
        self.ask(Question::Plain { packets: 1 })
    }

    /// Like [`Client::remove_breakpoint`].
    pub fn remove_breakpoint(&mut self, breakpoint: Breakpoint) -> Ticket<()> {
        self.packets.push(format!("z{breakpoint}").into_bytes());
        self.ask(Question::Plain { packets: 1 })
    }

    /// Defines and enables a tracepoint; see [`Client::trace`]. If an action fails, the tracepoint
    /// may be enabled without it.
    pub fn insert_tracepoint(&mut self, tracepoint: &Tracepoint) -> Ticket<()> {
        let fast = self.client.features.has("FastTracepoints");
        let packets = tracepoint.packets(fast);
        let question = Question::Plain {
            packets: packets.len(),
        };
        self.packets.extend(packets);
        self.ask(question)
    }

    /// Sends all requests and reads all answers. An error means that the connection failed; errors
    /// of single requests are in the answers. Requests over 32 KiB in total take more than one
    /// write.
    pub fn send(self) -> Result<Answers, Error> {
        let replies = with_insertion_timeout(self.client, &self.packets, |client| {
            client.requests(&self.packets)
        })?;
        Ok(answers(self.client, self.questions, &replies))
    }

    /// Like [`Batch::send`], but also resumes the target in the same write. Call [`Client::wait`]
    /// to wait for its next stop.
    pub fn resume(self, actions: &[(Action, Option<ThreadId>)]) -> Result<Answers, Error> {
        let client = self.client;
        client.needs_stop(b"vCont")?;
        let mut packets = self.packets;
        let resuming = client.continue_packet(actions)?;
        packets.extend(resuming.clone());
        let at_once = !client.connection.has_acks() && one_write(&packets) == packets.len();
        if resuming.is_none() || !at_once {
            packets.truncate(packets.len() - usize::from(resuming.is_some()));
            let replies =
                with_insertion_timeout(client, &packets, |client| client.requests(&packets))?;
            let answers = answers(client, self.questions, &replies);
            client.resume(actions)?;
            return Ok(answers);
        }
        client.connection.send_all(&packets)?;
        packets.pop();
        let replies: Vec<Reply> = with_insertion_timeout(client, &packets, |client| {
            let replies = packets.iter().map(|packet| client.reply(packet));
            replies.collect::<Result<_, _>>()
        })?;
        let answers = answers(client, self.questions, &replies);
        client.set_running();
        Ok(answers)
    }

    fn ask<T>(&mut self, question: Question) -> Ticket<T> {
        self.questions.push(question);
        Ticket {
            index: self.questions.len() - 1,
            kind: PhantomData,
        }
    }
}

impl Answers {
    /// The answer to one request. It can be taken once, and only from the ticket's own batch.
    pub fn take<T: Answered>(&mut self, ticket: Ticket<T>) -> Result<T, Error> {
        let answer = self.answers.get_mut(ticket.index).and_then(Option::take);
        T::from_answer(answer.ok_or(Error::Ticket)??).ok_or(Error::Ticket)
    }
}

/// Uses a longer time limit if some of the requests insert probes.
fn with_insertion_timeout<T>(
    client: &mut Client,
    packets: &[Vec<u8>],
    ask: impl FnOnce(&mut Client) -> T,
) -> T {
    let plants = |packet: &Vec<u8>| packet.starts_with(b"QTEnable:");
    if packets.iter().any(plants) {
        client.allow_insertion_time(ask)
    } else {
        ask(client)
    }
}

/// Decodes the replies.
fn answers(client: &mut Client, questions: Vec<Question>, replies: &[Reply]) -> Answers {
    let mut rest = replies;
    let mut take = |count: usize| {
        let (taken, left) = rest.split_at_checked(count).unwrap_or((rest, &[]));
        rest = left;
        taken
    };
    let answers = questions
        .into_iter()
        .map(|question| {
            Some(match question {
                Question::Registers { thread, packets } => client
                    .decode_registers(thread, take(packets))
                    .map(Answer::Registers),
                Question::Memory { address, pieces } => {
                    let replies = take(pieces.len());
                    memory(client, address, &pieces, replies).map(Answer::Memory)
                }
                Question::Plain { packets } => {
                    let done = take(packets).iter().try_for_each(Reply::ok);
                    done.map(|()| Answer::Done)
                }
            })
        })
        .collect();
    Answers { answers }
}

/// The bytes before the first missing byte.
fn memory(
    client: &Client,
    address: u64,
    pieces: &[Piece],
    replies: &[Reply],
) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    for (piece, reply) in pieces.iter().zip(replies) {
        match client.read_reply(*piece, reply) {
            Ok(data) => bytes.extend_from_slice(&data),
            Err(Error::Remote { .. }) => break,
            Err(error) => return Err(error),
        }
        if bytes.len() as u64 != piece.address - address + piece.len as u64 {
            break;
        }
    }
    if pieces.is_empty() {
        return Ok(bytes);
    }
    some(bytes, address)
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for crate::registers::Registers {}
    impl Sealed for Vec<u8> {}
    impl Sealed for () {}
}

impl Answered for Registers {
    fn from_answer(answer: Answer) -> Option<Registers> {
        match answer {
            Answer::Registers(registers) => Some(registers),
            _ => None,
        }
    }
}

impl Answered for Vec<u8> {
    fn from_answer(answer: Answer) -> Option<Vec<u8>> {
        match answer {
            Answer::Memory(bytes) => Some(bytes),
            _ => None,
        }
    }
}

impl Answered for () {
    fn from_answer(answer: Answer) -> Option<()> {
        match answer {
            Answer::Done => Some(()),
            _ => None,
        }
    }
}
