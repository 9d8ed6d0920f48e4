//! Trace state variables: numbers that tracepoints count, compare and record.
//!
//! Some variables have no stored value but a computed one. A client gets such a variable by
//! defining one with its name.

use std::collections::BTreeMap;

/// The value of a variable that is computed at the hit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Computed {
    /// `trace_timestamp`: microseconds since 1970, as in gdbserver.
    Timestamp,
    /// `trace_time`: nanoseconds of the monotonic clock.
    Time,
    /// `trace_thread`: the kernel's id of the thread.
    Thread,
    /// `trace_cpu`: number of the processor.
    Cpu,
    /// `trace_stop`: if an expression sets it to a value other than zero, the hit is not recorded.
    /// The stub reports it to the client like a breakpoint hit.
    Stop,
    /// `trace_needed`: if an expression sets it to a value other than zero, the budget never pauses
    /// the tracepoint, and its frames are not dropped.
    Needed,
    /// `trace_stack_left`: bytes from the stack pointer to the end of the stack, where the stack
    /// began.
    StackLeft,
    /// `trace_stack_key`: set by an expression to something else than zero, memory that is
    /// collected from the stack pointer on after that is sent once for each call path.
    StackKey,
}

const COMPUTED: [(&[u8], Computed); 8] = [
    (b"trace_timestamp", Computed::Timestamp),
    (b"trace_time", Computed::Time),
    (b"trace_thread", Computed::Thread),
    (b"trace_cpu", Computed::Cpu),
    (b"trace_stop", Computed::Stop),
    (b"trace_needed", Computed::Needed),
    (b"trace_stack_left", Computed::StackLeft),
    (b"trace_stack_key", Computed::StackKey),
];

/// Number of `trace_timestamp`, which is always defined.
const TIMESTAMP: u32 = 1;

/// A variable as the client defined it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Variable {
    pub(crate) name: Vec<u8>,
    pub(crate) initial: i64,
    /// True if it is defined without a client.
    pub(crate) builtin: bool,
    value: i64,
    computed: Option<Computed>,
}

/// All variables, by their numbers.
pub(crate) struct Variables(BTreeMap<u32, Variable>);

impl Default for Variables {
    fn default() -> Variables {
        let mut variables = Variables(BTreeMap::new());
        variables.define(TIMESTAMP, b"trace_timestamp", 0);
        if let Some(variable) = variables.0.get_mut(&TIMESTAMP) {
            variable.builtin = true;
        }
        variables
    }
}

impl Variables {
    /// Defines a variable, or redefines it.
    pub(crate) fn define(&mut self, number: u32, name: &[u8], initial: i64) {
        let builtin = self.0.get(&number).is_some_and(|known| known.builtin);
        let computed = COMPUTED.iter().find(|(known, _)| *known == name);
        let variable = Variable {
            name: name.to_vec(),
            initial,
            builtin,
            value: initial,
            computed: computed.map(|(_, computed)| *computed),
        };
        self.0.insert(number, variable);
    }

    /// All variables, in the order of their numbers.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, &Variable)> {
        self.0.iter().map(|(number, variable)| (*number, variable))
    }

    /// The kind of computed value, if the variable has one.
    pub(crate) fn computed(&self, number: u32) -> Option<Computed> {
        self.0.get(&number)?.computed
    }

    /// The stored value. `None` if there is no such variable.
    pub(crate) fn value(&self, number: u32) -> Option<i64> {
        self.0.get(&number).map(|variable| variable.value)
    }

    /// Sets a stored value. Defines the variable if it is not defined.
    pub(crate) fn set(&mut self, number: u32, value: i64) {
        match self.0.get_mut(&number) {
            Some(variable) => variable.value = value,
            None => {
                self.define(number, b"", 0);
                self.set(number, value);
            }
        }
    }
}
