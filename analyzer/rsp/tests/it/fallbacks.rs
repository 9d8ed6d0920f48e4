//! Tests which packets the client sends to servers with different features, and how many at a time.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use unspool_rsp::packet::escape;
use unspool_rsp::{Action, Breakpoint, Client, ClientOptions, Error, ThreadId, Tracepoint};

use crate::dialogue::{Peer, XML, client, options, peer};

type Seen = Arc<Mutex<Vec<String>>>;

/// A client of a server without `QStartNoAckMode` that answers from a table. Unknown packets get
/// the empty answer. Also returns the packets that the server received.
fn with(features: &'static str, table: &'static [(&'static str, &'static [u8])]) -> (Client, Seen) {
    let seen = Seen::default();
    let log = seen.clone();
    let (stream, _) = peer(move |peer| {
        peer.answer(true, |packet| {
            log.lock().unwrap().push(packet.to_owned());
            let found = table.iter().find(|(name, _)| *name == packet);
            Some(match packet {
                p if p.starts_with("qSupported") => {
                    format!("qXfer:features:read+;{features}").into_bytes()
                }
                p if p.starts_with("qXfer:features:read:target.xml") => {
                    format!("l{XML}").into_bytes()
                }
                _ => found.map(|(_, reply)| reply.to_vec()).unwrap_or_default(),
            })
        });
    });
    let client = Client::over(stream, options()).unwrap();
    seen.lock().unwrap().clear();
    (client, seen)
}

fn taken(seen: &Seen) -> Vec<String> {
    std::mem::take(&mut seen.lock().unwrap())
}

#[test]
fn memory_by_m_is_split_and_ends_where_memory_ends() {
    // 64-byte packets hold 32 bytes of memory; memory ends at 0x1010.
    let (mut client, seen) = with(
        "PacketSize=40",
        &[
            ("mff0,20", b"E0e"),
            ("mff0,10", b"000102030405060708090a0b0c0d0e0f"),
            ("m1000,10", b"101112131415161718191a1b1c1d1e1f"),
            ("m1010,20", b"E0e"),
            ("m2000,4", b"aabb"),
            ("m2002,2", b"E01"),
        ],
    );
    let bytes = client.read_memory(0xff0, 0x40).unwrap();
    assert_eq!(bytes, (0..0x20).collect::<Vec<u8>>());
    let windows = ["mff0,20", "m1010,20", "mff0,10", "m1000,10"];
    assert_eq!(taken(&seen), windows);
    assert_eq!(client.read_memory(0x2000, 4).unwrap(), [0xaa, 0xbb]);
    let error = client.read_memory(0x3000, 4);
    assert!(error.unwrap_err().is_unsupported());
    assert_eq!(client.read_memory(0x3000, 0).unwrap(), []);
}

#[test]
fn unreadable_memory_names_the_address() {
    let (mut client, _) = with("PacketSize=400", &[("m0,10", b"E01")]);
    let error = client.read_memory(0, 16).unwrap_err();
    assert!(matches!(error, Error::Memory { address: 0 }), "{error}");
    assert!(
        error
            .to_string()
            .starts_with("cannot access the target's memory at 0x0;")
    );
}

#[test]
fn memory_by_x_where_offered() {
    let (mut client, seen) = with(
        "PacketSize=400;binary-upload+",
        &[
            ("x1000,4", b"ba}\x03}]c"),
            ("x2000,4", b"bab"),
            ("x2002,2", b"bcd"),
        ],
    );
    assert_eq!(client.read_memory(0x1000, 4).unwrap(), b"a#}c");
    assert_eq!(client.read_memory(0x2000, 4).unwrap(), b"abcd");
    assert_eq!(taken(&seen), ["x1000,4", "x2000,4", "x2002,2"]);
}

#[test]
fn memory_is_written_by_x_else_m() {
    let (mut client, seen) = with(
        "PacketSize=400",
        &[("M1000,2:2324", b"OK"), ("M1000,1:00", b"E01")],
    );
    client.write_memory(0x1000, b"#$").unwrap();
    let error = client.write_memory(0x1000, &[0]).unwrap_err();
    assert!(matches!(error, Error::Memory { address: 0x1000 }));
    assert_eq!(
        taken(&seen),
        ["X1000,2:}\u{3}}\u{4}", "M1000,2:2324", "M1000,1:00"]
    );
}

#[test]
fn registers_are_written_by_p_else_g_and_the_thread_is_selected_once() {
    let (mut client, seen) = with(
        "PacketSize=400",
        &[
            ("Hg2", b"OK"),
            ("g", b"01000000xxxxxxxx"),
            ("G07000000xxxxxxxx", b"OK"),
        ],
    );
    let thread = ThreadId { pid: None, tid: 2 };
    let registers = client.registers(thread).unwrap();
    let description = client.description().clone();
    let value = |name| registers.value(description.register(name).unwrap());
    assert_eq!((value("r0"), value("pc")), (Some(1), None));
    client.write_register(thread, 0, &[7, 0, 0, 0]).unwrap();
    assert_eq!(
        taken(&seen),
        ["Hg2", "g", "P0=07000000", "g", "G07000000xxxxxxxx"]
    );
    let error = client.write_register(thread, 9, &[0]).unwrap_err();
    assert!(error.to_string().contains("no such number"));
    let error = client.write_register(thread, 1, &[0]).unwrap_err();
    assert!(error.to_string().contains("pc has 4"));
}

#[test]
fn resuming_without_vcont() {
    let (mut client, seen) = with(
        "",
        &[
            ("Hc2", b"OK"),
            ("Hc-1", b"OK"),
            ("s", b"S05"),
            ("C0b", b"X0b"),
            ("c", b"W03"),
        ],
    );
    let thread = ThreadId { pid: None, tid: 2 };
    for actions in [
        (Action::Step, Some(thread)),
        (Action::Step, Some(thread)),
        (Action::Continue, None),
        (Action::ContinueWithSignal(11), None),
    ] {
        client.resume(&[actions]).unwrap();
        assert!(client.wait(Some(Duration::from_secs(5))).unwrap().is_some());
    }
    assert_eq!(
        taken(&seen),
        ["vCont?", "Hc2", "s", "s", "Hc-1", "c", "C0b"]
    );
    let both = [(Action::Step, Some(thread)), (Action::Continue, None)];
    assert!(client.resume(&both).unwrap_err().is_unsupported());
}

#[test]
fn threads_without_qxfer() {
    let (mut client, _) = with(
        "",
        &[
            ("qfThreadInfo", b"mp1.2,p1.3"),
            ("qsThreadInfo", b"l"),
            ("qThreadExtraInfo,p1.3", b"776f726b6572"),
            ("Tp1.2", b"OK"),
            ("Tp1.3", b"E01"),
        ],
    );
    let threads = client.threads().unwrap();
    assert_eq!(threads, [ThreadId::new(1, 2), ThreadId::new(1, 3)]);
    assert_eq!(
        client.thread_name(threads[1]).unwrap().as_deref(),
        Some("worker")
    );
    assert_eq!(client.thread_name(threads[0]).unwrap(), None);
    assert!(client.is_alive(threads[0]).unwrap() && !client.is_alive(threads[1]).unwrap());
    assert!(!client.thread_events(true).unwrap() && !client.pass_signals(&[14]).unwrap());
    let (mut client, _) = with("", &[("qC", b"QC7")]);
    assert_eq!(client.threads().unwrap(), [ThreadId { pid: None, tid: 7 }]);
}

#[test]
fn packets_with_values() {
    let (mut client, seen) = with(
        "QPassSignals+;QThreadEvents+;multiprocess+;qXfer:exec-file:read+",
        &[
            ("QPassSignals:e;14", b"OK"),
            ("QThreadEvents:1", b"OK"),
            ("!", b"OK"),
            ("vRun;2f61;78", b"T05thread:pa.b;"),
            ("vKill;a", b"OK"),
            ("vAttach;c", b"T00thread:pc.c;"),
            ("D;c", b"OK"),
            ("qRcmd,6869", b"6f6b"),
        ],
    );
    assert!(client.pass_signals(&[14, 20]).unwrap() && client.thread_events(true).unwrap());
    client.extended_mode().unwrap();
    client.run("/a", &["x"]).unwrap();
    client.kill().unwrap();
    client.attach(12).unwrap();
    client.detach().unwrap();
    assert_eq!(client.monitor("hi").unwrap(), b"ok");
    // Run and attach read the description again.
    assert_eq!(taken(&seen).len(), 10);
}

/// Replies after inserting probes may take longer on a slow machine.
#[test]
fn inserting_probes_may_take_longer() {
    let (stream, _) = peer(|peer| {
        peer.answer(true, |packet| {
            Some(match packet.split(':').next() {
                Some("qSupported") => {
                    b"qXfer:features:read+;FastTracepoints+;QUnspoolTrace+".to_vec()
                }
                Some("qXfer") => format!("l{XML}").into_bytes(),
                Some("QTDP") => b"OK".to_vec(),
                Some("QTEnable") => {
                    std::thread::sleep(options().timeout * 2);
                    b"OK".to_vec()
                }
                Some("qUnspoolPlaces") => {
                    std::thread::sleep(options().timeout * 2);
                    b"2;3,a".to_vec()
                }
                _ => Vec::new(),
            })
        });
    });
    let mut client = Client::over(stream, options()).unwrap();
    let mut batch = client.batch();
    let ticket = batch.insert_tracepoint(&Tracepoint::default());
    batch.send().unwrap().take(ticket).unwrap();
    assert_eq!(client.trace_places().unwrap(), Some((2, vec![3, 10])));
    // Other replies do not get more time.
    assert_eq!(client.connection().timeout(), options().timeout);
}

/// Reads `count` packets before it answers any.
fn all_at_once(peer: &mut Peer, replies: &[&[u8]]) {
    let packets: Vec<_> = replies.iter().map(|_| peer.packet().unwrap()).collect();
    let replies = packets.iter().zip(replies).flat_map(|(packet, reply)| {
        assert!(!packet.is_empty());
        unspool_rsp::packet::frame(reply)
    });
    let bytes: Vec<u8> = replies.collect();
    peer.stream.write_all(&bytes).unwrap();
}

#[test]
fn a_batch_is_one_round_trip() {
    let mut client = client(|peer| {
        all_at_once(
            peer,
            &[b"OK", b"0100000002000000", b"7f454c46", b"E01", b"OK"],
        );
        peer.packet();
        peer.say("vCont;c;C;s;S");
        all_at_once(peer, &[b"E0e", b"99999999", b"OK", b"T05thread:p1.2;"]);
        while peer.next().is_some() {}
    });
    let thread = ThreadId::new(1, 2);
    let mut batch = client.batch();
    let registers = batch.registers(thread);
    let good = batch.read_memory(0x1000, 4);
    let bad = batch.read_memory(0, 4);
    let planted = batch.insert_breakpoint(Breakpoint::software(0x1000, 2));
    let mut answers = batch.send().unwrap();
    let registers = answers.take(registers).unwrap();
    assert_eq!(registers.bytes(), [1, 0, 0, 0, 2, 0, 0, 0]);
    assert_eq!(answers.take(good).unwrap(), b"\x7fELF");
    assert!(matches!(
        answers.take(bad),
        Err(Error::Memory { address: 0 })
    ));
    answers.take(planted).unwrap();

    // After a refused `Hg`, no registers of the wrong thread are returned.
    let mut batch = client.batch();
    let registers = batch.registers(ThreadId::new(1, 9));
    let removed = batch.remove_breakpoint(Breakpoint::software(0x1000, 2));
    let mut answers = batch.resume(&[(Action::Continue, None)]).unwrap();
    assert!(matches!(answers.take(registers), Err(Error::Remote { .. })));
    answers.take(removed).unwrap();
    assert!(client.wait(Some(Duration::from_secs(5))).unwrap().is_some());
}

#[test]
fn a_file_longer_than_a_packet() {
    let content: Vec<u8> = (0..20_000_u32).map(|i| (i * 7 % 251) as u8).collect();
    let served = content.clone();
    let mut client = client(move |peer| {
        peer.answer(false, |packet| {
            let Some(numbers) = packet.strip_prefix("vFile:pread:5,") else {
                return Some(if packet.starts_with("vFile:open") {
                    b"F5".to_vec()
                } else {
                    b"F0".to_vec()
                });
            };
            let (count, at) = numbers.split_once(',').unwrap();
            let hex = |t| usize::from_str_radix(t, 16).unwrap();
            // Sometimes shorter, like servers whose escapes need space.
            let count = (hex(count) - (hex(at) % 3).min(hex(count))).max(1);
            let at = hex(at).min(served.len());
            let data = &served[at..(at + count).min(served.len())];
            let mut reply = format!("F{:x};", data.len()).into_bytes();
            reply.extend(escape(data));
            Some(reply)
        });
    });
    assert_eq!(client.read_file("/f", 20_000).unwrap(), content);
    let error = client.read_file("/f", 19_999).unwrap_err();
    assert!(
        error.to_string().contains("larger than 19999 bytes"),
        "{error}"
    );
    assert_eq!(
        client
            .open_file("/f")
            .unwrap()
            .read_at(19_990, 100)
            .unwrap(),
        content[19_990..]
    );
}

#[test]
fn a_transcript_that_cannot_be_written_does_not_end_the_session() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let (stream, _) = peer(Peer::handshake);
    let options = ClientOptions {
        log: Some(Box::new(Full)),
        ..options()
    };
    let mut client = Client::over(stream, options).unwrap();
    assert!(client.connection().log_failure().is_some());
}
