//! Variables in DWARF by their address, for lookups of data symbols.

use std::collections::HashMap;

use gimli::{AttributeValue, UnitOffset};

use super::Reader;

/// Where variables are declared: unit and offset of the DIE, by address.
pub(super) type Variables = HashMap<u64, Vec<(u32, UnitOffset)>>;

/// Adds the variables of a unit that have an address.
pub(super) fn read(
    dwarf: &gimli::Dwarf<Reader<'_>>,
    unit: &gimli::Unit<Reader<'_>>,
    number: u32,
    variables: &mut Variables,
) -> Option<()> {
    let mut entries = unit.entries_raw(None).ok()?;
    while !entries.is_empty() {
        let offset = entries.next_offset();
        let Some(abbreviation) = entries.read_abbreviation().ok()? else {
            continue;
        };
        let attributes = abbreviation.attributes();
        let is_variable = matches!(
            abbreviation.tag(),
            gimli::DW_TAG_variable | gimli::DW_TAG_member
        );
        if !is_variable {
            entries.skip_attributes(attributes).ok()?;
            continue;
        }
        for attribute in attributes {
            let attribute = entries.read_attribute(*attribute).ok()?;
            if attribute.name() == gimli::DW_AT_location
                && let AttributeValue::Exprloc(expression) = attribute.value()
                && let Some(svma) = address(dwarf, unit, expression)
            {
                variables.entry(svma).or_default().push((number, offset));
            }
        }
    }
    Some(())
}

/// The address, if an expression is nothing but one.
fn address(
    _dwarf: &gimli::Dwarf<Reader<'_>>,
    unit: &gimli::Unit<Reader<'_>>,
    expression: gimli::Expression<Reader<'_>>,
) -> Option<u64> {
    let mut operations = expression.operations(unit.encoding());
    let operation = operations.next().ok()??;
    match (operation, operations.next().ok()?) {
        (gimli::Operation::Address { address }, None) => Some(address),
        _ => None,
    }
}
