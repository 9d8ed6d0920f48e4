//! Maps thread handles (`pthread_t`) of joins and detaches to threads.
//!
//! A handle is the address of the C library's thread structure, which lies in the thread's own
//! stack mapping. It is reused together with that mapping. So a handle means the last thread that
//! had it, or one that has not started yet.

use std::collections::HashMap;

use unspool_capture::{Event, ReadRole, Target};

use crate::platform::Architecture;

#[derive(Default)]
pub(super) struct Handles {
    /// Threads that had a handle, in order of their start.
    known: HashMap<u64, Vec<usize>>,
    /// Threads whose handle is not known, and their stack pointer at the start.
    by_stack: Vec<(u64, usize)>,
    expected: HashMap<u64, Expected>,
    /// A second operation replaced an expected one, so one of them belongs to another thread.
    replaced: bool,
}

/// Operations on a handle before its thread was seen to start.
#[derive(Default)]
pub(super) struct Expected {
    /// The thread that called join, and the time.
    pub(super) joiner: Option<(usize, u64)>,
    pub(super) detached: bool,
}

impl Handles {
    /// Notes the start of a thread; returns the earlier operations on its handle.
    pub(super) fn started(
        &mut self,
        index: usize,
        handle: Option<u64>,
        sp: Option<u64>,
    ) -> Expected {
        match (handle, sp) {
            (Some(handle), _) => {
                self.known.entry(handle).or_default().push(index);
                self.expected.remove(&handle).unwrap_or_default()
            }
            (None, Some(sp)) => {
                self.by_stack.push((sp, index));
                let nearest = self
                    .expected
                    .keys()
                    .copied()
                    .filter(|h| in_top(*h, sp))
                    .min();
                nearest
                    .and_then(|handle| self.expected.remove(&handle))
                    .unwrap_or_default()
            }
            (None, None) => Expected::default(),
        }
    }

    /// The last thread with this handle that `fits`.
    pub(super) fn find(&self, handle: u64, fits: impl Fn(usize) -> bool) -> Option<usize> {
        let known = self.known.get(&handle).into_iter().flatten().rev().copied();
        if let Some(index) = known.take(1).find(|&index| fits(index)) {
            return Some(index);
        }
        // The nearest stack pointer below the handle; among reused stacks, the last one.
        self.by_stack
            .iter()
            .filter(|(sp, index)| in_top(handle, *sp) && fits(*index))
            .max_by_key(|(sp, index)| (*sp, *index))
            .map(|(_, index)| *index)
    }

    /// Notes a join for the thread that will have this handle.
    pub(super) fn expect_join(&mut self, handle: u64, joiner: (usize, u64)) {
        let expected = self.expected.entry(handle).or_default();
        self.replaced |= expected.joiner.replace(joiner).is_some();
    }

    /// Notes that the thread that will have this handle is detached.
    pub(super) fn expect_detach(&mut self, handle: u64) {
        let expected = self.expected.entry(handle).or_default();
        self.replaced |= std::mem::replace(&mut expected.detached, true);
    }

    /// Whether the thread of every joined or detached handle was found.
    pub(super) fn all_found(&self) -> bool {
        self.expected.is_empty() && !self.replaced
    }
}

/// The thread structure and static TLS lie between a thread's first frame and its stack's top.
fn in_top(handle: u64, sp: u64) -> bool {
    handle
        .checked_sub(sp)
        .is_some_and(|distance| distance < 64 << 10)
}

/// The registers of a start event that tell threads apart.
#[derive(Debug, Default)]
pub(super) struct StartRegisters {
    /// Equal to the handle; none where it is not.
    pub(super) thread_pointer: Option<u64>,
    pub(super) sp: Option<u64>,
}

impl StartRegisters {
    pub(super) fn read(event: &Event, target: &Target) -> StartRegisters {
        let Some(snapshot) = &event.snapshot else {
            return StartRegisters::default();
        };
        let value = |name: &str| {
            let layout = target.registers.iter().find(|layout| layout.name == name)?;
            snapshot.register(layout).filter(|value| *value != 0)
        };
        let Some(platform) = Architecture::by_gdb_name(&target.arch) else {
            return StartRegisters::default();
        };
        let is_handle = platform.thread_descriptor_size == 0;
        StartRegisters {
            thread_pointer: value(platform.thread_pointer).filter(|_| is_handle),
            sp: value(platform.sp),
        }
    }
}

/// The handles read along with an event: (place, handle), those not yet written left out.
pub(super) fn reads(event: &Event, pointer: usize) -> Vec<(u64, u64)> {
    event
        .reads
        .iter()
        .filter(|read| read.role() == ReadRole::Handle)
        .filter_map(|read| {
            let bytes = read.bytes.get(..pointer.min(8))?;
            let mut value = [0; 8];
            value[..bytes.len()].copy_from_slice(bytes);
            Some((read.address, u64::from_le_bytes(value)))
        })
        .filter(|(_, handle)| *handle != 0)
        .collect()
}
