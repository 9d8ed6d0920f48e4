//! Walks stacks during a recording, to find out which bytes a snapshot needs.
//!
//! Separate from `stack` and `collected_stack`, which supply the bytes.

use std::collections::BTreeMap;

use unspool_capture::{Chunk, Severity};
use unspool_unwind::{RegisterFile, Stack, StackEnd, StackMemory, WalkOptions};

use super::error::Error;
use super::generated_code::UnknownCode;
use super::modules::Modules;
use super::sink::Sink;

/// Walks stacks, and keeps the modules whose files could not be used.
#[derive(Debug, Default)]
pub(super) struct StackWalker {
    /// Memory that came with the latest stop reply.
    sent: Vec<Chunk>,
    /// Paths of modules on walked stacks whose files could not be used, and the reasons.
    unusable: BTreeMap<String, String>,
    /// Addresses on walked stacks that no file contains.
    pub(super) unknown_code: UnknownCode,
}

impl StackWalker {
    /// Replaces the memory that came with a stop reply.
    pub(super) fn set_sent(&mut self, memory: Vec<(u64, Vec<u8>)>) {
        let chunks = memory.into_iter();
        self.sent = chunks
            .map(|(address, bytes)| Chunk { address, bytes })
            .collect();
    }

    /// The stack at `sp`, if the stop reply contained it.
    pub(super) fn take_sent(&mut self, sp: Option<u64>) -> Option<Chunk> {
        let mut sent = std::mem::take(&mut self.sent).into_iter();
        sent.find(|chunk| Some(chunk.address) == sp)
    }

    /// Walks a stack, so that `memory` records which bytes are needed. Keeps the modules on the way
    /// whose files could not be used.
    pub(super) fn walk(
        &mut self,
        modules: &Modules,
        registers: &RegisterFile,
        memory: &mut impl StackMemory,
    ) -> Stack {
        let stack = unspool_unwind::walk(modules.map(), registers, memory, &WalkOptions::default());
        self.unknown_code.note(modules, &stack);
        let outside = match stack.end {
            StackEnd::OutsideText { pc } | StackEnd::NoRule { pc } => Some(pc),
            _ => None,
        };
        for pc in stack.frames.iter().map(|frame| frame.pc).chain(outside) {
            if let Some(mapped) = modules.at(pc)
                && let Some(problem) = &mapped.problem
            {
                self.unusable.insert(mapped.path.clone(), problem.clone());
            }
        }
        stack
    }

    /// Notes every module whose file could not be used. Returns the first as an error.
    pub(super) fn note_unusable(&mut self, sink: &mut Sink) -> Option<Error> {
        for path in self.unusable.keys() {
            sink.note(
                Severity::Warning,
                format!(
                    "the file of {path} could not be used while recording, so stacks that go \
                     through it keep only their inner frames"
                ),
            );
        }
        let others = self.unusable.len().saturating_sub(1);
        let (path, problem) = self.unusable.pop_first()?;
        Some(Error::Files {
            path,
            problem,
            others,
        })
    }
}
