//! Recordings in the formats of other programs: one file a format, and the registry of all.
//!
//! A format is a type with [`Exporter`]. It reads the finished model and writes as it goes, so that
//! the written file is never in memory as a whole. To add one: a file here, and its line in
//! [`FORMATS`].

mod chrome;
mod ctf;
mod dot;
mod exporter;
mod firefox;
mod folded;
mod gdb;
mod html;
mod perfetto;
mod pprof;
mod protobuf;
mod svg;
mod switches;
mod tfile;
mod tracks;

pub use exporter::{Choice, Error, Exporter, Options, Stacks};

/// All formats, in the order of the help text.
pub static FORMATS: &[&dyn Exporter] = &[
    &dot::Dot,
    &svg::Svg,
    &html::Html,
    &folded::Folded,
    &perfetto::Perfetto,
    &chrome::Chrome,
    &firefox::Firefox,
    &pprof::Pprof,
    &gdb::Gdb,
    &tfile::Tfile,
    &ctf::Ctf,
];

/// Returns the format called `name`.
pub fn format(name: &str) -> Option<&'static dyn Exporter> {
    FORMATS.iter().copied().find(|format| format.name() == name)
}
