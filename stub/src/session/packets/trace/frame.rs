//! `QTFrame`, and the packets that a selected frame answers instead of the program: registers,
//! memory, `qXfer:traceframe-info`.

use std::fmt::Write;

use nix::errno::Errno;

use super::super::{Answer, transfer};
use super::numbers;
use crate::arch;
use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::session::framing::hex;
use crate::tracee::Tracee;
use crate::tracepoint::frame_buffer::{Block, Frame};

impl Session {
    /// The selected frame.
    pub(in super::super) fn frame<'a>(&self, tracee: &'a Tracee) -> Option<&'a Frame> {
        let subscription = tracee.subscriptions.get(self.role())?;
        subscription.trace.buffer.frames().get(self.frame?)
    }
}

/// `QTFrame:n`, `pc:a`, `tdp:t`, `range:a:b`, `outside:a:b`. All but the first search after the
/// selected frame.
pub(in super::super) fn select(
    session: &mut Session,
    debuggee: &mut Debuggee,
    rest: &[u8],
) -> Answer {
    let role = session.role();
    let Some(tracee) = debuggee.live() else {
        return Answer::error(Errno::ESRCH);
    };
    let frames = tracee.trace(role).buffer.frames();
    let text = String::from_utf8_lossy(rest);
    let (kind, values) = text.split_once(':').unwrap_or(("", &text));
    let values = values.as_bytes();
    let wanted: Box<dyn Fn(&Frame) -> bool> = match kind {
        "" => {
            let Some(([number], _)) = numbers::<1>(values, b':') else {
                // The number is -1.
                session.frame = None;
                return Answer::ok();
            };
            if number as u32 == u32::MAX {
                session.frame = None;
                return Answer::ok();
            }
            let index = usize::try_from(number).ok();
            let Some((index, frame)) = index.and_then(|i| Some((i, frames.get(i)?))) else {
                return Answer::Reply(b"F-1".to_vec());
            };
            session.frame = Some(index);
            return selected(index, frame);
        }
        "pc" => match numbers::<1>(values, b':') {
            Some(([pc], _)) => Box::new(move |frame| frame.pc == pc),
            None => return Answer::error(Errno::EINVAL),
        },
        "tdp" => match numbers::<1>(values, b':') {
            Some(([number], _)) => Box::new(move |frame| u64::from(frame.tracepoint) == number),
            None => return Answer::error(Errno::EINVAL),
        },
        "range" | "outside" => match numbers::<2>(values, b':') {
            Some(([low, high], _)) => {
                let inside = kind == "range";
                Box::new(move |frame| (low..=high).contains(&frame.pc) == inside)
            }
            None => return Answer::error(Errno::EINVAL),
        },
        _ => return Answer::error(Errno::EINVAL),
    };
    let start = session.frame.map_or(0, |frame| frame + 1);
    let found = frames
        .iter()
        .enumerate()
        .skip(start)
        .find(|(_, frame)| wanted(frame));
    match found {
        Some((index, frame)) => {
            session.frame = Some(index);
            selected(index, frame)
        }
        None => Answer::Reply(b"F-1".to_vec()),
    }
}

fn selected(index: usize, frame: &Frame) -> Answer {
    Answer::Reply(format!("F{index:x}T{:x}", frame.tracepoint).into_bytes())
}

/// `g` and `p` for the selected frame. `None` if no frame is selected, so the thread must answer.
pub(in super::super) fn registers(
    session: &Session,
    tracee: &Tracee,
    only: Option<usize>,
) -> Option<Answer> {
    let frame = session.frame(tracee)?;
    let layout = arch::layout();
    let blocks = frame.blocks(layout.size);
    let collected = blocks.iter().find_map(|block| match block {
        Block::Registers(bytes) => Some(*bytes),
        _ => None,
    });
    let mut reply = Vec::new();
    let wanted = |register: &&arch::Register| only.is_none_or(|only| only == register.number);
    for register in layout.registers.iter().filter(wanted) {
        let value = collected
            .filter(|_| frame.sets >> register.place.set & 1 != 0)
            .and_then(|all| all.get(register.offset..register.offset + register.size));
        match value {
            Some(value) => hex(value, &mut reply),
            // The frame has no registers, but it contains the program counter.
            None if register.number == arch::PC && collected.is_none() => {
                hex(&frame.pc.to_le_bytes()[..register.size], &mut reply);
            }
            None => reply.extend(std::iter::repeat_n(b'x', 2 * register.size)),
        }
    }
    if reply.is_empty() {
        return Some(Answer::error(Errno::EINVAL));
    }
    Some(Answer::Reply(reply))
}

/// Reads the selected frame's memory from `address` on, as far as the frame contains it. Reads
/// constant memory from the program. `None` if no frame is selected.
pub(in super::super) fn memory(
    session: &Session,
    tracee: &Tracee,
    address: u64,
    into: &mut [u8],
) -> Option<Result<usize, Errno>> {
    let frame = session.frame(tracee)?;
    let mut done = 0;
    for block in frame.blocks(arch::layout().size) {
        if let Block::Memory { address: at, bytes } = block
            && let Some(skip) = address.checked_sub(at)
            && let Some(bytes) = bytes.get(usize::try_from(skip).unwrap_or(usize::MAX)..)
        {
            let length = bytes.len().min(into.len());
            if length > done {
                into[..length].copy_from_slice(&bytes[..length]);
                done = length;
            }
        }
    }
    if done > 0 {
        return Some(Ok(done));
    }
    let Some(end) = tracee.constant_until(session.role(), address) else {
        return Some(Err(Errno::EIO));
    };
    let length = usize::try_from(end - address).unwrap_or(usize::MAX);
    let length = length.min(into.len());
    Some(tracee.read_memory(address, &mut into[..length]))
}

/// `qXfer:traceframe-info:read::offset,length`: the contents of the selected frame.
pub(in super::super) fn info(
    session: &mut Session,
    debuggee: &mut Debuggee,
    rest: &[u8],
) -> Answer {
    let Some(tracee) = debuggee.live() else {
        return Answer::error(Errno::ESRCH);
    };
    let Some(frame) = session.frame(tracee) else {
        return Answer::error(Errno::EINVAL);
    };
    let mut text = String::from(
        "<?xml version=\"1.0\"?>\n<!DOCTYPE traceframe-info SYSTEM \"traceframe-info.dtd\">\n<traceframe-info>\n",
    );
    for block in frame.blocks(arch::layout().size) {
        let _ = match block {
            Block::Registers(_) | Block::Part { .. } => Ok(()),
            Block::Memory { address, bytes } => writeln!(
                text,
                "<memory start=\"{address:#x}\" length=\"{:#x}\"/>",
                bytes.len()
            ),
            Block::Variable { number, .. } => writeln!(text, "<tvar id=\"{number:#x}\"/>"),
        };
    }
    text.push_str("</traceframe-info>\n");
    transfer(text.as_bytes(), rest)
}
