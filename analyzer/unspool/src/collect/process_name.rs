//! The name of running processes of this machine, for `--attach-name`.
//!
//! Only files in `/proc` are read, so a search stops no process.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::asleep::field;
use super::calls::pattern::matches;
use super::launch::{has_ended, is_kernel_thread};
use super::local_process::LocalProcess;
use super::pipes::numbers;
use crate::maps;

/// Programs that run a script, without the version at the end of their names.
const INTERPRETERS: [&str; 22] = [
    "bash", "busybox", "bun", "dash", "deno", "fish", "guile", "java", "ksh", "lua", "luajit",
    "node", "nodejs", "perl", "php", "pypy", "python", "ruby", "sh", "tclsh", "wish", "zsh",
];

/// A glob for the names of processes: `nginx`, `python3*`, `server.py`. `*` matches any characters
/// and `?` matches one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessName(String);

impl FromStr for ProcessName {
    type Err = String;

    fn from_str(text: &str) -> Result<ProcessName, String> {
        match text.is_empty() || text.contains('/') {
            true => Err("expected a name without a folder, such as nginx or 'python3*'".to_owned()),
            false => Ok(ProcessName(text.to_owned())),
        }
    }
}

impl fmt::Display for ProcessName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl ProcessName {
    /// The running processes with this name, in the order of their ids. Leaves out this process,
    /// its ancestors, and the kernel's threads.
    pub fn processes(&self) -> Vec<u32> {
        let own = with_ancestors(std::process::id());
        let pids = numbers("/proc").filter_map(|pid| u32::try_from(pid).ok());
        let named = pids.filter(|pid| {
            let is_program = || !is_kernel_thread(&folder(*pid)) && !has_ended(*pid);
            !own.contains(pid) && self.is_of(*pid) && is_program()
        });
        let named: BTreeSet<u32> = named.collect();
        named.into_iter().collect()
    }

    /// True if the process, its program file or its script has this name.
    fn is_of(&self, pid: u32) -> bool {
        let is_this = |name: &str| matches(&self.0, name);
        if LocalProcess::new(pid).name().is_some_and(|it| is_this(&it)) {
            return true;
        }
        let program = fs::read_link(folder(pid).join("exe"));
        let Some(program) = program.ok().and_then(|path| file_name(&path)) else {
            return false;
        };
        let program = maps::without_mark(&program);
        is_this(program) || is_interpreter(program) && script(pid).is_some_and(|it| is_this(&it))
    }
}

fn folder(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}

fn file_name(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_string_lossy().into_owned())
}

/// True for `python3.12`.
fn is_interpreter(program: &str) -> bool {
    let is_version = |c: char| c.is_ascii_digit() || c == '.' || c == '-';
    INTERPRETERS.contains(&program.trim_end_matches(is_version))
}

/// The name of an interpreter's script: its first argument that is a file.
fn script(pid: u32) -> Option<String> {
    let words = fs::read(folder(pid).join("cmdline")).ok()?;
    let words = words.split(|byte| *byte == 0).skip(1);
    let mut paths = words.filter_map(|word| str::from_utf8(word).ok().map(Path::new));
    let script = paths.find(|path| {
        // The process may see other folders than this one.
        let path = match path.strip_prefix("/") {
            Ok(below) => folder(pid).join("root").join(below),
            Err(_) => folder(pid).join("cwd").join(path),
        };
        path.is_file()
    })?;
    file_name(script)
}

/// A process and those that started it, directly or through others.
fn with_ancestors(pid: u32) -> BTreeSet<u32> {
    let mut all = BTreeSet::new();
    let mut next = Some(pid);
    while let Some(pid) = next.filter(|pid| all.insert(*pid)) {
        let status = fs::read_to_string(folder(pid).join("status")).unwrap_or_default();
        next = field(&status, "PPid:").and_then(|id| id.trim().parse().ok());
    }
    all
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    fn shell(folder: &Path, words: &[&str]) -> Child {
        let mut shell = Command::new("sh");
        shell.args(words).current_dir(folder).stdin(Stdio::piped());
        shell.spawn().unwrap()
    }

    #[test]
    fn a_script_is_found_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("wait-here.sh"), "read line\n").unwrap();
        let mut script = shell(folder.path(), &["-e", "./wait-here.sh", "x"]);
        let mut command = shell(folder.path(), &["-c", "read line", "./wait-there.sh"]);
        let found = |glob: &str| glob.parse::<ProcessName>().unwrap().processes();
        // The new process is this one until it has executed the shell.
        while found("wait-here.s?").is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(found("wait-here.s?"), [script.id()]);
        assert!(found("wait-there.sh").is_empty());
        assert!(found("*sh").contains(&script.id()));
        for child in [&mut script, &mut command] {
            drop(child.stdin.take());
            child.wait().unwrap();
        }
        assert!(found("wait-here.s?").is_empty());
    }

    #[test]
    fn this_process_its_ancestors_and_the_kernel_are_left_out() {
        let all = "*".parse::<ProcessName>().unwrap().processes();
        let own = std::process::id();
        assert!(!all.contains(&own) && !all.contains(&std::os::unix::process::parent_id()));
        assert!("".parse::<ProcessName>().is_err());
    }

    #[test]
    fn interpreters_may_have_versions() {
        for program in ["python3.12", "lua5.4", "perl", "node"] {
            assert!(is_interpreter(program), "{program}");
        }
        assert!(!is_interpreter("vim") && !is_interpreter("pythonista"));
    }
}
