//! Tests recorded processor times of threads against the threads' own values, on this machine and
//! through a stub.

use std::io::{BufRead, BufReader, read_to_string};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use libtest_mimic::Trial;

use unspool_tests::finding::repeat_until_expected;
use unspool_tests::process::{self, Background};
use unspool_tests::{report, turns, waiting, workspace};

use super::C;

const LIMIT: Duration = Duration::from_secs(120);

pub(super) fn trials() -> Vec<Trial> {
    let trials = [
        ("here", here as fn() -> Result<Option<String>>),
        ("connected", connected),
    ];
    trials
        .map(|(name, check)| {
            crate::trial(format!("findings::turns::{name}"), move || {
                repeat_until_expected(check)
            })
        })
        .into()
}

fn here() -> Result<Option<String>> {
    let (folder, file) = waiting::compile_in("findings", "turns.c", C)?;
    let capture = folder.path().join("capture");
    let mut record = report::unspool()?;
    record.args(["record", "-q", "--sync", "-o"]);
    record.arg(&capture).arg("--").arg(file);
    let run = process::run(&mut record, LIMIT)?.success()?;
    turns::compare(&run.text(), &report::json(&capture, &[])?)
}

fn connected() -> Result<Option<String>> {
    let (folder, file) = waiting::compile_in("findings", "turns.c", C)?;
    let capture = folder.path().join("capture");
    let mut stub = Command::new(workspace::stub()?);
    stub.args(["--once", "127.0.0.1:0"]).arg(file);
    stub.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut stub = Background(process::start(&mut stub)?);
    let errors = stub.0.stderr.take().context("piped")?;
    let mut lines = BufReader::new(errors).lines().map_while(Result::ok);
    let port = lines.find_map(|line| Some(line.strip_prefix("Listening on port ")?.to_owned()));
    let port = port.context("the stub ended")?;
    let mut record = report::unspool()?;
    record.args(["record", "-q", "--sync", "-o"]).arg(&capture);
    record.args(["--connect", &format!("127.0.0.1:{port}")]);
    process::run(&mut record, LIMIT)?.success()?;
    let said = read_to_string(stub.0.stdout.take().context("piped")?)?;
    turns::compare(&said, &report::json(&capture, &[])?)
}
