//! Parses target description documents (GDB manual, "Target Description Format").

use crate::description::{DescriptionError, Register, TargetDescription};
use crate::markup::{self, Element};

/// Maximum depth of included documents, and maximum number of inclusions.
const MAX_DEPTH: usize = 8;
const MAX_INCLUDES: usize = 64;
/// Limits on a server's claims, far above any real target (AArch64 SME's ZA is 64 KiB).
const MAX_REGISTERS: usize = 4096;
const MAX_NUMBER: u32 = 0xffff;
const MAX_BITS: u32 = 8 * 0x1_0000;

pub(super) fn parse(documents: &[(String, String)]) -> Result<TargetDescription, DescriptionError> {
    let mut parser = Parser {
        documents,
        includes: 0,
        next_number: 0,
        feature: String::new(),
        result: TargetDescription {
            documents: documents.to_vec(),
            ..TargetDescription::default()
        },
    };
    let (root, _) = documents.first().ok_or(DescriptionError::NoRegisters)?;
    parser.document(root, 0)?;
    parser.finish()
}

/// The annexes that a document includes (`xi:include href`).
pub(crate) fn includes(annex: &str, document: &str) -> Result<Vec<String>, DescriptionError> {
    Ok(elements(annex, document)?
        .iter()
        .filter(|element| element.name == "include")
        .filter_map(|element| element.get("href").map(str::to_owned))
        .collect())
}

/// The architecture that a document names.
pub(super) fn architecture(document: &str) -> Option<String> {
    let elements = markup::elements(document).ok()?;
    let element = elements.into_iter().find(|e| e.name == "architecture")?;
    Some(element.text)
}

struct Parser<'a> {
    documents: &'a [(String, String)],
    includes: usize,
    /// The number of the next register without an explicit number.
    next_number: u32,
    feature: String,
    result: TargetDescription,
}

impl Parser<'_> {
    fn document(&mut self, annex: &str, depth: usize) -> Result<(), DescriptionError> {
        let (_, xml) = self
            .documents
            .iter()
            .find(|(a, _)| a == annex)
            .ok_or_else(|| DescriptionError::Missing {
                annex: annex.to_owned(),
            })?;
        for element in elements(annex, xml)? {
            match element.name.as_str() {
                "architecture" => self.result.architecture = Some(element.text),
                "osabi" => self.result.osabi = Some(element.text),
                "feature" => self.feature = element.get("name").unwrap_or_default().to_owned(),
                "reg" => self.register(annex, &element)?,
                "include" => {
                    let href = element.get("href").unwrap_or_default();
                    self.includes += 1;
                    for (seen, limit) in [(depth + 1, MAX_DEPTH), (self.includes, MAX_INCLUDES)] {
                        if seen > limit {
                            return Err(DescriptionError::TooDeep {
                                annex: href.to_owned(),
                                limit,
                            });
                        }
                    }
                    self.document(href, depth + 1)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// "If omitted, a register's number is one greater than that of the previous register, either
    /// in the current feature or in a preceding feature; the first register in the target
    /// description defaults to zero" (GDB manual, "Target Description Format", Registers).
    fn register(&mut self, annex: &str, element: &Element) -> Result<(), DescriptionError> {
        let name = element.get("name").unwrap_or_default();
        let wrong = |problem: String| DescriptionError::Register {
            annex: annex.to_owned(),
            register: name.to_owned(),
            problem,
        };
        let bits = match number(element.get("bitsize")) {
            Some(bits @ 1..=MAX_BITS) => bits,
            _ => return Err(wrong(format!("a bitsize other than 1 to {MAX_BITS}"))),
        };
        let number = match element.get("regnum") {
            None => self.next_number,
            text => number(text).unwrap_or(u32::MAX),
        };
        if number > MAX_NUMBER {
            return Err(wrong(format!("a regnum over {MAX_NUMBER}")));
        }
        if self.result.registers.len() == MAX_REGISTERS {
            return Err(wrong(format!("{MAX_REGISTERS} others before it")));
        }
        self.next_number = number + 1;
        self.result.registers.push(Register {
            name: name.to_owned(),
            number,
            bits,
            offset: 0,
            group: element.get("group").map(str::to_owned),
            kind: element.get("type").unwrap_or("int").to_owned(),
            feature: self.feature.clone(),
        });
        Ok(())
    }

    fn finish(mut self) -> Result<TargetDescription, DescriptionError> {
        let registers = &mut self.result.registers;
        if registers.is_empty() {
            return Err(DescriptionError::NoRegisters);
        }
        registers.sort_by_key(|register| register.number);
        if let Some([_, second]) = registers
            .array_windows()
            .find(|[a, b]| a.number == b.number)
        {
            return Err(DescriptionError::Register {
                annex: self.documents.first().map_or("", |(a, _)| a).to_owned(),
                register: second.name.clone(),
                problem: format!("the number {}, which another has", second.number),
            });
        }
        super::place(registers);
        Ok(self.result)
    }
}

fn elements(annex: &str, xml: &str) -> Result<Vec<Element>, DescriptionError> {
    markup::elements(xml).map_err(|error| DescriptionError::Xml {
        annex: annex.to_owned(),
        position: error.position,
        problem: error.problem,
    })
}

/// gdb reads these numbers like C: decimal, or hexadecimal after `0x`.
fn number(text: Option<&str>) -> Option<u32> {
    let text = text?;
    match text.strip_prefix("0x") {
        Some(digits) => crate::hex::number(digits)?.try_into().ok(),
        None => text.parse().ok(),
    }
}
