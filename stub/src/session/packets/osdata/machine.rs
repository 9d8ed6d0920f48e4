//! Processors and kernel modules.

use std::fs;

use super::Columns;

pub(super) fn cpus() -> Vec<Columns> {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let paragraphs = text
        .split("\n\n")
        .filter(|text| text.starts_with("processor"));
    let value = |paragraph: &str, keys: &[&str]| {
        let mut lines = paragraph.lines().filter_map(|line| line.split_once(':'));
        let found = lines.find(|(key, _)| keys.contains(&key.trim()));
        found.map_or(String::new(), |(_, value)| value.trim().to_owned())
    };
    paragraphs
        .map(|paragraph| {
            vec![
                ("processor", value(paragraph, &["processor"])),
                ("model", value(paragraph, &["model name", "CPU part"])),
            ]
        })
        .collect()
}

/// The loaded kernel modules. Empty if the kernel has none or does not show them.
pub(super) fn modules() -> Vec<Columns> {
    let text = fs::read_to_string("/proc/modules").unwrap_or_default();
    const NAMES: [&str; 6] = [
        "name",
        "size",
        "num uses",
        "dependencies",
        "status",
        "address",
    ];
    let columns = |line: &str| {
        let values = line.split(' ').map(str::to_owned);
        NAMES.into_iter().zip(values).collect()
    };
    text.lines().map(columns).collect()
}
