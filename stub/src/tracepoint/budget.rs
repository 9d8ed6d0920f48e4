//! What tracing may cost the program, and which probe is paused when it costs more.
//!
//! A hit costs what the stub can measure: the time for which the thread was held, and the processor
//! time that the stub used for it. What is spent is taken from a bucket that fills with four fifths
//! of the budget and holds the remaining fifth of one second: no second can then cost more than the
//! budget. When the bucket is empty, the probe that has cost most of late is *paused*: its trap
//! comes out. When it is half full again, the paused probes come back. Hits during a pause are not
//! seen; how many they were is told from how much processor time the program used in the pause, and
//! how much it used from hit to hit before.
//!
//! A client may say of probes that it *needs* them: creations of threads, for one, which nothing
//! that comes later can tell. The budget does not touch them: they are never paused, and what they
//! cost is counted apart and takes nothing from the bucket.

mod account;
mod share;

use std::collections::BTreeMap;

pub(crate) use account::Missed;
use account::{Account, Pause, ProgramTime};
pub(crate) use share::{Limit, Share};

const SECOND: u64 = 1_000_000_000;
/// How finely the cost of any second is known.
const TICK: u64 = SECOND / 20;

/// So few hits are no reason to pause a probe beside others, however long the stub itself had to
/// wait in one.
const FEW: u64 = 8;

/// A hit whose cost is not counted yet.
pub(crate) struct HitCost {
    /// The address of the tracepoint.
    pub(crate) at: u64,
    /// Nanoseconds for which its thread was stopped to drain what others had noted.
    pub(crate) draining: u64,
    /// It is a step after a hit.
    pub(crate) is_step: bool,
}

/// How often some probes were hit, and what that cost.
#[derive(Clone, Copy, Default)]
struct Others {
    hits: u64,
    cost: u64,
}

/// The budget of one trace.
#[derive(Default)]
pub(crate) struct Budget {
    /// `None`: there is no limit.
    pub(crate) share: Option<Share>,
    /// What counts where no client asks for something else.
    pub(crate) usual: Option<Share>,
    pub(crate) program: ProgramTime,
    left: i64,
    /// Of those that go on, since one was paused: another is, when that is a cause of its own.
    others: Others,
    filled: u64,
    /// The stub's processor time when it was last counted.
    cpu: u64,
    /// What the kernel told since, and how much of it was hits.
    reports: u64,
    hits: Vec<u64>,
    /// By address.
    accounts: BTreeMap<u64, Account>,
    /// What the last ticks cost.
    ticks: [u64; (SECOND / TICK) as usize],
    tick: u64,
    /// What the dearest second cost.
    pub(crate) worst: u64,
    /// By how much a single hit has exceeded what was left: the stub itself may have to wait for a
    /// processor.
    pub(crate) overrun: i64,
    /// What it all cost.
    pub(crate) spent: u64,
    /// What needed probes cost: how long threads were held, and the stub's processor time.
    pub(crate) exempt: u64,
}

impl Budget {
    /// A trace begins.
    pub(crate) fn begin(&mut self, now: u64, cpu: u64) {
        *self = Budget {
            share: self.share,
            usual: self.usual,
            program: std::mem::take(&mut self.program),
            left: self.share.map_or(0, Share::capacity),
            filled: now,
            cpu,
            ..Budget::default()
        };
    }

    /// The kernel told something.
    pub(crate) fn report(&mut self) {
        self.reports += 1;
    }

    /// The client needs the probe at `at`.
    pub(crate) fn need(&mut self, at: u64) {
        self.accounts.entry(at).or_default().needed = true;
    }

    /// A thread was held for so long because of the probe at `at`. Whether that was too much.
    pub(crate) fn hit(&mut self, now: u64, at: u64, held: u64) -> bool {
        let account = self.accounts.entry(at).or_default();
        if now.saturating_sub(account.since.0) > SECOND {
            // Hits come in batches, each noted some time ago: what the program used for them is
            // used already.
            let before = self.program.last;
            self.program.now();
            account.restart(now, before);
        }
        account.hits += 1;
        self.hits.push(at);
        if account.needed {
            self.exempt += held;
            return self.is_over();
        }
        account.recent += 1;
        account.heat += held.min(self.share.map_or(u64::MAX, Share::one_hit));
        if account.paused.is_none() {
            self.others.hits += 1;
            self.others.cost += held;
        }
        self.spend(now, held);
        self.is_over()
    }

    /// The same for an instruction that was executed after a hit, to be noted.
    pub(crate) fn step(&mut self, now: u64, at: u64, held: u64) -> bool {
        let account = self.accounts.entry(at).or_default();
        if account.needed {
            self.exempt += held;
        } else {
            account.heat += held.min(self.share.map_or(u64::MAX, Share::one_hit));
            self.spend(now, held);
        }
        self.is_over()
    }

    /// A thread was held for so long to take out what it and others had noted.
    pub(crate) fn held(&mut self, now: u64, held: u64) {
        self.spend(now, held);
    }

    /// The stub has used so much processor time by now, all in all. What it used for hits is part
    /// of what they cost.
    pub(crate) fn settle(&mut self, now: u64, cpu: u64) {
        let used = cpu.saturating_sub(std::mem::replace(&mut self.cpu, cpu));
        let hits = std::mem::take(&mut self.hits);
        let reports = std::mem::take(&mut self.reports).max(hits.len() as u64);
        if hits.is_empty() {
            self.spend(now, 0);
            return;
        }
        let each = used / reports;
        let mut spent = 0;
        for at in &hits {
            let Some(account) = self.accounts.get_mut(at) else {
                continue;
            };
            if account.needed {
                self.exempt += each;
                continue;
            }
            spent += each;
            account.heat += each;
            if account.paused.is_none() {
                self.others.cost += each;
            }
        }
        self.spend(now, spent);
    }

    fn spend(&mut self, now: u64, cost: u64) {
        let tick = now / TICK;
        for passed in (self.tick + 1..=tick).rev().take(self.ticks.len()) {
            self.ticks[(passed % self.ticks.len() as u64) as usize] = 0;
        }
        self.tick = tick;
        self.ticks[(tick % self.ticks.len() as u64) as usize] += cost;
        self.spent += cost;
        self.worst = self.worst.max(self.ticks.iter().sum());
        let Some(share) = self.share else { return };
        self.left += share.refill(now.saturating_sub(self.filled));
        self.filled = now;
        self.left = self.left.min(share.capacity()) - cost as i64;
        self.overrun = self.overrun.max(-self.left);
    }

    /// Whether a probe is to be paused.
    fn is_over(&self) -> bool {
        self.share.is_some_and(|share| {
            let cause = self.others.hits > FEW && self.others.cost > share.one_hit();
            self.left < 0 && (!self.is_pausing() || cause)
        })
    }

    /// The probe to be paused now, if one is to be: the one that costs most.
    pub(crate) fn pause(&mut self, now: u64) -> Option<u64> {
        if !self.is_over() {
            return None;
        }
        let active = self.accounts.iter();
        let active = active.filter(|(_, a)| a.paused.is_none() && !a.needed);
        // In a few hits it may have been the stub that had to wait.
        let dearest = active.max_by_key(|(_, account)| (account.recent > FEW, account.heat));
        let at = dearest.map(|(at, _)| *at)?;
        let program = self.program.now();
        let account = self.accounts.get_mut(&at)?;
        account.paused = Some(Pause {
            since: now,
            program,
            used: program.saturating_sub(account.since.1),
            hits: account.hits,
        });
        account.missed.pauses += 1;
        self.others = Others::default();
        Some(at)
    }

    /// The probes that may come back now.
    pub(crate) fn resume(&mut self, now: u64) -> Vec<u64> {
        let short = |share: Share| self.left < share.capacity() / 2;
        if !self.is_pausing() || self.share.is_some_and(short) {
            return Vec::new();
        }
        let program = self.program.now();
        let mut back = Vec::new();
        for (at, account) in &mut self.accounts {
            if account.paused.is_some() {
                account.missed = account.missed(now, program);
                account.paused = None;
                back.push(*at);
            }
            account.restart(now, program);
        }
        back
    }

    /// How long until [`resume`](Self::resume) has something to say, if it will have.
    pub(crate) fn wait(&self, now: u64) -> Option<u64> {
        let share = self.share.filter(|_| self.is_pausing())?;
        let due = self.filled + share.time_for(share.capacity() / 2 - self.left);
        Some(due.saturating_sub(now))
    }

    /// Some of the program, or all, is about to end.
    pub(crate) fn ending(&mut self) {
        if self.accounts.values().any(|a| a.paused.is_some()) {
            self.program.now();
        }
    }

    /// Whether the probe at an address is paused.
    pub(crate) fn is_paused(&self, at: u64) -> bool {
        let account = self.accounts.get(&at);
        account.is_some_and(|account| account.paused.is_some())
    }

    /// Whether any probe has been paused.
    pub(crate) fn has_paused(&self) -> bool {
        let mut accounts = self.accounts.values();
        accounts.any(|account| account.missed.pauses > 0)
    }

    fn is_pausing(&self) -> bool {
        let mut accounts = self.accounts.values();
        accounts.any(|account| account.paused.is_some())
    }

    /// What has been missed at `at` by now.
    pub(crate) fn missed(&mut self, now: u64, at: u64) -> Missed {
        let Some(account) = self.accounts.get(&at) else {
            return Missed::default();
        };
        if account.paused.is_none() {
            return account.missed;
        }
        account.missed(now, self.program.now())
    }

    /// No probe is paused any more: the trace is over.
    pub(crate) fn end(&mut self, now: u64) {
        let program = self.program.now();
        for account in self.accounts.values_mut() {
            account.missed = account.missed(now, program);
            account.paused = None;
        }
    }
}

#[cfg(test)]
mod tests;
