//! Functions that write fewer registers than they may. Assembly has calling conventions of its own: a function that keeps
//! its frame's address where a call may overwrite it knows that its own leaf functions do not.

use super::effect::{Effect, Flow};
use super::flow::Function;
use super::text::Text;

/// Registers that `function` does not write, a bit each; none if it calls or jumps to others.
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
