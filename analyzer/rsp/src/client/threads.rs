//! Lists threads and their names, and selects which of their events are reported.

use crate::client::Client;
use crate::client::objects::malformed_object;
use crate::error::Error;
use crate::markup;
use crate::thread::{ThreadEntry, ThreadId};

/// Maximum number of listed threads.
const MAX_THREADS: usize = 1 << 20;

impl Client {
    /// All threads (`qXfer:threads:read`, else `qfThreadInfo`, else `qC`).
    pub fn threads(&mut self) -> Result<Vec<ThreadId>, Error> {
        Ok(self.thread_list()?.iter().map(|t| t.id).collect())
    }

    /// The ids of all threads. Cheaper for the server than [`Client::thread_list`].
    pub fn thread_ids(&mut self) -> Result<Vec<ThreadId>, Error> {
        let list = self.list_by_ids()?;
        Ok(list.iter().map(|entry| entry.id).collect())
    }

    /// All threads, with names and processors where the list has them. The list is requested again
    /// only after the target has run.
    pub fn thread_list(&mut self) -> Result<&[ThreadEntry], Error> {
        // An observer's target may run at any time.
        if self.threads.is_none() || self.is_observer() {
            let list = match self.transfer("threads", "") {
                Ok(document) => (decode_list(&String::from_utf8_lossy(&document))?, true),
                Err(error) if error.is_unsupported() => (self.list_by_ids()?, false),
                Err(error) => return Err(error),
            };
            self.process = self.process.or(list.0.first().and_then(|t| t.id.pid));
            self.threads = Some(list);
        }
        Ok(self.threads.as_ref().map_or(&[], |(list, _)| list))
    }

    /// A thread's name, if it has one. It comes from the thread list, or, if that has no names,
    /// from the free text of `qThreadExtraInfo`.
    pub fn thread_name(&mut self, thread: ThreadId) -> Result<Option<String>, Error> {
        self.thread_list()?;
        if let Some((list, true)) = &self.threads {
            let entry = list.iter().find(|t| t.id == thread);
            return Ok(entry.and_then(|t| t.name.clone()));
        }
        if self.lacking.contains("qThreadExtraInfo") {
            return Ok(None);
        }
        match self.request(format!("qThreadExtraInfo,{thread}"))?.hex() {
            Ok(text) if text.is_empty() => Ok(None),
            Ok(text) => Ok(Some(String::from_utf8_lossy(&text).into_owned())),
            Err(error) if error.is_unsupported() => {
                self.lacking.insert("qThreadExtraInfo");
                Ok(None)
            }
            // The thread may have ended in the meantime.
            Err(Error::Remote { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether the thread is alive (`T`).
    pub fn is_alive(&mut self, thread: ThreadId) -> Result<bool, Error> {
        match self.request(format!("T{thread}"))?.ok() {
            Ok(()) => Ok(true),
            Err(Error::Remote { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes the server report the start and the end of every thread (`QThreadEvents`). `Ok(false)`
    /// if the server lacks it.
    pub fn thread_events(&mut self, on: bool) -> Result<bool, Error> {
        self.announced("QThreadEvents", &u8::from(on).to_string())
    }

    /// Sets the signals (gdb's numbers) to deliver without a stop (`QPassSignals`). They replace
    /// those of an earlier call. `Ok(false)` if the server lacks it.
    pub fn pass_signals(&mut self, signals: &[u8]) -> Result<bool, Error> {
        let list: Vec<_> = signals.iter().map(|s| format!("{s:x}")).collect();
        self.announced("QPassSignals", &list.join(";"))
    }

    /// Makes the server stop before a signal ends the target's process, even if the signal is to be
    /// passed (`QUnspoolFatal`, docs/reference/protocol.md).
    ///
    /// An observer gets [`Notice::Fatal`](crate::Notice) instead. `Ok(false)` if the server lacks
    /// it.
    pub fn stop_before_fatal_signals(&mut self) -> Result<bool, Error> {
        self.announced("QUnspoolFatal", "1")
    }

    /// Limits the overhead of tracing, in hundredths of a percent of one processor; `None` for no
    /// limit (`QUnspoolBudget`, docs/reference/protocol.md). `Ok(false)` if the server lacks it.
    pub fn set_budget(&mut self, basis_points: Option<u32>) -> Result<bool, Error> {
        let value = basis_points.map_or("none".to_owned(), |points| format!("{points:x}"));
        self.announced("QUnspoolBudget", &value)
    }

    /// Sends `name:value` if the server announced `name`.
    fn announced(&mut self, name: &str, value: &str) -> Result<bool, Error> {
        if !self.features.has(name) {
            return Ok(false);
        }
        match self.request(format!("{name}:{value}"))?.ok() {
            Ok(()) => Ok(true),
            Err(error) if error.is_unsupported() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Lists threads by `qfThreadInfo`, `qsThreadInfo`, ...: `m id,id`, at the end `l`.
    fn list_by_ids(&mut self) -> Result<Vec<ThreadEntry>, Error> {
        let mut list = Vec::new();
        let mut packet = "qfThreadInfo";
        loop {
            let reply = self.request(packet)?;
            let text = match reply.text() {
                Err(error) if error.is_unsupported() && list.is_empty() => {
                    return self.list_of_one();
                }
                text => text?,
            };
            let Some(ids) = text.strip_prefix('m') else {
                return match text.as_str() {
                    "l" => Ok(list),
                    _ => Err(reply.malformed("`m` and thread ids, or `l`")),
                };
            };
            for id in ids.split(',') {
                let id = ThreadId::decode(id).ok_or_else(|| reply.malformed("thread ids"))?;
                list.push(entry(id));
            }
            if list.len() > MAX_THREADS {
                return Err(Error::TooLarge {
                    what: "the thread list".into(),
                    limit: MAX_THREADS as u64,
                });
            }
            packet = "qsThreadInfo";
        }
    }

    /// Makes the server report threads that start and end without a stop.
    ///
    /// With each stop, the server then sends all general registers, and at breakpoints also `stack`
    /// bytes from the stack pointer on. `Ok(false)` if the server lacks it; only `unspool-stub` has
    /// it.
    pub fn thread_log(&mut self, stack: usize) -> Result<bool, Error> {
        if !self.features.has("QUnspoolThreads") {
            return Ok(false);
        }
        let packet = format!("QUnspoolThreads:1,{stack:x}");
        self.request(packet)?.ok().map(|()| true)
    }

    /// A server without thread support has at most a current thread.
    fn list_of_one(&mut self) -> Result<Vec<ThreadEntry>, Error> {
        let reply = self.request("qC")?;
        let text = match reply.text() {
            Err(error) if error.is_unsupported() => return Ok(vec![]),
            text => text?,
        };
        let id = text.strip_prefix("QC").and_then(ThreadId::decode);
        Ok(id.map(entry).into_iter().collect())
    }
}

fn entry(id: ThreadId) -> ThreadEntry {
    ThreadEntry {
        id,
        name: None,
        core: None,
    }
}

/// Decodes the XML list (GDB manual, "Thread List Format").
fn decode_list(document: &str) -> Result<Vec<ThreadEntry>, Error> {
    let packet = "qXfer:threads:read";
    let elements = markup::elements(document)
        .map_err(|e| malformed_object(packet, "a thread list", &e.problem))?;
    elements
        .iter()
        .filter(|element| element.name == "thread")
        .map(|element| {
            let id = element.get("id").unwrap_or_default();
            Ok(ThreadEntry {
                id: ThreadId::decode(id)
                    .ok_or_else(|| malformed_object(packet, "a thread id", id))?,
                name: element.get("name").map(str::to_owned),
                core: element.get("core").and_then(|core| core.parse().ok()),
            })
        })
        .collect()
}
