//! gdb's trace file: the registers and the stack of each recorded hit, for `target tfile`.
//!
//! Its form is in gdb's manual, "Tracepoint File Format". gdb reads the size of the register block
//! as a hexadecimal number, although the manual calls it decimal. A recording has each distinct
//! stack once, so a call with the stack of an earlier call has no trace frame.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;

use unspool_capture::Snapshot;

use super::exporter::{Error, Exporter, Options};
use crate::model::hits::Hits;
use crate::model::{Detail, Model};

/// The variables of each frame, with their numbers.
const VARIABLES: [(u32, &str); 2] = [(1, "unspool_tid"), (2, "unspool_time_ns")];

/// Maximum size of a block of memory, in bytes.
const MAX_BLOCK: usize = 0xf000;

/// Maximum size of all registers of a thread, in bytes.
const MAX_REGISTERS: usize = 64 << 10;
/// Maximum length of a line of the description, in bytes. gdb refuses lines of 1,000 bytes.
const MAX_LINE: usize = 900;

#[derive(Debug)]
pub(super) struct Tfile;

impl Exporter for Tfile {
    fn name(&self) -> &'static str {
        "tfile"
    }

    fn about(&self) -> &'static str {
        "gdb's trace file: registers and stacks of hits, for `target tfile` and `tfind`"
    }

    fn detail(&self) -> Detail {
        Detail {
            hits: true,
            ..Detail::default()
        }
    }

    fn is_binary(&self) -> bool {
        true
    }

    fn write(&self, model: &Model, _: &Options, out: &mut dyn Write) -> Result<(), Error> {
        let nothing = Hits::default();
        let hits = model.hits.as_ref().unwrap_or(&nothing);
        if hits.events.is_empty() {
            let text = "the recording has no registers and stacks, so there is nothing for gdb";
            return Err(Error::Missing(text.to_owned()));
        }
        // gdb reads a register only if the block does not end with it.
        let ends = hits.registers.iter();
        let ends = ends.map(|register| register.offset as usize + register.bits as usize / 8);
        let size = ends.max().unwrap_or(0).saturating_add(1);
        if size > MAX_REGISTERS {
            let text = "the recording is damaged: the registers of a thread are too large";
            return Err(Error::Missing(text.to_owned()));
        }
        write!(out, "\x7fTRACE0\nR {size:x}\n")?;
        writeln!(out, "status 0;tstop:0;tframes:{:x}", hits.events.len())?;
        for (number, name) in VARIABLES {
            let name: String = name.bytes().map(|byte| format!("{byte:02x}")).collect();
            writeln!(out, "tsv {number:x}:0:0:{name}")?;
        }
        let used: BTreeSet<u32> = hits.events.iter().map(|event| event.probe).collect();
        for (probe, address, _) in hits.probes.iter().filter(|probe| used.contains(&probe.0)) {
            writeln!(out, "tp T{:x}:{address:x}:E:0:0", tracepoint(*probe))?;
        }
        for line in description(&hits.description) {
            writeln!(out, "tdesc {line}")?;
        }
        writeln!(out)?;
        for event in &hits.events {
            let Some(snapshot) = &event.snapshot else {
                continue;
            };
            let mut data = registers(snapshot, size);
            for (address, bytes) in blocks(snapshot) {
                data.push(b'M');
                data.extend(address.to_le_bytes());
                data.extend((bytes.len() as u16).to_le_bytes());
                data.extend(bytes);
            }
            for ((number, _), value) in VARIABLES.into_iter().zip([event.tid, event.time_ns]) {
                data.push(b'V');
                data.extend(number.to_le_bytes());
                data.extend(value.to_le_bytes());
            }
            out.write_all(&tracepoint(event.probe).to_le_bytes())?;
            out.write_all(&(data.len() as u32).to_le_bytes())?;
            out.write_all(&data)?;
        }
        // The number 0 ends the frames.
        out.write_all(&[0, 0])?;
        Ok(())
    }

    fn hint(&self, model: &Model, path: &Path) -> Option<String> {
        let modules = model
            .modules
            .iter()
            .filter(|module| module.path.starts_with('/') && is_plain(&module.path));
        let symbols = modules.map(|module| {
            format!(
                "-ex 'add-symbol-file {} -o {:#x}' ",
                module.path, module.bias
            )
        });
        let symbols: String = symbols.collect();
        Some(format!(
            "gdb -nx -ex 'set confirm off' {symbols}-ex 'target tfile {}' -ex tfind",
            path.display()
        ))
    }
}

/// True if a path can stand in a shell's and gdb's commands as it is. A recording may come from
/// anybody.
fn is_plain(path: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._+-:@%,".contains(&byte);
    path.bytes().all(is_plain)
}

/// A target description in lines that gdb accepts, broken where XML allows it.
fn description(xml: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in xml.replace("><", ">\n<").lines() {
        let mut broken = String::new();
        for word in line.split_whitespace() {
            if broken.len() + word.len() >= MAX_LINE {
                lines.push(std::mem::take(&mut broken));
            }
            broken.push_str(word);
            broken.push(' ');
        }
        lines.push(broken.trim_end().to_owned());
    }
    lines
}

/// The number of a probe's tracepoint: gdb counts from 1, probes count from 0.
fn tracepoint(probe: u32) -> u16 {
    probe.saturating_add(1).min(u16::MAX.into()) as u16
}

/// The block of registers. Unknown registers are zero, because the format cannot leave them out.
fn registers(snapshot: &Snapshot, size: usize) -> Vec<u8> {
    let mut block = vec![b'R'];
    let known = snapshot.registers.iter().take(size);
    block.extend(known);
    block.resize(1 + size, 0);
    block
}

/// The recorded memory, in parts that fit into the format's blocks.
fn blocks(snapshot: &Snapshot) -> impl Iterator<Item = (u64, &[u8])> {
    snapshot.chunks.iter().flat_map(|chunk| {
        let parts = chunk.bytes.chunks(MAX_BLOCK).enumerate();
        parts.map(|(at, bytes)| {
            let address = chunk.address.wrapping_add((at * MAX_BLOCK) as u64);
            (address, bytes)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::{MAX_LINE, description};

    #[test]
    fn no_line_of_a_description_is_too_long_for_gdb() {
        let register = "<reg name=\"r0\" bitsize=\"32\"/>";
        let xml = format!("<target>\n{}</target>\n", register.repeat(100));
        let lines = description(&xml);
        assert_eq!(lines.len(), 102);
        assert_eq!(lines[1], register);
        let comment = format!("<!-- {} -->", "word ".repeat(1000));
        let lines = description(&comment);
        assert!(lines.len() > 5 && lines.iter().all(|line| line.len() <= MAX_LINE));
        let words = |text: &str| text.split_whitespace().count();
        assert_eq!(
            lines.iter().map(|line| words(line)).sum::<usize>(),
            words(&comment)
        );
    }
}
