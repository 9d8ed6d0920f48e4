//! Tests peers that violate the protocol. Each must cause one clear error in limited time, and no
//! panic.

use std::io::Write;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use unspool_rsp::packet::Frame;
use unspool_rsp::{Action, Client, ClientOptions, Endpoint, Error, StopReply, ThreadId};

use crate::dialogue::{Peer, XML, client, options, peer, sentence};

fn handshake_error(serve: impl FnOnce(&mut Peer) + Send + 'static) -> Error {
    let (stream, server) = peer(serve);
    let start = Instant::now();
    let error = Client::over(stream, options()).err().expect("an error");
    assert!(start.elapsed() < Duration::from_secs(5));
    server.join().unwrap();
    error
}

#[test]
fn nobody_listens() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let endpoint: Endpoint = format!("127.0.0.1:{port}").parse().unwrap();
    let error = Client::connect(&endpoint, options()).err().unwrap();
    let text = sentence(&error);
    assert!(
        text.starts_with(&format!("cannot connect to 127.0.0.1:{port}: ")),
        "{text}"
    );
    assert!(
        "nonsense"
            .parse::<Endpoint>()
            .unwrap_err()
            .to_string()
            .contains("HOST:PORT")
    );
    for (text, shown) in [
        (":1234", "localhost:1234"),
        ("[::1]:5", "[::1]:5"),
        ("unix:/a", "unix:/a"),
        ("/dev/ttyS1", "/dev/ttyS1"),
        ("/dev/ttyUSB0,115200", "/dev/ttyUSB0,115200"),
    ] {
        assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), shown);
    }
    for wrong in [
        "",
        ":",
        "a:b",
        "::1:5",
        "unix:",
        ":0",
        ":70000",
        "[::1:5",
        "/dev/ttyS1,x",
    ] {
        assert!(wrong.parse::<Endpoint>().is_err(), "{wrong}");
    }
}

#[test]
fn closes_at_once() {
    let error = handshake_error(|_| {});
    let text = sentence(&error);
    assert!(
        text.starts_with("the server closed the connection without an answer to `qSupported:"),
        "{text}"
    );
}

#[test]
fn closes_in_mid_packet() {
    let error = handshake_error(|peer| {
        peer.packet();
        peer.send(b"+$PacketSi");
    });
    assert_eq!(
        sentence(&error),
        "the server closed the connection in the middle of a packet; see what it printed, then start it again"
    );
}

#[test]
fn speaks_another_protocol() {
    let error = handshake_error(|peer| {
        peer.packet();
        peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    assert_eq!(
        sentence(&error),
        "expected the gdb remote protocol, got `HTTP/1.1 400 Bad Request\\r\\n\\r\\n`; check that the address is that of a gdb server"
    );
    // The same, from a peer that stays connected.
    let error = handshake_error(|peer| {
        peer.send(b"SSH-2.0-OpenSSH\r\n");
        while peer.next().is_some() {}
    });
    assert!(sentence(&error).contains("got `SSH"));
}

#[test]
fn garbage_between_packets_is_skipped_up_to_a_bound() {
    let mut client = client(|peer| {
        peer.packet();
        peer.send(&[b'\n'; 100]);
        peer.say("T05");
        peer.packet();
        peer.send(&[b'x'; 10_000]);
        while peer.next().is_some() {}
    });
    assert!(client.stop_reason().is_ok());
    let error = client.stop_reason().unwrap_err();
    assert!(matches!(error, Error::NotRsp { .. }), "{error}");
    sentence(&error);
}

#[test]
fn a_damaged_packet_is_asked_for_again() {
    let (stream, _server) = peer(|peer| {
        peer.packet();
        peer.send(b"+$qXfer:features:read+#00");
        assert_eq!(peer.next(), Some(Frame::Nack));
        peer.say("qXfer:features:read+");
        peer.answer(true, |_| Some(format!("l{XML}").into_bytes()));
    });
    assert!(Client::over(stream, options()).is_ok());
}

#[test]
fn packets_that_are_always_damaged() {
    let error = handshake_error(|peer| {
        peer.packet();
        peer.send(b"+");
        loop {
            peer.send(b"$PacketSize=1000#00");
            if peer.next() != Some(Frame::Nack) {
                break;
            }
        }
    });
    let text = sentence(&error);
    assert!(
        text.starts_with("4 damaged packet(s) in a row (checksum 00 stated, "),
        "{text}"
    );
    // Without acknowledgements, a packet cannot be requested again.
    let mut client = client(|peer| {
        peer.packet();
        peer.send(b"$T05#00");
        while peer.next().is_some() {}
    });
    let error = client.stop_reason().unwrap_err();
    assert!(matches!(error, Error::Checksum { tries: 1, .. }), "{error}");
}

#[test]
fn refuses_our_packets() {
    let (stream, server) = peer(|peer| {
        let first = peer.packet();
        peer.send(b"-");
        assert_eq!(peer.packet(), first);
        for _ in 0..2 {
            peer.send(b"+");
            peer.say("");
            peer.packet();
        }
        peer.send(b"-");
        while peer.packet().is_some() {
            peer.send(b"-");
        }
    });
    // The empty answer means no features, so no target.xml.
    let options = ClientOptions {
        architecture: Some("arm".into()),
        ..options()
    };
    let mut client = Client::over(stream, options).unwrap();
    let error = client.stop_reason().unwrap_err();
    assert!(sentence(&error).starts_with("the server refused `?` as damaged 4 times;"));
    drop(client);
    server.join().unwrap();
}

#[test]
fn never_answers() {
    let starts = [
        (
            &b""[..],
            "the server accepts the connection but does not answer within 0.3 s;",
        ),
        (b"+", "no answer to `qSupported:"),
    ];
    for (ack, start) in starts {
        let error = handshake_error(move |peer| {
            peer.packet();
            peer.send(ack);
            while peer.next().is_some() {}
        });
        let text = sentence(&error);
        assert!(text.starts_with(start), "{text}");
        assert!(!text.contains("time-out"), "{text}");
    }
}

#[test]
fn a_late_answer_is_not_taken_for_another() {
    let mut client = client(|peer| {
        peer.packet();
        std::thread::sleep(Duration::from_millis(500));
        peer.say("11111111");
        while peer.next().is_some() {}
    });
    let error = client.read_memory(0x1000, 4).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    std::thread::sleep(Duration::from_millis(400));
    let error = client.read_memory(0x2000, 4).unwrap_err();
    assert!(matches!(error, Error::Broken { .. }), "{error}");
    assert!(sentence(&error).contains("no answer to `m1000,4` within 0.3 s;"));
}

#[test]
fn packets_without_end() {
    let error = handshake_error(|peer| {
        peer.packet();
        peer.send(b"+$");
        for _ in 0..40 {
            peer.send(&[b'a'; 65536]);
        }
    });
    assert_eq!(
        sentence(&error),
        "the server sent a packet of more than 1048576 bytes; the server is broken, or no gdb server: restart it"
    );
}

#[test]
fn impossible_run_lengths() {
    let error = handshake_error(|peer| {
        peer.packet();
        peer.send(b"+");
        peer.say(b"*!");
        while peer.next().is_some() {}
    });
    assert!(sentence(&error).contains("a run length without a byte before it in `*!`"));
}

#[test]
fn does_not_read() {
    let mut client = client(|peer| {
        std::thread::sleep(Duration::from_millis(1500));
        drop(peer.stream.flush());
    });
    let error = client.raw(&vec![b'a'; 4 << 20]).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
}

#[test]
fn no_target_description() {
    let error = handshake_error(|peer| peer.answer(true, |_| Some(b"PacketSize=1000".to_vec())));
    assert_eq!(
        sentence(&error),
        "the server offers no target description (target.xml), so its registers are unknown; name the architecture: i386:x86-64, aarch64, arm"
    );
    for (name, result) in [("arm", Some(16 + 8 + 2)), ("z80", None)] {
        let (stream, _) = peer(|peer| peer.answer(true, |_| Some(b"PacketSize=1000".to_vec())));
        let options = ClientOptions {
            architecture: Some(name.into()),
            ..options()
        };
        match Client::over(stream, options) {
            Ok(client) => assert_eq!(Some(client.description().registers.len()), result),
            Err(error) => assert!(sentence(&error).contains("\"z80\"") && result.is_none()),
        }
    }
}

#[test]
fn broken_target_descriptions() {
    for (xml, expected) in [
        ("<target>", "is not XML at byte"),
        ("<target/>", "holds no registers"),
        ("<t><xi:include href='target.xml'/></t>", "8 documents deep"),
        (
            "<t><reg name='a' bitsize='-1'/></t>",
            "a bitsize other than",
        ),
    ] {
        let error = handshake_error(move |peer| {
            peer.answer(true, |packet| {
                Some(match packet.starts_with("qSupported") {
                    true => b"qXfer:features:read+".to_vec(),
                    false => format!("l{xml}").into_bytes(),
                })
            });
        });
        let text = sentence(&error);
        assert!(text.contains(expected), "{text}");
    }
    // A description that names only an architecture gets that architecture's default registers.
    let (stream, _) = peer(|peer| {
        peer.answer(true, |packet| {
            Some(match packet.starts_with("qSupported") {
                true => b"qXfer:features:read+".to_vec(),
                false => b"l<target><architecture>aarch64</architecture></target>".to_vec(),
            })
        });
    });
    let client = Client::over(stream, options()).unwrap();
    assert_eq!(client.description().register("pc").unwrap().offset, 256);
    assert_eq!(client.description().documents.len(), 1);
}

#[test]
fn objects_that_never_end() {
    let mut client = client(|peer| peer.answer(false, |_| Some(b"m".to_vec())));
    // `threads` was not announced, so the client uses `qfThreadInfo`. That ends too, because `m`
    // without ids is malformed.
    assert!(client.transfer("auxv", "").unwrap_err().is_unsupported());
    let error = client.threads().unwrap_err();
    assert!(sentence(&error).contains("expected thread ids in answer to `qfThreadInfo`, got `m`;"));
}

#[test]
fn goes_away_while_the_target_runs() {
    let mut client = client(|peer| {
        peer.packet();
        peer.say("vCont;c;C;s;S");
        peer.packet();
        peer.say("O68690a");
    });
    let (mut output, sink) = std::io::pipe().unwrap();
    client.set_console(Box::new(sink));
    client.resume(&[(Action::Continue, None)]).unwrap();
    assert!(client.is_running());
    let error = client.registers(ThreadId::new(1, 1)).unwrap_err();
    assert!(sentence(&error).contains("needs a stopped target, but the target runs;"));
    let error = client.wait(Some(Duration::from_secs(5))).unwrap_err();
    assert!(sentence(&error).contains("without an answer to `vCont;c`"));
    let mut text = [0; 3];
    std::io::Read::read_exact(&mut output, &mut text).unwrap();
    assert_eq!(&text, b"hi\n");
}

#[test]
fn a_stop_that_comes_after_a_wait_timed_out_is_still_seen() {
    let mut client = client(|peer| {
        peer.packet();
        peer.say("vCont;c;C;s;S");
        peer.packet();
        assert_eq!(peer.next(), Some(Frame::Interrupt));
        peer.send(b"%Stop:T02#96");
        peer.say("T02thread:p1.2;");
        while peer.next().is_some() {}
    });
    client.resume(&[(Action::Continue, None)]).unwrap();
    assert_eq!(client.wait(Some(Duration::from_millis(20))).unwrap(), None);
    client.interrupt().unwrap();
    let stop = client.wait(Some(Duration::from_secs(5))).unwrap().unwrap();
    assert!(
        matches!(stop, StopReply::Stopped { signal: 2, .. }),
        "{stop:?}"
    );
    assert!(
        client
            .wait(None)
            .unwrap_err()
            .to_string()
            .contains("does not run")
    );
}

#[test]
fn noise_gives_errors_and_no_panic() {
    let pieces: &[&[u8]] = &[
        b"+",
        b"$OK#9a",
        b"$#00",
        b"$",
        b"#",
        b"-",
        b"%x#78",
        b"$E01#a6",
        b"}",
        b"*",
        b"\0",
        b"$T05thread:p1.1;#49",
        b"$l<target/>#be",
        b"$m#6d",
        b"$QStartNoAckMode+;qXfer:features:read+#64",
    ];
    for seed in 1..40_u64 {
        let (stream, _server) = peer(move |peer| {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            for _ in 0..60 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                peer.send(pieces[(state >> 33) as usize % pieces.len()]);
            }
        });
        let options = ClientOptions {
            timeout: Duration::from_millis(50),
            architecture: Some("arm".into()),
            ..ClientOptions::default()
        };
        if let Ok(mut client) = Client::over(stream, options) {
            let _ = client.stop_reason();
            let _ = client.threads();
            let _ = client.registers(ThreadId::new(1, 1));
            let _ = client.read_memory(0, 100);
            let _ = client.read_file("/x", 100);
        }
    }
}
