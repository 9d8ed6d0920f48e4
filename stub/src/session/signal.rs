//! Signal numbers: GDB's in packets, Linux's elsewhere (GDB manual, "Signals"; signal(7)).

/// (GDB, Linux) pairs that differ. 1-6, 8, 9, 11, 13-15, 21, 22, 24-28 are equal.
const DIFFERENT: &[(u8, i32)] = &[
    (10, libc::SIGBUS),
    (12, libc::SIGSYS),
    (16, libc::SIGURG),
    (17, libc::SIGSTOP),
    (18, libc::SIGTSTP),
    (19, libc::SIGCONT),
    (20, libc::SIGCHLD),
    (23, libc::SIGIO),
    (30, libc::SIGUSR1),
    (31, libc::SIGUSR2),
    (32, libc::SIGPWR),
    (77, 32),
    (78, 64),
];

const SAME: &[i32] = &[
    1, 2, 3, 4, 5, 6, 8, 9, 11, 13, 14, 15, 21, 22, 24, 25, 26, 27, 28,
];

/// `GDB_SIGNAL_UNKNOWN`.
const UNKNOWN: u8 = 143;

/// Converts a Linux number to GDB's.
pub(crate) fn to_gdb(signal: i32) -> u8 {
    if signal == 0 || SAME.contains(&signal) {
        return signal as u8;
    }
    let pair = DIFFERENT.iter().find(|(_, linux)| *linux == signal);
    match pair {
        Some((gdb, _)) => *gdb,
        // GDB_SIGNAL_REALTIME_33 is 45.
        None if (33..=63).contains(&signal) => (signal + 12) as u8,
        None => UNKNOWN,
    }
}

/// Converts a GDB number to Linux's. `None` for signals that Linux does not have.
pub(crate) fn from_gdb(signal: u8) -> Option<i32> {
    (0..=64).find(|linux| to_gdb(*linux) == signal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signal_survives_the_round_trip() {
        for signal in (0..=64).filter(|signal| *signal != libc::SIGSTKFLT) {
            assert_eq!(from_gdb(to_gdb(signal)), Some(signal), "signal {signal}");
        }
    }

    #[test]
    fn well_known_numbers() {
        assert_eq!(to_gdb(libc::SIGUSR1), 30);
        assert_eq!(to_gdb(34), 46);
        assert_eq!(from_gdb(76), None);
    }
}
