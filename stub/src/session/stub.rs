//! gdbstub, fed with whole packets. It answers questions about a halted program.
//!
//! Its connection is a buffer. It always stays in its idle state, because the layer in front of it
//! answers resume packets and writes stop replies
//! (`docs/decisions/0001-packets-in-front-of-gdbstub.md`). gdbstub gives up at a packet that it
//! cannot parse. Then the client gets an error, and the next packet creates a new gdbstub.

use std::convert::Infallible;

use gdbstub::conn::Connection;
use gdbstub::stub::GdbStubBuilder;
use gdbstub::stub::state_machine::GdbStubStateMachine;

use super::debuggee::Debuggee;
use super::framing::{PACKET_SIZE, hex};

type Machine = GdbStubStateMachine<'static, Debuggee, Outbox>;

/// Output of gdbstub.
#[derive(Default)]
struct Outbox(Vec<u8>);

impl Connection for Outbox {
    type Error = Infallible;

    fn write(&mut self, byte: u8) -> Result<(), Infallible> {
        self.0.push(byte);
        Ok(())
    }

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), Infallible> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

/// The gdbstub instance of one client.
pub(super) struct Stub {
    machine: Option<Machine>,
    greeting: Vec<u8>,
}

impl Stub {
    /// A new instance.
    pub(super) fn new() -> Stub {
        Stub {
            machine: None,
            greeting: Vec::new(),
        }
    }

    /// The bodies of gdbstub's packets in answer to `packet`: console output, then the reply.
    pub(super) fn answer(&mut self, debuggee: &mut Debuggee, packet: &[u8]) -> Vec<Vec<u8>> {
        if packet.starts_with(b"qSupported") {
            self.greeting = packet.to_vec();
        }
        let Some(machine) = self.machine(debuggee) else {
            return vec![b"E01".to_vec()];
        };
        match run(machine, debuggee, packet) {
            Some((machine, replies)) => {
                self.machine = Some(machine);
                replies
            }
            None => vec![b"E16".to_vec()],
        }
    }

    fn machine(&mut self, debuggee: &mut Debuggee) -> Option<Machine> {
        if let Some(machine) = self.machine.take() {
            return Some(machine);
        }
        let stub = GdbStubBuilder::new(Outbox::default())
            .packet_buffer_size(PACKET_SIZE)
            .build()
            .ok()?;
        let machine = stub.run_state_machine(debuggee).ok()?;
        if self.greeting.is_empty() {
            return Some(machine);
        }
        // Repeat the client's `qSupported` to the new instance.
        run(machine, debuggee, &self.greeting).map(|(machine, _)| machine)
    }
}

fn run(
    mut machine: Machine,
    debuggee: &mut Debuggee,
    packet: &[u8],
) -> Option<(Machine, Vec<Vec<u8>>)> {
    let sum = packet.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    let mut framed = Vec::with_capacity(packet.len() + 4);
    framed.push(b'$');
    framed.extend_from_slice(packet);
    framed.push(b'#');
    hex(&[sum], &mut framed);
    for byte in framed {
        machine = match machine {
            GdbStubStateMachine::Idle(idle) => idle.incoming_data(debuggee, byte).ok()?,
            _ => return None,
        };
    }
    let GdbStubStateMachine::Idle(mut idle) = machine else {
        return None;
    };
    let written = std::mem::take(&mut idle.borrow_conn().0);
    Some((idle.into(), bodies(&written)))
}

/// Splits `+$body#ck$body#ck...` into bodies. In a body, `#` and `$` are escaped.
fn bodies(written: &[u8]) -> Vec<Vec<u8>> {
    let packets = written.split(|byte| *byte == b'$').skip(1);
    packets
        .filter_map(|packet| {
            let end = packet.iter().rposition(|byte| *byte == b'#')?;
            Some(packet[..end].to_vec())
        })
        .collect()
}
