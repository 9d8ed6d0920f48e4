//! Backtraces from gdb and from Unspool, and their comparison.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Result, bail};

/// One frame. Inlined functions have their own frames, innermost first, before the frame that they
/// are inlined into, with the same address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frame {
    /// File name (without directories) of the module.
    pub module: String,
    /// The return address (for frame 0: the pc) as svma of the module's file.
    pub svma: u64,
    /// Whether this is an inlined function.
    pub inlined: bool,
    /// The function.
    pub function: Option<String>,
    /// Source file and line of the call.
    pub source: Option<(String, u32)>,
}

/// Innermost frame first.
pub type Backtrace = Vec<Frame>;

/// The parts of a frame to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Module and address of every physical frame, for stripped files.
    Addresses,
    /// Also inlined frames, function names, file and line.
    Source,
}

impl Frame {
    fn shown(&self, depth: Depth) -> String {
        let mut text = format!("{}+{:#x}", self.module, self.svma);
        if depth == Depth::Source {
            let function = self
                .function
                .as_deref()
                .map_or_else(|| "?".to_owned(), bare_name);
            let _ = write!(text, " {function}");
            if let Some((file, line)) = &self.source {
                let _ = write!(text, " {}:{line}", plain_path(file));
            }
            if self.inlined {
                text.push_str(" (inlined)");
            }
        }
        text
    }
}

/// Compares two multisets of backtraces. The error shows the first few differences.
pub fn compare(expected: &[Backtrace], seen: &[Backtrace], depth: Depth) -> Result<()> {
    let mut counts: BTreeMap<Vec<String>, i64> = BTreeMap::new();
    for (backtraces, by) in [(expected, 1), (seen, -1)] {
        for backtrace in backtraces {
            *counts.entry(shown(backtrace, depth)).or_default() += by;
        }
    }
    counts.retain(|_, count| *count != 0);
    if counts.is_empty() {
        return Ok(());
    }
    let mut text = format!(
        "creation backtraces differ ({} expected, {} seen):\n",
        expected.len(),
        seen.len()
    );
    let missing = counts.iter().filter(|(_, count)| **count > 0).take(2);
    let surplus = counts.iter().filter(|(_, count)| **count < 0).take(2);
    for (frames, count) in missing.chain(surplus) {
        let whose = if *count > 0 {
            "only in gdb's"
        } else {
            "only in ours"
        };
        let _ = writeln!(text, "{whose}, {} times:", count.abs());
        let (first, last) = if frames.len() > 48 {
            (36, frames.len() - 8)
        } else {
            (48, 48)
        };
        for (n, frame) in frames.iter().enumerate() {
            if n < first || n >= last {
                let _ = writeln!(text, "    #{n} {frame}");
            } else if n == first {
                let _ = writeln!(text, "    ...");
            }
        }
    }
    bail!(text)
}

fn shown(backtrace: &Backtrace, depth: Depth) -> Vec<String> {
    backtrace
        .iter()
        .filter(|frame| depth == Depth::Source || !frame.inlined)
        .map(|frame| frame.shown(depth))
        .collect()
}

/// A function's name in a form in which gdb and Unspool agree.
///
/// They demangle differently. gdb shows DWARF's names (`spawn<fn(), ()>`, `{closure_env#0}`);
/// Unspool demangles the linkage name (`spawn`, or `_M_start_thread(...)` with its parameters). So
/// this drops template and generic arguments, parameters, hash and clone suffix, and all but the
/// last part of a path.
fn bare_name(name: &str) -> String {
    if name.contains("operator") {
        return name.chars().filter(|c| !c.is_whitespace()).collect();
    }
    let name = name.split(" [clone ").next().unwrap_or(name);
    let name = name.split(".constprop.").next().unwrap_or(name);
    let name = name.split(".isra.").next().unwrap_or(name);
    let name = name.split(".part.").next().unwrap_or(name);
    let name = name.strip_suffix(".cold").unwrap_or(name);
    // An "(anonymous namespace)" or "{lambda(int)#1}" is part of the path, a parameter list is not.
    let mut plain = String::new();
    let mut nested = 0;
    for c in name.chars() {
        match c {
            '<' | '(' | '[' => nested += 1,
            '>' | ')' | ']' => nested -= 1,
            _ if nested == 0 => plain.push(c),
            _ => {}
        }
    }
    let mut parts: Vec<&str> = plain.split("::").filter(|part| !part.is_empty()).collect();
    if let Some(last) = parts.last() {
        let hash = last.strip_prefix('h');
        if parts.len() > 1
            && hash.is_some_and(|hex| hex.len() == 16 && hex.bytes().all(|b| b.is_ascii_hexdigit()))
        {
            parts.pop();
        }
    }
    let last = parts.last().copied().unwrap_or(name).trim();
    last.split_whitespace().last().unwrap_or(last).to_owned()
}

/// A source path without `./` and `x/..`, which compilers record and some readers remove. For a
/// relative path (as in Debian's libraries), only the last directory and the name, because gdb may
/// prepend the relative compilation directory twice.
fn plain_path(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "." => {}
            ".." if parts
                .last()
                .is_some_and(|last| !last.is_empty() && *last != "..") =>
            {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    let relative = !path.starts_with('/');
    let from = if relative {
        parts.len().saturating_sub(2)
    } else {
        0
    };
    parts[from..].join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_both_demanglers_meet() {
        for (gdb, ours) in [
            (
                "std::thread::lifecycle::spawn_unchecked<fn(), ()>",
                "std::thread::lifecycle::spawn_unchecked",
            ),
            (
                "std::thread::_M_start_thread(std::unique_ptr<int>, void (*)())",
                "_M_start_thread",
            ),
            ("bank::Account::deposit", "bank::Account::deposit(long)"),
            ("rust::main", "rust::main::h0123456789abcdef"),
            ("launch", "launch.isra.0"),
        ] {
            assert_eq!(bare_name(gdb), bare_name(ours), "{gdb} and {ours}");
        }
        assert_ne!(bare_name("launch"), bare_name("launch2"));
    }

    #[test]
    fn paths_are_compared_without_detours() {
        assert_eq!(plain_path("./csu/../sysdeps/nptl/x.h"), "nptl/x.h");
        assert_eq!(plain_path("./nptl/./nptl/x.c"), plain_path("./nptl/x.c"));
        assert_eq!(plain_path("/a/./b/../c"), "/a/c");
        assert_eq!(plain_path("../x"), "../x");
    }

    #[test]
    fn a_missing_frame_is_a_difference() {
        let frame = |svma| Frame {
            module: "m".into(),
            svma,
            inlined: false,
            function: None,
            source: None,
        };
        let long = [vec![frame(1), frame(2)]];
        assert!(compare(&long, &long, Depth::Source).is_ok());
        assert!(compare(&long, &[vec![frame(1)]], Depth::Addresses).is_err());
        assert!(compare(&[long[0].clone(), long[0].clone()], &long, Depth::Addresses).is_err());
    }
}
