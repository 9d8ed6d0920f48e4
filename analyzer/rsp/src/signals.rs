//! Signal numbers: gdb's, which the protocol uses, and Linux's.
//!
//! RSP numbers signals "as defined in gdb", whatever the target's system is (RSP, "Stop Reply
//! Packets"). The Linux numbers are those of x86, ARM and AArch64 (signal(7)).

/// (gdb's number, Linux's number, name). Signals that Linux lacks are left out. [`name`] and the
/// conversions compute the real-time signals.
const TABLE: &[(u8, u8, &str)] = &[
    (1, 1, "SIGHUP"),
    (2, 2, "SIGINT"),
    (3, 3, "SIGQUIT"),
    (4, 4, "SIGILL"),
    (5, 5, "SIGTRAP"),
    (6, 6, "SIGABRT"),
    (8, 8, "SIGFPE"),
    (9, 9, "SIGKILL"),
    (10, 7, "SIGBUS"),
    (11, 11, "SIGSEGV"),
    (12, 31, "SIGSYS"),
    (13, 13, "SIGPIPE"),
    (14, 14, "SIGALRM"),
    (15, 15, "SIGTERM"),
    (16, 23, "SIGURG"),
    (17, 19, "SIGSTOP"),
    (18, 20, "SIGTSTP"),
    (19, 18, "SIGCONT"),
    (20, 17, "SIGCHLD"),
    (21, 21, "SIGTTIN"),
    (22, 22, "SIGTTOU"),
    (23, 29, "SIGIO"),
    (24, 24, "SIGXCPU"),
    (25, 25, "SIGXFSZ"),
    (26, 26, "SIGVTALRM"),
    (27, 27, "SIGPROF"),
    (28, 28, "SIGWINCH"),
    (30, 10, "SIGUSR1"),
    (31, 12, "SIGUSR2"),
    (32, 30, "SIGPWR"),
];

/// gdb's number for a Linux signal; `None` if gdb has none (such as SIGSTKFLT).
pub fn from_linux(linux: u8) -> Option<u8> {
    match linux {
        32 => Some(77),
        33..=63 => Some(linux + 12),
        64 => Some(78),
        linux => TABLE.iter().find(|row| row.1 == linux).map(|row| row.0),
    }
}

/// Linux's number for a gdb signal; `None` if Linux has no such signal.
pub fn to_linux(gdb: u8) -> Option<u8> {
    match gdb {
        45..=75 => Some(gdb - 12),
        77 => Some(32),
        78 => Some(64),
        gdb => TABLE.iter().find(|row| row.0 == gdb).map(|row| row.1),
    }
}

/// The name of a gdb signal: `SIGSEGV`, or `SIG34` for real-time signals. `SIG0` is "none".
pub fn name(gdb: u8) -> String {
    if let Some((_, _, name)) = TABLE.iter().find(|row| row.0 == gdb) {
        return (*name).to_owned();
    }
    match (gdb, to_linux(gdb)) {
        (0, _) => "SIG0".to_owned(),
        (_, Some(linux)) => format!("SIG{linux}"),
        (gdb, None) => format!("gdb signal {gdb}"),
    }
}

/// The name of a Linux signal: `SIGUSR1`, or `SIG34` for real-time signals.
pub fn linux_name(linux: u8) -> String {
    from_linux(linux).map_or_else(|| format!("SIG{linux}"), name)
}

/// gdb's number for a name, with or without `SIG`, in any case.
pub fn from_name(text: &str) -> Option<u8> {
    let upper = text.to_ascii_uppercase();
    let bare = upper.strip_prefix("SIG").unwrap_or(&upper);
    match bare.parse() {
        Ok(linux) => from_linux(linux),
        Err(_) => TABLE
            .iter()
            .find(|row| row.2.get(3..) == Some(bare))
            .map(|row| row.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways() {
        for linux in 1..=64 {
            match from_linux(linux) {
                // gdb has no number for SIGSTKFLT.
                None => assert_eq!(linux, 16),
                Some(gdb) => {
                    assert_eq!(to_linux(gdb), Some(linux));
                    assert_eq!(from_name(&name(gdb)), Some(gdb));
                }
            }
        }
        assert_eq!(to_linux(76), None);
        assert_eq!((name(10), name(45)), ("SIGBUS".into(), "SIG33".into()));
        let names = [10, 33, 16].map(linux_name);
        assert_eq!(names, ["SIGUSR1", "SIG33", "SIG16"]);
        assert_eq!(
            (from_name("usr1"), from_name("SIGCHLD")),
            (Some(30), Some(20))
        );
        assert_eq!(from_name("nope"), None);
    }
}
