//! Parsing.
use crate::description::{DescriptionError, TargetDescription};
pub(super) fn parse(
    _documents: &[(String, String)],
) -> Result<TargetDescription, DescriptionError> {
    todo!()
}
