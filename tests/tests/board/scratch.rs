//! Tests that the program continues with its original instructions and correct results, however a
//! session ends.
//!
//! Threads call one function continuously, with signals, forks and short threads, under tracepoints
//! and breakpoints.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;

use unspool_tests::board::{Board, Server};
use unspool_tests::wire::Wire;

use super::{ISAS, Isa, address};

pub(super) fn trials() -> Vec<Trial> {
    let of = |isa: Isa| {
        let name = format!("program_unchanged-{}", isa.name);
        super::trial(&name, move || program_unchanged(isa))
    };
    let fast = |isa: Isa| {
        let name = format!("program_unchanged_fast-{}", isa.name);
        super::trial(&name, move || program_unchanged_fast(isa))
    };
    let traps = ISAS.into_iter().map(of);
    traps.chain(ISAS.into_iter().map(fast)).collect()
}

/// How a session ends.
#[derive(Debug, Clone, Copy)]
enum End {
    /// The client detaches.
    Detach,
    /// The client disappears.
    Vanish,
    /// The stub gets SIGTERM.
    Term,
    /// The process that was started is killed.
    Kill,
    /// The tracing process is killed.
    KillTracer,
}

/// `stub/tests/programs/spin.c` running on a board.
struct Spinning {
    board: &'static Board,
    pid: u32,
    folder: String,
    hit: u64,
    never: u64,
}

impl Spinning {
    fn start(isa: Isa, program: &Path, trial: &str, kinds: &str) -> Result<Spinning> {
        let board = isa.board()?;
        let folder = format!("/tmp/{trial}-{}", isa.name);
        let there = board.put(program, &folder)?;
        let pid = board.shell(&format!(
            "cd {folder}; rm -f end out; {there} end {kinds} </dev/null >out 2>&1 & echo $!; \
             while ! grep -qs ready {folder}/out; do sleep 0.1; done"
        ))?;
        Ok(Spinning {
            board,
            pid: pid.trim().parse().with_context(|| pid.clone())?,
            folder,
            hit: address(isa.machine, program, "hit")?,
            never: address(isa.machine, program, "never")?,
        })
    }

    /// The code of both functions.
    fn text(&self) -> Result<String> {
        let at = |at: u64| {
            format!(
                "dd if=/proc/{}/mem bs=4 skip={} count=4 2>/dev/null | xxd -p;",
                self.pid,
                at / 4
            )
        };
        let text = self.board.shell(&(at(self.hit) + &at(self.never)))?;
        ensure!(text.lines().count() == 2, "it is gone: {text:?}");
        Ok(text)
    }

    /// Waits until no process traces it.
    fn untraced(&self) -> Result<()> {
        let script = format!(
            "while grep -h TracerPid /proc/{}/task/*/status 2>/dev/null | grep -qv '\\s0$'; do sleep 0.1; done",
            self.pid
        );
        self.board.shell(&script).map(drop)
    }

    /// Waits for its end; its result must be right.
    fn finish(self) -> Result<()> {
        let said = self.board.shell(&format!(
            "cd {}; touch end; while kill -0 {} 2>/dev/null; do sleep 0.1; done; cat out",
            self.folder, self.pid
        ))?;
        ensure!(said == "ready\nbad 0\n", "the program says {said:?}");
        Ok(())
    }
}

fn program_unchanged(isa: Isa) -> Result<()> {
    use End::{Detach, Kill, KillTracer, Term, Vanish};
    let (program, _folder) = isa.compile("stub/tests/programs/spin.c")?;
    // A signal that was reported to the tracer but not passed on is lost with the tracer. Nothing
    // can prevent that either.
    for (kinds, ends) in [
        ("sft", &[Detach, Vanish, Term, Kill, Detach][..]),
        ("ft", &[KillTracer, Detach]),
    ] {
        let spinning = Spinning::start(isa, &program, "scratch", kinds)?;
        let before = spinning.text()?;
        for end in ends {
            session(isa, &spinning, &before, *end, "").with_context(|| format!("{end:?}"))?;
        }
        spinning.finish()?;
    }
    Ok(())
}

/// The same with hits recorded without a stop.
fn program_unchanged_fast(isa: Isa) -> Result<()> {
    use End::{Detach, Kill, Term, Vanish};
    let (program, _folder) = isa.compile("stub/tests/programs/spin.c")?;
    // Not the tracer: a thread may be stopped at a collector's own trap (docs/decisions/0004,
    // "Left").
    let spinning = Spinning::start(isa, &program, "scratch-fast", "sft")?;
    let before = spinning.text()?;
    for end in [Detach, Vanish, Term, Kill, Detach] {
        session(isa, &spinning, &before, end, ":F8").with_context(|| format!("{end:?}"))?;
    }
    spinning.finish()
}

/// `fast` is the tracepoint definition's field for recording without a stop.
fn session(isa: Isa, spinning: &Spinning, before: &str, end: End, fast: &str) -> Result<()> {
    let board = spinning.board;
    let server = board.serve(&format!(
        "unspool-stub --once --budget none --attach 0.0.0.0:0 {}",
        spinning.pid
    ))?;
    let mut wire = Wire::connect(server.port)?;
    let all: Vec<String> = (1..=0x97).map(|signal| format!("{signal:x}")).collect();
    // If the tracer is killed after a thread ran into a trap, the kernel delivers the trap to the
    // thread. Nothing can prevent that (`stub/src/guardian.rs`), so no thread runs into a trap
    // then.
    let traced = match end {
        End::KillTracer => spinning.never,
        _ => spinning.hit,
    };
    for packet in [
        format!("QPassSignals:{}", all.join(";")),
        "QTBuffer:circular:1".to_owned(),
        format!("QTDP:1:{traced:x}:E:0:0{fast}"),
        "QTStart".to_owned(),
        format!("Z0,{:x},{}", spinning.never & !1, isa.kind),
    ] {
        let answer = wire.ask(&packet)?;
        ensure!(answer == "OK", "{packet}: {answer}");
    }
    wire.send("vCont;c")?;
    // Wait until it runs.
    board.shell("sleep 0.5")?;
    ensure!(spinning.text()? != before, "no trap is there");
    let kill = |server: &Server, how: &str| board.shell(&format!("kill -{how} {}", server.pid()));
    match end {
        End::Detach => {
            wire.interrupt()?;
            let stop = wire.receive()?;
            ensure!(stop.starts_with('T'), "{stop}");
            let answer = wire.ask(&format!("D;{:x}", spinning.pid))?;
            ensure!(answer == "OK", "{answer}");
        }
        End::Vanish => drop(wire),
        End::Term => drop(kill(&server, "TERM")?),
        End::Kill => drop(kill(&server, "KILL")?),
        End::KillTracer => {
            // Only this trial's process; other trials have their own.
            board.shell(&format!(
                "for pid in $(pidof unspool-tracer); do \
                 grep -q 'PPid:\\s*{}$' /proc/$pid/status && kill -KILL $pid; done",
                server.pid()
            ))?;
        }
    }
    spinning.untraced()?;
    let after = spinning.text()?;
    ensure!(after == before, "before:\n{before}\nafter:\n{after}");
    server.finish().map(drop)
}
