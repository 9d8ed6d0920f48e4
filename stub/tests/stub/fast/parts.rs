//! Frames with only the registers that are collected.

use super::super::client::{Client, unescape};
use super::super::programs::{address, build};
use super::super::server::{Server, eventually};
use super::{define, movable, run_to};

/// The frames that a client got, as their blocks.
pub fn blocks_of_frames(client: &Client) -> Vec<Vec<u8>> {
    let bodies = client.notified.iter();
    let bodies = bodies.filter_map(|body| body.strip_prefix(b"UnspoolTrace:"));
    let mut frames = Vec::new();
    for body in bodies {
        let semicolon = body.iter().position(|byte| *byte == b';').unwrap();
        let bytes = unescape(&body[semicolon + 1..]);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let length = u32::from_le_bytes(*rest[2..].first_chunk().unwrap()) as usize;
            frames.push(rest[6..6 + length].to_vec());
            rest = &rest[6 + length..];
        }
    }
    frames
}

/// Two clients record the same hits, one all registers and the other only what it collects.
#[test]
fn parts_of_the_registers_are_enough() {
    let program = build("hits", &["-no-pie"]);
    let (hit, end) = (address(&program, "hit"), address(&program, "the_end"));
    let mut server = Server::start(&[
        "--budget",
        "none",
        ":0",
        program.to_str().unwrap(),
        "2",
        "100",
    ]);
    let mut whole = Client::connect(server.port);
    let mut short = Client::observe(server.port);
    assert!(short.supported.contains("QUnspoolTrace:parts+"));
    for (client, mode) in [(&mut whole, "1"), (&mut short, "1,parts")] {
        assert_eq!(client.ask("QTinit"), "OK");
        assert_eq!(client.ask(&format!("QUnspoolTrace:{mode}")), "OK");
        let movable = movable(&program, "hit");
        define(client, 1, hit, movable, &["R1ffff"]);
        assert_eq!(client.ask("QTStart"), "OK");
    }
    run_to(&mut whole, end);
    eventually("all frames", || {
        short.ask("qTStatus");
        blocks_of_frames(&short).len() == 200
    });
    let (all, parts) = (blocks_of_frames(&whole), blocks_of_frames(&short));
    assert_eq!(all.len(), parts.len());
    for (all, parts) in all.iter().zip(&parts) {
        assert!(parts.len() < all.len());
        let mut expanded = vec![0; all.len()];
        expanded[0] = b'R';
        let mut rest = &parts[..];
        while let [b'P', low, high, few, many, after @ ..] = rest {
            let offset = 1 + usize::from(u16::from_le_bytes([*low, *high]));
            let (part, after) = after.split_at(u16::from_le_bytes([*few, *many]).into());
            expanded[offset..offset + part.len()].copy_from_slice(part);
            rest = after;
        }
        assert!(rest.is_empty() && expanded == *all);
    }
    drop(short);
    assert_eq!(whole.ask("D"), "OK");
    assert!(server.wait().success());
}
