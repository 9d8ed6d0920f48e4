//! The thread functions that creation stacks show.
//!
//! A stack taken in clone(2) has the frame of `pthread_create`, which still keeps the thread
//! function it was called with. In a program without symbols, it is the first frame outside the
//! system call's function whose third argument is code.

use std::collections::HashMap;
use std::sync::Arc;

use unspool_image::{Image, SymbolKind};
use unspool_unwind::code::kept_argument::{Kept, kept_argument};
use unspool_unwind::{ModuleMap, RegisterFile, Stack, StackMemory, Table};

use crate::platform::abi::Abi;
use crate::platform::c_library::creates_threads;

/// The argument of `pthread_create` that is the thread function, counted from 0.
const ROUTINE: usize = 2;

/// Where creation functions keep the thread function during calls.
#[derive(Default)]
pub(super) struct CreationRoutines {
    /// By unwind rules of the file, which the caller keeps, and address inside the call (svma).
    /// `None` for calls of other functions.
    kept: HashMap<(*const Table, u64), Option<Vec<Kept>>>,
}

/// A thread function that a stack shows.
pub(super) struct ShownRoutine {
    /// Its address, without Thumb bit.
    pub(super) address: u64,
    /// Number of innermost frames up to the creation function, if its name does not show it; else
    /// 0.
    pub(super) inner: u32,
}

/// A walked creation stack.
pub(super) struct WalkedCreation<'w> {
    pub(super) stack: &'w Stack,
    /// Registers of the innermost frames, of which one may be the creation function's.
    pub(super) registers: &'w [RegisterFile],
    pub(super) map: &'w ModuleMap,
    /// By module id.
    pub(super) images: &'w [Option<Image>],
}

impl CreationRoutines {
    /// The thread function. `None` if the stack does not show it.
    pub(super) fn find(
        &mut self,
        walked: &WalkedCreation<'_>,
        memory: &mut dyn StackMemory,
        abi: &Abi,
    ) -> Option<ShownRoutine> {
        let frames = walked.stack.frames.iter().zip(walked.registers);
        for (at, (frame, registers)) in frames.enumerate() {
            // The caller's stack pointer is the frame's CFA.
            let (Some(module), Some(caller)) = (frame.module, walked.stack.frames.get(at + 1))
            else {
                continue;
            };
            let image = walked.images.get(module as usize).and_then(Option::as_ref);
            let found = walked.map.find(frame.address_for_lookup);
            let (Some(image), Some((module, svma))) = (image, found) else {
                continue;
            };
            let has_names = image.symbols().functions().next().is_some();
            // The function of the system call has the C library's own start function as an
            // argument.
            if !has_names && at == 0 {
                continue;
            }
            let key = (Arc::as_ptr(&module.table), svma);
            let kept = self.kept.entry(key).or_insert_with(|| match has_names {
                true => kept(image, svma),
                false => kept_without_name(image, &module.table, svma, frame.thumb),
            });
            let Some(kept) = kept else { continue };
            let value = |kept: &Kept| match *kept {
                Kept::Register(number) => registers.get(number),
                Kept::Slot(distance) => {
                    let mut word = [0; 8];
                    let word = &mut word[..abi.pointer];
                    let at = caller.sp.wrapping_add_signed(distance.into());
                    memory.read(at, word).ok()?;
                    abi.pointer_at(word, 0)
                }
            };
            let routine = kept.iter().find_map(value).map(|at| abi.code_address(at));
            let routine = routine.filter(|routine| walked.map.is_text(*routine));
            if has_names || routine.is_some() {
                return routine.map(|address| ShownRoutine {
                    address,
                    inner: if has_names { 0 } else { at as u32 + 1 },
                });
            }
        }
        None
    }
}

/// Where the function at `svma` keeps the thread function. `None` if it is not `pthread_create`.
fn kept(image: &Image, svma: u64) -> Option<Vec<Kept>> {
    let symbol = image.symbols().containing(svma);
    let symbol = symbol
        .filter(|symbol| symbol.kind == SymbolKind::Function && creates_threads(symbol.name))?;
    let range = symbol.svma..symbol.svma.saturating_add(symbol.size);
    Some(kept_argument(image, (range, symbol.thumb), ROUTINE, svma))
}

/// Where the function around `svma` keeps its third argument, if the file names no functions.
fn kept_without_name(image: &Image, table: &Table, svma: u64, thumb: bool) -> Option<Vec<Kept>> {
    /// The code after the call that may lead back to it, in bytes.
    const AFTER_CALL: u64 = 4096;
    let start = table.function_start(svma)?;
    let range = start..svma.saturating_add(AFTER_CALL);
    Some(kept_argument(image, (range, thumb), ROUTINE, svma))
}
