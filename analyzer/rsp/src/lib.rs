//! Client side of the GDB Remote Serial Protocol (RSP).
//!
//! Contains everything between a byte stream and typed values: packets, commands and replies,
//! target descriptions, threads, memory, host files. It also reads and writes transcripts of whole
//! sessions, replays them as a server, and runs them as scripts. It knows nothing of ELF, unwinding
//! or captures, so it works with any RSP server: `unspool-stub`, gdbserver, qemu-user, a probe.
//!
//! In comments, "RSP" followed by a section's name is the appendix "GDB Remote Serial Protocol" of
//! the GDB manual; "Target Descriptions" is the appendix of that name.

mod breakpoint;
mod client;
mod compact;
mod connection;
mod description;
mod endpoint;
mod error;
mod features;
mod hex;
mod library;
mod markup;
mod notice;
pub mod packet;
mod registers;
mod reply;
mod samples;
mod schedule;
pub mod script;
pub mod signals;
mod stop;
mod stream;
mod thread;
mod trace;
pub mod transcript;

pub use breakpoint::{Breakpoint, BreakpointKind};
pub use client::batch::{Answered, Answers, Batch, Ticket};
pub use client::execution::Action;
pub use client::host_file::{HostFile, HostFileStatus};
pub use client::observe::{ThreadStack, ThreadTimes};
pub use client::samples::{OffCpuSampling, Sampling, TimerSampling};
pub use client::schedule::Schedule;
pub use client::{Client, ClientOptions};
pub use connection::{Connection, ConnectionOptions, Received};
pub use description::{DescriptionError, Register, TargetDescription};
pub use endpoint::{Endpoint, EndpointError};
pub use error::{Error, RemoteError};
pub use features::Features;
pub use library::Library;
pub use notice::{Control, Notice, ThreadNotice, TraceMark};
pub use registers::Registers;
pub use samples::{Sample, Samples};
pub use schedule::{BlockPlace, CodeMapping, CreationStack, ScheduleEvent, ScheduleRecord};
pub use stop::{StopReason, StopReply, WatchKind};
pub use stream::{Duplex, Stream};
pub use thread::{ThreadEntry, ThreadId};
pub use trace::{TraceAction, TraceFrame, Tracepoint};
