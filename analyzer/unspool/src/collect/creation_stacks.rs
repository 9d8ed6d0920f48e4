//! Records the stacks at which other processes create threads. A stack that was recorded before is
//! not recorded again.

use std::collections::HashMap;
use std::rc::Rc;

use unspool_capture as capture;
use unspool_rsp::CreationStack;
use unspool_unwind::{WalkOptions, walk_watching};

use super::code_of_processes::ProcessCodes;
use super::creation_routine::{CreationRoutines, WalkedCreation};
use super::hits::snapshot_of;
use super::modules::Modules;
use super::other_processes::{Code, OtherProcesses};
use super::samples::{SampledStack, StackKey, key};
use super::session::Session;
use crate::platform::c_library::MAX_CREATION_FRAMES;

/// A thread that another process created.
pub(super) struct Created {
    /// The code of its process at that moment.
    pub(super) code: Rc<Code>,
    pub(super) tid: u64,
    pub(super) time_ns: u64,
    pub(super) stack: CreationStack,
}

/// The stacks that were recorded.
#[derive(Default)]
pub(super) struct CreationStacks {
    /// By the number of the code and the stack.
    numbers: HashMap<(usize, StackKey), u32>,
    routines: CreationRoutines,
}

impl CreationStacks {
    /// The record of a thread that a process with this code created. `None` if the code has no
    /// number.
    pub(super) fn record(
        &mut self,
        (session, modules): (&Session, &Modules),
        (codes, others): (&mut ProcessCodes, &OtherProcesses),
        created: Created,
    ) -> Option<capture::CreationStack> {
        let Created {
            code,
            tid,
            time_ns,
            stack: created,
        } = created;
        let number = codes.number(&code, (session, modules), others)?;
        let code = codes.get(number)?;
        let registers = session.abi.traced(&created.registers);
        let mut memory = SampledStack::new(created.sp, created.stack);
        let registers_of_walk = session.abi.register_file(&registers);
        let options = WalkOptions::default();
        let mut inner = Vec::new();
        let walked = walk_watching(
            &code.map,
            &registers_of_walk,
            &mut memory,
            &options,
            &mut |registers| {
                if inner.len() < MAX_CREATION_FRAMES {
                    inner.push(registers.clone());
                }
            },
        );
        let creation = WalkedCreation {
            stack: &walked,
            registers: &inner,
            map: &code.map,
            images: &code.images,
        };
        let routine = self.routines.find(&creation, &mut memory, &session.abi);
        let mut snapshot = None;
        let next = self.numbers.len() as u32;
        let stack = *self
            .numbers
            .entry((number, key(&walked)))
            .or_insert_with(|| {
                snapshot = Some(capture::Snapshot {
                    chunks: memory.into_chunks(),
                    ..snapshot_of(&registers)
                });
                next
            });
        Some(capture::CreationStack {
            time_ns,
            tid,
            stack,
            snapshot,
            routine: routine.as_ref().map(|routine| routine.address),
            inner: routine.map_or(0, |routine| routine.inner),
            code: number as u32,
            modules: codes.take_modules(number),
        })
    }
}
