//! Assigns a client's role by its first packet: control, if that is free, or observer, if the
//! client requests it (docs/decisions/0003-one-controls-others-observe.md).

use crate::subscription::role::Role;

use super::debuggee::Debuggee;
use super::{Outcome, Session};

/// Feature in `qSupported` with which a client asks to observe.
const OBSERVES: &[u8] = b"UnspoolObserve+";

impl Session {
    /// Chooses the role by the client's first packet.
    pub(super) fn take_role(&mut self, debuggee: &mut Debuggee, packet: &[u8]) {
        if self.refused.is_some() {
            return;
        }
        let was_untraced = match debuggee.reattach() {
            Ok(was_untraced) => was_untraced,
            Err(error) => {
                crate::say!("{}: refused {}: {error}", crate::NAME, self.name);
                self.refused = Some(error.to_string());
                return;
            }
        };
        let announced = packet.strip_prefix(b"qSupported:").unwrap_or_default();
        if announced
            .split(|byte| *byte == b';')
            .any(|feature| feature == OBSERVES)
        {
            self.role = Some(Role::Observer(self.number));
            debuggee.observers += 1;
            if was_untraced {
                debuggee.go_free();
            }
            return;
        }
        match &debuggee.controller {
            None => {
                self.role = Some(Role::Control);
                debuggee.take_control(self.name.clone());
            }
            Some(name) => {
                let words = format!(
                    "the program is controlled by {name}; wait until that client detaches, or \
                     only observe the program (unspool record, unspool inspect)"
                );
                crate::say!("{}: refused {}: {words}", crate::NAME, self.name);
                self.refused = Some(words);
            }
        }
    }

    /// The reply to a client without a role. gdb shows the reply to `vMustReplyEmpty` and gives up.
    pub(super) fn refusal(&mut self, packet: &[u8]) -> Option<Vec<u8>> {
        let words = self.refused.as_ref()?;
        if packet.starts_with(b"qSupported") || packet == b"QStartNoAckMode" {
            return Some(Vec::new());
        }
        self.outcome = Some(Outcome::Refused);
        Some(format!("E.{words}").into_bytes())
    }
}
