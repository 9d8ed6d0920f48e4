//! Notes on missing data, as sentences for a person.
//!
//! Separate, because every part of the model writes notes, and all views show them.

use std::collections::HashSet;

/// The importance of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The wanted data is missing, or most of it. Every view shows it before everything else.
    Error,
    /// Something is missing or doubtful.
    Warning,
    /// Useful information.
    Info,
}

/// The subject of a note within a recording. A text view shows the notes about its own content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Topic {
    /// The recording as a whole.
    Recording,
    /// The creators and the ends of threads.
    Threads,
    /// Frames of stacks.
    Stacks,
    /// Recorded calls.
    Calls,
    /// Durations of waits and holds.
    Times,
    /// CPU samples.
    Samples,
}

/// A statement about what is missing, doubtful or worth knowing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Note {
    /// How much it matters.
    pub severity: Severity,
    /// The subject.
    pub topic: Topic,
    /// The missing data, its amount, and a remedy: one or two lines.
    pub text: String,
    /// More sentences, or none.
    pub details: String,
}

impl Note {
    fn new(severity: Severity, text: impl Into<String>) -> Note {
        Note {
            severity,
            topic: Topic::Recording,
            text: text.into(),
            details: String::new(),
        }
    }

    pub(crate) fn error(text: impl Into<String>) -> Note {
        Note::new(Severity::Error, text)
    }

    pub(crate) fn warning(text: impl Into<String>) -> Note {
        Note::new(Severity::Warning, text)
    }

    pub(crate) fn info(text: impl Into<String>) -> Note {
        Note::new(Severity::Info, text)
    }

    /// Sets the topic.
    pub(crate) fn about(self, topic: Topic) -> Note {
        Note { topic, ..self }
    }

    /// Adds sentences that only the long form shows.
    pub(crate) fn with_details(self, details: impl Into<String>) -> Note {
        Note {
            details: details.into(),
            ..self
        }
    }

    /// All its sentences.
    pub fn long(&self) -> String {
        match self.details.is_empty() {
            true => self.text.clone(),
            false => format!("{} {}", self.text, self.details),
        }
    }
}

/// Sorts by severity, keeps the order otherwise, and removes repetitions.
pub(super) fn arrange(notes: &mut Vec<Note>) {
    let mut seen = HashSet::new();
    notes.retain(|note| seen.insert(note.text.clone()));
    notes.sort_by_key(|note| note.severity);
}
