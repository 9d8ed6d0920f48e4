//! Whether a process of this machine is frozen by its cgroup, as `docker pause` does
//! (cgroups(7)).

use std::fs;

/// Whether the process is frozen. False if its cgroup cannot be read.
pub(super) fn is_frozen(pid: u64) -> bool {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let groups = read(&format!("/proc/{pid}/cgroup"));
    state_files(&groups, &read("/proc/self/mountinfo"))
        .iter()
        .any(|path| says_frozen(&read(path)))
}

/// The files that have the state of the freezers: one of cgroup v2, one of v1.
fn state_files(groups: &str, mounts: &str) -> Vec<String> {
    let file_of = |line: &str| {
        // `0::/PATH` for v2, `N:CONTROLLERS:/PATH` for v1.
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let (file, is_mount): (_, fn(&str, &str) -> bool) = match controllers {
            "" => ("cgroup.events", |kind, _| kind == "cgroup2"),
            _ if controllers.split(',').any(|one| one == "freezer") => {
                ("freezer.state", |kind, options| {
                    kind == "cgroup" && options.split(',').any(|one| one == "freezer")
                })
            }
            _ => return None,
        };
        mounts.lines().find_map(|mount| {
            let (place, device) = mount.split_once(" - ")?;
            let mut place = place.split(' ').skip(3);
            let (root, point) = (place.next()?, place.next()?);
            let mut device = device.split(' ');
            let (kind, options) = (device.next()?, device.nth(1)?);
            let inside = path.strip_prefix(root.trim_end_matches('/'))?;
            let is_inside = inside.is_empty() || inside.starts_with('/');
            (is_inside && is_mount(kind, options)).then(|| format!("{point}{inside}/{file}"))
        })
    };
    groups.lines().filter_map(file_of).collect()
}

fn says_frozen(state: &str) -> bool {
    state
        .lines()
        .any(|line| matches!(line, "frozen 1" | "FROZEN" | "FREEZING"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_both_versions() {
        let mounts = "\
30 24 0:26 / /sys/fs/cgroup/unified rw,nosuid shared:10 - cgroup2 cgroup2 rw,nsdelegate
31 24 0:27 /box /sys/fs/cgroup/freezer rw shared:11 - cgroup cgroup rw,freezer
32 24 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
33 24 0:29 / /proc rw - proc proc rw
";
        let groups = "5:freezer:/box/inner\n4:cpu,cpuacct:/box\n0::/user.slice/a\n";
        assert_eq!(
            state_files(groups, mounts),
            [
                "/sys/fs/cgroup/freezer/inner/freezer.state",
                "/sys/fs/cgroup/unified/user.slice/a/cgroup.events"
            ]
        );
        assert!(state_files("0::/a\n", "").is_empty());
        assert!(says_frozen("populated 1\nfrozen 1\n"));
        assert!(!says_frozen("populated 1\nfrozen 0\n"));
        assert!(says_frozen("FREEZING\n"));
        assert!(!says_frozen("THAWED\n"));
    }
}
