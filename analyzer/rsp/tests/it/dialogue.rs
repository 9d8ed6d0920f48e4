//! A server on a thread, whose answers a test spells out.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::Duration;

use unspool_rsp::packet::{Frame, Framer, frame};
use unspool_rsp::{Client, ClientOptions, Error};

/// The server's end.
pub(crate) struct Peer {
    pub(crate) stream: UnixStream,
    framer: Framer,
}

impl Peer {
    /// The next packet; `None` if the client has disconnected. Skips acknowledgements.
    pub(crate) fn packet(&mut self) -> Option<Vec<u8>> {
        loop {
            match self.next()? {
                Frame::Packet(payload) => return Some(payload),
                Frame::Ack => {}
                other => panic!("the client sent {other:?}"),
            }
        }
    }

    pub(crate) fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.framer.next_frame() {
                return Some(frame);
            }
            let mut buffer = [0; 4096];
            match self.stream.read(&mut buffer) {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.framer.feed(&buffer[..count]),
            }
        }
    }

    /// Sends bytes unchanged. Ignores a client that has already disconnected.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// Sends a packet.
    pub(crate) fn say(&mut self, payload: impl AsRef<[u8]>) {
        self.send(&frame(payload.as_ref()));
    }

    /// Answers packets until the client disconnects. `None` from `answer` sends nothing.
    pub(crate) fn answer(&mut self, acks: bool, mut answer: impl FnMut(&str) -> Option<Vec<u8>>) {
        while let Some(packet) = self.packet() {
            if acks {
                self.send(b"+");
            }
            let packet = String::from_utf8_lossy(&packet).into_owned();
            if let Some(reply) = answer(&packet) {
                self.say(reply);
            }
        }
    }

    /// Performs the handshake of a normal server: acknowledgements end, and the target is `XML`.
    pub(crate) fn handshake(&mut self) {
        for reply in [
            "PacketSize=200;QStartNoAckMode+;qXfer:features:read+;multiprocess+;vContSupported+",
            "OK",
        ] {
            self.packet();
            self.send(b"+");
            self.say(reply);
        }
        assert_eq!(self.packet().as_deref(), Some(&b"Hgp0.0"[..]));
        self.say("OK");
        self.packet();
        self.say(format!("l{XML}"));
    }
}

/// A small target description.
pub(crate) const XML: &str = "<target><architecture>arm</architecture><feature name='f'>\
    <reg name='r0' bitsize='32'/><reg name='pc' bitsize='32'/></feature></target>";

/// Runs a server. Returns the client's end.
pub(crate) fn peer(serve: impl FnOnce(&mut Peer) + Send + 'static) -> (UnixStream, JoinHandle<()>) {
    let (client, stream) = UnixStream::pair().unwrap();
    let server = std::thread::spawn(move || {
        serve(&mut Peer {
            stream,
            framer: Framer::new(1 << 22),
        });
    });
    (client, server)
}

pub(crate) fn options() -> ClientOptions {
    ClientOptions {
        timeout: Duration::from_millis(300),
        ..ClientOptions::default()
    }
}

/// A client after the handshake, whose server then runs `serve`.
pub(crate) fn client(serve: impl FnOnce(&mut Peer) + Send + 'static) -> Client {
    let (stream, _) = peer(|peer| {
        peer.handshake();
        serve(peer);
    });
    Client::over(stream, options()).unwrap()
}

/// Checks that an error is one line that says what to do.
pub(crate) fn sentence(error: &Error) -> String {
    let text = error.to_string();
    assert!(!text.contains('\n') && text.contains(';'), "{text}");
    assert!(!text.starts_with(char::is_uppercase), "{text}");
    text
}
