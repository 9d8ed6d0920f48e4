//! What a client is told that drains the trace buffer: threads that came and went, and frames, in
//! the order in which it all happened.

use std::time::{Duration, Instant};

use crate::tracepoint::frame_buffer::Frame;

use super::Subscription;
use super::thread_log::{ThreadEvent, ThreadLog};

/// A frame is told of no later: until then more may come, and the client is woken once for all.
const LATEST: Duration = Duration::from_millis(10);
/// So many bytes of frames, or a quarter of the buffer, are told of at once.
const ENOUGH: usize = 64 * 1024;

/// A run of things of one kind.
pub(crate) enum Notification {
    Threads(Vec<ThreadEvent>),
    Frames(Vec<Frame>),
}

impl Subscription {
    /// When something is to be told, if there is anything.
    pub(crate) fn notifications_due(&self) -> Option<Instant> {
        // What waits for a thread's first stop is told when that has come.
        let until = self.log.as_ref().and_then(ThreadLog::held_up_since);
        let ready = |at: &Instant| until.is_none_or(|until| *at < until);
        let first = self.trace.buffer.frames().front();
        let others = self.held.first().map(|(_, _, at)| *at);
        let since = self
            .log
            .as_ref()
            .and_then(ThreadLog::since)
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

    /// What can be told now, in its order; of frames not much more than [`ENOUGH`], unless `all`
    /// are wanted.
    pub(crate) fn take_notifications(&mut self, all: bool) -> Vec<Notification> {
        let ready = self.log.as_mut().map(ThreadLog::take).unwrap_or_default();
        let mut entries = ready.into_iter().peekable();
        // What happened after a thread's creation is not told of before that.
        let until = self.log.as_ref().and_then(ThreadLog::since);
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
                        Some(Notification::Threads(threads)) => threads.extend(entry),
                        _ => news.push(Notification::Threads(entry.into_iter().collect())),
                    }
                }
                _ => {
                    let frame = self.trace.buffer.drop_first();
                    taken += frame.as_ref().map_or(0, Frame::size);
                    match news.last_mut() {
                        Some(Notification::Frames(frames)) => frames.extend(frame),
                        _ => news.push(Notification::Frames(frame.into_iter().collect())),
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::sys::Tid;

    use super::*;

    #[test]
    fn nothing_is_due_that_cannot_be_told() {
        let mut subscription = Subscription::default();
        let log = subscription.log.insert(ThreadLog::default());
        log.created(Tid(2), Tid(1));
        log.exited(Tid(3), 0);
        assert_eq!(subscription.notifications_due(), None);
        let log = subscription.log.insert(ThreadLog::default());
        log.exited(Tid(3), 0);
        let since = log.since();
        log.created(Tid(2), Tid(1));
        assert_eq!(
            subscription.notifications_due(),
            since.map(|since| since + LATEST)
        );
        subscription.take_notifications(false);
        assert_eq!(subscription.notifications_due(), None);
        let log = subscription.log.get_or_insert_default();
        log.born(Tid(2), None);
        assert!(subscription.notifications_due().is_some());
    }
}
