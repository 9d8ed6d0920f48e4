//! What a capture means: threads, who created them and where, how they ended.
//!
//! Everything here is recomputed whenever a capture is opened and nothing fails as a whole: what
//! cannot be known is left out, and a [`Note`] says so. The parts: `symbolizer` turns snapshots into
//! named frames, `history` turns records into threads, `identity` tells threads apart across runs.
//! The model prints nothing; [`crate::views`] does.

mod backtrace;
mod history;
mod identity;
mod note;
mod origin;
#[cfg(test)]
pub(crate) mod staged;
mod symbolizer;
mod thread;

pub(crate) use backtrace::base_name;
pub use backtrace::{Backtrace, NamedFrame, Place};
pub use identity::Key;
pub use note::{Note, Severity};
pub(crate) use origin::start_code;
pub use symbolizer::{Module, Symbolizer};
pub use thread::{Creation, Ending, Thread, ThreadIndex};

use unspool_capture::{Capture, Source};

/// A recorded program: its threads, and what is missing from the picture.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Model {
    /// The program and its machine.
    pub target: Target,
    /// How and how long it was recorded.
    pub recording: Recording,
    /// The images that were mapped, in the order they were seen.
    pub modules: Vec<Module>,
    /// All threads, in the order they were seen. [`ThreadIndex`] counts here.
    pub threads: Vec<Thread>,
    /// What is missing, doubtful or worth knowing, most important first.
    pub notes: Vec<Note>,
}

/// The program and its machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Target {
    /// Architecture, e.g. `x86-64`; empty if not known.
    pub arch: String,
    /// Path of the executable on the target; empty if not known.
    pub executable: String,
    /// Process id; 0 if not known.
    pub pid: u64,
}

/// How and how long a program was recorded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    /// The recorder's name and version.
    pub product: String,
    /// The recorder's command line.
    pub command: Vec<String>,
    /// How the recorder came to the program.
    pub source: Option<Source>,
    /// Wall clock at the beginning, nanoseconds since 1970 UTC; 0 if not known.
    pub start_unix_ns: u64,
    /// Time of the last record, nanoseconds since the beginning.
    pub duration_ns: u64,
    /// How the program ended, if it did while it was recorded.
    pub program_end: Option<ProgramEnd>,
    /// The recording was not ended in order: later threads and events are missing.
    pub cut: bool,
    /// Events that happened and were not recorded.
    pub dropped: u64,
    /// Probes that were paused, to spare the program.
    pub paused: Vec<Paused>,
}

/// A probe that was paused for moments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paused {
    /// The function it stands in.
    pub function: String,
    /// How often it was hit and recorded.
    pub recorded: u64,
    /// How often it was paused.
    pub pauses: u64,
    /// For how long altogether.
    pub paused_ns: u64,
    /// How many hits that cost: about, unless `exact`.
    pub missed: u64,
    /// The threads that were created unseen tell the number.
    pub exact: bool,
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramEnd {
    /// With this exit code.
    Exited(i32),
    /// By this Linux signal.
    Signal(u32),
}

impl Model {
    /// Computes the model of a capture.
    pub fn build(capture: &Capture, symbolizer: &mut Symbolizer) -> Model {
        symbolizer.open(capture);
        let mut model = Model::interpret(capture, symbolizer);
        model.modules = symbolizer.modules().to_vec();
        model.notes.extend(symbolizer.take_notes());
        note::arrange(&mut model.notes);
        symbolizer.keep_tables();
        model
    }

    /// The model without modules, from whatever can name frames.
    fn interpret(capture: &Capture, frames: &mut dyn backtrace::Frames) -> Model {
        let mut model = history::read(capture, frames);
        identity::assign(&mut model);
        note::arrange(&mut model.notes);
        model
    }

    /// The main thread, if it was seen.
    pub fn main(&self) -> Option<ThreadIndex> {
        self.threads
            .iter()
            .position(|t| t.creation == Creation::Main)
            .map(ThreadIndex)
    }

    /// A thread by its index; indices come from this same model.
    pub fn thread(&self, index: ThreadIndex) -> Option<&Thread> {
        self.threads.get(index.0)
    }
}
