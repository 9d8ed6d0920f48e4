//! What a client is told that drains the trace buffer: threads that came and went, and frames, in the order in which it all
//! happened.

use std::time::{Duration, Instant};

use crate::probe::buffer::Frame;

use super::interest::{Interest, Seat};
use super::log::{Entry, Log};
use super::process::Process;

/// A frame is told of no later: until then more may come, and the client is woken once for all.
const LATEST: Duration = Duration::from_millis(10);
/// So many bytes of frames, or a quarter of the buffer, are told of at once.
const ENOUGH: usize = 64 * 1024;
/// The program waits for a client that has so many creations and ends of threads still to hear of.
const MAX_UNTOLD_THREADS: usize = 10_000;

/// A run of things of one kind.
pub(crate) enum News {
    Threads(Vec<Entry>),
    Frames(Vec<Frame>),
}

impl Interest {
    /// When something is to be told, if there is anything.
    pub(crate) fn news_due(&self) -> Option<Instant> {
        // What waits for a thread's first stop is told when that has come.
        let until = self.log.as_ref().and_then(Log::held_up_since);
        let ready = |at: &Instant| until.is_none_or(|until| *at < until);
        let first = self.trace.buffer.frames().front();
        let others = self.held.first().map(|(_, _, at)| *at);
        let since = self
            .log
            .as_ref()
            .and_then(Log::since)
            .into_iter()
            .chain(first.map(|f| f.time))
            .filter(ready)
            .chain(others)
            .min()?;
        let buffer = &self.trace.buffer;
        let enough = ENOUGH.min(buffer.size() / 4);
        // A thread that is held waits for the client.
        let urgent = others.is_some() || buffer.size() - buffer.free() >= enough;
        Some(if urgent { since } else { since + LATEST })
    }

    /// What can be told now, in its order; of frames not much more than [`ENOUGH`], unless `all` are wanted.
    pub(crate) fn take_news(&mut self, all: bool) -> Vec<News> {
        let ready = self.log.as_mut().map(Log::take).unwrap_or_default();
        let mut entries = ready.into_iter().peekable();
        // What happened after a thread's creation is not told of before that.
        let until = self.log.as_ref().and_then(Log::since);
        let mut news = Vec::new();
        let mut taken = 0;
        loop {
            let first = self.trace.buffer.frames().front();
            let frame = first.filter(|f| until.is_none_or(|until| f.time < until));
            let frame = frame.map(|frame| frame.time);
            if frame.is_some() && !all && taken >= ENOUGH {
                if let Some(log) = &mut self.log {
                    log.put_back(entries);
                }
                return news;
            }
            match (entries.peek().map(|entry| entry.at), frame) {
                (None, None) => return news,
                (Some(at), time) if time.is_none_or(|time| at <= time) => {
                    let entry = entries.next();
                    match news.last_mut() {
                        Some(News::Threads(threads)) => threads.extend(entry),
                        _ => news.push(News::Threads(entry.into_iter().collect())),
                    }
                }
                _ => {
                    let frame = self.trace.buffer.drop_first();
                    taken += frame.as_ref().map_or(0, Frame::size);
                    match news.last_mut() {
                        Some(News::Frames(frames)) => frames.extend(frame),
                        _ => news.push(News::Frames(frame.into_iter().collect())),
                    }
                }
            }
        }
    }
}

impl Process {
    /// How much room is left, in hundredths of the buffer, if the program is to wait for the
    /// client: more than half of the buffer is full and nothing may be lost, or too many needed
    /// frames or threads that came and went wait to be sent.
    pub(crate) fn backed_up(&self, seat: Seat) -> Option<u32> {
        let interest = self.interests.get(seat)?;
        let trace = &interest.trace;
        let left = trace.buffer.free() * 100 / trace.buffer.size().max(1);
        let waits = trace.running && trace.waits && left < 50;
        let threads = interest.log.as_ref().map_or(0, Log::len);
        let needed = trace.running && trace.drained && trace.buffer.reserve_is_short();
        (waits || needed || threads > MAX_UNTOLD_THREADS).then_some(left as u32)
    }
}

#[cfg(test)]
mod tests {
    use crate::sys::Tid;

    use super::*;

    #[test]
    fn nothing_is_due_that_cannot_be_told() {
        let mut interest = Interest::default();
        let log = interest.log.insert(Log::default());
        log.created(Tid(2), Tid(1));
        log.exited(Tid(3), 0);
        assert_eq!(interest.news_due(), None);
        let log = interest.log.insert(Log::default());
        log.exited(Tid(3), 0);
        let since = log.since();
        log.created(Tid(2), Tid(1));
        assert_eq!(interest.news_due(), since.map(|since| since + LATEST));
        interest.take_news(false);
        assert_eq!(interest.news_due(), None);
        let log = interest.log.get_or_insert_default();
        log.born(Tid(2), None);
        assert!(interest.news_due().is_some());
    }
}
