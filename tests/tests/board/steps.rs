//! Tests single steps without hardware support: the executed instructions must equal those that an
//! emulator executes for the same program.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;

use unspool_tests::process;
use unspool_tests::wire::Wire;

use super::{ISAS, Isa, address, arm, compile};
use unspool_tests::board::Machine;

pub(super) fn trials() -> Vec<Trial> {
    let mut trials = vec![
        super::trial("steps::every_branch", every_branch),
        super::trial("steps::over_every_instruction", over_every_instruction),
    ];
    for isa in ISAS {
        let name = format!("steps::a_range-{}", isa.name);
        trials.push(super::trial(&name, move || a_range(isa)));
    }
    trials
}

const OPTIONS: &[&str] = &["-nostdlib", "-static", "-Wl,-z,noexecstack"];

/// The addresses that `qemu-arm` executes, one by one.
fn emulated(program: &std::path::Path) -> Result<Vec<u64>> {
    let folder = tempfile::tempdir()?;
    let log = folder.path().join("log");
    let mut emulator = Command::new("qemu-arm");
    emulator
        .args(["-singlestep", "-d", "exec,nochain", "-D"])
        .arg(&log)
        .arg(program);
    process::run(&mut emulator, Duration::from_secs(60))?.success()?;
    // Trace 0: 0x7f4544013400 [00000480/00010430/00000000/00000201]
    std::fs::read_to_string(&log)?
        .lines()
        .filter_map(|line| line.split('/').nth(1))
        .map(|digits| u64::from_str_radix(digits, 16).context("an address"))
        .collect()
}

/// Decides whether a step does not stop at an address: in an exclusive sequence, which may repeat;
/// in the kernel's page; or skipped in an IT block.
struct SkippedAddresses {
    ranges: Vec<(u64, u64)>,
}

impl SkippedAddresses {
    fn new(program: &std::path::Path) -> Result<Self> {
        let mut ranges = vec![(0xffff_0000, u64::MAX)];
        for set in ["a32", "t32"] {
            ranges.push((
                address(Machine::Arm, program, &format!("{set}_exclusive"))?,
                address(Machine::Arm, program, &format!("{set}_exclusive_end"))?,
            ));
        }
        for label in ["passed_1", "passed_2", "passed_3"] {
            let at = address(Machine::Arm, program, label)?;
            ranges.push((at, at + 1));
        }
        Ok(Self { ranges })
    }

    fn covers(&self, pc: u64) -> bool {
        self.ranges
            .iter()
            .any(|(start, end)| (*start..*end).contains(&pc))
    }
}

fn every_branch() -> Result<()> {
    let (program, _folder) = compile(Machine::Arm, "tests/programs/branches.S", OPTIONS)?;
    let silent = SkippedAddresses::new(&program)?;
    let expected: Vec<u64> = emulated(&program)?
        .into_iter()
        .filter(|pc| !silent.covers(*pc))
        .collect();
    let there = arm()?.put(&program, "/tmp/steps")?;
    let server = arm()?.serve(&format!("unspool-stub --once 0.0.0.0:0 {there}"))?;
    let mut wire = Wire::connect(server.port)?;
    let mut seen = Vec::new();
    let mut packet = "?".to_owned();
    let end = loop {
        match wire.go(&packet)? {
            Ok(stop) => {
                // The kernel's form of a handler's address, with the instruction set bit.
                let pc = stop.register(15).context("no pc")? & !1;
                packet = format!("vCont;s:p{:x}.{:x}", stop.pid, stop.tid);
                if stop.text.starts_with("T1e") {
                    // Its own signal, before delivery.
                    packet = packet.replace("vCont;s", "vCont;S1e");
                } else if !silent.covers(pc) {
                    seen.push(pc);
                }
            }
            Err(end) => break end,
        }
    };
    ensure!(end.starts_with("W00"), "it ends with {end}");
    let differ = expected.iter().zip(&seen).position(|(a, b)| a != b);
    ensure!(
        differ.is_none() && expected.len() == seen.len(),
        "{} steps, {} instructions; after the {differ:?}th they part: {:x?}, expected {:x?}",
        seen.len(),
        expected.len(),
        &seen[differ.unwrap_or(0).min(seen.len())..]
            .iter()
            .take(3)
            .collect::<Vec<_>>(),
        &expected[differ.unwrap_or(0).min(expected.len())..]
            .iter()
            .take(3)
            .collect::<Vec<_>>(),
    );
    Ok(())
}

/// A breakpoint at every executed instruction, with `vCont;c` from each to the next. Each is
/// stepped over in place.
fn over_every_instruction() -> Result<()> {
    let (program, _folder) = compile(Machine::Arm, "tests/programs/branches.S", OPTIONS)?;
    let silent = SkippedAddresses::new(&program)?;
    let executed: Vec<u64> = emulated(&program)?
        .into_iter()
        .filter(|pc| !silent.covers(*pc))
        .collect();
    let kinds = kinds(&program)?;
    let there = arm()?.put(&program, "/tmp/over")?;
    let server = arm()?.serve(&format!("unspool-stub --once 0.0.0.0:0 {there}"))?;
    let mut wire = Wire::connect(server.port)?;
    for (at, kind) in &kinds {
        if executed.contains(at) {
            let answer = wire.ask(&format!("Z0,{at:x},{kind}"))?;
            ensure!(answer == "OK", "Z0 at {at:x}: {answer}");
        }
    }
    // It is already stopped at the first one, and hits it again when resumed.
    let mut seen = Vec::new();
    let mut told = 0;
    let mut packet = "?".to_owned();
    let end = loop {
        match wire.go(&packet)? {
            Ok(stop) => {
                let begins = packet == "?";
                packet = "vCont;c".to_owned();
                if begins {
                    continue;
                }
                let pc = stop.register(15).context("no pc")? & !1;
                if stop.text.starts_with("T1e") {
                    // A hit seen there: the instruction before the handler executes without a hit
                    // of its own.
                    told = pc;
                    packet = "vCont;C1e:p1.-1;c"
                        .replace("p1.-1", &format!("p{:x}.{:x}", stop.pid, stop.tid));
                    continue;
                }
                ensure!(stop.is_breakpoint(), "{}", stop.text);
                seen.push(pc);
            }
            Err(end) => break end,
        }
    };
    ensure!(end.starts_with("W00"), "it ends with {end}");
    let executed: Vec<u64> = executed.into_iter().filter(|pc| *pc != told).collect();
    ensure!(
        seen == executed,
        "{} hits, {} instructions executed; they part at {:x?}",
        seen.len(),
        executed.len(),
        executed.iter().zip(&seen).find(|(a, b)| a != b)
    );
    Ok(())
}

/// Breakpoint kinds by address, from the disassembly: `10430:\te3a00001 \tmov`, `105a8:\t3101
/// \tadds`.
fn kinds(program: &std::path::Path) -> Result<BTreeMap<u64, u64>> {
    let mut objdump = Command::new("arm-linux-gnueabihf-objdump");
    objdump.arg("-d").arg(program);
    let text = process::run(&mut objdump, Duration::from_secs(20))?
        .success()?
        .text();
    Ok(text
        .lines()
        .filter_map(|line| {
            let mut parts = line.split('\t');
            let at = parts.next()?.trim().strip_suffix(':')?;
            let kind = match parts.next()?.trim() {
                code if code.contains(' ') => 3,
                code if code.len() == 4 => 2,
                _ => 4,
            };
            Some((u64::from_str_radix(at, 16).ok()?, kind))
        })
        .collect())
}

/// `vCont;r` stops only when the program leaves the range, while other threads run.
fn a_range(isa: Isa) -> Result<()> {
    let (program, _folder) = isa.compile("stub/tests/programs/hits.c")?;
    let (hit, main) = (
        address(isa.machine, &program, "hit")?,
        address(isa.machine, &program, "main")?,
    );
    let there = isa
        .board()?
        .put(&program, &format!("/tmp/range{}", isa.name))?;
    let server = isa
        .board()?
        .serve(&format!("unspool-stub --once 0.0.0.0:0 {there} 3 300"))?;
    let mut wire = Wire::connect(server.port)?;
    wire.ask(&format!("Z0,{hit:x},{}", isa.kind))?;
    let Ok(stop) = wire.go("vCont;c")? else {
        anyhow::bail!("it ends before it begins");
    };
    ensure!(
        stop.register(isa.machine.pc()) == Some(hit),
        "{}",
        stop.text
    );
    wire.ask(&format!("z0,{hit:x},{}", isa.kind))?;
    let link = match isa.machine {
        Machine::Arm => 14,
        Machine::Arm64 => 30,
    };
    let lr = stop.register(link).context("lr")? & !1;
    let thread = format!("p{:x}.{:x}", stop.pid, stop.tid);
    // To the end of the function, which leads back to the caller.
    let range = format!(
        "vCont;r{hit:x},{:x}:{thread};c",
        hit + 4 * u64::from(isa.kind)
    );
    let Ok(stop) = wire.go(&range)? else {
        anyhow::bail!("it ends while a thread is in a range");
    };
    let pc = stop.register(isa.machine.pc()).context("pc")?;
    ensure!(
        pc == lr,
        "{pc:x}, expected the caller {lr:x} (main is at {main:x}): {}",
        stop.text
    );
    let Err(end) = wire.go("vCont;c")? else {
        anyhow::bail!("another stop");
    };
    ensure!(end.starts_with("W00"), "{end}");
    drop(wire);
    let output = server.finish()?;
    ensure!(output.contains("total 900\n"), "{output}");
    Ok(())
}
