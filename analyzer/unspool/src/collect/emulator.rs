//! Stops a program under QEMU's user mode, whose server does not listen while the program runs.
//!
//! QEMU shows a signal to the debugger before the program gets it, and the debugger may drop it. So
//! the recorder sends a signal to the emulator, if that is a local process at the other end of the
//! connection. It sends only one: a second signal that arrives while QEMU reports the first would
//! reach the program after the recorder has detached. QEMU (7.2) does not restart the system call
//! that the signal interrupts: the call fails with EINTR, as if the program had a handler.

use std::fs;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{
    SockaddrStorage, getpeername, getsockname, getsockopt, sockopt::PeerCredentials,
};
use nix::unistd::Pid;
use unspool_capture::Severity;

use super::session::Session;
use super::sink::Sink;

/// The signal sent to the emulator. Programs seldom wait for it, block it or ignore it. QEMU
/// catches it because its default action would end the program.
const SIGNAL: Signal = Signal::SIGVTALRM;
/// gdb's number of this signal, which equals Linux's.
const GDB_SIGNAL: u8 = SIGNAL as u8;
/// Time within which a busy program stops by itself, at a breakpoint.
const BUSY_TIME: Duration = Duration::from_millis(500);

/// The state of the one signal sent to an emulator.
#[derive(Debug, Default)]
pub(super) struct EmulatorStop {
    /// The time of the first request to stop, or of the program's latest stop since then.
    waiting_since: Option<Instant>,
    sent: bool,
}

impl EmulatorStop {
    /// Records that the program has stopped for another reason and runs again.
    pub(super) fn stopped_elsewhere(&mut self) {
        self.waiting_since = Some(Instant::now());
    }

    /// True if the signal is on its way, so that nothing else may end the session.
    pub(super) fn is_under_way(&self) -> bool {
        self.sent
    }

    /// True if a stop by this signal (gdb's number) is the recorder's doing.
    pub(super) fn takes(&mut self, signal: u8) -> bool {
        signal == GDB_SIGNAL && std::mem::take(&mut self.sent)
    }

    /// Stops the program by a signal to its emulator, if it does not stop otherwise.
    pub(super) fn stop(&mut self, session: &Session, sink: &mut Sink) {
        let Some(pid) = session.pid.and_then(|pid| i32::try_from(pid).ok()) else {
            return;
        };
        let now = Instant::now();
        let since = *self.waiting_since.get_or_insert(now);
        if !session.stops.one_thread
            || self.sent
            || since.elapsed() < BUSY_TIME
            || !is_peer(&session.client, pid)
        {
            return;
        }
        if kill(Pid::from_raw(pid), SIGNAL).is_ok() {
            self.sent = true;
            sink.note(
                Severity::Info,
                "QEMU's server does not listen while all threads wait, so Unspool sent QEMU a \
                 signal to end the recording. The program does not see the signal, but a system \
                 call in which its first thread waited may have failed with EINTR",
            );
        }
    }
}

/// True if a local process holds the other end of a socket.
fn is_peer(socket: &impl AsFd, pid: i32) -> bool {
    let socket = socket.as_fd();
    if let Ok(peer) = getsockopt(&socket, PeerCredentials)
        && peer.pid() != 0
    {
        return peer.pid() == pid;
    }
    let addresses = || {
        use std::os::fd::AsRawFd;
        let own: SockaddrStorage = getsockname(socket.as_raw_fd()).ok()?;
        let peer: SockaddrStorage = getpeername(socket.as_raw_fd()).ok()?;
        Some((address(&own)?, address(&peer)?))
    };
    let Some((own, peer)) = addresses() else {
        return false;
    };
    let inode = ["tcp", "tcp6"].into_iter().find_map(|table| {
        let table = fs::read_to_string(format!("/proc/{pid}/net/{table}")).ok()?;
        inode(&table, peer, own)
    });
    inode.is_some_and(|inode| has_open(pid, inode))
}

fn address(storage: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = storage.as_sockaddr_in().map(|v4| SocketAddr::from(*v4));
    let address = v4.or_else(|| Some(SocketAddr::from(*storage.as_sockaddr_in6()?)))?;
    address.ip().to_canonical().is_loopback().then_some(address)
}

/// The inode of the socket with these ports on loopback, from `net/tcp` (proc(5)): `0:
/// 0100007F:9E5D 0100007F:B3A0 01 ...`.
fn inode(table: &str, local: SocketAddr, remote: SocketAddr) -> Option<u64> {
    let port = |field: &str| u16::from_str_radix(field.rsplit_once(':')?.1, 16).ok();
    table.lines().find_map(|row| {
        let fields: Vec<&str> = row.split_whitespace().collect();
        let ports = (port(fields.get(1)?)?, port(fields.get(2)?)?);
        let established = *fields.get(3)? == "01";
        let ours = established && ports == (local.port(), remote.port());
        ours.then(|| fields.get(9)?.parse().ok()).flatten()
    })
}

fn has_open(pid: i32, inode: u64) -> bool {
    let name = format!("socket:[{inode}]");
    let files = fs::read_dir(format!("/proc/{pid}/fd"));
    files.into_iter().flatten().flatten().any(|file| {
        fs::read_link(file.path()).is_ok_and(|target| target.as_os_str() == name.as_str())
    })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::{inode, is_peer};

    #[test]
    fn recognizes_the_process_at_the_other_end() {
        let own = std::process::id().cast_signed();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let accepted = listener.accept().unwrap().0;
        assert!(is_peer(&stream, own) && is_peer(&accepted, own));
        assert!(!is_peer(&stream, 1));
        drop(accepted);
        assert!(!is_peer(&stream, own), "no process has the other end");
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(is_peer(&one, own) && !is_peer(&one, 1));
    }

    #[test]
    fn finds_the_inode_of_a_connection() {
        let row = "   7: 0100007F:9E5D 0100007F:B3A0 01 00000000:00000000 00:00000000 00000000     0        0 104512 1";
        let at = |port: u16| std::net::SocketAddr::from(([127, 0, 0, 1], port));
        assert_eq!(inode(row, at(0x9e5d), at(0xb3a0)), Some(104_512));
        assert_eq!(inode(row, at(0xb3a0), at(0x9e5d)), None);
        assert_eq!(inode("", at(1), at(2)), None);
    }
}
