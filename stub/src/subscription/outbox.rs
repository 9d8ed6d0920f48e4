//! Notifications for a client that drains its trace: created and ended threads, and frames, in the
//! order in which they happened.

use std::time::{Duration, Instant};

use crate::tracepoint::frame_buffer::Frame;

use super::Subscription;
use super::thread_log::{ThreadEvent, ThreadLog};

/// Maximum delay of a frame's notification. Frames that come meanwhile are sent with it, so that
/// the client wakes up once for all of them.
const MAX_DELAY: Duration = Duration::from_millis(10);
/// Number of frame bytes that are sent without delay, unless a quarter of the buffer is less. Also
/// the approximate limit for one batch.
const BATCH_BYTES: usize = 64 * 1024;

/// Consecutive entries of one kind.
pub(crate) enum Notification {
    Threads(Vec<ThreadEvent>),
    Frames(Vec<Frame>),
}

impl Subscription {
    /// The time at which a notification is due, if there is anything to send.
    pub(crate) fn notifications_due(&self) -> Option<Instant> {
        // Later entries must wait until the new thread stops for the first time.
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
        let enough = BATCH_BYTES.min(buffer.size() / 4);
        // A held thread waits for the client.
        let urgent = others.is_some() || buffer.size() - buffer.free() >= enough;
        Some(if urgent { since } else { since + MAX_DELAY })
    }

    /// Takes the entries that can be sent now, in order. Takes about [`BATCH_BYTES`] bytes of
    /// frames, or all frames if `all` is set.
    pub(crate) fn take_notifications(&mut self, all: bool) -> Vec<Notification> {
        let ready = self.log.as_mut().map(ThreadLog::take).unwrap_or_default();
        let mut entries = ready.into_iter().peekable();
        // Keep what happened after a thread's creation until the creation itself can be sent.
        let until = self.log.as_ref().and_then(ThreadLog::since);
        let mut news = Vec::new();
        let mut taken = 0;
        loop {
            let first = self.trace.buffer.frames().front();
            let frame = first.filter(|f| until.is_none_or(|until| f.time < until));
            let frame = frame.map(|frame| frame.time);
            if frame.is_some() && !all && taken >= BATCH_BYTES {
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
    fn entries_that_cannot_be_sent_yet_are_not_due() {
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
            since.map(|since| since + MAX_DELAY)
        );
        subscription.take_notifications(false);
        assert_eq!(subscription.notifications_due(), None);
        let log = subscription.log.get_or_insert_default();
        log.born(Tid(2), None);
        assert!(subscription.notifications_due().is_some());
    }
}
