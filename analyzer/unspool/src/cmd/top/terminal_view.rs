//! The loop of `unspool top`: draws the screen, and turns keys into selections and requests.
//!
//! It owns the terminal, and restores it on every way out, including a panic and signals.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::watcher::{News, Request, Watcher};
use crate::model::live::Live;
use crate::views::top::{self, Level, Screen};

/// Longest time between a fact or a signal and the screen's reaction.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Time in which an inspection that is under way can detach after `q`.
const DETACH_TIMEOUT: Duration = Duration::from_secs(2);
/// Rows of Page Up and Page Down.
const PAGE_ROWS: isize = 10;

/// The screen and the state of the program.
pub(super) struct TerminalView {
    live: Live,
    screen: Screen,
    interrupts: OwnedFd,
    inspected_at: Instant,
    next_at: Option<Instant>,
}

impl TerminalView {
    /// A view that ends when `interrupts` becomes readable.
    pub(super) fn new(live: Live, screen: Screen, interrupts: OwnedFd) -> TerminalView {
        TerminalView {
            live,
            screen,
            interrupts,
            inspected_at: Instant::now(),
            next_at: None,
        }
    }

    /// Shows the program until the user leaves. Returns whether the program has ended.
    pub(super) fn run(mut self, watcher: Watcher) -> anyhow::Result<bool> {
        let (request, requests) = channel();
        let (sender, news) = channel();
        let watching = std::thread::spawn(move || watcher.run(&requests, &sender));
        // This also sets a hook that restores the terminal before a panic is printed.
        let mut terminal = ratatui::try_init()?;
        let result = self.show(&mut terminal, &request, &news);
        let restored = ratatui::try_restore();
        let _ = request.send(Request::Quit);
        let deadline = Instant::now() + DETACH_TIMEOUT;
        while !watching.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        result?;
        // The terminal may be gone.
        let _ = restored;
        Ok(self.screen.status.ended.is_some())
    }

    fn show(
        &mut self,
        terminal: &mut DefaultTerminal,
        requests: &Sender<Request>,
        news: &Receiver<News>,
    ) -> anyhow::Result<()> {
        let mut is_changed = true;
        loop {
            loop {
                match news.try_recv() {
                    Ok(news) => self.learn(news),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => {
                        anyhow::bail!("the thread that watches the program has failed")
                    }
                }
                is_changed = true;
            }
            if is_changed {
                self.update_status();
                terminal.draw(|frame| top::draw(frame, &self.live, &mut self.screen))?;
                is_changed = false;
            }
            match event::poll(POLL_INTERVAL) {
                Ok(true) => {}
                Ok(false) if self.is_interrupted() => return Ok(()),
                Ok(false) => continue,
                // A signal handler of this process has run.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // The terminal is gone.
                Err(_) => return Ok(()),
            }
            if self.is_interrupted() {
                return Ok(());
            }
            is_changed = true;
            let leaves = match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => self.press(key, requests),
                _ => false,
            };
            if leaves {
                return Ok(());
            }
        }
    }

    fn learn(&mut self, news: News) {
        match news {
            News::Sample(times, names) => {
                let name = |tid| {
                    let mut names = names.iter();
                    let (_, name) = names.find(|(other, _)| *other == tid)?;
                    Some(name.clone())
                };
                self.live.sample(&times, name);
            }
            News::Inspecting => {
                self.next_at = None;
                self.live.inspecting();
            }
            News::Inspected {
                model,
                stopped,
                next,
            } => {
                self.live.inspected(*model);
                self.screen.status.stopped = stopped;
                self.screen.status.problem = None;
                self.inspected_at = Instant::now();
                self.next_at = Some(Instant::now() + next);
            }
            News::Failed(why, next) => {
                self.screen.status.problem = Some(why);
                self.next_at = Some(Instant::now() + next);
            }
            News::Ended(how) => self.screen.status.ended = Some(how),
        }
    }

    fn update_status(&mut self) {
        let status = &mut self.screen.status;
        status.inspected = self.inspected_at.elapsed();
        let now = Instant::now();
        status.next = self.next_at.map(|next| next.saturating_duration_since(now));
    }

    /// True if a signal asks to leave.
    fn is_interrupted(&self) -> bool {
        nix::unistd::read(&self.interrupts, &mut [0]).is_ok_and(|count| count > 0)
    }

    /// Handles a key. Returns true if the user leaves.
    fn press(&mut self, key: KeyEvent, requests: &Sender<Request>) -> bool {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if is_control && key.code == KeyCode::Char('c') {
            return true;
        }
        let screen = &mut self.screen;
        if screen.types_filter {
            match key.code {
                KeyCode::Enter => screen.types_filter = false,
                KeyCode::Esc => {
                    screen.types_filter = false;
                    screen.filter.clear();
                }
                KeyCode::Backspace => {
                    screen.filter.pop();
                }
                KeyCode::Char(c) if !is_control => screen.filter.push(c),
                _ => {}
            }
            return false;
        }
        if screen.shows_help {
            screen.shows_help = false;
            return key.code == KeyCode::Char('q');
        }
        match key.code {
            KeyCode::Char('q') => return true,
            KeyCode::Char('?') | KeyCode::Char('h') | KeyCode::F(1) => screen.shows_help = true,
            KeyCode::Up | KeyCode::Char('k') => screen.move_by(-1),
            KeyCode::Down | KeyCode::Char('j') => screen.move_by(1),
            KeyCode::PageUp => screen.move_by(-PAGE_ROWS),
            KeyCode::PageDown => screen.move_by(PAGE_ROWS),
            KeyCode::Home => screen.move_to_first(),
            KeyCode::End => screen.move_to_last(),
            KeyCode::Enter | KeyCode::Right => screen.enter(&self.live),
            KeyCode::Esc if *screen.level() == Level::Identities => screen.filter.clear(),
            KeyCode::Esc | KeyCode::Backspace | KeyCode::Left => screen.leave(),
            KeyCode::Char('s') => screen.sort_by_next(),
            KeyCode::Char('/') => screen.types_filter = true,
            KeyCode::Char('p') => {
                screen.paused = !screen.paused;
                // The watcher outlives the screen, so it takes every request.
                let _ = requests.send(Request::Pause(screen.paused));
            }
            KeyCode::Char('i') => {
                let _ = requests.send(Request::Inspect);
            }
            _ => {}
        }
        false
    }
}
