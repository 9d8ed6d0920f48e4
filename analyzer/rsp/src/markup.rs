//! The XML of RSP objects as a flat list of elements.
//!
//! Apart because three objects need it: target descriptions, thread lists and library lists. They
//! need only each element's attributes and text, in document order.

use quick_xml::events::{BytesStart, Event};
use quick_xml::reader::Reader;

/// Maximum number of elements in a document. The largest real thread lists have thousands.
const MAX_ELEMENTS: usize = 1 << 20;

/// One XML element.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Element {
    /// Name without its namespace prefix.
    pub(crate) name: String,
    /// Attributes, unescaped.
    pub(crate) attributes: Vec<(String, String)>,
    /// Text directly within it, unescaped and trimmed.
    pub(crate) text: String,
}

impl Element {
    /// The value of an attribute.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let (_, value) = self.attributes.iter().find(|(n, _)| n == name)?;
        Some(value)
    }
}

/// The reason why a document cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MarkupError {
    /// The position in bytes.
    pub(crate) position: u64,
    /// The problem.
    pub(crate) problem: String,
}

/// All elements of a document in the order of their start tags.
pub(crate) fn elements(document: &str) -> Result<Vec<Element>, MarkupError> {
    let mut reader = Reader::from_str(document);
    let mut elements: Vec<Element> = Vec::new();
    let mut open: Vec<usize> = Vec::new();
    loop {
        let event = reader.read_event();
        let position = reader.buffer_position();
        let wrong = |problem: String| MarkupError { position, problem };
        if elements.len() > MAX_ELEMENTS {
            return Err(wrong(format!("more than {MAX_ELEMENTS} elements")));
        }
        let text = |elements: &mut Vec<Element>, text: &str| {
            if let Some(element) = open.last().and_then(|index| elements.get_mut(*index)) {
                element.text.push_str(text);
            }
        };
        match event.map_err(|e| wrong(e.to_string()))? {
            Event::Start(tag) => {
                elements.push(element(&tag).map_err(wrong)?);
                open.push(elements.len() - 1);
            }
            Event::Empty(tag) => elements.push(element(&tag).map_err(wrong)?),
            Event::End(_) => {
                open.pop();
            }
            Event::Text(content) => text(&mut elements, &content),
            Event::CData(content) => text(&mut elements, &content),
            Event::GeneralRef(reference) => match reference.resolve_char_ref() {
                Ok(Some(c)) => text(&mut elements, c.encode_utf8(&mut [0; 4])),
                _ => text(&mut elements, named(&reference)),
            },
            Event::Eof => break,
            _ => {}
        }
    }
    if !open.is_empty() {
        return Err(MarkupError {
            position: document.len() as u64,
            problem: "it ends within an element".into(),
        });
    }
    for element in &mut elements {
        element.text = element.text.trim().to_owned();
    }
    Ok(elements)
}

fn element(tag: &BytesStart<'_>) -> Result<Element, String> {
    let mut attributes = Vec::new();
    for attribute in tag.attributes() {
        let attribute = attribute.map_err(|e| e.to_string())?;
        let value = quick_xml::escape::unescape(&attribute.value).map_err(|e| e.to_string())?;
        attributes.push((
            attribute.key.local_name().into_inner().to_owned(),
            value.into_owned(),
        ));
    }
    Ok(Element {
        name: tag.local_name().into_inner().to_owned(),
        attributes,
        text: String::new(),
    })
}

/// The entities that every document has (XML 1.0, 4.6).
fn named(entity: &str) -> &'static str {
    match entity {
        "lt" => "<",
        "gt" => ">",
        "amp" => "&",
        "apos" => "'",
        "quot" => "\"",
        _ => "",
    }
}
