//! The thread of `unspool top` that samples and inspects the program.
//!
//! An inspection can take long, for example if another debugger traces the program, and the screen
//! must answer keys meanwhile. Between two inspections of a local program nothing is attached to
//! it, so neither the end of `unspool` nor its crash can harm it.

use std::collections::HashSet;
use std::process::Child;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::os::unix::process::ExitStatusExt;
use unspool_capture::{Capture, CpuTimes};
use unspool_rsp::signals;

use super::super::end_analysis::model_of;
use crate::collect::{self, Ended, Inspection, LocalProcess, Options, Sampled};
use crate::model::{Model, Symbolizer};
use crate::store::Store;

/// Interval of the samples, unless they cost too much.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(500);
/// Minimum time between two inspections.
const INSPECTION_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum ratio of an interval to the time for which its inspection stops the program, and to the
/// processor time that the inspection or the sample costs.
const COST_FACTOR: u32 = 66;

/// Maximum time until the waiting threads are back in their waits after an inspection.
const MAX_RESUME: Duration = Duration::from_millis(200);
/// That time for a program whose threads' states cannot be read.
const RESUME: Duration = Duration::from_millis(20);

/// A request of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    /// Inspect the program at once.
    Inspect,
    /// Stop or go on sampling and inspecting.
    Pause(bool),
    /// Detach and end.
    Quit,
}

/// A fact for the screen.
#[derive(Debug)]
pub(super) enum News {
    /// Processor times, and the names of threads that were not in the sample before.
    Sample(CpuTimes, Vec<(u64, String)>),
    /// The next inspection begins.
    Inspecting,
    /// The result of an inspection, and the times of its stop and of the next one.
    Inspected {
        model: Box<Model>,
        stopped: Duration,
        next: Duration,
    },
    /// An inspection or a sample failed; the next inspection comes after this time.
    Failed(String, Duration),
    /// The program has ended, or the connection to its server.
    Ended(String),
}

/// The program that is watched, and the way to it.
pub(super) struct Watcher {
    options: Box<dyn Fn() -> anyhow::Result<Options> + Send>,
    store: Store,
    symbolizer: Arc<dyn Fn(Store) -> Symbolizer + Send + Sync>,
    /// The thread that downloads files.
    download: Option<JoinHandle<()>>,
    local: Option<LocalProcess>,
    /// The program, if `unspool` started it.
    child: Option<Child>,
    /// The connection to a server, which stays open.
    connected: Option<Inspection>,
    /// The server has sent processor times.
    has_times: bool,
}

impl Watcher {
    /// Inspects the program for the first time. Returns the watcher and the first model.
    pub(super) fn begin(
        options: Box<dyn Fn() -> anyhow::Result<Options> + Send>,
        store: Store,
        symbolizer: Arc<dyn Fn(Store) -> Symbolizer + Send + Sync>,
        pid: Option<u32>,
        child: Option<Child>,
    ) -> anyhow::Result<(Watcher, Model, Duration)> {
        let mut watcher = Watcher {
            options,
            store,
            symbolizer,
            download: None,
            local: pid.map(LocalProcess::new),
            child,
            connected: None,
            has_times: false,
        };
        let (model, stopped) = watcher.inspect()?;
        Ok((watcher, model, stopped))
    }

    /// Samples and inspects until the screen is gone.
    pub(super) fn run(mut self, requests: &Receiver<Request>, news: &Sender<News>) {
        let _ = self.watch(requests, news);
        if let Some(connected) = &mut self.connected {
            let _ = connected.finish();
        }
    }

    /// Returns an error if the screen is gone.
    fn watch(
        &mut self,
        requests: &Receiver<Request>,
        news: &Sender<News>,
    ) -> Result<(), std::sync::mpsc::SendError<News>> {
        let mut sample_at = Instant::now();
        // The first inspection read the program's files, which costs more than the next ones.
        let mut inspect_at = Instant::now() + INSPECTION_INTERVAL;
        let mut known: HashSet<u64> = HashSet::new();
        let mut is_paused = false;
        loop {
            let due = sample_at.min(inspect_at);
            let pause = match is_paused {
                true => Duration::from_secs(3600),
                false => due.saturating_duration_since(Instant::now()),
            };
            match requests.recv_timeout(pause) {
                Ok(Request::Inspect) => inspect_at = Instant::now(),
                Ok(Request::Pause(paused)) => is_paused = paused,
                Ok(Request::Quit) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let begun = Instant::now();
            let is_inspected = begun >= inspect_at;
            if is_paused || begun < sample_at && !is_inspected {
                continue;
            }
            let cost = cpu_time();
            match self.sample() {
                Ok(Some(Sampled::Running(times))) => news.send(self.named(times, &mut known))?,
                Ok(Some(Sampled::Ended(how))) => return self.end(how, requests, news),
                Ok(None) if self.has_times => return self.end(None, requests, news),
                Ok(None) => {}
                Err(error) => {
                    let text = format!("The connection to the server is lost: {error}");
                    news.send(News::Ended(text))?;
                    return wait_for_quit(requests);
                }
            }
            let cost = cpu_time().saturating_sub(cost).max(match self.local {
                Some(_) => Duration::ZERO,
                // A remote target pays for the server's work.
                None => begun.elapsed() / 4,
            });
            sample_at = begun + SAMPLE_INTERVAL.max(cost * COST_FACTOR);
            if is_inspected {
                news.send(News::Inspecting)?;
                let cost = cpu_time();
                let result = self.inspect();
                let waiting = result.as_ref().map_or(Vec::new(), |(model, _)| {
                    let waits = model.traced_waits().into_iter();
                    waits.map(|(tid, _)| tid).collect()
                });
                let cost = cpu_time().saturating_sub(cost);
                let stopped = result
                    .as_ref()
                    .map_or(Duration::ZERO, |(_, stopped)| *stopped);
                let next = INSPECTION_INTERVAL.max(cost.max(stopped) * COST_FACTOR);
                inspect_at = Instant::now() + next;
                news.send(match result {
                    Ok((model, stopped)) => News::Inspected {
                        model: Box::new(model),
                        stopped,
                        next,
                    },
                    Err(error) => News::Failed(error.to_string(), next),
                })?;
                // What the threads run until now is the cost of the stop. From now on, a thread
                // that runs has left its wait.
                self.await_resume(&waiting);
                if let Ok(Some(Sampled::Running(times))) = self.sample() {
                    news.send(self.named(times, &mut known))?;
                }
            }
        }
    }

    /// A sample, with the names of the threads that are not `known` yet.
    fn named(&mut self, times: CpuTimes, known: &mut HashSet<u64>) -> News {
        self.has_times = true;
        let tids: HashSet<u64> = times.threads.iter().map(|thread| thread.tid).collect();
        let new = tids.difference(known);
        let local = self.local.as_ref();
        let name = |tid: &u64| Some((*tid, local?.thread_name(*tid)?));
        let names = new.filter_map(name).collect();
        *known = tids;
        News::Sample(times, names)
    }

    /// Waits until threads that an inspection has stopped are back in their waits.
    fn await_resume(&self, waiting: &[u64]) {
        let Some(local) = &self.local else {
            std::thread::sleep(RESUME);
            return;
        };
        let until = Instant::now() + MAX_RESUME;
        for tid in waiting {
            local.asleep(*tid, until);
        }
    }

    /// Tells the screen how the program has ended, and waits for the user.
    fn end(
        &mut self,
        how: Option<Ended>,
        requests: &Receiver<Request>,
        news: &Sender<News>,
    ) -> Result<(), std::sync::mpsc::SendError<News>> {
        let status = self.child.as_mut().and_then(|child| child.wait().ok());
        let how = match status {
            Some(status) => match (status.code(), status.signal()) {
                (Some(code), _) => Some(Ended::Exited(code)),
                (None, Some(signal)) => Some(Ended::Terminated(signal as u8)),
                (None, None) => how,
            },
            None => how,
        };
        let text = match how {
            Some(Ended::Exited(code)) => format!("The program has ended with exit code {code}."),
            Some(Ended::Terminated(signal)) => {
                format!("The program was killed by {}.", signals::linux_name(signal))
            }
            _ => "The program has ended. Its exit code is not known, because Unspool did not \
                  start it."
                .to_owned(),
        };
        news.send(News::Ended(text))?;
        wait_for_quit(requests)
    }

    fn sample(&mut self) -> Result<Option<Sampled>, collect::Error> {
        if let Some(local) = &self.local {
            return Ok(Some(local.sample()));
        }
        match &mut self.connected {
            Some(connected) => connected.sample(),
            None => Ok(None),
        }
    }

    /// Downloads the files that a model needs, for later models.
    fn download(&self, capture: Capture) -> Option<JoinHandle<()>> {
        let (symbolizer, store) = (self.symbolizer.clone(), self.store.clone());
        let download = move || {
            Model::build(&capture, &mut symbolizer(store));
        };
        // If there is no thread, the files stay missing.
        Builder::new()
            .name("download".to_owned())
            .spawn(download)
            .ok()
    }

    /// Inspects the program once. Returns the model, and how long the program was stopped at most.
    fn inspect(&mut self) -> anyhow::Result<(Model, Duration)> {
        let mut inspection = match self.connected.take() {
            Some(mut connected) => match connected.again() {
                Ok(()) => connected,
                Err(error) => {
                    self.connected = Some(connected);
                    return Err(error.into());
                }
            },
            None => Inspection::begin((self.options)()?)?,
        };
        let mut symbolizer = (self.symbolizer)(self.store.at_hand());
        let model = model_of(&mut inspection, &mut symbolizer);
        let is_idle = self.download.as_ref().is_none_or(JoinHandle::is_finished);
        if is_idle && self.store.take_unasked() {
            self.download = self.download(inspection.capture());
        }
        let stopped = inspection.stopped();
        if self.local.is_some() {
            inspection.finish()?;
        } else if inspection.is_observer() {
            inspection.let_run()?;
            self.connected = Some(inspection);
        } else {
            inspection.finish()?;
            anyhow::bail!(
                "this server answers no questions while the program runs, so top cannot follow it; \
                 start the program under unspool-stub, or use `unspool inspect --connect`"
            );
        }
        Ok((model, stopped))
    }
}

fn wait_for_quit(requests: &Receiver<Request>) -> Result<(), std::sync::mpsc::SendError<News>> {
    while !matches!(requests.recv(), Ok(Request::Quit) | Err(_)) {}
    Ok(())
}

/// Processor time of this process and of the stubs that it has waited for.
fn cpu_time() -> Duration {
    let of = |who| {
        getrusage(who).map_or(0, |usage| {
            usage.user_time().num_microseconds() + usage.system_time().num_microseconds()
        })
    };
    let all = of(UsageWho::RUSAGE_SELF) + of(UsageWho::RUSAGE_CHILDREN);
    Duration::from_micros(u64::try_from(all).unwrap_or(0))
}
