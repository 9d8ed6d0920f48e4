//! The layer in front of gdbstub: packets it lacks or answers too narrowly, one a file.
//!
//! Everything else is passed on.

mod alive;
mod attached;
mod budget;
mod catch_syscalls;
mod crc;
mod ctrl_c;
mod current_thread;
mod detach;
mod drain;
mod fatal;
mod halt_reason;
mod hardware;
mod kill;
mod libraries;
mod monitor;
mod no_ack;
mod non_stop;
mod observe;
mod osdata;
mod pass_signals;
mod program_signals;
mod read_memory;
mod read_registers;
mod restart;
mod resume;
mod run;
mod search;
mod select_thread;
mod siginfo;
mod software;
mod stacks;
mod supported;
mod symbol;
mod thread_events;
mod thread_list;
mod thread_log;
mod threads;
mod times;
mod tls_address;
mod trace;

use super::Session;
use super::debuggee::Debuggee;
use super::framing::number;
use crate::sys::Tid;
use crate::tracee::Tracee;

/// How a packet is answered.
pub(super) enum Answer {
    /// With this body.
    Reply(Vec<u8>),
    /// Not now, or not at all.
    Nothing,
    /// By gdbstub.
    PassOn,
}

impl Answer {
    fn ok() -> Answer {
        Answer::Reply(b"OK".to_vec())
    }

    fn error(errno: nix::errno::Errno) -> Answer {
        Answer::Reply(format!("E{:02x}", errno as i32).into_bytes())
    }
}

/// Answers packets that begin with a certain prefix; it gets what follows that.
type Handler = fn(&mut Session, &mut Debuggee, &[u8]) -> Answer;

/// The first match counts: longer prefixes stand before shorter ones.
const PACKETS: &[(&str, Handler)] = &[
    ("!", |session, _, _| {
        session.extended = true;
        Answer::ok()
    }),
    ("?", halt_reason::answer),
    ("D", detach::answer),
    ("H", select_thread::answer),
    ("QCatchSyscalls:", catch_syscalls::answer),
    ("QNonStop:", non_stop::switch),
    ("QPassSignals:", pass_signals::answer),
    ("QProgramSignals:", program_signals::answer),
    ("QStartNoAckMode", no_ack::answer),
    ("QThreadEvents:", thread_events::answer),
    ("QTBuffer:circular:", trace::run::circular),
    ("QTBuffer:size:", trace::run::size),
    ("QTDP:", trace::define::tracepoint),
    ("QTDPsrc:", trace::define::source),
    ("QTDV:", trace::variable::define),
    ("QTDisable:", trace::run::disable),
    ("QTDisconnected:", trace::run::disconnected),
    ("QTEnable:", trace::run::enable),
    ("QTFrame:", trace::frame::select),
    ("QTNotes:", trace::run::notes),
    ("QTStart", trace::run::start),
    ("QTStop", trace::run::stop),
    ("QTinit", trace::init),
    ("QTro:", trace::run::read_only),
    ("QUnspoolBudget:", budget::answer),
    ("QUnspoolFatal:", fatal::answer),
    ("QUnspoolGo", observe::go),
    ("QUnspoolRelease:", observe::release),
    ("QUnspoolSignal:", observe::signal),
    ("QUnspoolThreads:", thread_log::answer),
    ("QUnspoolTrace:", drain::answer),
    ("R", restart::answer),
    ("Z0,", software::insert),
    ("Z1,", hardware::insert_breakpoint),
    ("Z2,", hardware::insert_write),
    ("Z3,", hardware::insert_read),
    ("Z4,", hardware::insert_access),
    ("c", resume::plain_continue),
    ("C", resume::continue_with_signal),
    ("g", read_registers::all),
    ("k", kill::without_reply),
    ("m", read_memory::as_hex),
    ("p", read_registers::one),
    ("qAttached", attached::answer),
    ("qCRC:", crc::answer),
    ("qGetTLSAddr:", tls_address::answer),
    ("qRcmd,", monitor::answer),
    ("qSearch:memory:", search::answer),
    ("qSupported", supported::answer),
    ("qSymbol", symbol::answer),
    ("qXfer:libraries-svr4:read:", libraries::answer),
    ("qXfer:osdata:read:", osdata::answer),
    ("qXfer:siginfo:read::", siginfo::read),
    ("qXfer:siginfo:write::", siginfo::write),
    ("qTBuffer:", trace::buffer::answer),
    ("qTMinFTPILen", trace::status::shortest_fast),
    ("qTP:", trace::status::tracepoint),
    ("qTStatus", trace::status::trace),
    ("qTV:", trace::variable::value),
    ("qTfP", trace::upload::first),
    ("qTfV", trace::variable::first),
    ("qTsP", trace::upload::next),
    ("qTsV", trace::upload::next),
    ("qUnspoolPlaces", trace::status::places),
    ("qUnspoolStacks:", stacks::answer),
    ("qUnspoolTimes:", times::answer),
    ("qXfer:threads:read::", threads::answer),
    ("qXfer:traceframe-info:read::", trace::frame::info),
    ("qfThreadInfo", thread_list::answer),
    ("s", resume::plain_step),
    ("S", resume::step_with_signal),
    ("T", alive::answer),
    ("vAttach;", run::attach),
    ("vCont?", resume::actions),
    ("vCont;", resume::answer),
    ("vCtrlC", ctrl_c::answer),
    ("vKill;", kill::answer),
    ("vRun;", run::run),
    ("vStopped", non_stop::next_stop),
    ("x", read_memory::as_binary),
    ("z0,", software::remove),
    ("z1,", hardware::remove_breakpoint),
    ("z2,", hardware::remove_write),
    ("z3,", hardware::remove_read),
    ("z4,", hardware::remove_access),
];

/// Answers a packet, or says who does.
pub(super) fn answer(session: &mut Session, debuggee: &mut Debuggee, packet: &[u8]) -> Answer {
    if let Some(refusal) = session.refusal(packet) {
        return Answer::Reply(refusal);
    }
    if !session.controls()
        && let Some(answer) = observe::answer(session, debuggee, packet)
    {
        return answer;
    }
    if is_disabled(session, packet) {
        return Answer::Reply(Vec::new());
    }
    if packet.starts_with(b"QT") || packet.starts_with(b"qT") {
        // What has been noted is there for whoever asks.
        debuggee.live().map(Tracee::drain_jump_pads);
    }
    if packet == b"qC" {
        return current_thread::answer(session, debuggee);
    }
    for (prefix, handler) in PACKETS {
        if let Some(rest) = packet.strip_prefix(prefix.as_bytes()) {
            return handler(session, debuggee, rest);
        }
    }
    Answer::PassOn
}

/// Whether this client is to do without it (`--disable-packet`).
fn is_disabled(session: &Session, packet: &[u8]) -> bool {
    let without = session.without;
    without.resume && packet.starts_with(b"vCont")
        || without.current_thread && packet == b"qC"
        || without.thread_list && packet.starts_with(b"qfThreadInfo")
}

/// Reads `offset,length`.
fn range(text: &[u8]) -> Option<(u64, usize)> {
    let comma = text.iter().position(|byte| *byte == b',')?;
    let length = usize::try_from(number(&text[comma + 1..])?).ok()?;
    Some((number(&text[..comma])?, length))
}

/// The reply to a `qXfer` read: `m` with more to come, or `l` with the last.
fn transfer(object: &[u8], request: &[u8]) -> Answer {
    let Some((offset, length)) = range(request) else {
        return Answer::error(nix::errno::Errno::EINVAL);
    };
    let start = usize::try_from(offset)
        .unwrap_or(usize::MAX)
        .min(object.len());
    // Every byte may need an escape.
    let length = length.min(super::framing::PACKET_SIZE / 2 - 8);
    let part = &object[start..object.len().min(start.saturating_add(length))];
    let last = start + part.len() == object.len();
    let mut reply = vec![if last { b'l' } else { b'm' }];
    super::framing::escape(part, &mut reply);
    Answer::Reply(reply)
}

/// A thread named on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ThreadName {
    /// All of all processes.
    All,
    /// Any of any.
    Any,
    /// All of this process.
    AllOf(Tid),
    /// Any of this process.
    AnyOf(Tid),
    /// This one; its id says which process it is of.
    One(Tid),
}

/// Reads `TID`, `pPID.TID` or `pPID`; `-1` is all, `0` any.
fn thread_name(text: &[u8]) -> Option<ThreadName> {
    let (process, thread) = match text.strip_prefix(b"p") {
        Some(both) => match both.iter().position(|byte| *byte == b'.') {
            Some(dot) => (&both[..dot], &both[dot + 1..]),
            None => (both, &b"-1"[..]),
        },
        None => (&b"-1"[..], text),
    };
    let id = |digits: &[u8]| match digits {
        b"-1" => Some(-1),
        digits => i32::try_from(number(digits)?).ok(),
    };
    Some(match (id(process)?, id(thread)?) {
        (-1 | 0, -1) => ThreadName::All,
        (-1 | 0, 0) => ThreadName::Any,
        (process, -1) => ThreadName::AllOf(Tid(process)),
        (process, 0) => ThreadName::AnyOf(Tid(process)),
        (_, thread) => ThreadName::One(Tid(thread)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_names() {
        assert_eq!(thread_name(b"p1f.-1"), Some(ThreadName::AllOf(Tid(31))));
        assert_eq!(thread_name(b"p1f"), Some(ThreadName::AllOf(Tid(31))));
        assert_eq!(thread_name(b"p-1.-1"), Some(ThreadName::All));
        assert_eq!(thread_name(b"-1"), Some(ThreadName::All));
        assert_eq!(thread_name(b"0"), Some(ThreadName::Any));
        assert_eq!(thread_name(b"1f"), Some(ThreadName::One(Tid(31))));
        assert_eq!(thread_name(b"p1.0"), Some(ThreadName::AnyOf(Tid(1))));
        assert_eq!(thread_name(b"zz"), None);
    }

    #[test]
    fn no_prefix_hides_a_longer_one() {
        for (index, (prefix, _)) in PACKETS.iter().enumerate() {
            for (later, _) in &PACKETS[index + 1..] {
                assert!(!later.starts_with(prefix), "{prefix} hides {later}");
            }
        }
    }
}
