//! Records the stacks at which other processes create threads. A stack that was recorded before is
//! not recorded again.

use std::collections::HashMap;
use std::rc::Rc;

use unspool_capture as capture;
use unspool_image::Image;
use unspool_rsp::CreationStack;
use unspool_unwind::{ModuleMap, WalkOptions, walk_watching};

use super::creation_routine::{CreationRoutines, WalkedCreation};
use super::hits::snapshot_of;
use super::modules::Modules;
use super::other_processes::{Code, OtherProcesses};
use super::samples::{SampledStack, StackKey, key};
use super::session::Session;
use crate::platform::c_library::MAX_CREATION_FRAMES;

/// Maximum number of different code mappings. Threads of further ones have no creation stack.
const MAX_CODES: usize = 1 << 12;

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
    /// By address, which stays in use as long as `codes` holds it, positions in `codes`.
    numbers: HashMap<*const Code, usize>,
    codes: Vec<(Rc<Code>, Recorded)>,
    /// Number of recorded stacks.
    count: u32,
    routines: CreationRoutines,
}

/// Code of processes, with the unwind rules of its files.
struct Recorded {
    map: ModuleMap,
    /// By module id.
    images: Vec<Option<Image>>,
    /// The numbers of the stacks with this code.
    stacks: HashMap<StackKey, u32>,
}

impl CreationStacks {
    /// The record of a thread that a process with this code created.
    pub(super) fn record(
        &mut self,
        (session, modules): (&Session, &Modules),
        others: &OtherProcesses,
        created: Created,
    ) -> Option<capture::CreationStack> {
        let Created {
            code,
            tid,
            time_ns,
            stack: created,
        } = created;
        let (number, new_modules) = match self.numbers.get(&Rc::as_ptr(&code)) {
            Some(number) => (*number, Vec::new()),
            None if self.codes.len() >= MAX_CODES => return None,
            None => self.add(&code, (session, modules), others),
        };
        let (_, recorded) = self.codes.get_mut(number)?;
        let registers = session.abi.traced(&created.registers);
        let mut memory = SampledStack::new(created.sp, created.stack);
        let registers_of_walk = session.abi.register_file(&registers);
        let options = WalkOptions::default();
        let mut inner = Vec::new();
        let walked = walk_watching(
            &recorded.map,
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
            map: &recorded.map,
            images: &recorded.images,
        };
        let routine = self.routines.find(&creation, &mut memory, &session.abi);
        let mut snapshot = None;
        let stack = *recorded.stacks.entry(key(&walked)).or_insert_with(|| {
            snapshot = Some(capture::Snapshot {
                chunks: memory.into_chunks(),
                ..snapshot_of(&registers)
            });
            self.count += 1;
            self.count - 1
        });
        Some(capture::CreationStack {
            time_ns,
            tid,
            stack,
            snapshot,
            routine,
            code: number as u32,
            modules: new_modules,
        })
    }

    fn add(
        &mut self,
        code: &Rc<Code>,
        (session, modules): (&Session, &Modules),
        others: &OtherProcesses,
    ) -> (usize, Vec<capture::ModuleLoaded>) {
        let found = others.modules(code, modules, session.local);
        let mut map = ModuleMap::new(session.abi.arch);
        let (mut images, mut loaded) = (Vec::new(), Vec::new());
        for (id, (module, opened)) in found.into_iter().enumerate() {
            let (image, table) = opened.unzip();
            if let Some(table) = table {
                map.add(unspool_unwind::Module {
                    id: id as u32,
                    name: module.path.clone(),
                    bias: module.bias,
                    table,
                });
            }
            images.push(image);
            loaded.push(module);
        }
        let number = self.codes.len();
        self.numbers.insert(Rc::as_ptr(code), number);
        let recorded = Recorded {
            map,
            images,
            stacks: HashMap::new(),
        };
        self.codes.push((Rc::clone(code), recorded));
        (number, loaded)
    }
}
