//! Notifications to a client: created and ended threads, trace frames, and for observers also
//! changes of the program and its control (docs/reference/protocol.md, "Several clients").

use std::fmt::Write;
use std::time::Instant;

use crate::ptrace::stop::Stop;
use crate::samples::TimerSamples;
use crate::subscription::Subscription;
use crate::subscription::outbox::Notification;
use crate::subscription::role::Role;
use crate::subscription::stalls::Cause;
use crate::subscription::thread_log::ThreadLog;
use crate::sys::{Tid, processor_ns};
use crate::tracepoint::budget::Missed;

use super::debuggee::Debuggee;
use super::framing::{PACKET_SIZE, hex};
use super::signal::to_gdb;
use super::{Outcome, Session, trace_notification};

/// Maximum number of thread events that wait for a client. A client with more does not read.
const MAX_PENDING_EVENTS: usize = 50_000;

/// The last state that was sent to an observer.
#[derive(Default)]
pub(super) struct Notified {
    /// Whether a client controls the program, and whether it runs without control.
    control: Option<(bool, bool)>,
    /// The process that the client observes.
    process: Option<Tid>,
    /// The end of the process was sent.
    end: bool,
}

impl Session {
    /// Makes the observed process the current one. Returns the former current process if that is
    /// another.
    pub(super) fn look_at_own(&mut self, debuggee: &mut Debuggee) -> Option<Tid> {
        if !matches!(self.role, Some(Role::Observer(_))) {
            return None;
        }
        let former = debuggee.family.current.as_ref()?.process.pid();
        let own = *self.notified.process.get_or_insert(former);
        (own != former && debuggee.family.select(own)).then_some(former)
    }

    /// True if the client knows that the process has ended.
    pub(super) fn knows_end(&self) -> bool {
        self.notified.end
    }

    /// Records that the client knows of the process's end.
    pub(super) fn set_end_known(&mut self) {
        self.notified.end = true;
    }

    /// Changes the process that this client observes.
    pub(super) fn observe_process(&mut self, pid: Tid) {
        (self.notified.process, self.notified.end) = (Some(pid), false);
    }

    /// Sends the notifications that the client has subscribed to. Unless `all` is set, a client
    /// that drains the trace buffer gets them only when they are due.
    pub(crate) fn notify(&mut self, debuggee: &mut Debuggee, all: bool) {
        let Some(role) = self.role else {
            return;
        };
        self.notify_control(debuggee);
        let ended = self.end_to_notify(debuggee);
        if self.schedule.is_some() || self.samples.is_some() || self.timer_samples.is_some() {
            let before = processor_ns();
            self.notify_schedule(all || ended.is_some());
            self.notify_samples(all || ended.is_some());
            self.notify_timer_samples(debuggee);
            debuggee.exclude_from_budgets(processor_ns() - before);
        }
        let tracee = match role {
            Role::Control => debuggee.family.current.as_mut(),
            Role::Observer(_) => self.notified.process.and_then(|pid| debuggee.observed(pid)),
        };
        if let Some(tracee) = tracee {
            let all = all || ended.is_some();
            // Check only once: what becomes due below has not been drained yet, so it waits.
            if notifications_are_due(tracee.subscriptions.of(role), all) {
                // Drain first, so that the call that created a thread precedes the thread's
                // creation.
                tracee.drain_jump_pads();
                let missed = tracee.newly_missed(role, all);
                // Send it before the frames for a pause that is over, and again after them for a
                // pause that began among them.
                self.notify_missed(&missed);
                self.notify_stalls(tracee.subscriptions.of(role));
                self.notify_in_order(tracee.subscriptions.of(role), all);
                self.notify_missed(&missed);
            }
            self.notify_threads(tracee.subscriptions.of(role));
            self.notify_held(tracee.subscriptions.of(role));
        }
        if let Some(end) = ended {
            self.set_end_known();
            self.framing.notify(&[b"UnspoolEnd:", &end[..]].concat());
        }
    }

    /// Sends records of the schedule: all of them, or those that are due.
    pub(super) fn notify_schedule(&mut self, all: bool) {
        let Some(schedule) = &mut self.schedule else {
            return;
        };
        if all || schedule.drains().is_due() {
            let bodies = schedule.take(all, PACKET_SIZE);
            self.notify_binary(bodies);
        }
    }

    /// Sends CPU samples: all of them, or those that are due.
    pub(super) fn notify_samples(&mut self, all: bool) {
        let Some(samples) = &mut self.samples else {
            return;
        };
        if all || samples.drains().is_due() {
            let bodies = samples.take(all, PACKET_SIZE);
            self.notify_binary(bodies);
        }
    }

    /// Takes and sends samples if the timer's next tick is due, and ends them with the process.
    fn notify_timer_samples(&mut self, debuggee: &mut Debuggee) {
        let Some(timer) = &mut self.timer_samples else {
            return;
        };
        let tracee = debuggee.observed(timer.process());
        let Some(tracee) = tracee.filter(|tracee| tracee.process.end().is_none()) else {
            self.end_samples();
            return;
        };
        if Instant::now() < timer.due() {
            return;
        }
        let tids: Vec<Tid> = tracee.process.tids().collect();
        let mut read =
            |tid, stack: &mut [u8], waits: &mut Option<u64>| tracee.sample(tid, stack, waits);
        let bodies = timer.tick(&tids, &mut read, PACKET_SIZE);
        self.notify_binary(bodies);
    }

    /// Sends the remaining samples, and ends their recording.
    pub(super) fn end_samples(&mut self) {
        self.notify_samples(true);
        self.samples = None;
        let lost = self.timer_samples.take().and_then(TimerSamples::end);
        self.notify_binary(lost.into_iter().collect());
    }

    fn notify_binary(&mut self, bodies: Vec<Vec<u8>>) {
        for body in bodies {
            self.framing.notify_binary(b"", &body);
        }
    }

    /// Ends the session if too many events wait for the client.
    pub(crate) fn check_backlog(&mut self, debuggee: &mut Debuggee) {
        let role = self.role();
        let logs = debuggee.family.processes().filter_map(|tracee| {
            let subscription = tracee.subscriptions.get(role)?;
            subscription.log.as_ref().map(ThreadLog::len)
        });
        if logs.sum::<usize>() > MAX_PENDING_EVENTS {
            self.outcome = Some(Outcome::NotReading);
        }
    }

    /// Sends thread events to a client that does not drain the trace buffer.
    fn notify_threads(&mut self, subscription: &mut Subscription) {
        if !subscription.trace.drained
            && let Some(log) = &mut subscription.log
            && let Some(body) = self.dialect.thread_log(&log.take())
        {
            self.framing.notify(&body);
        }
    }

    /// Sends frames and thread events in the order in which they happened.
    fn notify_in_order(&mut self, subscription: &mut Subscription, all: bool) {
        for news in subscription.take_notifications(all) {
            match news {
                Notification::Threads(entries) => {
                    if let Some(body) = self.dialect.thread_log(&entries) {
                        self.framing.notify(&body);
                    }
                }
                Notification::Frames(frames) => {
                    trace_notification::frames(&frames, &mut self.framing);
                }
            }
        }
        let dropped = subscription.trace.newly_dropped();
        if !dropped.is_empty() {
            self.framing.notify(&trace_notification::dropped(&dropped));
        }
    }

    fn notify_missed(&mut self, missed: &[(u32, Missed)]) {
        if !missed.is_empty() {
            self.framing.notify(&trace_notification::missed(missed));
        }
    }

    fn notify_stalls(&mut self, subscription: &mut Subscription) {
        for (name, cause) in [("Stood", Cause::Late), ("Halted", Cause::Halted)] {
            let spans = subscription.stalls.take(cause);
            if !spans.is_empty() {
                self.framing
                    .notify(&trace_notification::stalls(name, &spans));
            }
        }
        if let Some((count, ns)) = subscription.stalls.more_short() {
            let body = format!("UnspoolShortStops:{count:x},{ns:x}");
            self.framing.notify(body.as_bytes());
        }
    }

    /// Sends holds, fatal signals and execs to an observer.
    fn notify_held(&mut self, subscription: &mut Subscription) {
        let executed = subscription.executed.take();
        if !matches!(self.role, Some(Role::Observer(_))) {
            return;
        }
        if let Some(path) = executed {
            let mut body = b"UnspoolExec:".to_vec();
            hex(path.as_bytes(), &mut body);
            self.framing.notify(&body);
        }
        let mut text = String::from("UnspoolHeld");
        for (index, (tid, at, _)) in subscription.held.drain(..).enumerate() {
            let separator = if index == 0 { ':' } else { ';' };
            let _ = write!(text, "{separator}{:x},{at:x}", tid.0);
        }
        if text.contains(':') {
            self.framing.notify(text.as_bytes());
        }
        for (tid, signal) in subscription.fatal.drain(..) {
            let body = format!("UnspoolFatal:{:x},{:02x}", tid.0, to_gdb(signal));
            self.framing.notify(body.as_bytes());
        }
    }

    fn notify_control(&mut self, debuggee: &Debuggee) {
        // A client that has detached may still be connected.
        let free = debuggee.free;
        let now = (debuggee.controller.is_some() && !free, free);
        if self.role == Some(Role::Control) || self.notified.control == Some(now) {
            return;
        }
        self.notified.control = Some(now);
        let body: &[u8] = match now {
            (true, _) => b"UnspoolControl:taken",
            (false, true) => b"UnspoolControl:free",
            (false, false) => b"UnspoolControl:halted",
        };
        self.framing.notify(body);
    }

    /// The end of the observed process, if the client does not know it yet: in the form of a stop
    /// reply, or `D` if the stub has detached.
    fn end_to_notify(&mut self, debuggee: &mut Debuggee) -> Option<Vec<u8>> {
        if self.notified.end || !matches!(self.role, Some(Role::Observer(_))) {
            return None;
        }
        let pid = self.notified.process.or(debuggee.pid())?;
        self.notified.process = Some(pid);
        let Some(tracee) = debuggee.observed(pid) else {
            return Some(b"D".to_vec());
        };
        let end @ (Stop::Exited(_) | Stop::Killed(_)) = tracee.process.end()?.clone() else {
            return None;
        };
        Some(self.dialect.stop_reply(tracee, &end))
    }
}

/// True if a client that drains the trace buffer should get notifications now.
fn notifications_are_due(subscription: &Subscription, all: bool) -> bool {
    subscription.trace.drained
        && (all
            || subscription
                .notifications_due()
                .is_some_and(|due| due <= Instant::now()))
}
