//! The program that the process runs, and its modules.
//!
//! A dynamic program stops at the dynamic linker's notifications (`_dl_debug_state`), which come
//! before any constructor runs. So the recording includes threads that constructors create.
//!
//! Separate from the planter, because this file tracks modules and the planter tracks probes.

use std::ops::Range;
use std::path::PathBuf;

use unspool_capture::ProbeKind;

use super::auxv::Auxv;
use super::error::Error;
use super::executable::Executable;
use super::memory::{self, PT_INTERP, PT_LOAD, PT_PHDR, ProgramHeader};
use super::modules::{Adding, Modules};
use super::place::{Place, THREAD_FUNCTIONS};
use super::rendezvous::{self, Listed, Rendezvous};
use super::session::Session;
use super::sink::Sink;

/// The program that the process runs now. An exec replaces it.
pub(super) struct Program {
    pub(super) modules: Modules,
    executable: Executable,
    /// Module of the executable.
    pub(super) executable_module: u32,
    /// Modules to keep although the dynamic linker does not list them.
    kept: Vec<u32>,
    /// Address of `r_debug`, once known.
    rendezvous: Option<u64>,
    /// The program's file, if the user named it.
    named_file: Option<PathBuf>,
    /// The dynamic linker has listed libraries.
    libraries_known: bool,
}

/// The difference between two lists of the dynamic linker.
pub(super) struct ModuleChange {
    /// Modules that need probes: the new ones, or all modules after the first list.
    pub(super) plant: Vec<u32>,
    /// Address ranges that are no longer mapped.
    pub(super) unmapped: Vec<Range<u64>>,
    /// This is the first list with libraries.
    pub(super) is_first: bool,
}

impl Program {
    /// Creates a program without modules.
    pub(super) fn new(modules: Modules, named_file: Option<PathBuf>) -> Program {
        Program {
            modules,
            executable: Executable::default(),
            executable_module: 0,
            kept: Vec::new(),
            rendezvous: None,
            named_file,
            libraries_known: false,
        }
    }

    /// Finds out which executable the process runs.
    pub(super) fn identify(&self, session: &mut Session) -> Result<Executable, Error> {
        Executable::of(session, self.named_file.as_deref())
    }

    /// True if there is a dynamic linker.
    pub(super) fn is_dynamic(&self) -> bool {
        self.executable.auxv.interpreter != 0 || self.rendezvous.is_some()
    }

    /// True if the program is static, and names no function that creates threads.
    pub(super) fn hides_creations(&self) -> bool {
        let functions = THREAD_FUNCTIONS.iter();
        let mut names = functions
            .filter(|(kind, _)| *kind == ProbeKind::Create)
            .flat_map(|(_, names)| *names);
        let executable = self.modules.get(self.executable_module);
        let is_hidden = |name: &str| {
            executable.is_none_or(|mapped| mapped.functions(name).into_iter().next().is_none())
        };
        !self.is_dynamic() && names.all(|name| is_hidden(name))
    }

    /// Lists the modules of a program that is only inspected.
    pub(super) fn list_modules(
        &mut self,
        session: &mut Session,
        sink: &mut Sink,
        executable: Executable,
    ) {
        self.begin(session, sink, executable);
        if let Some(listed) = self.listed_libraries(session) {
            self.modules.update(session, sink, &listed, &self.kept);
        }
    }

    /// Adds the modules that are mapped before the first instruction: the executable, the dynamic
    /// linker and the vDSO.
    pub(super) fn begin(&mut self, session: &mut Session, sink: &mut Sink, executable: Executable) {
        let auxv = executable.auxv;
        self.executable = executable;
        self.executable_module = 0;
        self.kept.clear();
        self.rendezvous = None;
        let headers = memory::program_headers(
            &mut session.client,
            &session.abi,
            auxv.headers,
            auxv.header_count,
        )
        .unwrap_or_default();
        let bias = bias_of_program(&auxv, &headers);
        let adding = Adding {
            path: self.executable.path.clone(),
            bias,
            header: Some(auxv.headers & !0xfff),
            executable: true,
            started_as: self.executable.started_as.clone(),
            started_by_link: self.executable.started_by_link,
            file: self.named_file.clone(),
            file_number: None,
        };
        let executable = self.modules.add(session, sink, adding);
        self.executable_module = executable;
        self.kept.push(executable);

        if auxv.interpreter != 0 {
            let interpreter = headers
                .iter()
                .find(|header| header.kind == PT_INTERP)
                .and_then(|header| {
                    memory::string(&mut session.client, bias.wrapping_add(header.svma))
                })
                .unwrap_or_else(|| "ld.so".to_owned());
            let adding = Adding {
                path: interpreter,
                bias: auxv.interpreter,
                ..Adding::default()
            };
            let linker = self.modules.add(session, sink, adding);
            self.kept.push(linker);
        }
        if auxv.vdso != 0 {
            self.modules.add_vdso(session, sink, auxv.vdso);
            self.kept.extend(
                self.modules
                    .iter()
                    .filter(|m| m.path == "[vdso]")
                    .map(|m| m.id),
            );
        }
    }

    /// Reads the dynamic linker's list; `None` while the linker changes it.
    pub(super) fn update(
        &mut self,
        session: &mut Session,
        sink: &mut Sink,
    ) -> Option<ModuleChange> {
        let listed = self.listed_libraries(session)?;
        let first = !self.libraries_known;
        let (new, unmapped) = self.modules.update(session, sink, &listed, &self.kept);
        self.libraries_known |= !listed.is_empty();
        Some(ModuleChange {
            plant: match first {
                true => self.modules.iter().map(|mapped| mapped.id).collect(),
                false => new,
            },
            unmapped,
            is_first: first && self.libraries_known,
        })
    }

    /// Adds the memory that the stub has mapped for its own code, after probes were planted.
    pub(super) fn add_stub_code(
        &mut self,
        session: &mut Session,
        sink: &mut Sink,
    ) -> Result<(), Error> {
        for code in session.client.server_code()? {
            self.kept
                .extend(self.modules.add_stub_code(session, sink, code));
        }
        Ok(())
    }

    /// Handles an exec. The user's named file does not belong to the new program.
    pub(super) fn replaced(&mut self, session: &Session, sink: &mut Sink) {
        self.modules.clear(&session.abi, sink);
        self.libraries_known = false;
        self.named_file = None;
    }

    /// The libraries that the dynamic linker lists; `None` while it changes the list.
    fn listed_libraries(&mut self, session: &mut Session) -> Option<Vec<Listed>> {
        let (client, abi) = (&mut session.client, &session.abi);
        if self.rendezvous.is_none() {
            self.rendezvous = rendezvous::address(client, abi, &self.executable.auxv);
        }
        let state = self
            .rendezvous
            .and_then(|at| Rendezvous::read(client, abi, at));
        let state = state.filter(|state| state.consistent)?;
        let offered = client.features().has("qXfer:libraries-svr4:read");
        let listed: Vec<Listed> = match offered.then(|| client.libraries()) {
            Some(Ok(libraries)) if !libraries.is_empty() => libraries
                .into_iter()
                .filter(|library| !library.path.is_empty())
                .map(|library| Listed {
                    path: library.path,
                    bias: library.l_addr,
                })
                .collect(),
            _ => state.libraries(client, abi),
        };
        // The linker may list the program itself, under any name.
        let executable = self
            .modules
            .get(self.executable_module)
            .map(|executable| executable.bias);
        Some(
            listed
                .into_iter()
                .filter(|listed| Some(listed.bias) != executable)
                .collect(),
        )
    }

    /// The dynamic linker's notification function. Fails if the linker has no known function.
    pub(super) fn linker_place(&self, session: &mut Session) -> Result<Option<Place>, Error> {
        // The executable comes last: only a static executable has the function, and reading the
        // names of a large executable takes longer than the rest of the start.
        let named = self
            .kept
            .iter()
            .rev()
            .filter_map(|id| self.modules.get(*id))
            .find_map(|mapped| mapped.functions("_dl_debug_state").into_iter().next());
        // Without a symbol, r_debug names the function once the linker has initialized it.
        let (client, abi) = (&mut session.client, &session.abi);
        let place = named.or_else(|| {
            let at = rendezvous::address(client, abi, &self.executable.auxv)?;
            let notifier = Rendezvous::read(client, abi, at)?.notifier;
            Some(Place {
                address: abi.code_address(notifier),
                movable: 0,
                thumb: abi.code_address(notifier) != notifier,
                function: String::new(),
                module: None,
            })
        });
        if place.is_some() || self.executable.auxv.interpreter == 0 {
            return Ok(place);
        }
        let problem = self
            .modules
            .iter()
            .find_map(|mapped| mapped.problem.as_deref());
        Err(Error::NoCreation(format!(
            "the dynamic linker's file is needed, {}",
            problem.map_or(
                "and has no symbol _dl_debug_state; install its debug file".to_owned(),
                |problem| format!("but {problem}")
            )
        )))
    }
}

/// The program's load address minus its address in the file.
fn bias_of_program(auxv: &Auxv, headers: &[ProgramHeader]) -> u64 {
    if let Some(own) = headers.iter().find(|header| header.kind == PT_PHDR) {
        return auxv.headers.wrapping_sub(own.svma);
    }
    // A static PIE may lack PT_PHDR; its headers lie in the first page of the first segment.
    let first = headers
        .iter()
        .filter(|header| header.kind == PT_LOAD)
        .min_by_key(|header| header.offset);
    first.map_or(0, |first| {
        (auxv.headers & !0xfff).wrapping_sub(first.svma & !0xfff)
    })
}
