//! Finds functions that preserve more registers than the calling convention requires.
//!
//! Assembly code has calling conventions of its own. A function may keep its frame's address in a
//! register that calls usually overwrite, because it knows that its leaf functions do not.

use super::effect::{Effect, Flow};
use super::flow::Function;
use super::text::Text;

/// The registers that `function` does not write, one bit each. None if it calls or jumps to other
/// functions.
pub(super) fn preserved_registers(text: &Text<'_>, function: &Function) -> u32 {
    if function.doubtful || !function.exits.is_empty() || function.spans.is_empty() {
        return 0;
    }
    let mut written = 0;
    for &(start, end) in &function.spans {
        let mut at = start;
        while at < end {
            let Some(instruction) = text.decode(at, function.thumb) else {
                return 0;
            };
            at += u64::from(instruction.len);
            if matches!(
                instruction.flow,
                Flow::Call(_) | Flow::Indirect(_) | Flow::Table(_)
            ) || instruction.effects().contains(&Effect::SystemCall)
            {
                return 0;
            }
            for effect in instruction.effects() {
                written |= effect.writes();
            }
        }
    }
    !written
}
