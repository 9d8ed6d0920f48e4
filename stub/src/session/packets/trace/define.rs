//! `QTDP` and `QTDPsrc`: defines tracepoints with their conditions and actions, and stores the
//! client's source text for them.

use nix::errno::Errno;

use super::super::Answer;
use super::{numbers, refused, unhex};
use crate::arch;
use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::session::framing::number;
use crate::tracepoint::definition::{Action, Source, Tracepoint};

/// Maximum number of tracepoints. Each may be hit.
const MAX_TRACEPOINTS: usize = 10_000;
/// Maximum number of instruction bytes to keep, more than a jump ever replaces.
const MAX_MOVABLE_BYTES: usize = 32;

/// `n:addr:ena:step:pass[:Fflen][:S][:Xlen,bytes][-]`, or `-n:addr:[S]action...[-]` for more
/// actions.
pub(in super::super) fn tracepoint(
    session: &mut Session,
    debuggee: &mut Debuggee,
    rest: &[u8],
) -> Answer {
    let role = session.role();
    let Some(tracee) = debuggee.live() else {
        return Answer::error(Errno::ESRCH);
    };
    if let Some(more) = rest.strip_prefix(b"-") {
        let Some(([number, address], text)) = numbers::<2>(more, b':') else {
            return Answer::error(Errno::EINVAL);
        };
        let key = (number as u32, address);
        let Some(tracepoint) = tracee.trace(role).tracepoints.get_mut(&key) else {
            return Answer::error(Errno::ENOENT);
        };
        let text = text.strip_prefix(b":").unwrap_or(text);
        let text = text.strip_suffix(b"-").unwrap_or(text);
        // Actions after the first step action are step actions, too.
        let last = tracepoint.action_texts.last();
        let after_steps = last.is_some_and(|(letter, _)| *letter == 'S');
        let (letter, text) = match text.strip_prefix(b"S") {
            Some(text) => ('S', text),
            None if after_steps => ('S', text),
            None => ('A', text),
        };
        let Some(actions) = actions(text) else {
            return Answer::error(Errno::EINVAL);
        };
        match letter {
            'S' => tracepoint.step_actions.extend(actions),
            _ => tracepoint.actions.extend(actions),
        }
        tracepoint.action_texts.push((letter, text.to_vec()));
        // A change of an enabled tracepoint takes effect immediately.
        let at = tracepoint.enabled.then_some(tracepoint.at);
        return match at.map_or(Ok(()), |at| tracee.tracepoint_changed(role, at)) {
            Ok(()) => Answer::ok(),
            Err(errno) => Answer::error(errno),
        };
    }
    let Some(([number, address], rest)) = numbers::<2>(rest, b':') else {
        return Answer::error(Errno::EINVAL);
    };
    let (at, kind) = tracee.place(address);
    let Some((mut tracepoint, movable)) = definition(rest) else {
        return refused("static tracepoints are not supported; use 'trace'");
    };
    tracepoint.fast = movable.and_then(|length| {
        let mut code = vec![0; length.min(MAX_MOVABLE_BYTES)];
        (tracee.read_memory(at, &mut code) == Ok(code.len())).then_some(code)
    });
    (tracepoint.number, tracepoint.address) = (number as u32, address);
    (tracepoint.at, tracepoint.kind) = (at, kind);
    if tracee.trace(role).tracepoints.len() >= MAX_TRACEPOINTS {
        return Answer::error(Errno::ENOSPC);
    }
    let key = (tracepoint.number, address);
    let enabled = tracepoint.enabled;
    let former = tracee.trace(role).tracepoints.insert(tracepoint);
    if !enabled && former.is_none_or(|former| !former.enabled) {
        return Answer::ok();
    }
    match tracee.tracepoint_changed(role, at) {
        Ok(()) => Answer::ok(),
        Err(errno) => {
            tracee.trace(role).tracepoints.remove(&key);
            Answer::error(errno)
        }
    }
}

/// Parses `:ena:step:pass` and options. Returns the tracepoint, and for a fast one the number of
/// bytes that may be moved. `None` also for static tracepoints, which the stub does not support.
fn definition(text: &[u8]) -> Option<(Tracepoint, Option<usize>)> {
    let mut parts = text.strip_prefix(b":")?.split(|byte| *byte == b':');
    let enabled = parts.next()? == b"E";
    let steps = number(parts.next()?)?;
    let last = parts.next()?;
    let passes = number(last.strip_suffix(b"-").unwrap_or(last))?;
    let mut tracepoint = Tracepoint {
        enabled,
        steps,
        passes,
        ..Tracepoint::default()
    };
    let mut movable = None;
    for part in parts {
        match part.strip_suffix(b"-").unwrap_or(part) {
            [b'X', rest @ ..] => tracepoint.condition = Some(expression(rest)?.0),
            [b'F', rest @ ..] => movable = usize::try_from(self::number(rest)?).ok(),
            _ => return None,
        }
    }
    Some((tracepoint, movable))
}

/// Parses `len,bytes`. Returns the text after it, too.
fn expression(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let ([length], rest) = numbers::<1>(text, b',')?;
    let rest = rest.strip_prefix(b",")?;
    let digits = rest.get(..usize::try_from(length).ok()?.checked_mul(2)?)?;
    Some((unhex(digits)?, &rest[digits.len()..]))
}

/// The register sets of the registers in a mask, which has one bit for each register number, the
/// lowest first.
fn sets(mask: &[u8]) -> u8 {
    let numbers = (0..8 * mask.len()).filter(|number| mask[number / 8] >> (number % 8) & 1 != 0);
    let sets = numbers.filter_map(arch::register_set_of);
    sets.fold(0, |all, set| all | 1 << set)
}

/// Parses actions without separators: `Rmask`, `Mreg,offset,len`, `Xlen,bytes`.
fn actions(text: &[u8]) -> Option<Vec<Action>> {
    let mut rest = text;
    let mut actions = Vec::new();
    while let Some((kind, after)) = rest.split_first() {
        match kind {
            b'R' => {
                let end = after.iter().position(|byte| !byte.is_ascii_hexdigit());
                let (digits, after) = after.split_at(end.unwrap_or(after.len()));
                // The mask begins with the highest registers.
                let digits = if digits.len() % 2 == 0 {
                    digits.to_vec()
                } else {
                    [b"0", digits].concat()
                };
                let mut mask = unhex(&digits)?;
                mask.reverse();
                actions.push(Action::Registers(sets(&mask)));
                rest = after;
            }
            b'M' => {
                let minus = after.strip_prefix(b"-");
                let ([register, offset, length], after) =
                    numbers::<3>(minus.unwrap_or(after), b',')?;
                // -1 means no register; gdb writes it as an unsigned 32-bit number.
                let absolute = minus.is_some() || register as u32 == u32::MAX;
                let register = usize::try_from(register).ok().filter(|_| !absolute);
                actions.push(Action::Memory {
                    register,
                    offset,
                    length,
                });
                rest = after;
            }
            b'X' => {
                let (code, after) = expression(after)?;
                actions.push(Action::Expression(code));
                rest = after;
            }
            // gdb 7.0 separated actions with `-` and ended the list with it.
            b'-' => rest = after,
            _ => return None,
        }
    }
    Some(actions)
}

/// `QTDPsrc:n:addr:type:start:slen:bytes`: stores source text for the next client that uploads the
/// tracepoints.
pub(in super::super) fn source(
    session: &mut Session,
    debuggee: &mut Debuggee,
    rest: &[u8],
) -> Answer {
    let role = session.role();
    let Some(tracee) = debuggee.live() else {
        return Answer::error(Errno::ESRCH);
    };
    let read = || {
        let ([number, address], rest) = numbers::<2>(rest, b':')?;
        let mut parts = rest.strip_prefix(b":")?.splitn(4, |byte| *byte == b':');
        let kind = parts.next()?.to_vec();
        let start = self::number(parts.next()?)?;
        let _length = self::number(parts.next()?)?;
        let text = unhex(parts.next()?)?;
        Some(((number as u32, address), start, Source { kind, text }))
    };
    let Some((key, start, source)) = read() else {
        return Answer::error(Errno::EINVAL);
    };
    let Some(tracepoint) = tracee.trace(role).tracepoints.get_mut(&key) else {
        return Answer::error(Errno::ENOENT);
    };
    let last = tracepoint.sources.last_mut();
    match last.filter(|last| start > 0 && last.kind == source.kind) {
        // A long text comes in several packets.
        Some(last) => last.text.extend_from_slice(&source.text),
        None => tracepoint.sources.push(source),
    }
    Answer::ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions() {
        let (tracepoint, _) = definition(b":E:c:3:X3,220127-").unwrap();
        assert!(tracepoint.enabled && (tracepoint.steps, tracepoint.passes) == (12, 3));
        assert_eq!(tracepoint.condition.as_deref(), Some(&[0x22, 1, 0x27][..]));
        assert!(definition(b":D:0:0").is_some_and(|(t, _)| !t.enabled));
        assert!(definition(b":E:0:0:Fa").is_some_and(|(_, movable)| movable == Some(10)));
        assert!(definition(b":E:0:0:S").is_none());
        assert!(definition(b":E:0:0:X9,22").is_none());
    }

    #[test]
    fn lists_of_actions() {
        let read = actions(b"R180c0X2,2627M7,10,800MFFFFFFFF,1000,4M-1,2000,8").unwrap();
        let memory = |register, offset, length| Action::Memory {
            register,
            offset,
            length,
        };
        assert_eq!(
            read,
            [
                Action::Registers(1),
                Action::Expression(vec![0x26, 0x27]),
                memory(Some(7), 0x10, 0x800),
                memory(None, 0x1000, 4),
                memory(None, 0x2000, 8),
            ]
        );
        assert_eq!(actions(b"Q1"), None);
    }
}
