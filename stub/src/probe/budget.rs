//! What tracing may cost the program, and which probe is paused when it costs more.
//!
//! A hit costs what the stub can measure: the time for which the thread was held, and the processor time that the stub used
//! for it. What is spent is taken from a bucket that fills with four fifths of the budget and holds the
//! remaining fifth of one second: no second can then cost more than the budget. When the bucket is empty, the
//! probe that has cost most of late is *paused*: its trap comes out. When it is half full again, the paused
//! probes come back. Hits during a pause are not seen; how many they were is told from how much processor time the
//! program used in the pause, and how much it used from hit to hit before.
//!
//! A client may say of probes that it *needs* them: what is hit rarely, and cannot be guessed from what comes later. The lower half of the
//! bucket is for these alone, they are paused only for what they cost themselves, and come back first.

use std::collections::BTreeMap;

use crate::sys::{Tid, processor_ns_of};

const SECOND: u64 = 1_000_000_000;
/// How finely the cost of any second is known.
const TICK: u64 = SECOND / 20;

/// So few hits are no reason to pause a probe beside others, however long the stub itself had to wait in one.
const FEW: u64 = 8;

/// A part of one processor, in millionths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Share(u32);

impl Share {
    /// What is asked of nobody who did not ask for something else.
    pub(crate) const USUAL: Share = Share(50_000);

    /// Reads `5%` or `0.5%`: more than nothing, and at most one processor.
    pub(crate) fn parse(text: &str) -> Option<Share> {
        // Floating-point numbers would cost the stub 20 KB.
        let (whole, part) = match text.strip_suffix('%')?.split_once('.') {
            Some((whole, part)) => (whole, format!("{part:0<4}")),
            None => (text.strip_suffix('%')?, "0000".to_owned()),
        };
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if part.len() > 4 || !digits(&part) || !digits(whole) {
            return None;
        }
        let whole: u32 = whole.parse().ok()?;
        let millionths = whole.checked_mul(10_000)? + part.parse::<u32>().ok()?;
        (1..=1_000_000)
            .contains(&millionths)
            .then_some(Share(millionths))
    }

    /// In hundredths of a percent.
    pub(crate) fn basis_points(self) -> u32 {
        self.0 / 100
    }

    fn per_second(self) -> i64 {
        i64::from(self.0) * 1000
    }

    fn capacity(self) -> i64 {
        self.per_second() / 5
    }

    /// What a single hit counts at most when the dearest probe is looked for: in a dearer one the stub had to wait.
    fn one_hit(self) -> u64 {
        self.capacity() as u64 / 8
    }

    /// What flows in, in so many nanoseconds.
    fn refill(self, elapsed: u64) -> i64 {
        let elapsed = elapsed.min(10 * SECOND) as i64;
        elapsed / 1000 * i64::from(self.0) / 1000 * 4 / 5
    }

    /// How long until that much has flowed in.
    fn time_for(self, amount: i64) -> u64 {
        (amount.max(0) as u64) * 1_000_000 / u64::from(self.0) * 5 / 4
    }
}

/// How often a place is hit is known from so much of the program's processor time.
const LEAST_USED: u64 = 1_000_000;

/// What has been missed at one place.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Missed {
    pub(crate) pauses: u64,
    pub(crate) paused_ns: u64,
    /// About so many hits.
    pub(crate) hits: u64,
}

/// One probe's hits since it was last planted, and its pauses.
#[derive(Default)]
struct Account {
    /// Since when hits are counted, by the clock and by the program's processor time.
    since: (u64, u64),
    hits: u64,
    /// The same, and half of what it was before, and so on.
    recent: u64,
    /// What these have cost.
    heat: u64,
    needed: bool,
    paused: Option<Pause>,
    missed: Missed,
}

/// A probe's trap is out.
#[derive(Clone, Copy)]
struct Pause {
    since: u64,
    /// The program's processor time then.
    program: u64,
    /// So much of it was used by so many hits before.
    used: u64,
    hits: u64,
}

impl Account {
    fn restart(&mut self, now: u64, program: u64) {
        (self.since, self.hits) = ((now, program), 0);
        self.recent /= 2;
        self.heat /= 2;
    }

    fn need(&self) -> Need {
        match self.needed {
            true => Need::Needed,
            false => Need::Usual,
        }
    }

    fn missed(&self, now: u64, program: u64) -> Missed {
        let mut missed = self.missed;
        if let Some(pause) = self.paused {
            missed.paused_ns += now.saturating_sub(pause.since);
            let used = u128::from(program.saturating_sub(pause.program));
            // Hits that were taken all at once tell no rate.
            if pause.used >= LEAST_USED {
                let hits = used * u128::from(pause.hits) / u128::from(pause.used);
                missed.hits += hits as u64;
            }
        }
        missed
    }
}

/// The processor time that the program has used.
#[derive(Default)]
pub(crate) struct ProgramTime {
    /// Which program; `None`: there is no telling.
    pub(crate) of: Option<Tid>,
    /// As it was last; a program that has ended cannot be asked.
    last: u64,
}

impl ProgramTime {
    fn now(&mut self) -> u64 {
        let now = self.of.and_then(processor_ns_of);
        self.last = self.last.max(now.unwrap_or(0));
        self.last
    }
}

/// Whether the client needs a probe.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    /// It can do without for a while.
    Usual,
    /// Not if that can be helped.
    Needed,
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
    pub(crate) program: ProgramTime,
    left: i64,
    /// Of those that go on, by [`Need`], since one was paused: another is, when that is a cause of its own.
    others: [Others; 2],
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
    /// By how much a single hit has exceeded what was left: the stub itself may have to wait for a processor.
    pub(crate) overrun: i64,
    /// What it all cost.
    pub(crate) spent: u64,
}

impl Budget {
    /// A trace begins.
    pub(crate) fn begin(&mut self, now: u64, cpu: u64) {
        *self = Budget {
            share: self.share,
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
            // Hits come in batches, each noted some time ago: what the program used for them is used already.
            let before = self.program.last;
            self.program.now();
            account.restart(now, before);
        }
        account.hits += 1;
        account.recent += 1;
        account.heat += held.min(self.share.map_or(u64::MAX, Share::one_hit));
        if account.paused.is_none() {
            let others = &mut self.others[account.need() as usize];
            others.hits += 1;
            others.cost += held;
        }
        self.hits.push(at);
        self.spend(now, held);
        self.is_over(Need::Usual) || self.is_over(Need::Needed)
    }

    /// The same for an instruction that was executed after a hit, to be noted.
    pub(crate) fn step(&mut self, now: u64, at: u64, held: u64) -> bool {
        let account = self.accounts.entry(at).or_default();
        account.heat += held.min(self.share.map_or(u64::MAX, Share::one_hit));
        self.spend(now, held);
        self.is_over(Need::Usual) || self.is_over(Need::Needed)
    }

    /// A thread was held for so long to take out what it and others had noted.
    pub(crate) fn held(&mut self, now: u64, held: u64) {
        self.spend(now, held);
    }

    /// The stub has used so much processor time by now, all in all. What it used for hits is part of what they cost.
    pub(crate) fn settle(&mut self, now: u64, cpu: u64) {
        let used = cpu.saturating_sub(std::mem::replace(&mut self.cpu, cpu));
        let hits = std::mem::take(&mut self.hits);
        let reports = std::mem::take(&mut self.reports).max(hits.len() as u64);
        if hits.is_empty() {
            self.spend(now, 0);
            return;
        }
        let each = used / reports;
        for at in &hits {
            let Some(account) = self.accounts.get_mut(at) else {
                continue;
            };
            account.heat += each;
            if account.paused.is_none() {
                self.others[account.need() as usize].cost += each;
            }
        }
        self.spend(now, each * hits.len() as u64);
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

    /// Whether one of these probes is to be paused.
    fn is_over(&self, need: Need) -> bool {
        let others = self.others[need as usize];
        self.share.is_some_and(|share| {
            let cause = others.hits > FEW && others.cost > share.one_hit();
            let first = need == Need::Usual && !self.is_pausing(need);
            self.left < self.reserved(share, need) && (first || cause)
        })
    }

    /// What these must leave to others.
    fn reserved(&self, share: Share, need: Need) -> i64 {
        let needed = || self.accounts.values().any(|account| account.needed);
        match need {
            Need::Usual if needed() => share.capacity() / 2,
            _ => 0,
        }
    }

    /// What must be there for these to come back.
    fn enough(&self, share: Share, need: Need) -> i64 {
        match need {
            Need::Usual => i64::midpoint(self.reserved(share, need), share.capacity()),
            Need::Needed => share.capacity() / 4,
        }
    }

    /// The probe to be paused now, if one is to be: the one that costs most of those that are needed least.
    pub(crate) fn pause(&mut self, now: u64) -> Option<u64> {
        let over = [Need::Usual, Need::Needed];
        let mut over = over.into_iter().filter(|need| self.is_over(*need));
        let at = over.find_map(|need| {
            let active = self.accounts.iter();
            let active = active.filter(|(_, a)| a.paused.is_none() && a.need() == need);
            // In a few hits it may have been the stub that had to wait.
            let dearest = active.max_by_key(|(_, account)| (account.recent > FEW, account.heat));
            dearest.map(|(at, _)| *at)
        })?;
        let program = self.program.now();
        let account = self.accounts.get_mut(&at)?;
        account.paused = Some(Pause {
            since: now,
            program,
            used: program.saturating_sub(account.since.1),
            hits: account.hits,
        });
        account.missed.pauses += 1;
        self.others = Default::default();
        Some(at)
    }

    /// The probes that may come back now.
    pub(crate) fn resume(&mut self, now: u64) -> Vec<u64> {
        let Some(share) = self.share else {
            return Vec::new();
        };
        let needs: Vec<Need> = [Need::Usual, Need::Needed]
            .into_iter()
            .filter(|need| self.is_pausing(*need) && self.left >= self.enough(share, *need))
            .collect();
        if needs.is_empty() {
            return Vec::new();
        }
        let program = self.program.now();
        let mut back = Vec::new();
        for (at, account) in &mut self.accounts {
            if account.paused.is_some() {
                if !needs.contains(&account.need()) {
                    continue;
                }
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
        let share = self.share?;
        let needs = [Need::Usual, Need::Needed].into_iter();
        let paused = needs.filter(|need| self.is_pausing(*need));
        let enough = paused.map(|need| self.enough(share, need)).min()?;
        let due = self.filled + share.time_for(enough - self.left);
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

    fn is_pausing(&self, need: Need) -> bool {
        let mut accounts = self.accounts.values();
        accounts.any(|account| account.paused.is_some() && account.need() == need)
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
mod tests {
    use super::*;

    const US: u64 = 1000;
    const HOT: u64 = 0x1000;
    const COLD: u64 = 0x2000;

    fn budget(share: Option<Share>) -> Budget {
        let mut budget = Budget {
            share,
            ..Budget::default()
        };
        budget.begin(SECOND, 0);
        budget
    }

    #[test]
    fn shares() {
        assert_eq!(Share::parse("5%"), Some(Share::USUAL));
        assert_eq!(Share::parse("0.5%"), Some(Share(5000)));
        assert_eq!(Share::parse("100%"), Some(Share(1_000_000)));
        for nonsense in [
            "5", "0%", "-1%", "101%", "x%", "nan%", "", "+5%", "1.%x", "9999999%",
        ] {
            assert_eq!(Share::parse(nonsense), None, "{nonsense}");
        }
    }

    /// A place that the program comes by.
    struct Place {
        at: u64,
        /// Once in so long.
        every: u64,
        held: u64,
        cpu: u64,
        needed: bool,
    }

    /// What comes rarely is not made to pay for what comes often.
    const EQUALLY_DEAR: [Place; 2] = [
        Place {
            at: HOT,
            every: 10 * US,
            held: 5 * US,
            cpu: 8 * US,
            needed: false,
        },
        Place {
            at: COLD,
            every: SECOND / 10,
            held: 5 * US,
            cpu: 8 * US,
            needed: false,
        },
    ];

    /// How often the program came by a place in ten seconds, and how often that was seen.
    #[derive(Clone, Copy, Default, Debug)]
    struct Came {
        by: u64,
        seen: u64,
    }

    fn simulate<const N: usize>(budget: &mut Budget, places: &[Place; N]) -> [Came; N] {
        let (mut now, mut cpu, mut paused) = (SECOND, 0, Vec::new());
        let mut came = [Came::default(); N];
        while now < 11 * SECOND {
            now += 10 * US;
            budget.program.last += 10 * US;
            if budget.wait(now) == Some(0) {
                budget.settle(now, cpu);
                for at in budget.resume(now) {
                    paused.retain(|other| *other != at);
                }
            }
            for (place, came) in places.iter().zip(&mut came) {
                // By the program's own time: it does not come by when it is held.
                if came.by * place.every > budget.program.last {
                    continue;
                }
                came.by += 1;
                if paused.contains(&place.at) {
                    continue;
                }
                came.seen += 1;
                (now, cpu) = (now + place.held + place.cpu, cpu + place.cpu);
                budget.report();
                if place.needed {
                    budget.need(place.at);
                }
                budget.hit(now, place.at, place.held);
                budget.settle(now, cpu);
                while let Some(at) = budget.pause(now) {
                    paused.push(at);
                }
            }
        }
        budget.end(now);
        came
    }

    #[test]
    fn no_second_costs_more_and_the_hottest_pays() {
        let mut budget = budget(Some(Share::USUAL));
        let [hot, cold] = simulate(&mut budget, &EQUALLY_DEAR);
        assert!(budget.worst <= SECOND / 20, "{}", budget.worst);
        assert!(budget.spent > SECOND / 20 * 10 / 2, "{}", budget.spent);
        // 95 % of its speed.
        assert!(hot.by > 950_000, "{hot:?}");
        assert_eq!(cold.seen, cold.by);
        assert_eq!(budget.missed(11 * SECOND, COLD), Missed::default());
        let missed = budget.missed(11 * SECOND, HOT);
        assert!(
            missed.pauses > 10 && missed.paused_ns > 9 * SECOND,
            "{missed:?}"
        );
        let told = hot.seen + missed.hits;
        assert!(told.abs_diff(hot.by) < hot.by / 10, "{told} of {hot:?}");
    }

    /// A batch of hits that is taken at once, in which time the program has not run, says nothing of how many will come.
    #[test]
    fn a_batch_tells_no_rate() {
        let mut budget = budget(Some(Share::USUAL));
        budget.report();
        for _ in 0..100 {
            budget.hit(SECOND + US, HOT, SECOND / 10);
        }
        budget.settle(SECOND + US, 0);
        assert_eq!(budget.pause(SECOND + US), Some(HOT));
        budget.program.last += 60 * SECOND;
        let missed = budget.missed(61 * SECOND, HOT);
        assert_eq!((missed.pauses, missed.hits), (1, 0));
    }

    /// Few dear hits cost more than many cheap ones, and it is the cost that is to be lowered.
    #[test]
    fn the_dearest_pays_and_not_what_is_hit_most() {
        let mut budget = budget(Some(Share::USUAL));
        let cheap = Place {
            at: HOT,
            every: 50 * US,
            held: US / 2,
            cpu: US / 2,
            needed: false,
        };
        let dear = Place {
            at: COLD,
            every: 2000 * US,
            held: 300 * US,
            cpu: 20 * US,
            needed: false,
        };
        let [cheap, dear] = simulate(&mut budget, &[cheap, dear]);
        assert!(budget.worst <= SECOND / 20, "{}", budget.worst);
        assert_eq!(cheap.seen, cheap.by);
        assert!(dear.seen < dear.by / 2, "{dear:?}");
    }

    /// What is needed goes on while there is anything else that could be paused, however dear it is.
    #[test]
    fn what_is_needed_is_paused_last() {
        let needed = |every| Place {
            at: COLD,
            every,
            held: 200 * US,
            cpu: 100 * US,
            needed: true,
        };
        let hot = || {
            let [hot, _] = EQUALLY_DEAR;
            hot
        };
        let mut busy = budget(Some(Share::USUAL));
        let [hot_came, rare] = simulate(&mut busy, &[hot(), needed(SECOND / 100)]);
        assert!(busy.worst <= SECOND / 20, "{}", busy.worst);
        assert_eq!(rare.seen, rare.by);
        assert!(hot_came.seen > 0 && busy.missed(11 * SECOND, HOT).pauses > 0);
        // Nor more than the budget for its sake.
        let mut flooded = budget(Some(Share::USUAL));
        let [hot_came, often] = simulate(&mut flooded, &[hot(), needed(SECOND / 1000)]);
        assert!(flooded.worst <= SECOND / 20, "{}", flooded.worst);
        assert!(often.seen < often.by, "{often:?}");
        assert!(hot_came.seen < hot_came.by / 100, "{hot_came:?}");
    }

    #[test]
    fn without_a_limit_nothing_is_paused() {
        let mut budget = budget(None);
        let [hot, _] = simulate(&mut budget, &EQUALLY_DEAR);
        assert_eq!(hot.seen, hot.by);
        assert_eq!(budget.missed(11 * SECOND, HOT), Missed::default());
        assert!(budget.worst > SECOND / 3);
    }

    #[test]
    fn a_single_dear_hit_is_a_debt() {
        let mut budget = budget(Some(Share::USUAL));
        let late = 2 * SECOND;
        assert!(budget.hit(late, HOT, SECOND / 2));
        assert_eq!(budget.pause(late), Some(HOT));
        assert_eq!(budget.pause(late), None);
        let wait = budget.wait(late).expect("a pause that ends");
        assert!(wait > 12 * SECOND && wait < 13 * SECOND, "{wait}");
    }

    /// Hits that threads have noted come all at once, when what the program used for them is used already.
    #[test]
    fn a_batch_of_hits_says_nothing_of_how_fast_they_came() {
        let mut budget = budget(Some(Share::USUAL));
        budget.program.of = Some(Tid(std::process::id().cast_signed()));
        let work = |budget: &mut Budget| {
            let until = budget.program.now() + SECOND / 100;
            while budget.program.now() < until {}
        };
        work(&mut Budget {
            program: ProgramTime {
                of: budget.program.of,
                last: 0,
            },
            ..Budget::default()
        });
        let now = 2 * SECOND;
        for _ in 0..100 {
            budget.hit(now, HOT, SECOND / 100);
        }
        assert_eq!(budget.pause(now), Some(HOT));
        work(&mut budget);
        let missed = budget.missed(now, HOT).hits;
        assert!(missed < 10_000, "{missed} in the time of a hundred");
    }
}
