//! Writes the transcript of a running session.

use std::io::{self, Write};
use std::time::Instant;

use crate::transcript::{HEADER, line};

/// Writes one line for each packet. If the sink fails, writing stops and the error is stored, but
/// the session continues.
pub(crate) struct Writer {
    sink: Box<dyn Write + Send>,
    start: Instant,
    failure: Option<io::Error>,
}

impl Writer {
    pub(crate) fn new(sink: Box<dyn Write + Send>) -> Writer {
        let mut writer = Writer {
            sink,
            start: Instant::now(),
            failure: None,
        };
        writer.line(&format!("{HEADER}\n"));
        writer
    }

    pub(crate) fn sent(&mut self, payload: &[u8]) {
        self.event("->", &line::encode(payload));
    }

    pub(crate) fn received(&mut self, payload: &[u8]) {
        self.event("<-", &line::encode(payload));
    }

    pub(crate) fn notified(&mut self, payload: &[u8]) {
        self.event("<~", &line::encode(payload));
    }

    pub(crate) fn interrupted(&mut self) {
        self.event("interrupt", "");
    }

    pub(crate) fn closed(&mut self) {
        self.event("closed", "");
    }

    /// Writes a comment that helps the reader.
    pub(crate) fn note(&mut self, text: &str) {
        self.event("#", &text.escape_debug().to_string());
    }

    pub(crate) fn flush(&mut self) {
        let result = self.sink.flush();
        self.failure = self.failure.take().or(result.err());
    }

    pub(crate) fn failure(&self) -> Option<&io::Error> {
        self.failure.as_ref()
    }

    fn event(&mut self, verb: &str, text: &str) {
        let seconds = self.start.elapsed().as_secs_f64();
        let space = if text.is_empty() { "" } else { " " };
        // A comment starts with its `#`, so that every parser recognizes it.
        match verb {
            "#" => self.line(&format!("# {seconds:.6} {text}\n")),
            verb => self.line(&format!("{seconds:12.6} {verb}{space}{text}\n")),
        }
    }

    /// One write for each line, so that an unbuffered file is complete up to the last packet.
    fn line(&mut self, line: &str) {
        if self.failure.is_none() {
            self.failure = self.sink.write_all(line.as_bytes()).err();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.flush();
    }
}
