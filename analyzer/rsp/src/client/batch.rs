//! Several requests in one write: one round trip instead of many.

use std::marker::PhantomData;

use crate::breakpoint::Breakpoint;
use crate::client::Client;
use crate::client::execution::Action;
use crate::error::Error;
use crate::registers::Registers;
use crate::thread::ThreadId;

/// Requests to be sent together. Without acknowledgements (`QStartNoAckMode`) they go out in one
/// write before the first reply is read; with them, one by one. Either way in the order given, and
/// all of them, whatever the earlier ones' answers are.
pub struct Batch<'a> {
    client: &'a mut Client,
}

/// Stands for the answer to one request of a [`Batch`].
#[derive(Debug)]
pub struct Ticket<T> {
    index: usize,
    kind: PhantomData<fn() -> T>,
}

/// The answers to a [`Batch`].
pub struct Answers {}

impl Client {
    /// Begins a batch.
    pub fn batch(&mut self) -> Batch<'_> {
        Batch { client: self }
    }
}

impl Batch<'_> {
    /// As [`Client::registers`].
    pub fn registers(&mut self, thread: ThreadId) -> Ticket<Registers> {
        todo!()
    }
    /// As [`Client::read_memory`].
    pub fn read_memory(&mut self, address: u64, len: usize) -> Ticket<Vec<u8>> {
        todo!()
    }
    /// As [`Client::insert_breakpoint`].
    pub fn insert_breakpoint(&mut self, breakpoint: Breakpoint) -> Ticket<()> {
        todo!()
    }
    /// As [`Client::remove_breakpoint`].
    pub fn remove_breakpoint(&mut self, breakpoint: Breakpoint) -> Ticket<()> {
        todo!()
    }
    /// Sends all requests and reads all answers. An error here is one of the connection; those of
    /// single requests are in the answers.
    pub fn send(self) -> Result<Answers, Error> {
        todo!()
    }
    /// As [`Batch::send`], then resumes the target in the same write. Wait for it with
    /// [`Client::wait`].
    pub fn resume(self, actions: &[(Action, Option<ThreadId>)]) -> Result<Answers, Error> {
        todo!()
    }
}

impl Answers {
    /// The answer to one request. Each can be taken once, from the batch that gave the ticket.
    pub fn take<T>(&mut self, ticket: Ticket<T>) -> Result<T, Error> {
        todo!()
    }
}
