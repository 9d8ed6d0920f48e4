//! Built-in register layouts.
use crate::description::TargetDescription;
pub(crate) const NAMES: &str = "i386:x86-64, aarch64, arm";
pub(super) fn description(_architecture: &str) -> Option<TargetDescription> {
    todo!()
}
