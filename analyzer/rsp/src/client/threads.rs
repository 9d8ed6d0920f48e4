//! Which threads there are.

use crate::client::Client;
use crate::error::Error;
use crate::thread::{ThreadEntry, ThreadId};

impl Client {
    /// All threads (`qXfer:threads:read`, else `qfThreadInfo`).
    pub fn threads(&mut self) -> Result<Vec<ThreadId>, Error> {
        todo!()
    }
    /// All threads with what the list says of each.
    pub fn thread_list(&mut self) -> Result<&[ThreadEntry], Error> {
        todo!()
    }
    /// A thread's name (from the thread list, else `qThreadExtraInfo`), if there is one.
    pub fn thread_name(&mut self, thread: ThreadId) -> Result<Option<String>, Error> {
        todo!()
    }
    /// Whether the thread is alive (`T`).
    pub fn is_alive(&mut self, thread: ThreadId) -> Result<bool, Error> {
        todo!()
    }
    /// Has the start and the end of every thread reported (`QThreadEvents`). `Ok(false)`: the
    /// server lacks it.
    pub fn thread_events(&mut self, on: bool) -> Result<bool, Error> {
        todo!()
    }
    /// Signals (gdb's numbers) to deliver without a stop (`QPassSignals`). `Ok(false)`: the server
    /// lacks it.
    pub fn pass_signals(&mut self, signals: &[u8]) -> Result<bool, Error> {
        todo!()
    }
}
