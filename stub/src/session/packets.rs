//! The layer in front of gdbstub: packets that gdbstub lacks or answers too narrowly. Each file
//! holds one family of packets.
//!
//! gdbstub answers all other packets.

mod breakpoint;
mod libraries;
mod memory;
mod monitor;
mod observe;
mod osdata;
mod process;
mod query;
mod register;
mod resume;
mod samples;
mod schedule;
mod snapshot;
mod stop_events;
mod subscription;
mod thread;
mod trace;

use nix::errno::Errno;

use super::Session;
use super::debuggee::Debuggee;
use super::framing::number;
use crate::sys::Tid;
use crate::tracee::Tracee;

/// The reply while a child that is not traced runs in the program's memory.
const CHILD_INSIDE: &[u8] = b"E.a thread waits in vfork(2) for a child that runs in the same \
memory, where a breakpoint would kill it; try again when the child has started its program or ended";

/// The way to answer a packet.
pub(super) enum Answer {
    /// Reply with this body.
    Reply(Vec<u8>),
    /// No reply now, or never.
    Nothing,
    /// gdbstub answers.
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

/// The answer to a packet that inserts traps.
fn planted(result: Result<(), Errno>) -> Answer {
    match result {
        Ok(()) => Answer::ok(),
        // See `Process::has_untraced_child_inside`.
        Err(Errno::EBUSY) => Answer::Reply(CHILD_INSIDE.into()),
        Err(errno) => Answer::error(errno),
    }
}

/// Handles packets with a certain prefix. Gets the text after the prefix.
type Handler = fn(&mut Session, &mut Debuggee, &[u8]) -> Answer;

/// The first match applies, so longer prefixes precede shorter ones.
const PACKETS: &[(&str, Handler)] = &[
    ("!", |session, _, _| {
        session.extended = true;
        Answer::ok()
    }),
    ("?", query::halt_reason),
    ("D", process::detach),
    ("H", thread::select),
    ("QCatchSyscalls:", stop_events::catch_syscalls),
    ("QNonStop:", resume::set_non_stop),
    ("QPassSignals:", stop_events::pass_signals),
    ("QProgramSignals:", stop_events::program_signals),
    ("QStartNoAckMode", query::stop_acks),
    ("QThreadEvents:", stop_events::thread_events),
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
    ("QUnspoolBudget:", subscription::budget),
    ("QUnspoolFatal:", subscription::fatal_signals),
    ("QUnspoolGo", observe::go),
    ("QUnspoolRelease:", observe::release),
    ("QUnspoolSamples:", samples::answer),
    ("QUnspoolSchedule:", schedule::answer),
    ("QUnspoolSignal:", observe::signal),
    ("QUnspoolThreads:", subscription::threads),
    ("QUnspoolTrace:", subscription::drain),
    ("R", process::restart),
    ("Z0,", breakpoint::insert_software),
    ("Z1,", breakpoint::insert_hardware),
    ("Z2,", breakpoint::insert_write),
    ("Z3,", breakpoint::insert_read),
    ("Z4,", breakpoint::insert_access),
    ("c", resume::plain_continue),
    ("C", resume::continue_with_signal),
    ("g", register::all),
    ("k", process::kill_all),
    ("m", memory::as_hex),
    ("p", register::one),
    ("qAttached", process::is_attached),
    ("qCRC:", memory::checksum),
    ("qGetTLSAddr:", thread::tls_address),
    ("qRcmd,", monitor::answer),
    ("qSearch:memory:", memory::search),
    ("qSupported", query::supported),
    ("qSymbol", thread::symbol),
    ("qXfer:libraries-svr4:read:", libraries::answer),
    ("qXfer:osdata:read:", osdata::answer),
    ("qXfer:siginfo:read::", register::read_siginfo),
    ("qXfer:siginfo:write::", register::write_siginfo),
    ("qTBuffer:", trace::buffer::answer),
    ("qTMinFTPILen", trace::status::shortest_fast),
    ("qTP:", trace::status::tracepoint),
    ("qTStatus", trace::status::trace),
    ("qTV:", trace::variable::value),
    ("qTfP", trace::upload::first),
    ("qTfV", trace::variable::first),
    ("qTsP", trace::upload::next),
    ("qTsV", trace::upload::next),
    ("qUnspoolCode", trace::status::code),
    ("qUnspoolMemoryUsers", snapshot::memory_users),
    ("qUnspoolPlaces", trace::status::places),
    ("qUnspoolStacks:", snapshot::stacks),
    ("qUnspoolTimes:", snapshot::times),
    ("qXfer:threads:read::", thread::list_as_xml),
    ("qXfer:traceframe-info:read::", trace::frame::info),
    ("qfThreadInfo", thread::list),
    ("s", resume::plain_step),
    ("S", resume::step_with_signal),
    ("T", thread::is_alive),
    ("vAttach;", process::attach),
    ("vCont?", resume::actions),
    ("vCont;", resume::continue_threads),
    ("vCtrlC", resume::interrupt),
    ("vKill;", process::kill_one),
    ("vRun;", process::run),
    ("vStopped", resume::next_stop),
    ("x", memory::as_binary),
    ("z0,", breakpoint::remove_software),
    ("z1,", breakpoint::remove_hardware),
    ("z2,", breakpoint::remove_write),
    ("z3,", breakpoint::remove_read),
    ("z4,", breakpoint::remove_access),
];

/// Answers a packet, or returns that gdbstub must answer it.
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
        // Hits that collectors have recorded must be visible to the packet.
        debuggee.live().map(Tracee::drain_jump_pads);
    }
    if packet == b"qC" {
        return thread::current(session, debuggee);
    }
    for (prefix, handler) in PACKETS {
        if let Some(rest) = packet.strip_prefix(prefix.as_bytes()) {
            return handler(session, debuggee, rest);
        }
    }
    Answer::PassOn
}

/// True if the command line has disabled the packet (`--disable-packet`).
fn is_disabled(session: &Session, packet: &[u8]) -> bool {
    let disabled = session.disabled_packets;
    disabled.resume && packet.starts_with(b"vCont")
        || disabled.current_thread && packet == b"qC"
        || disabled.thread_list && packet.starts_with(b"qfThreadInfo")
}

/// Parses `offset,length`.
fn range(text: &[u8]) -> Option<(u64, usize)> {
    let comma = text.iter().position(|byte| *byte == b',')?;
    let length = usize::try_from(number(&text[comma + 1..])?).ok()?;
    Some((number(&text[..comma])?, length))
}

/// The reply to a `qXfer` read: `m` if more follows, `l` for the last part.
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

/// A thread id in a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ThreadName {
    /// All threads of all processes.
    All,
    /// Any thread of any process.
    Any,
    /// All threads of this process.
    AllOf(Tid),
    /// Any thread of this process.
    AnyOf(Tid),
    /// This thread. Its id also determines its process.
    One(Tid),
}

/// Parses `TID`, `pPID.TID` or `pPID`. `-1` means all, `0` any.
fn thread_name(text: &[u8]) -> Option<ThreadName> {
    let (tracee, thread) = match text.strip_prefix(b"p") {
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
    Some(match (id(tracee)?, id(thread)?) {
        (-1 | 0, -1) => ThreadName::All,
        (-1 | 0, 0) => ThreadName::Any,
        (tracee, -1) => ThreadName::AllOf(Tid(tracee)),
        (tracee, 0) => ThreadName::AnyOf(Tid(tracee)),
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
