//! Notes: what is missing from a model, in sentences for a person.
//!
//! Apart because every part of the model writes them and both kinds of view must show them.

/// How much a note matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// What was wanted is not there, or most of it: shown before everything else.
    Error,
    /// Something is missing or doubtful.
    Warning,
    /// Good to know.
    Info,
}

/// A sentence about what is missing, doubtful or worth knowing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Note {
    /// How much it matters.
    pub severity: Severity,
    /// One or more sentences.
    pub text: String,
}

impl Note {
    pub(crate) fn error(text: impl Into<String>) -> Note {
        Note {
            severity: Severity::Error,
            text: text.into(),
        }
    }

    pub(crate) fn warning(text: impl Into<String>) -> Note {
        Note {
            severity: Severity::Warning,
            text: text.into(),
        }
    }

    pub(crate) fn info(text: impl Into<String>) -> Note {
        Note {
            severity: Severity::Info,
            text: text.into(),
        }
    }
}

/// Most important first, otherwise in the order they came; repetitions go.
pub(super) fn arrange(notes: &mut Vec<Note>) {
    let mut seen = std::collections::HashSet::new();
    notes.retain(|note| seen.insert(note.text.clone()));
    notes.sort_by_key(|note| note.severity);
}
