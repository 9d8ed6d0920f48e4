//! The sentence about other processes that the program started.
//!
//! A recording follows one process, so a report first says what it does not show.

use std::collections::HashMap;

use super::line::clean;
use crate::model::{Model, StartedProcess};

/// Maximum number of programs named.
const MAX_NAMES: usize = 6;

/// `It started 3 other processes, which were not recorded: ls (2 times), grep.`
pub(super) fn started(model: &Model) -> Option<String> {
    let processes = &model.recording.processes;
    let text = match processes.len() {
        0 => return None,
        1 => "It started another process, which was not recorded".to_owned(),
        count => format!("It started {count} other processes, which were not recorded"),
    };
    Some(format!("{text}: {}.", programs(processes)))
}

fn programs(processes: &[StartedProcess]) -> String {
    let mut counts: Vec<(String, usize)> = Vec::new();
    let mut known: HashMap<&str, usize> = HashMap::new();
    let mut unnamed = 0;
    for process in processes {
        let path = process.executable.as_str();
        if path.is_empty() {
            unnamed += 1;
            continue;
        }
        let index = *known.entry(path).or_insert_with(|| {
            let name = path.rsplit('/').next().unwrap_or(path);
            counts.push((clean(name), 0));
            counts.len() - 1
        });
        counts[index].1 += 1;
    }
    let others: usize = counts.iter().skip(MAX_NAMES).map(|(_, count)| count).sum();
    let mut parts: Vec<String> = counts
        .into_iter()
        .take(MAX_NAMES)
        .map(|(name, count)| match count {
            1 => name,
            count => format!("{name} ({count} times)"),
        })
        .collect();
    if others > 0 {
        parts.push(format!("{others} of other programs"));
    }
    if unnamed > 0 && parts.is_empty() {
        let they = if unnamed == 1 { "it" } else { "they" };
        return format!("Unspool does not know which program {they} ran, if any");
    }
    if unnamed > 0 {
        parts.push(format!("{unnamed} whose program is not known"));
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(paths: &[&str]) -> String {
        let process = |path: &&str| StartedProcess {
            pid: 1,
            creator_tid: None,
            started_ns: 0,
            executable: (*path).to_owned(),
        };
        programs(&paths.iter().map(process).collect::<Vec<_>>())
    }

    #[test]
    fn equal_programs_are_counted() {
        let text = of(&["/bin/ls", "/bin/true", "", "/bin/ls"]);
        assert_eq!(text, "ls (2 times), true, 1 whose program is not known");
    }

    #[test]
    fn few_programs_are_named() {
        let text = of(&["a", "b", "c", "d", "e", "f", "g", "h", "g"]);
        assert_eq!(text, "a, b, c, d, e, f, 3 of other programs");
    }

    #[test]
    fn no_program_is_known() {
        assert_eq!(
            of(&[""]),
            "Unspool does not know which program it ran, if any"
        );
        assert_eq!(
            of(&["", ""]),
            "Unspool does not know which program they ran, if any"
        );
    }
}
