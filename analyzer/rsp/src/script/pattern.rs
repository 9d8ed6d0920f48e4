//! Templates to send and patterns to expect: literal bytes and `{...}`.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use crate::transcript::line::{self, Piece};

/// The values of a script's variables.
pub(super) type Variables = BTreeMap<String, Vec<u8>>;

/// A packet to send: literals and variables.
#[derive(Debug, Clone)]
pub(super) struct Template {
    pieces: Vec<Fixed>,
}

#[derive(Debug, Clone)]
enum Fixed {
    Literal(Vec<u8>),
    Variable(String),
}

impl Template {
    pub(super) fn parse(text: &str, bound: &BTreeSet<String>) -> Result<Template, String> {
        let pieces = line::decode(text)?
            .into_iter()
            .map(|piece| match piece {
                Piece::Literal(bytes) => Ok(Fixed::Literal(bytes)),
                Piece::Braces(inner) => match fixed(inner, bound)? {
                    Some(fixed) => Ok(fixed),
                    None => Err(format!("`{{{inner}}}` matches replies; it cannot be sent")),
                },
            })
            .collect::<Result<_, String>>()?;
        Ok(Template { pieces })
    }

    pub(super) fn fill(&self, variables: &Variables) -> Vec<u8> {
        let mut bytes = Vec::new();
        for piece in &self.pieces {
            bytes.extend_from_slice(piece.bytes(variables));
        }
        bytes
    }
}

impl Fixed {
    fn bytes<'a>(&'a self, variables: &'a Variables) -> &'a [u8] {
        match self {
            Fixed::Literal(bytes) => bytes,
            Fixed::Variable(name) => variables.get(name).map_or(&[], Vec::as_slice),
        }
    }
}

/// A packet to expect.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    elements: Vec<Element>,
}

#[derive(Debug, Clone)]
enum Element {
    Fixed(Fixed),
    Capture { name: Option<String>, kind: Kind },
}

/// The kinds of text that a capture matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// One or more hexadecimal digits.
    Hex,
    /// Hexadecimal digits of exactly this many bytes.
    HexBytes(usize),
    /// One or more letters, digits, `_`, `.`, `-`.
    Word,
    /// Anything, including nothing.
    Any,
}

impl Pattern {
    pub(super) fn parse(text: &str, bound: &mut BTreeSet<String>) -> Result<Pattern, String> {
        let mut elements = Vec::new();
        for piece in line::decode(text)? {
            elements.push(match piece {
                Piece::Literal(bytes) => Element::Fixed(Fixed::Literal(bytes)),
                Piece::Braces(inner) => match fixed(inner, bound)? {
                    Some(fixed) => Element::Fixed(fixed),
                    None => capture(inner, bound)?,
                },
            });
        }
        Ok(Pattern { elements })
    }

    /// Whether the pattern expects console output. If not, console output is skipped.
    pub(super) fn is_console(&self) -> bool {
        match self.elements.as_slice() {
            [Element::Fixed(Fixed::Literal(bytes))] => crate::connection::is_console(bytes),
            [Element::Fixed(Fixed::Literal(bytes)), ..] => bytes.first() == Some(&b'O'),
            _ => false,
        }
    }

    /// Matches a whole payload. `Ok` holds the captured values, `Err` the number of matching bytes.
    pub(super) fn matches(
        &self,
        payload: &[u8],
        variables: &Variables,
    ) -> Result<Vec<(String, Vec<u8>)>, usize> {
        let mut search = Search {
            elements: &self.elements,
            payload,
            variables,
            hopeless: HashSet::new(),
            given_up: BTreeMap::new(),
            furthest: 0,
            ends: Vec::new(),
        };
        if !search.from(0, 0) {
            return Err(search.furthest);
        }
        // `ends` holds the end of each element, the last one first.
        let mut start = 0;
        let mut captures = Vec::new();
        for (element, end) in self.elements.iter().zip(search.ends.iter().rev()) {
            if let Element::Capture {
                name: Some(name), ..
            } = element
            {
                let bytes = payload.get(start..*end).unwrap_or_default();
                captures.push((name.clone(), bytes.to_vec()));
            }
            start = *end;
        }
        Ok(captures)
    }

    /// The pattern as text, with the variables' values.
    pub(super) fn describe(&self, variables: &Variables) -> String {
        self.elements
            .iter()
            .map(|element| match element {
                Element::Fixed(fixed) => line::encode(fixed.bytes(variables)),
                Element::Capture { name, kind } => {
                    let name = name.as_deref().unwrap_or_default();
                    match kind {
                        Kind::Hex => format!("{{{name}:hex}}"),
                        Kind::HexBytes(count) => format!("{{{name}:hex*{count}}}"),
                        Kind::Word => format!("{{{name}:word}}"),
                        Kind::Any if name.is_empty() => "{*}".to_owned(),
                        Kind::Any => format!("{{{name}:any}}"),
                    }
                }
            })
            .collect()
    }
}

/// A backtracking search. It remembers failures, so that its time is limited by elements x payload,
/// whatever the server sends.
struct Search<'a> {
    elements: &'a [Element],
    payload: &'a [u8],
    variables: &'a Variables,
    hopeless: HashSet<(usize, usize)>,
    given_up: BTreeMap<usize, usize>,
    furthest: usize,
    ends: Vec<usize>,
}

impl Search<'_> {
    fn from(&mut self, element: usize, at: usize) -> bool {
        self.furthest = self.furthest.max(at);
        let (elements, payload) = (self.elements, self.payload);
        let rest = payload.get(at..).unwrap_or_default();
        let Some(wanted) = elements.get(element) else {
            return rest.is_empty();
        };
        // If "anything" failed here, it also fails from every later position, which it already
        // tried.
        let given_up = self.given_up.get(&element).is_some_and(|from| at >= *from);
        if given_up || self.hopeless.contains(&(element, at)) {
            return false;
        }
        let found = match wanted {
            Element::Fixed(fixed) => {
                let bytes = fixed.bytes(self.variables);
                let same = bytes.iter().zip(rest).take_while(|(a, b)| a == b).count();
                self.furthest = self.furthest.max(at + same);
                same == bytes.len() && self.to(element, at + same)
            }
            Element::Capture { kind, .. } => {
                let fits = |byte: &&u8| match kind {
                    Kind::Hex | Kind::HexBytes(_) => byte.is_ascii_hexdigit(),
                    Kind::Word => byte.is_ascii_alphanumeric() || b"_.-".contains(byte),
                    Kind::Any => true,
                };
                let most = rest.iter().take_while(fits).count();
                match kind {
                    // The longest match that lets the rest match; for "anything", the shortest.
                    Kind::Hex | Kind::Word => {
                        (1..=most).rev().any(|len| self.to(element, at + len))
                    }
                    Kind::HexBytes(count) => count * 2 <= most && self.to(element, at + count * 2),
                    Kind::Any => (0..=most).any(|len| self.to(element, at + len)),
                }
            }
        };
        match wanted {
            _ if found => {}
            Element::Capture {
                kind: Kind::Any, ..
            } => {
                self.given_up.insert(element, at);
            }
            _ => {
                self.hopeless.insert((element, at));
            }
        }
        found
    }

    fn to(&mut self, element: usize, end: usize) -> bool {
        let found = self.from(element + 1, end);
        if found {
            self.ends.push(end);
        }
        found
    }
}

/// Parses `name` or `hex "text"`. `None` if it is a capture.
fn fixed(inner: &str, bound: &BTreeSet<String>) -> Result<Option<Fixed>, String> {
    if inner == "*" || inner.contains(':') && !inner.contains('"') {
        return Ok(None);
    }
    if let Some(quoted) = inner.strip_prefix("hex ") {
        let text = quoted
            .trim()
            .strip_prefix('"')
            .and_then(|text| text.strip_suffix('"'))
            .ok_or_else(|| format!("expected `{{hex \"TEXT\"}}`, got `{{{inner}}}`"))?;
        let digits = crate::hex::encode(text.as_bytes());
        return Ok(Some(Fixed::Literal(digits.into_bytes())));
    }
    let name = name(inner)?;
    if !bound.contains(&name) {
        return Err(format!(
            "the variable `{name}` has no value yet; bind it with `{{{name}:hex}}` or `let`"
        ));
    }
    Ok(Some(Fixed::Variable(name)))
}

/// Parses `*`, `:kind` or `name:kind`.
fn capture(inner: &str, bound: &mut BTreeSet<String>) -> Result<Element, String> {
    if inner == "*" {
        return Ok(Element::Capture {
            name: None,
            kind: Kind::Any,
        });
    }
    let (variable, kind) = inner.split_once(':').unwrap_or(("", inner));
    let kind = match kind {
        "hex" => Kind::Hex,
        "word" => Kind::Word,
        "any" => Kind::Any,
        kind => match kind.strip_prefix("hex*").map(str::parse) {
            Some(Ok(count @ 0..=65536)) => Kind::HexBytes(count),
            _ => {
                return Err(format!(
                    "expected a kind `hex`, `hex*BYTES`, `word` or `any`, got `{kind}`"
                ));
            }
        },
    };
    let name = match variable {
        "" => None,
        variable => Some(name(variable)?),
    };
    bound.extend(name.clone());
    Ok(Element::Capture { name, kind })
}

/// A variable's name: letters, digits and `_`.
pub(super) fn name(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    match !text.is_empty() && text.chars().all(fits) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "expected a name of letters, digits and `_`, got `{text}`"
        )),
    }
}
