//! In the making.
use std::io::{self, Write};
use super::Style;
use crate::model::Model;
/// Writes it.
pub fn write(_model: &Model, _out: &mut dyn Write, _style: &Style) -> io::Result<()> {
    Ok(())
}
