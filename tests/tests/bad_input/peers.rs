//! Tests servers that are missing or misbehave, and ports that are in use.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::{Case, fails, fails_within};
use unspool_tests::{report, workspace};

pub(super) const TRIALS: &[Case] = &[
    ("port_taken", port_taken),
    ("no_listener", no_listener),
    ("not_an_address", not_an_address),
    ("closes_at_once", || {
        serve(closes_at_once, &["closed|reset"])
    }),
    ("closes_in_mid_packet", || {
        serve(closes_in_mid_packet, &["closed|reset"])
    }),
    ("closes_after_the_handshake", || {
        serve(closes_after_the_handshake, &["closed|reset"])
    }),
    ("sends_garbage", || {
        serve(sends_garbage, &["damaged|garbage|not", "check|not"])
    }),
    ("speaks_http", || serve(speaks_http, &["not|expected"])),
    ("endless_packet", || {
        serve(endless_packet, &["long|large|more than|limit|exceed"])
    }),
    ("bad_checksums", || serve(bad_checksums, &["checksum"])),
    ("never_answers", || {
        serve(never_answers, &["answer|reply|respond|time"])
    }),
    ("no_target_xml", || {
        serve(no_target_xml, &["target description|target.xml|features"])
    }),
];

/// `inspect` and `record` must both fail with these words on a server with this behaviour.
fn serve(behaviour: fn(TcpStream), words: &[&str]) -> Result<()> {
    for subcommand in ["inspect", "record"] {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?.to_string();
        std::thread::spawn(move || {
            if let Ok((stream, _)) = listener.accept() {
                let _ = stream.set_nodelay(true);
                behaviour(stream);
            }
        });
        let folder = tempfile::tempdir()?;
        let mut command = report::unspool()?;
        command
            .args([subcommand, "--connect", &address])
            .current_dir(&folder);
        fails_within(&mut command, words, Duration::from_secs(40))?;
        ensure!(
            !folder.path().join("capture.unspool").exists(),
            "{subcommand}: a capture of nothing is left behind"
        );
    }
    Ok(())
}

fn port_taken() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port().to_string();
    let folder = tempfile::tempdir()?;
    let marker = folder.path().join("ran");
    let commands = [
        (workspace::stub()?, None),
        (workspace::unspool()?, Some("stub")),
    ];
    for (command, subcommand) in commands {
        let mut stub = Command::new(command);
        stub.args(subcommand)
            .args([&format!("127.0.0.1:{port}"), "touch"])
            .arg(&marker);
        fails(&mut stub, &[&port, "in use|taken", "port"])?;
        ensure!(!marker.exists(), "the program was run all the same");
    }
    Ok(())
}

fn no_listener() -> Result<()> {
    // The port was bound and released, so no process listens there now.
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let folder = tempfile::tempdir()?;
    for subcommand in ["inspect", "record"] {
        let mut command = report::unspool()?;
        command
            .args([subcommand, "--connect", &address])
            .current_dir(&folder);
        fails(&mut command, &[&address, "refused|listen"])?;
    }
    let mut command = report::unspool()?;
    command.args(["inspect", "--connect", "unix:/nonexistent/socket"]);
    fails(&mut command, &["/nonexistent/socket", "no such|listen"])?;
    Ok(())
}

fn not_an_address() -> Result<()> {
    for address in ["nowhere", "localhost:notaport", "127.0.0.1:99999", ""] {
        let mut command = report::unspool()?;
        command.args(["inspect", "--connect", address]);
        let run = unspool_tests::process::run(&mut command, Duration::from_secs(20))?;
        ensure!(
            run.code()? != 0 && !run.stderr.contains("panicked"),
            "{run}"
        );
        ensure!(
            run.stderr.to_lowercase().contains("host:port"),
            "says no form of address\n{run}"
        );
    }
    Ok(())
}

fn closes_at_once(stream: TcpStream) {
    drop(stream);
}

fn closes_in_mid_packet(mut stream: TcpStream) {
    let _ = stream.read(&mut [0; 512]);
    let _ = stream.write_all(b"+$PacketSize=40");
}

fn sends_garbage(mut stream: TcpStream) {
    let mut state = 1_u32;
    loop {
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        })
        .take(4096)
        .collect();
        if stream.write_all(&noise).is_err() {
            return;
        }
    }
}

fn speaks_http(mut stream: TcpStream) {
    let _ = stream.read(&mut [0; 512]);
    let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    let _ = stream.read(&mut [0; 512]);
    std::thread::sleep(Duration::from_secs(60));
}

/// A packet without an end must not fill the memory.
fn endless_packet(mut stream: TcpStream) {
    let _ = stream.write_all(b"+$");
    while stream.write_all(&[b'a'; 65536]).is_ok() {}
}

fn bad_checksums(mut stream: TcpStream) {
    let mut buffer = [0; 512];
    while stream.write_all(b"+$PacketSize=4000#00").is_ok() {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
}

fn never_answers(mut stream: TcpStream) {
    let mut buffer = [0; 512];
    while stream.read(&mut buffer).is_ok_and(|count| count > 0) {}
}

/// A correct, minimal server without target descriptions.
fn no_target_xml(stream: TcpStream) {
    answer(stream, |packet| match packet {
        _ if packet.starts_with("qSupported") => Some("PacketSize=1000"),
        "?" => Some("T05thread:01;"),
        "qC" => Some("QC01"),
        "qfThreadInfo" => Some("m01"),
        "qsThreadInfo" => Some("l"),
        "D" => Some("OK"),
        _ if packet.starts_with('H') => Some("OK"),
        _ => Some(""),
    });
}

fn closes_after_the_handshake(stream: TcpStream) {
    answer(stream, |packet| match packet {
        _ if packet.starts_with("qSupported") => Some("PacketSize=1000"),
        _ => None,
    });
}

/// Answers packets with acknowledgements until `reply` returns none.
fn answer(mut stream: TcpStream, reply: fn(&str) -> Option<&'static str>) {
    let mut received = Vec::new();
    let mut buffer = [0; 512];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(count) => received.extend_from_slice(&buffer[..count]),
        }
        while let Some(end) = received.iter().position(|byte| *byte == b'#') {
            if received.len() < end + 3 {
                break;
            }
            let packet: Vec<u8> = received.drain(..end + 3).collect();
            let start = packet
                .iter()
                .position(|byte| *byte == b'$')
                .map_or(0, |at| at + 1);
            let body = String::from_utf8_lossy(&packet[start..end]).into_owned();
            let Some(body) = reply(&body) else { return };
            let sum = body.bytes().fold(0_u8, u8::wrapping_add);
            if write!(stream, "+${body}#{sum:02x}").is_err() {
                return;
            }
        }
    }
}
