//! Limits what tracing costs the program, and chooses the probe to pause when the limit is reached.
//!
//! The stub measures the cost of a hit: the time for which the thread was stopped, and the
//! processor time that the stub used for it. Costs are taken from a bucket. It fills at four fifths
//! of the budget's rate, and holds at most one fifth of a second's budget. So no second costs more
//! than the budget. When the bucket is empty, the probe with the highest recent cost is *paused*:
//! its trap is removed. When the bucket is half full again, the paused probes resume. Hits during a
//! pause are not seen. Their number is estimated from the processor time that the program used
//! during the pause, and from the time that it used per hit before, without the time in collectors.
//!
//! A client may *need* probes, for example those of thread creation, because nothing that comes
//! later replaces their hits. The budget never pauses them. Their cost is counted separately and
//! takes nothing from the bucket.

mod account;
mod share;

use std::collections::BTreeMap;

pub(crate) use account::Missed;
use account::{Account, ProgramTime};
pub(crate) use share::{Limit, Share};

const SECOND: u64 = 1_000_000_000;
/// Resolution at which the cost of a second is known, in nanoseconds.
const TICK: u64 = SECOND / 20;

/// Number of hits up to which a probe is only paused if there is no other. The stub itself may have
/// waited for a processor in one of so few hits.
const FEW_HITS: u64 = 8;

/// A hit whose cost is not counted yet.
pub(crate) struct HitCost {
    /// The address of the tracepoint.
    pub(crate) at: u64,
    /// Nanoseconds for which its thread was stopped to drain other threads' hits.
    pub(crate) draining: u64,
    /// True for a step after a hit.
    pub(crate) is_step: bool,
}

/// Number of hits of some probes, and their cost in nanoseconds.
#[derive(Clone, Copy, Default)]
struct Others {
    hits: u64,
    cost: u64,
}

/// The budget of one trace.
#[derive(Default)]
pub(crate) struct Budget {
    /// `None` if there is no limit.
    pub(crate) share: Option<Share>,
    /// The limit unless a client sets another.
    pub(crate) usual: Option<Share>,
    pub(crate) program: ProgramTime,
    /// The program's processor time at the latest drain of recorded hits.
    drained: u64,
    /// While such hits are counted: the program's processor time after which they came.
    batch_after: Option<u64>,
    left: i64,
    /// Active probes since the last pause. Their cost alone may require another pause.
    others: Others,
    filled: u64,
    /// The stub's processor time when it was last counted.
    cpu: u64,
    /// Number of the kernel's reports since then, and the addresses of those that were hits.
    reports: u64,
    hits: Vec<u64>,
    /// By address.
    accounts: BTreeMap<u64, Account>,
    /// Cost of each recent tick.
    ticks: [u64; (SECOND / TICK) as usize],
    tick: u64,
    /// Cost of the most expensive second.
    pub(crate) worst: u64,
    /// The most by which a single hit exceeded the rest of the bucket. Not avoidable, because the
    /// stub itself may have to wait for a processor.
    pub(crate) overrun: i64,
    /// Total cost.
    pub(crate) spent: u64,
    /// Cost of needed probes: time for which threads were stopped, and the stub's processor time.
    pub(crate) exempt: u64,
}

impl Budget {
    /// Starts a trace.
    pub(crate) fn begin(&mut self, now: u64, cpu: u64) {
        let mut program = std::mem::take(&mut self.program);
        *self = Budget {
            share: self.share,
            usual: self.usual,
            drained: program.now(),
            program,
            left: self.share.map_or(0, Share::capacity),
            filled: now,
            cpu,
            ..Budget::default()
        };
    }

    /// Counts a report from the kernel.
    pub(crate) fn report(&mut self) {
        self.reports += 1;
    }

    /// Marks the probe at `at` as needed by the client.
    pub(crate) fn need(&mut self, at: u64) {
        self.accounts.entry(at).or_default().needed = true;
    }

    /// Counts a hit at `at` that stopped its thread for `held` nanoseconds. True if a probe must be
    /// paused.
    #[inline]
    pub(crate) fn hit(&mut self, now: u64, at: u64, held: u64) -> bool {
        let account = self.accounts.entry(at).or_default();
        if now.saturating_sub(account.since.0) > SECOND {
            let since = self.batch_after.unwrap_or_else(|| self.program.now());
            account.restart(now, since);
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

    /// Begins to count a batch of hits, all of which came after the previous batch.
    pub(crate) fn begin_batch(&mut self) {
        let drained = self.program.now();
        self.batch_after = Some(std::mem::replace(&mut self.drained, drained));
    }

    /// Ends the batch.
    pub(crate) fn end_batch(&mut self) {
        self.batch_after = None;
    }

    /// Counts a recorded step after a hit, likewise.
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

    /// Counts time for which a thread was stopped to drain hits.
    pub(crate) fn held(&mut self, now: u64, held: u64) {
        self.spend(now, held);
    }

    /// Adds the stub's processor time for hits to their cost. `cpu` is its total processor time so
    /// far.
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

    /// Excludes processor time that the stub has used for something else than hits.
    pub(crate) fn exclude(&mut self, used: u64) {
        self.cpu += used;
    }

    #[inline]
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

    /// True if a probe must be paused.
    fn is_over(&self) -> bool {
        self.share.is_some_and(|share| {
            let cause = self.others.hits > FEW_HITS && self.others.cost > share.one_hit();
            self.left < 0 && (!self.is_pausing() || cause)
        })
    }

    /// Pauses the probe that costs most, if one must be paused, and returns its address.
    pub(crate) fn pause(&mut self, now: u64) -> Option<u64> {
        if !self.is_over() {
            return None;
        }
        let active = self.accounts.iter();
        let active = active.filter(|(_, a)| a.paused.is_none() && !a.needed);
        // In a few hits, the cost may be the stub's own wait for a processor.
        let dearest = active.max_by_key(|(_, account)| (account.recent > FEW_HITS, account.heat));
        let at = dearest.map(|(at, _)| *at)?;
        let program = self.program.now();
        let account = self.accounts.get_mut(&at)?;
        account.pause(now, program);
        self.others = Others::default();
        Some(at)
    }

    /// Resumes the paused probes if the bucket is half full again. Returns their addresses.
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

    /// Nanoseconds until [`resume`](Self::resume) can resume probes. `None` if there is nothing to
    /// wait for.
    pub(crate) fn wait(&self, now: u64) -> Option<u64> {
        let share = self.share.filter(|_| self.is_pausing())?;
        let due = self.filled + share.time_for(share.capacity() / 2 - self.left);
        Some(due.saturating_sub(now))
    }

    /// Reads the program's time before some or all of its processes end.
    pub(crate) fn ending(&mut self) {
        if self.accounts.values().any(|a| a.paused.is_some()) {
            self.program.now();
        }
    }

    /// Forgets an address without a probe.
    pub(crate) fn forget(&mut self, at: u64) {
        self.accounts.remove(&at);
    }

    /// True if the probe at an address is paused.
    pub(crate) fn is_paused(&self, at: u64) -> bool {
        let account = self.accounts.get(&at);
        account.is_some_and(|account| account.paused.is_some())
    }

    /// True if any probe has ever been paused.
    pub(crate) fn has_paused(&self) -> bool {
        let mut accounts = self.accounts.values();
        accounts.any(|account| account.missed.pauses > 0)
    }

    fn is_pausing(&self) -> bool {
        let mut accounts = self.accounts.values();
        accounts.any(|account| account.paused.is_some())
    }

    /// The pauses and missed hits at `at` so far.
    pub(crate) fn missed(&mut self, now: u64, at: u64) -> Missed {
        let Some(account) = self.accounts.get(&at) else {
            return Missed::default();
        };
        if account.paused.is_none() {
            return account.missed;
        }
        account.missed(now, self.program.now())
    }

    /// Ends all pauses, because the trace is over.
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
