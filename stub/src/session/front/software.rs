//! `Z0`, `z0`: breakpoints that are traps in the text, and their conditions, which are evaluated here.

use nix::errno::Errno;

use super::{Answer, range};
use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::session::framing::{number, unhex};

/// `addr,kind[;Xlen,bytes...]`. The list takes the place of one that was sent before.
pub(super) fn insert(_: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let Some(((at, kind), conditions)) = breakpoint(rest) else {
        return Answer::error(Errno::EINVAL);
    };
    let Some(process) = debuggee.live() else {
        return Answer::error(Errno::ESRCH);
    };
    match process.plant(at, kind, conditions) {
        Ok(()) => Answer::ok(),
        Err(errno) => Answer::error(errno),
    }
}

/// `addr,kind`.
pub(super) fn remove(_: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let Some(((at, _), _)) = breakpoint(rest) else {
        return Answer::error(Errno::EINVAL);
    };
    match debuggee.live().map(|process| process.unplant(at)) {
        Some(Err(errno)) => Answer::error(errno),
        _ => Answer::ok(),
    }
}

/// Address and kind, and conditions.
type Breakpoint = ((u64, usize), Vec<Vec<u8>>);

fn breakpoint(text: &[u8]) -> Option<Breakpoint> {
    let mut parts = text.split(|byte| *byte == b';');
    let place = range(parts.next()?)?;
    let mut conditions = Vec::new();
    for part in parts {
        let mut rest = part;
        // gdb puts nothing between them.
        while let Some(after) = rest.strip_prefix(b"X") {
            let comma = after.iter().position(|byte| *byte == b',')?;
            let digits = usize::try_from(number(&after[..comma])?)
                .ok()?
                .checked_mul(2)?;
            let (code, after) = after[comma + 1..].split_at_checked(digits)?;
            conditions.push(unhex(code)?);
            rest = after;
        }
        if !rest.is_empty() {
            return None;
        }
    }
    Some((place, conditions))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_conditions() {
        let read = |text: &str| breakpoint(text.as_bytes());
        assert_eq!(read("401000,1"), Some(((0x40_1000, 1), Vec::new())));
        let both = vec![vec![0x22, 1, 0x27], vec![0x27]];
        assert_eq!(read("10,4;X3,220127X1,27"), Some(((16, 4), both.clone())));
        assert_eq!(read("10,4;X3,220127;X1,27"), Some(((16, 4), both)));
        for nonsense in [
            "10",
            "10,4;X4,220127",
            "10,4;X3,2201zz",
            "10,4;cmds:0,X1,27",
            "x,1",
            "10,4;X1",
        ] {
            assert_eq!(read(nonsense), None, "{nonsense}");
        }
    }
}
