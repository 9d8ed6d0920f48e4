//! The role of a client: it controls the program, or it observes it.

/// The role of one client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Role {
    /// Controls the program. All controlling clients share this role, one after the other.
    Control,
    /// Observes the program. The number tells observers apart.
    Observer(u32),
}
