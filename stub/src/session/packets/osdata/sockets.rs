//! Internet-domain sockets.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Columns, Names};

/// Names of states 1 to 11, from the kernel's `include/net/tcp_states.h`.
const STATES: [&str; 11] = [
    "ESTABLISHED",
    "SYN_SENT",
    "SYN_RECV",
    "FIN_WAIT1",
    "FIN_WAIT2",
    "TIME_WAIT",
    "CLOSE",
    "CLOSE_WAIT",
    "LAST_ACK",
    "LISTEN",
    "CLOSING",
];

pub(super) fn all() -> Vec<Columns> {
    let users = Names::of_users();
    let mut rows = Vec::new();
    for (file, family, protocol) in [
        ("tcp", "INET", "STREAM"),
        ("udp", "INET", "DGRAM"),
        ("tcp6", "INET6", "STREAM"),
        ("udp6", "INET6", "DGRAM"),
    ] {
        let text = fs::read_to_string(format!("/proc/net/{file}")).unwrap_or_default();
        let sockets = text.lines().filter_map(socket);
        rows.extend(sockets.map(|socket| {
            let known = STATES.get(socket.state.wrapping_sub(1));
            let state = known.filter(|_| protocol == "STREAM").unwrap_or(&"");
            vec![
                ("local address", socket.local.0.to_string()),
                ("local port", socket.local.1.to_string()),
                ("remote address", socket.remote.0.to_string()),
                ("remote port", socket.remote.1.to_string()),
                ("state", (*state).to_owned()),
                ("user", users.of(socket.user)),
                ("family", family.to_owned()),
                ("protocol", protocol.to_owned()),
            ]
        }));
    }
    rows
}

#[derive(Debug, PartialEq, Eq)]
struct Socket {
    local: (IpAddr, u16),
    remote: (IpAddr, u16),
    state: usize,
    user: u32,
}

/// Parses a line of `/proc/net/tcp` and similar files. `None` for the heading.
fn socket(line: &str) -> Option<Socket> {
    let words: Vec<&str> = line.split_whitespace().collect();
    Some(Socket {
        local: address(words.get(1)?)?,
        remote: address(words.get(2)?)?,
        state: usize::from_str_radix(words.get(3)?, 16).ok()?,
        user: words.get(7)?.parse().ok()?,
    })
}

/// Parses an address: 32-bit words in the machine's byte order as hexadecimal digits, a colon, the
/// port.
fn address(text: &str) -> Option<(IpAddr, u16)> {
    let (digits, port) = text.split_once(':')?;
    let bytes: Vec<u8> = digits
        .as_bytes()
        .chunks(8)
        .filter_map(|word| u32::from_str_radix(str::from_utf8(word).ok()?, 16).ok())
        .flat_map(u32::to_ne_bytes)
        .collect();
    let address = match <[u8; 4]>::try_from(&bytes[..]) {
        Ok(four) => IpAddr::V4(Ipv4Addr::from(four)),
        Err(_) => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(&bytes[..]).ok()?)),
    };
    Some((address, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Finds sockets of this process in the kernel's list.
    #[test]
    fn listening_sockets_are_found() {
        for host in ["127.0.0.1", "::1"] {
            let Ok(listener) = std::net::TcpListener::bind((host, 0)) else {
                // A machine without IPv6 has no such address.
                assert_eq!(host, "::1");
                continue;
            };
            let port = listener.local_addr().expect("it is bound").port();
            let rows = all();
            let is_ours = |row: &&Columns| row[1].1 == port.to_string() && row[4].1 == "LISTEN";
            let ours = rows.iter().find(is_ours).expect("it is in the list");
            assert_eq!(ours[0].1, host);
            assert_eq!((&*ours[3].1, &*ours[7].1), ("0", "STREAM"));
        }
        assert_eq!(
            socket("  sl  local_address rem_address   st tx_queue rx_queue"),
            None
        );
    }
}
