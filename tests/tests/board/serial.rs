//! Tests the stub over a serial line, the board's second port, without a network.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use libtest_mimic::Trial;

use unspool_tests::wire::Wire;

use super::{ISAS, Isa, address};

pub(super) fn trials() -> Vec<Trial> {
    // One trial for each board.
    let of = |isa: Isa| super::trial(format!("serial_line-{}", isa.name), move || line(isa));
    ISAS.into_iter().skip(1).map(of).collect()
}

/// Uses breakpoints over the line, to the program's end.
fn line(isa: Isa) -> Result<()> {
    let (program, _folder) = isa.compile("stub/tests/programs/hits.c")?;
    let hit = address(isa.machine, &program, "hit")?;
    let board = isa.board()?;
    let there = board.put(&program, &format!("/tmp/serial{}", isa.name))?;
    let stream = UnixStream::connect(&board.serial)?;
    stream.set_read_timeout(Some(Duration::from_secs(120)))?;
    let started = board.shell(&format!(
        "stty -F /dev/ttyS0 115200 && unspool-stub /dev/ttyS0 {there} 2 5 </dev/null >{there}.out 2>&1 & sleep 1; cat {there}.out"
    ))?;
    let mut wire = Wire::handshake(stream).map_err(|error| error.context(started))?;
    let answer = wire.ask(&format!("Z0,{hit:x},{}", isa.kind))?;
    ensure!(answer == "OK", "{answer}");
    let mut hits = 0;
    let end = loop {
        match wire.go("vCont;c")? {
            Ok(stop) if stop.is_breakpoint() => hits += 1,
            Ok(stop) => bail!("{}", stop.text),
            Err(end) => break end,
        }
    };
    ensure!(
        end.starts_with("W00") && hits == 10,
        "{hits} hits, then {end}"
    );
    let said = board.shell(&format!("cat {there}.out"))?;
    ensure!(said.contains("total 10\n"), "{said}");
    Ok(())
}
