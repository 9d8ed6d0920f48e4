//! Tests hits recorded without a stop on the boards: none is missing, and the frames equal those of
//! a trap. (`scratch` tests that nothing is left behind.)

use std::path::Path;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;

use unspool_tests::wire::Wire;

use super::{ISAS, Isa, address};

pub(super) fn trials() -> Vec<Trial> {
    let of = |isa: Isa| {
        [
            super::trial(format!("every_hit_fast-{}", isa.name), move || {
                every_hit(isa)
            }),
            super::trial(format!("frames_fast-{}", isa.name), move || frames(isa)),
        ]
    };
    ISAS.into_iter().flat_map(of).collect()
}

/// All general registers, the thread pointer, and 32 bytes of stack; the bytes after that are
/// random.
fn sample(isa: Isa) -> &'static str {
    match isa.name {
        "a64" => "R1000000001ffffffffM1f,0,20",
        _ => "R80000000200ffffMd,0,20",
    }
}

/// A run of `stub/tests/programs/hits.c` up to the point where all threads are done.
struct Run {
    wire: Wire<std::net::TcpStream>,
    server: unspool_tests::board::Server,
    hit: u64,
    /// The code at the tracepoint while it is traced, in the program's memory, and as clients see
    /// it.
    text: String,
    seen: String,
}

impl Run {
    fn new(isa: Isa, program: &Path, arguments: &str, fast: bool) -> Result<Run> {
        let board = isa.board()?;
        let there = board.put(program, &format!("/tmp/fast-{}", isa.name))?;
        let hit = address(isa.machine, program, "hit")?;
        let end = address(isa.machine, program, "the_end")?;
        let server = board.serve(&format!(
            "unspool-stub --once --budget none 0.0.0.0:0 {there} {arguments}"
        ))?;
        let mut wire = Wire::connect(server.port)?;
        let words = if fast { ":F8" } else { "" };
        for packet in [
            "QTBuffer:size:1000000".to_owned(),
            format!("QTDP:1:{hit:x}:E:0:0{words}-"),
            format!("QTDP:-1:{hit:x}:{}", sample(isa)),
            "QTStart".to_owned(),
            format!("Z0,{end:x},{}", isa.kind),
        ] {
            let answer = wire.ask(&packet)?;
            ensure!(answer == "OK", "{packet}: {answer}");
        }
        let stop = wire.go("vCont;c")?;
        let stop = stop.map_err(|end| anyhow::anyhow!("it ends too early: {end}"))?;
        ensure!(stop.is_breakpoint(), "{}", stop.text);
        let text = board.shell(&format!(
            "dd if=/proc/{}/mem bs=2 skip={} count=2 2>/dev/null | xxd -p",
            stop.pid,
            hit / 2
        ))?;
        let seen = wire.ask(&format!("m{hit:x},4"))?;
        Ok(Run {
            wire,
            server,
            hit,
            text: text.trim().to_owned(),
            seen,
        })
    }

    /// The number of hits, and of frames created.
    fn counts(&mut self) -> Result<(u64, u64)> {
        let number = |digits| u64::from_str_radix(digits, 16);
        let hits = self.wire.ask(&format!("qTP:1:{:x}", self.hit))?;
        let hits = hits.strip_prefix('V').and_then(|rest| rest.split_once(':'));
        let (hits, _) = hits.context("qTP")?;
        let status = self.wire.ask("qTStatus")?;
        let created = status
            .split(';')
            .find_map(|field| field.strip_prefix("tcreated:"));
        Ok((number(hits)?, number(created.context("qTStatus")?)?))
    }

    /// Resumes it; its own result must be right.
    fn finish(mut self, total: u64) -> Result<()> {
        let answer = self.wire.ask("QTStop")?;
        ensure!(answer == "OK", "QTStop: {answer}");
        let end = self.wire.ask("vCont;c")?;
        ensure!(end.starts_with("W00"), "{end}");
        drop(self.wire);
        let said = self.server.finish()?;
        ensure!(said.contains(&format!("total {total}\n")), "{said}");
        Ok(())
    }
}

fn every_hit(isa: Isa) -> Result<()> {
    let (program, _folder) = isa.compile("stub/tests/programs/hits.c")?;
    let mut run = Run::new(isa, &program, "8 1500", true)?;
    let counts = run.counts()?;
    ensure!(counts == (12_000, 12_000), "{counts:?}");
    // The stub inserts a jump and no trap; a client sees neither.
    let jumps = match isa.name {
        "a64" => run.text.ends_with("14") || run.text.ends_with("17"),
        "a32" => run.text.ends_with("ea"),
        _ => matches!(run.text.as_bytes(), [_, _, b'f', b'0'..=b'7', ..]),
    };
    ensure!(jumps && run.text != run.seen, "{} {}", run.text, run.seen);
    run.finish(12_000)
}

fn frames(isa: Isa) -> Result<()> {
    const ROUNDS: u64 = 100;
    let (program, _folder) = isa.compile("stub/tests/programs/hits.c")?;
    let (pointer, registers, stack) = match isa.name {
        "a64" => (68, 0..33, 0x1f),
        _ => (59, 0..16, 0xd),
    };
    let mut both = Vec::new();
    for fast in [false, true] {
        let mut run = Run::new(isa, &program, &format!("1 {ROUNDS}"), fast)?;
        let counts = run.counts()?;
        ensure!(counts == (ROUNDS, ROUNDS), "{counts:?}");
        let mut frames = Vec::new();
        for number in 0..ROUNDS {
            let answer = run.wire.ask(&format!("QTFrame:{number:x}"))?;
            ensure!(answer == format!("F{number:x}T1"), "{answer}");
            let mut frame = Vec::new();
            for register in registers.clone().chain([pointer]) {
                frame.push(run.wire.ask(&format!("p{register:x}"))?);
            }
            let sp = u64::from_str_radix(&frame[stack], 16)?;
            let wide = if isa.name == "a64" { 0 } else { 32 };
            let sp = (sp << wide).swap_bytes();
            frame.push(run.wire.ask(&format!("m{sp:x},20"))?);
            frames.push(frame);
        }
        let answer = run.wire.ask("QTFrame:ffffffff")?;
        ensure!(answer == "OK", "{answer}");
        run.finish(ROUNDS)?;
        both.push(frames);
    }
    for (number, (trap, fast)) in both[0].iter().zip(&both[1]).enumerate() {
        ensure!(trap == fast, "frame {number}:\n{trap:?}\n{fast:?}");
    }
    Ok(())
}
