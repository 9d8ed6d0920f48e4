//! Conditions and commands of a client's breakpoint (GDB manual, `Z0`), and what they make of a
//! hit.

use crate::bytecode::{World, evaluate};

/// What a hit of a client's breakpoint leads to, in agent expressions.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct HitActions {
    /// The hit counts if one of these is not zero, or if there are none.
    pub(crate) conditions: Vec<Vec<u8>>,
    /// A hit that counts executes these; it is reported if there are none.
    pub(crate) commands: Vec<Vec<u8>>,
    /// The trap and its commands stay when the client lets the program go.
    pub(crate) persist: bool,
}

impl HitActions {
    /// Evaluates the conditions, and executes the commands as far as that can be done. Whether the
    /// hit is to be reported.
    ///
    /// A condition that cannot be evaluated counts: the client can evaluate it better.
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
