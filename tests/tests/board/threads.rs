//! Tests many threads on two processors: none passes a breakpoint, none is lost, and a detached
//! program has its original instructions.

use anyhow::{Context, Result, bail, ensure};
use libtest_mimic::Trial;

use unspool_tests::wire::Wire;

use super::{Check, ISAS, Isa, address};

pub(super) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for isa in ISAS {
        let cases: [(&str, Check<Isa>); 5] = [
            ("threads::one_function", one_function),
            ("threads::short_lived", short_lived),
            ("threads::step_beside_others", step_beside_others),
            ("detach", detach),
            ("interrupt_and_kill", interrupt_and_kill),
        ];
        for (name, check) in cases {
            let name = format!("{name}-{}", isa.name);
            trials.push(super::trial(&name, move || check(isa)));
        }
    }
    trials
}

/// Eight threads through one breakpoint, in a tight loop.
fn one_function(isa: Isa) -> Result<()> {
    let (program, _folder) = isa.compile("stub/tests/programs/hits.c")?;
    let hit = address(isa.machine, &program, "hit")?;
    let there = isa
        .board()?
        .put(&program, &format!("/tmp/hits{}", isa.name))?;
    let server = isa
        .board()?
        .serve(&format!("unspool-stub --once 0.0.0.0:0 {there} 8 60"))?;
    let mut wire = Wire::connect(server.port)?;
    wire.ask(&format!("Z0,{hit:x},{}", isa.kind))?;
    let mut hits = 0;
    let end = loop {
        match wire.go("vCont;c")? {
            Ok(stop) => {
                ensure!(
                    stop.is_breakpoint() && stop.register(isa.machine.pc()) == Some(hit),
                    "{}",
                    stop.text
                );
                hits += 1;
            }
            Err(end) => break end,
        }
    };
    ensure!(
        end.starts_with("W00") && hits == 480,
        "{hits} hits, then {end}"
    );
    drop(wire);
    let output = server.finish()?;
    ensure!(output.contains("total 480\n"), "{output}");
    Ok(())
}

/// Every thread hits a breakpoint first and then ends.
fn short_lived(isa: Isa) -> Result<()> {
    let (program, _folder) = isa.compile("stub/tests/programs/churn.c")?;
    let life = address(isa.machine, &program, "short_life")?;
    let there = isa
        .board()?
        .put(&program, &format!("/tmp/churn{}", isa.name))?;
    let server = isa
        .board()?
        .serve(&format!("unspool-stub --once 0.0.0.0:0 {there} 60"))?;
    let mut wire = Wire::connect(server.port)?;
    wire.ask(&format!("Z0,{life:x},{}", isa.kind))?;
    let mut hits = 0;
    let end = loop {
        match wire.go("vCont;c")? {
            Ok(stop) => {
                ensure!(stop.is_breakpoint(), "{}", stop.text);
                hits += 1;
            }
            Err(end) => break end,
        }
    };
    ensure!(
        end.starts_with("W00") && hits == 240,
        "{hits} hits, then {end}"
    );
    drop(wire);
    let output = server.finish()?;
    ensure!(output.contains("lived 240\n"), "{output}");
    Ok(())
}

/// One thread is stepped while others execute the same instructions, and so run into the traps for
/// its steps.
fn step_beside_others(isa: Isa) -> Result<()> {
    let (program, _folder) = isa.compile("stub/tests/programs/hits.c")?;
    let hit = address(isa.machine, &program, "hit")?;
    let there = isa
        .board()?
        .put(&program, &format!("/tmp/beside{}", isa.name))?;
    let server = isa
        .board()?
        .serve(&format!("unspool-stub --once 0.0.0.0:0 {there} 4 3000000"))?;
    let mut wire = Wire::connect(server.port)?;
    wire.ask(&format!("Z0,{hit:x},{}", isa.kind))?;
    let Ok(first) = wire.go("vCont;c")? else {
        bail!("it ends before it begins");
    };
    wire.ask(&format!("z0,{hit:x},{}", isa.kind))?;
    let thread = format!("p{:x}.{:x}", first.pid, first.tid);
    let mut pcs = Vec::new();
    for _ in 0..200 {
        match wire.go(&format!("vCont;s:{thread};c"))? {
            Ok(stop) => {
                ensure!(
                    stop.tid == first.tid && stop.text.starts_with("T05"),
                    "{}",
                    stop.text
                );
                pcs.push(stop.register(isa.machine.pc()).context("pc")?);
            }
            Err(end) => bail!("while it is stepped: {end}"),
        }
    }
    let rounds = pcs.iter().filter(|pc| **pc == hit).count();
    ensure!(rounds >= 10, "{rounds} calls in 200 steps: {pcs:x?}");
    let Err(end) = wire.go("vCont;c")? else {
        bail!("an unexpected stop");
    };
    ensure!(end.starts_with("W00"), "{end}");
    drop(wire);
    let output = server.finish()?;
    ensure!(output.contains("total 12000000\n"), "{output}");
    Ok(())
}

/// Attaches, stops at breakpoints, detaches. The code in memory equals the file, and the program's
/// sum is right.
fn detach(isa: Isa) -> Result<()> {
    let (program, _folder) = isa.compile("stub/tests/programs/hits.c")?;
    let (hit, work) = (
        address(isa.machine, &program, "hit")?,
        address(isa.machine, &program, "work")?,
    );
    let there = isa
        .board()?
        .put(&program, &format!("/tmp/detach{}", isa.name))?;
    let target = isa.board()?.shell(&format!(
        "{there} 4 20000000 </dev/null >{there}.out 2>&1 & echo $!"
    ))?;
    let target: u32 = target.trim().parse().with_context(|| target.clone())?;
    let text = |_: ()| {
        isa.board()?.shell(&format!(
            "dd if=/proc/{target}/mem bs=16 skip={} count=16 2>/dev/null | xxd",
            work >> 4
        ))
    };
    let before = text(())?;
    ensure!(before.lines().count() == 16, "{before}");

    let server = isa
        .board()?
        .serve(&format!("unspool-stub --once --attach 0.0.0.0:0 {target}"))?;
    let mut wire = Wire::connect(server.port)?;
    for at in [hit, work] {
        let answer = wire.ask(&format!("Z0,{at:x},{}", isa.kind))?;
        ensure!(answer == "OK", "{answer}");
    }
    for _ in 0..20 {
        let Ok(stop) = wire.go("vCont;c")? else {
            bail!("it has ended too early");
        };
        ensure!(stop.is_breakpoint(), "{}", stop.text);
    }
    ensure!(text(())? != before, "no trap is there to be taken out");
    let answer = wire.ask(&format!("D;{target:x}"))?;
    ensure!(answer == "OK", "{answer}");
    let after = text(())?;
    ensure!(after == before, "before:\n{before}\nafter:\n{after}");
    server.finish()?;
    let done = isa.board()?.shell(&format!(
        "while kill -0 {target} 2>/dev/null; do sleep 0.1; done; cat {there}.out"
    ))?;
    ensure!(done == "total 80000000\n", "after the detach: {done:?}");
    Ok(())
}

fn interrupt_and_kill(isa: Isa) -> Result<()> {
    let (program, _folder) = isa.compile("stub/tests/programs/hits.c")?;
    let there = isa
        .board()?
        .put(&program, &format!("/tmp/interrupt{}", isa.name))?;
    let server = isa.board()?.serve(&format!(
        "unspool-stub --once 0.0.0.0:0 {there} 4 2000000000"
    ))?;
    let mut wire = Wire::connect(server.port)?;
    let mut pid = 0;
    for _ in 0..10 {
        wire.send("vCont;c")?;
        std::thread::sleep(std::time::Duration::from_millis(30));
        wire.interrupt()?;
        let stop = wire.receive()?;
        ensure!(stop.starts_with("T02"), "{stop}");
        let threads = wire.ask("qfThreadInfo")?;
        let first = threads.trim_start_matches("mp").split('.').next();
        pid = u32::from_str_radix(first.context("a process")?, 16)?;
    }
    let answer = wire.ask(&format!("vKill;{pid:x}"))?;
    ensure!(answer == "OK", "{answer}");
    server.finish()?;
    let gone = isa
        .board()?
        .shell(&format!("[ -e /proc/{pid} ] || echo gone"))?;
    ensure!(gone == "gone\n", "it is still there");
    Ok(())
}
