//! The code of other processes, numbered for the recording.
//!
//! Records that belong to another process name its code by number. The first of them has the
//! modules.

use std::collections::HashMap;
use std::rc::Rc;

use unspool_capture::ModuleLoaded;
use unspool_image::Image;
use unspool_unwind::ModuleMap;

use super::modules::Modules;
use super::other_processes::{Code, OtherProcesses};
use super::session::Session;

/// Maximum number of different code mappings.
const MAX_CODES: usize = 1 << 12;

/// The code that records have named so far.
#[derive(Default)]
pub(super) struct ProcessCodes {
    /// Positions in `all`, by address. An address stays in use as long as `all` holds its item.
    numbers: HashMap<*const Code, usize>,
    all: Vec<NumberedCode>,
}

/// Code of processes, with the unwind rules of its files.
pub(super) struct NumberedCode {
    /// Keeps the address from being used again.
    _code: Rc<Code>,
    pub(super) map: ModuleMap,
    /// By module id.
    pub(super) images: Vec<Option<Image>>,
    /// The modules, until a record has them.
    modules: Vec<ModuleLoaded>,
}

impl ProcessCodes {
    /// The number of this code. `None` if there are too many.
    pub(super) fn number(
        &mut self,
        code: &Rc<Code>,
        (session, modules): (&Session, &Modules),
        others: &OtherProcesses,
    ) -> Option<usize> {
        if let Some(number) = self.numbers.get(&Rc::as_ptr(code)) {
            return Some(*number);
        }
        if self.all.len() >= MAX_CODES {
            return None;
        }
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
        let number = self.all.len();
        self.numbers.insert(Rc::as_ptr(code), number);
        self.all.push(NumberedCode {
            _code: Rc::clone(code),
            map,
            images,
            modules: loaded,
        });
        Some(number)
    }

    /// The code with a number.
    pub(super) fn get(&self, number: usize) -> Option<&NumberedCode> {
        self.all.get(number)
    }

    /// The modules of a code for the first record that names it; none for later ones.
    pub(super) fn take_modules(&mut self, number: usize) -> Vec<ModuleLoaded> {
        let code = self.all.get_mut(number);
        code.map_or_else(Vec::new, |code| std::mem::take(&mut code.modules))
    }
}
