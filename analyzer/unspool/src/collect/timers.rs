//! The timers of a process, as `/proc/PID/timers` lists them (proc(5)).

/// The clocks that go on while all threads sleep: real time, monotonic time, boot time, their
/// alarms, and international atomic time (`CLOCK_` constants in `linux/time.h`).
const CLOCKS: [i32; 6] = [0, 1, 7, 8, 9, 11];

/// The signals that timers of real time send; bit 0 is signal 1. A timer that is not armed counts,
/// too.
pub(super) fn signals(timers: &str) -> u64 {
    let (mut found, mut signal, mut sends) = (0, 0, false);
    for line in timers.lines() {
        let Some((key, value)) = line.split_once(": ") else {
            continue;
        };
        match key {
            "signal" => {
                let number = value
                    .split('/')
                    .next()
                    .and_then(|it| it.parse::<u32>().ok());
                let bit = number.and_then(|number| 1u64.checked_shl(number.checked_sub(1)?));
                signal = bit.unwrap_or(0);
            }
            "notify" => sends = value.starts_with("signal/"),
            "ClockID" => {
                let clock = value.trim().parse().ok();
                if sends && clock.is_some_and(|clock| CLOCKS.contains(&clock)) {
                    found |= signal;
                }
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_of_timers() {
        let text = "ID: 0\nsignal: 34/00007fff86e452a8\nnotify: signal/pid.2634\nClockID: 1\n\
                    ID: 1\nsignal: 14/0000000000000000\nnotify: signal/tid.2635\nClockID: -18\n\
                    ID: 2\nsignal: 10/0000000000000000\nnotify: none/pid.2634\nClockID: 0\n\
                    ID: 3\nsignal: 1/0000000000000000\nnotify: signal/tid.2634\nClockID: 0\n";
        assert_eq!(signals(text), 1 << 33 | 1);
        assert_eq!(signals(""), 0);
    }
}
