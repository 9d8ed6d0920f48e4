//! The recorded snapshots themselves, for formats that hand them to another unwinder.
//!
//! Separate from the rest of the model, which keeps frames and names instead of bytes. The model
//! has them only if a format needs them.

use unspool_capture::{Capture, Event, Record, RegisterLayout, SNAPSHOT_PROBE};

/// All snapshots of a recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hits {
    /// The registers of each snapshot.
    pub registers: Vec<RegisterLayout>,
    /// The target description as one document; empty if the server sent none.
    pub description: String,
    /// Address and function of each probe, by its number.
    pub probes: Vec<(u32, u64, String)>,
    /// The events with registers and stack, in order. Of the calls with the same stack, the first
    /// has them.
    pub events: Vec<Event>,
}

impl Hits {
    /// Collects the snapshots of a capture.
    pub(super) fn of(capture: &Capture) -> Hits {
        let mut hits = Hits {
            registers: capture.target.registers.clone(),
            description: description(capture),
            ..Hits::default()
        };
        // `Calls` adds the note about events that cannot be read.
        let _ = capture.each(&mut |_, record| match record {
            Record::Probe(probe) => {
                let place = (probe.id, probe.avma, probe.function.clone());
                hits.probes.push(place);
            }
            Record::Event(event) if event.snapshot.is_some() => hits.events.push(event.clone()),
            _ => {}
        });
        if hits
            .events
            .iter()
            .any(|event| event.probe == SNAPSHOT_PROBE)
        {
            let place = (SNAPSHOT_PROBE, 0, "the recorder's look".to_owned());
            hits.probes.push(place);
        }
        hits
    }
}

/// Limits of a description, which may include itself in a damaged recording.
const MAX_INCLUDES: usize = 64;
const MAX_DESCRIPTION: usize = 1 << 20;

/// The target description as one document, with its includes replaced by their contents.
fn description(capture: &Capture) -> String {
    let documents = &capture.target.documents;
    let body = |annex: &str| {
        let found = documents.iter().find(|document| document.annex == annex);
        found.map(|document| document.xml.as_str())
    };
    let mut text = body("target.xml").unwrap_or_default().to_owned();
    for _ in 0..documents.len().min(MAX_INCLUDES) {
        if text.len() > MAX_DESCRIPTION {
            break;
        }
        let Some(at) = text.find("<xi:include") else {
            break;
        };
        let Some(length) = text[at..].find('>') else {
            break;
        };
        let element = &text[at..=at + length];
        let annex = element.split("href=").nth(1);
        let annex = annex.and_then(|rest| rest.split(['"', '\'']).nth(1));
        let included = annex.and_then(body).map(without_head).unwrap_or_default();
        text.replace_range(at..=at + length, &included);
    }
    text
}

/// A document without its declarations.
fn without_head(xml: &str) -> String {
    let body = xml.find("<feature").or_else(|| xml.find("<target"));
    xml[body.unwrap_or(0)..].to_owned()
}
