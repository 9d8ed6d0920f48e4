//! Fuzzes a whole client against a server that sends anything. The input is one payload per line;
//! all of them are sent, with correct checksums, before the client's first request.

use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use unspool_rsp::{Action, Client, ClientOptions, packet};

/// Runs one input.
pub fn run(bytes: &[u8]) {
    if bytes.len() > 16 << 10 {
        return;
    }
    let (ours, mut theirs) = UnixStream::pair().expect("socket pair");
    // In one write: nothing reads yet, and a socket holds only a limited number of writes.
    let mut sent = Vec::new();
    for payload in bytes.split(|byte| *byte == b'\n') {
        sent.push(b'+');
        sent.extend(packet::frame(payload));
    }
    let _ = theirs.write_all(&sent);
    let _ = theirs.shutdown(Shutdown::Write);
    let options = ClientOptions {
        timeout: Duration::from_millis(100),
        ..ClientOptions::default()
    };
    let Ok(mut client) = Client::over(ours, options) else {
        return;
    };
    let _ = client.stop_reason();
    let threads = client.threads().unwrap_or_default();
    if let Some(thread) = threads.first() {
        let _ = client.thread_name(*thread);
        let _ = client.registers(*thread);
    }
    let _ = client.read_memory(0x1000, 64);
    let _ = client.libraries();
    let _ = client.auxv();
    let _ = client.read_file("/x", 4096);
    if client.resume(&[(Action::Step, None)]).is_ok() {
        let _ = client.wait(Some(Duration::from_millis(50)));
    }
}
