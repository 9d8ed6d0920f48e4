//! Section addresses of ELF files, from readelf.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::memo::Memo;
use crate::process;

/// The address (svma) of every section of the file, by name.
pub fn sections(file: &Path) -> Result<Arc<HashMap<String, u64>>> {
    static READ: Memo<PathBuf, HashMap<String, u64>> = Memo::new();
    READ.get(file.to_owned(), || {
        let mut readelf = Command::new("readelf");
        readelf
            .args(["--section-headers", "--wide"])
            .arg(file)
            .env("LC_ALL", "C");
        let text = process::run(&mut readelf, Duration::from_secs(60))?
            .success()?
            .text();
        // [14] .text   PROGBITS   0000000000001080 001080 ...
        Ok(text
            .lines()
            .filter_map(|line| {
                let mut words = line.split_once(']')?.1.split_whitespace();
                let name = words.next()?.to_owned();
                let address = u64::from_str_radix(words.nth(1)?, 16).ok()?;
                Some((name, address))
            })
            .collect())
    })
}

/// The address of one section.
pub fn section(file: &Path, name: &str) -> Result<u64> {
    sections(file)?
        .get(name)
        .copied()
        .with_context(|| format!("{} has no section {name}", file.display()))
}

/// The build-id that readelf prints, in hex.
pub fn build_id(file: &Path) -> Result<Option<String>> {
    let mut readelf = Command::new("readelf");
    readelf.arg("--notes").arg(file).env("LC_ALL", "C");
    let text = process::run(&mut readelf, Duration::from_secs(60))?
        .success()?
        .text();
    Ok(text
        .lines()
        .find_map(|line| Some(line.split_once("Build ID: ")?.1.trim().to_owned())))
}

/// The address of the first instruction, without the Thumb bit.
pub fn entry(file: &Path) -> Result<u64> {
    let mut readelf = Command::new("readelf");
    readelf.arg("--file-header").arg(file).env("LC_ALL", "C");
    let text = process::run(&mut readelf, Duration::from_secs(60))?
        .success()?
        .text();
    let entry = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("Entry point address:"))
        .context("readelf shows no entry point")?;
    Ok(u64::from_str_radix(entry.trim().trim_start_matches("0x"), 16)? & !1)
}
