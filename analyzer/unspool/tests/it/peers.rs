//! Faulty servers. The package `unspool-tests` tests gdbserver itself.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use crate::running::{Run, unspool};

/// Runs `record` against a server that does `talk` with its one client.
fn against(talk: impl FnOnce(TcpStream) + Send + 'static) -> Run {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = thread::spawn(move || talk(listener.accept().unwrap().0));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c");
    let run = Run::of(
        unspool()
            .args(["record", "-o"])
            .arg(&file)
            .args(["--connect", &format!("127.0.0.1:{port}")]),
    );
    server.join().unwrap();
    assert!(!file.exists(), "nothing was recorded");
    run
}

fn packet(text: &str) -> Vec<u8> {
    let sum = text.bytes().fold(0_u8, u8::wrapping_add);
    format!("${text}#{sum:02x}").into_bytes()
}

/// Reads the payload of the next packet, and acknowledges the packet.
fn request(stream: &mut TcpStream) -> Option<String> {
    let mut text = Vec::new();
    let mut byte = [0];
    loop {
        stream.read_exact(&mut byte).ok()?;
        match byte[0] {
            b'$' => text.clear(),
            b'#' => break,
            other => text.push(other),
        }
    }
    let mut sum = [0; 2];
    stream.read_exact(&mut sum).ok()?;
    stream.write_all(b"+").ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn closes_at_once() {
    against(drop).fails_with(1, &["closed the connection"]);
}

#[test]
fn closes_in_the_middle_of_a_packet() {
    against(|mut stream| {
        request(&mut stream);
        stream.write_all(b"$PacketSize=40").unwrap();
    })
    .fails_with(1, &["closed the connection"]);
}

#[test]
fn speaks_something_else() {
    against(|mut stream| {
        let _ = stream.write_all("HTTP/1.1 400 Bad Request\r\n\r\n".repeat(400).as_bytes());
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    })
    .fails_with(1, &["gdb remote protocol"]);
}

#[test]
fn has_no_target_description() {
    against(|mut stream| {
        while let Some(text) = request(&mut stream) {
            let answer = if text.starts_with("qSupported") {
                "PacketSize=400"
            } else {
                ""
            };
            let _ = stream.write_all(&packet(answer));
        }
    })
    .fails_with(1, &["target description", "architecture"]);
}
