//! The link to a stub that is observed. Such a stub may have nothing to say for hours, so only a question shows that the link
//! is down.

use std::time::Duration;

use super::Error;
use super::recorder::Recorder;

/// How long a stub may be silent before it is asked for a sign of life.
const SILENCE_LIMIT: Duration = Duration::from_secs(3);
/// How long that, and anything else that is asked all the time, may take. Together with [`SILENCE_LIMIT`] less than 10 s.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(6);

impl Recorder {
    /// Makes sure that the stub is still there. Servers that are not observed can be asked nothing while the program runs.
    pub(super) fn check_link(&mut self) -> Result<(), Error> {
        if !self.session.observes || self.session.local {
            return Ok(());
        }
        let client = &mut self.session.client;
        Ok(client.check_link(SILENCE_LIMIT, ANSWER_TIMEOUT)?)
    }
}
