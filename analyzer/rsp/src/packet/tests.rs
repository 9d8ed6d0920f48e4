//! Tests framing with packets written from the manual's rules, and with noise.

use super::*;

fn frames(bytes: &[u8]) -> Vec<Frame> {
    let mut framer = Framer::new(1000);
    framer.feed(bytes);
    std::iter::from_fn(|| framer.next_frame()).collect()
}

#[test]
fn a_packet_and_its_checksum() {
    // 'O' + 'K' = 0x4f + 0x4b = 0x9a
    assert_eq!(frame(b"OK"), b"$OK#9a");
    assert_eq!(frame(b""), b"$#00");
    assert_eq!(
        frames(b"+$OK#9a$#00-"),
        [
            Frame::Ack,
            Frame::Packet(b"OK".to_vec()),
            Frame::Packet(vec![]),
            Frame::Nack
        ]
    );
    assert_eq!(frames(b"$OK#9A"), [Frame::Packet(b"OK".to_vec())]);
}

#[test]
fn bytes_may_come_one_by_one() {
    let mut framer = Framer::new(10);
    for byte in b"$OK#9" {
        framer.feed(&[*byte]);
        assert_eq!(framer.next_frame(), None);
        assert!(framer.in_packet());
    }
    framer.feed(b"a");
    assert_eq!(framer.next_frame(), Some(Frame::Packet(b"OK".to_vec())));
    assert!(!framer.in_packet());
}

#[test]
fn how_a_stream_is_cut_makes_no_difference() {
    let long = [b"$0123456789ab#".to_vec(), frame(b"a}\x03* b")].concat();
    let streams: [&[u8]; 5] = [
        b"+$OK#9a-%Stop:T05#4f\x03",
        b"$lost$OK#9a$lost%OK#9a",
        b"$a#$OK#9a$*!#4b$OK#zz$OK#9a",
        b"noise$OK#9a#9a$#00",
        &long,
    ];
    for stream in streams {
        let mut whole = Framer::new(12);
        whole.feed(stream);
        let whole: Vec<Frame> = std::iter::from_fn(|| whole.next_frame()).collect();
        assert!(whole.contains(&Frame::Packet(b"OK".to_vec())) || stream == long);
        for size in 1..8 {
            let mut framer = Framer::new(12);
            for piece in stream.chunks(size) {
                framer.feed(piece);
            }
            let cut: Vec<Frame> = std::iter::from_fn(|| framer.next_frame()).collect();
            assert_eq!(cut, whole, "{size}");
        }
    }
}

#[test]
fn run_lengths_as_in_the_manual() {
    // "0* " means "0000": ' ' is 32, 32 - 29 = 3 more.
    assert_eq!(frames(b"$0* #7a"), [Frame::Packet(b"0000".to_vec())]);
    // The greatest count is '~': 97 more.
    let longest = frame(b"x*~");
    assert_eq!(frames(&longest), [Frame::Packet(vec![b'x'; 98])]);
    // Two runs, one after the other.
    assert_eq!(
        frames(&frame(b"a* b*!")),
        [Frame::Packet(b"aaaabbbbb".to_vec())]
    );
}

#[test]
fn run_lengths_that_make_no_sense() {
    for (body, problem) in [
        (&b"*!"[..], "a run length without a byte before it"),
        (b"a*", "a run length that is not printable"),
        (b"a*\x1f", "a run length that is not printable"),
    ] {
        let got = frames(&frame(body));
        let [Frame::Undecodable { problem: seen, .. }] = got.as_slice() else {
            panic!("{got:?}");
        };
        assert_eq!(*seen, problem);
    }
}

#[test]
fn damaged_packets_are_told_with_both_sums() {
    assert_eq!(
        frames(b"$OK#9b"),
        [Frame::Damaged {
            stated: 0x9b,
            computed: 0x9a
        }]
    );
    assert_eq!(
        frames(b"$OK#zz"),
        [Frame::Damaged {
            stated: 0,
            computed: 0x9a
        }]
    );
}

#[test]
fn a_packet_that_lost_its_end_gives_way_to_the_next() {
    assert_eq!(frames(b"$T05thr$OK#9a"), [Frame::Packet(b"OK".to_vec())]);
}

#[test]
fn notifications_and_garbage() {
    assert_eq!(
        frames(b"%OK#9ahm\x03"),
        [
            Frame::Notification(b"OK".to_vec()),
            Frame::Garbage(b'h'),
            Frame::Garbage(b'm'),
            Frame::Interrupt
        ]
    );
}

#[test]
fn packets_over_the_bound_are_skipped() {
    let mut framer = Framer::new(4);
    framer.feed(b"$12345678#aa$OK#9a");
    assert_eq!(framer.next_frame(), Some(Frame::Oversized));
    let rest: Vec<_> = std::iter::from_fn(|| framer.next_frame()).collect();
    assert_eq!(rest.last(), Some(&Frame::Packet(b"OK".to_vec())));
    // A short packet must not expand beyond the limit.
    framer.feed(&frame(b"0*~"));
    assert_eq!(framer.next_frame(), Some(Frame::Oversized));
}

#[test]
fn escapes_both_ways() {
    // The manual's example: 0x7d is sent as 0x7d 0x5d.
    assert_eq!(escape(b"}"), b"}]");
    assert_eq!(escape(b"a#b$c*"), b"a}\x03b}\x04c}\x0a");
    assert_eq!(unescape(b"a}\x03b}\x04c}\x0a").unwrap(), b"a#b$c*");
    assert_eq!(unescape(b"a}"), None);
    let all: Vec<u8> = (0..=255).collect();
    assert_eq!(unescape(&escape(&all)).unwrap(), all);
    assert_eq!(frames(&frame(&escape(&all))), [Frame::Packet(escape(&all))]);
}

/// Seeded pseudo-random bytes (xorshift), so that a failure can be repeated.
pub(crate) fn noise(mut seed: u64, len: usize) -> Vec<u8> {
    (0..len)
        .map(|_| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed >> 24) as u8
        })
        .collect()
}

#[test]
fn noise_never_panics_nor_grows() {
    for seed in 1..200 {
        let mut framer = Framer::new(64);
        // Mostly meaningful bytes, so that all states are reached.
        let bytes: Vec<u8> = noise(seed, 4000)
            .into_iter()
            .map(|b| match b {
                0..200 => b"$#%+-*}~0a\x03 "[usize::from(b) % 12],
                b => b,
            })
            .collect();
        framer.feed(&bytes);
        while let Some(frame) = framer.next_frame() {
            if let Frame::Packet(p) | Frame::Notification(p) = frame {
                assert!(p.len() <= 64);
                let _ = unescape(&p);
            }
        }
        framer.feed(b"#00#00$OK#9a");
        let last = std::iter::from_fn(|| framer.next_frame()).last();
        assert_eq!(last, Some(Frame::Packet(b"OK".to_vec())), "seed {seed}");
    }
}
