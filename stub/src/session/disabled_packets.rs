//! Packets that the stub does not answer (`--disable-packet`), so that clients can be tested
//! without them.

/// The disabled parts of the protocol.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct DisabledPackets {
    /// `vCont`.
    pub(crate) resume: bool,
    /// Details in stop replies (the `T` form); without them, a stop reply is only a signal.
    pub(crate) stop_details: bool,
    /// The thread id in stop replies.
    pub(crate) stop_thread: bool,
    /// `qC`.
    pub(crate) current_thread: bool,
    /// `qfThreadInfo`.
    pub(crate) thread_list: bool,
}

impl DisabledPackets {
    /// Disables the packets with this gdbserver name. `false` if there is no such name.
    pub(crate) fn add(&mut self, name: &str) -> bool {
        let all = name == "threads";
        self.resume |= all || name == "vCont";
        self.stop_details |= name == "T";
        self.stop_thread |= all || name == "Tthread";
        self.current_thread |= all || name == "qC";
        self.thread_list |= all || name == "qfThreadInfo";
        matches!(
            name,
            "threads" | "vCont" | "T" | "Tthread" | "qC" | "qfThreadInfo"
        )
    }
}
