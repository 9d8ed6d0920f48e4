//! Registers, compared with the program's values and with gdbserver.

use std::process::{Command, Stdio};

use super::client::{little_endian, unhex};
use super::gdb::{assert_order, gdb};
use super::programs::build;
use super::server::Server;

fn has_avx() -> bool {
    std::fs::read_to_string("/proc/cpuinfo")
        .unwrap()
        .contains(" avx ")
}

#[test]
fn vectors_and_floats_are_read_and_written() {
    assert!(has_avx(), "this test needs a processor with AVX");
    let program = build("vector", &["-no-pie"]);
    let stub = env!("CARGO_BIN_EXE_unspool-stub");
    let text = gdb(
        &program,
        &format!(
            "target remote | {stub} - {}\ncontinue\n\
             p $ymm3.v8_float\np $st0\np/x $ftag\np/x $fctrl\np $fs_base != 0\np $orig_rax\n\
             set var $ymm3.v8_float[7] = 80\nset var $xmm3.v4_float[0] = 10\n\
             set var $st0 = 2.25\np $ymm3.v8_float\ncontinue\n",
            program.display()
        ),
    );
    assert_order(
        &text,
        &[
            "SIGTRAP",
            "{1, 2, 3, 4, 5, 6, 7, 8}",
            "= 1.5",
            "= 0x3fff",
            "= 0x37f",
            "= 1",
            "= -1",
            "{10, 2, 3, 4, 5, 6, 7, 80}",
            "10 2 3 4 5 6 7 80 2.25",
            "exited normally",
        ],
    );
}

/// Compares all registers at the first instruction, and the memory at the stack pointer.
#[test]
fn registers_match_those_of_gdbserver() {
    let program = build("source", &["-no-pie"]);
    let show =
        "info registers\ninfo registers float\ninfo registers vector\nx/64xb $pc\ninfo auxv\n";
    let ours = format!(
        "target remote | {} - {}\n{show}kill\n",
        env!("CARGO_BIN_EXE_unspool-stub"),
        program.display()
    );
    let theirs = format!(
        "target remote | gdbserver --once - {}\n{show}kill\n",
        program.display()
    );
    // The initial stack depends on how the program is started, so leave out rsp and the random
    // bytes.
    let keep = |text: String| -> Vec<String> {
        text.lines()
            .filter(|line| {
                line.starts_with([
                    'r', 'e', 'f', 's', 'x', 'y', 'm', 'o', 'g', 'c', 'd', ' ', '0',
                ]) && !line.starts_with("rsp")
                    && !line.contains("AT_RANDOM")
                    && !line.contains("AT_EXECFN")
                    && !line.contains("AT_PLATFORM")
            })
            .map(str::to_owned)
            .collect()
    };
    let (ours, theirs) = (keep(gdb(&program, &ours)), keep(gdb(&program, &theirs)));
    let general = ours.iter().filter(|line| line.starts_with('r')).count();
    assert!(general >= 16, "{ours:?}");
    // gdbserver may show more registers (AVX-512). Those that both show must agree.
    for line in &ours {
        let name = line.split_whitespace().next().unwrap_or_default();
        if let Some(other) = theirs.iter().find(|other| {
            other.split_whitespace().next() == Some(name) && !name.starts_with(['x', 'y', 'z'])
        }) && name.len() > 1
            && line.starts_with(char::is_alphabetic)
        {
            assert_eq!(line, other);
        }
    }
}

#[test]
fn whole_blocks_survive_the_round_trip() {
    let program = build("source", &["-no-pie"]);
    let (_server, mut client) = Server::run(&program, &[]);
    let block = client.ask("g");
    assert_eq!(client.ask(&format!("G{block}")), "OK");
    assert_eq!(client.ask("g"), block);
    assert_eq!(client.ask("P3=efbeadde00000000"), "OK");
    assert_eq!(client.register(3), 0xdead_beef);
    assert_eq!(little_endian(&client.ask("g")[3 * 16..4 * 16]), 0xdead_beef);
    assert_eq!(client.ask(&format!("G{block}")), "OK");
    assert_eq!(client.ask("g"), block);
    assert!(client.ask("P3=00").starts_with('E'));
    assert_eq!(client.ask("pffff"), "");
    let xml = client.transfer("features", "target.xml");
    let bits: usize = xml
        .split("bitsize=\"")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap().parse::<usize>().unwrap())
        .sum();
    assert_eq!(unhex(&block).len() * 8, bits);
}

#[test]
fn the_table_of_every_architecture_compiles() {
    // The compiler checks the files of the other architectures. A missing target is a failure, not
    // a skip.
    for target in ["armv7-unknown-linux-gnueabihf", "aarch64-unknown-linux-gnu"] {
        let status = Command::new(env!("CARGO"))
            .args(["check", "-q", "-p", "unspool-stub", "--target", target])
            .env(
                "CARGO_TARGET_DIR",
                format!("{}/cross", env!("CARGO_TARGET_TMPDIR")),
            )
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .stdin(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success(), "{target}");
    }
}
