//! Conditions and commands of a client's breakpoint (GDB manual, `Z0`), and their effect on a hit.

use crate::bytecode::{World, evaluate};

/// The actions at a hit of a client's breakpoint, as agent expressions.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct HitActions {
    /// The hit counts if one of these is not zero, or if there is no condition.
    pub(crate) conditions: Vec<Vec<u8>>,
    /// A hit that counts executes these. If there is no command, the stub reports the hit.
    pub(crate) commands: Vec<Vec<u8>>,
    /// Whether the trap and its commands persist after a detach.
    pub(crate) persist: bool,
}

impl HitActions {
    /// Evaluates the conditions, and executes the commands as far as possible. Returns whether the
    /// stub must report the hit.
    ///
    /// A condition that cannot be evaluated counts as true: the client can evaluate more.
    pub(crate) fn hit(&self, world: &mut dyn World) -> bool {
        let mut holds = |condition: &Vec<u8>| evaluate(condition, world) != Ok(0);
        let counts = self.conditions.is_empty() || self.conditions.iter().any(&mut holds);
        if counts {
            for command in &self.commands {
                let _ = evaluate(command, world);
            }
        }
        counts && self.commands.is_empty()
    }
}
