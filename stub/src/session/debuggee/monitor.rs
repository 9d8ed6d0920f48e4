//! Commands typed by a person (`monitor ...`, `qRcmd`).

use gdbstub::target::ext::monitor_cmd::{ConsoleOutput, MonitorCmd, outputln};

use super::Debuggee;

impl MonitorCmd for Debuggee {
    fn handle_monitor_cmd(
        &mut self,
        command: &[u8],
        mut out: ConsoleOutput<'_>,
    ) -> Result<(), Self::Error> {
        match command {
            b"exit" => self.exit_requested = true,
            b"help" => {
                outputln!(
                    out,
                    "monitor exit   end the server (a program it started is killed)"
                );
                outputln!(out, "monitor help   this text");
            }
            _ => outputln!(out, "Unknown monitor command; see 'monitor help'."),
        }
        Ok(())
    }
}
