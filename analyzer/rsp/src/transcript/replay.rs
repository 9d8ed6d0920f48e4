//! Serves a transcript.
/// To come.
#[derive(Debug)]
pub struct Departure;
/// To come.
#[derive(Debug)]
pub struct Replay;
/// To come.
#[derive(Debug)]
pub struct Replayed;
